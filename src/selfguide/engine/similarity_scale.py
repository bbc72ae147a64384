"""What a cosine means for one encoder and one text: the cosines of random pairs and of nearest neighbours.

A cosine of 0.6 is high for one encoder and low for another, since each spreads its embeddings differently. A few numbers in the
encoder's folder say where a cosine lies among those of the text: ``similarity.json`` holds quantiles, never sentences.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from selfguide.engine.vector_form import normalised
from selfguide.errors import SelfguideError
from selfguide.files import folder_digests, json_digest, read_json, write_text

SCALE_FILE = "similarity.json"
SAMPLED = 500
"""How many sentences are drawn: 124,750 pairs."""
_TENTHS = tuple(tenth / 10 for tenth in range(1, 10))
LEVELS: tuple[float, ...] = (0.0, *_TENTHS, *map(float, range(1, 100)), *(99 + tenth for tenth in _TENTHS), 100.0)
"""The percentages of the quantiles: every percent, and every tenth of the first and the last one."""
_CONFIGURATIONS = ("modules.json", "config_sentence_transformers.json", "config.json", "sentence_bert_config.json")


@dataclass(frozen=True)
class SimilarityScale:
    """Quantiles of cosines among sentences that were drawn from a text."""

    sentences: int
    """How many different sentences were drawn, uniformly and without replacement."""
    available: int
    """How many sentences the text has."""
    seed: int
    drawn: str
    """A hash of the drawn sentences."""
    mean: float
    """Of the cosines of all pairs of different drawn sentences."""
    deviation: float
    random_pairs: tuple[float, ...]
    """The cosines of these pairs at :data:`LEVELS`; the last one is the greatest."""
    nearest: tuple[float, ...]
    """The cosines of each drawn sentence and the nearest of the other drawn ones, at :data:`LEVELS`."""
    weights: str = ""
    """A hash of the encoder that was measured; see :func:`folder_weights`."""

    @property
    def pairs(self) -> int:
        """How many pairs the drawn sentences make."""
        return self.sentences * (self.sentences - 1) // 2

    @property
    def origin(self) -> str:
        """What was measured, in words."""
        if self.sentences == self.available:
            return f"{self.pairs:,} pairs of all {self.sentences:,} sentences of the text"
        return f"{self.pairs:,} pairs of {self.sentences:,} sentences drawn from the text's {self.available:,}"

    def percentile(self, cosines: ArrayLike) -> NDArray[np.float64]:
        """Return the percentage of random pairs whose cosine is not greater, interpolated between the quantiles."""
        wanted, known = np.asarray(cosines, dtype=np.float64), np.array(self.random_pairs)
        levels = np.array(LEVELS)
        above = np.searchsorted(known, wanted, side="right").clip(1, len(known) - 1)
        low, high = known[above - 1], known[above]
        share = np.divide(wanted - low, high - low, out=np.ones_like(wanted), where=high > low)
        inside = levels[above - 1] + share.clip(0, 1) * (levels[above] - levels[above - 1])
        return np.where(wanted < known[0], 0.0, np.where(wanted >= known[-1], 100.0, inside))

    def closer_of_thousand(self, cosine: float) -> float:
        """Return how many of 1,000 random pairs have a greater cosine."""
        return float(10 * (100 - self.percentile(cosine)))

    def at(self, level: float, nearest: bool = False) -> float:
        """Return the cosine at one of :data:`LEVELS`."""
        return (self.nearest if nearest else self.random_pairs)[LEVELS.index(level)]

    def write(self, folder: Path) -> None:
        """Write ``similarity.json`` into the folder of the encoder that was measured, with the hash of its weights."""
        content = {"version": 1, "levels": LEVELS, **asdict(self), "weights": folder_weights(folder)}
        write_text(folder / SCALE_FILE, json.dumps(content) + "\n")


def measure_scale(vectors: NDArray[Any], sentences: Sequence[str], available: int, seed: int) -> SimilarityScale:
    """Measure the cosines of the pairs of some sentences.

    Args:
        vectors: Their embeddings, (count, dim).
        sentences: Different sentences that were drawn from a text.
        available: How many sentences the text has.
        seed: The seed of the draw.

    Returns:
        The quantiles.

    Raises:
        SelfguideError: There are fewer than two sentences, or an embedding is not finite.
    """
    if len(sentences) < 2:
        raise SelfguideError("there are fewer than two different sentences to compare.")
    if not np.isfinite(vectors).all():
        raise SelfguideError("some embeddings are not finite.")
    units = normalised(vectors.astype(np.float64))
    cosines = (units @ units.T).clip(-1.0, 1.0)
    pairs = cosines[np.triu_indices(len(units), 1)]
    np.fill_diagonal(cosines, -np.inf)
    return SimilarityScale(
        sentences=len(sentences),
        available=available,
        seed=seed,
        drawn=hashlib.sha256("\n".join(sentences).encode()).hexdigest()[:16],
        mean=round(float(pairs.mean()), 5),
        deviation=round(float(pairs.std()), 5),
        random_pairs=_quantiles(pairs),
        nearest=_quantiles(cosines.max(axis=1)),
    )


def _quantiles(cosines: NDArray[np.float64]) -> tuple[float, ...]:
    return tuple(float(value) for value in np.percentile(cosines, LEVELS).round(7))


def read_scale(folder: Path) -> SimilarityScale | None:
    """Read the scale that a folder keeps.

    Args:
        folder: The folder of an encoder.

    Returns:
        The scale; None where the folder has none.

    Raises:
        SelfguideError: The file is damaged, or it is of other weights than the folder's.
    """
    path = folder / SCALE_FILE
    if not path.is_file():
        return None
    try:
        content = read_json(path)
        if content["version"] != 1 or tuple(content["levels"]) != LEVELS:
            raise ValueError("it is of another version")
        values = {item.name: content[item.name] for item in fields(SimilarityScale)}
        curves = {name: tuple(map(float, values[name])) for name in ("random_pairs", "nearest")}
        if any(len(curve) != len(LEVELS) or list(curve) != sorted(curve) for curve in curves.values()):
            raise ValueError("its quantiles are not in order")
        scale = SimilarityScale(**{**values, **curves})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SelfguideError(f"{path} is damaged ({error}); remove it to go on without it.") from None
    if scale.weights != folder_weights(folder):
        raise SelfguideError(
            f"{path} was measured on other weights than those in the folder: remove it, or tune the encoder with selfguide again."
        )
    return scale


def folder_weights(folder: Path) -> str:
    """Return a hash of the weights and modules in an encoder's folder."""
    digests = folder_digests(
        folder, leave_out=lambda path: path.suffix != ".safetensors" and path.name not in _CONFIGURATIONS
    )
    return json_digest(digests)[:16]
