"""Statistics of a text's embeddings, by which a calibration is fitted, extended and saved.

An embedding x is made of parts x_1 … x_m (often one). The statistics are the count, the mean, the scatter
Σ (x − μ)(x − μ)ᵀ and, for each part with d = x_p − μ_p, the sums Σ ‖d‖² d and Σ ‖d‖⁴. The last gives the shrinkage of Ledoit
and Wolf (2004) without the embeddings; the one before it is needed to move the centre. All are in double precision and merge
exactly, so that text can be read in chunks, and more text can be added later.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from selfguide.calibration.moments import SENTENCES_PER_DIMENSION, Moments, check_finite, encoded
from selfguide.engine.digest import tensors_digest
from selfguide.errors import SelfguideError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer

    from selfguide.progress import Reporter

STATISTICS_FILE = "calibration.safetensors"
_TOKEN_PREFIX = "tokens."


@dataclass
class Statistics:
    """Statistics of embeddings that are made of parts of the given widths."""

    widths: tuple[int, ...]
    moments: Moments
    cubes: NDArray[np.float64]
    """Σ ‖d‖² d of every part, side by side."""
    fourths: NDArray[np.float64]
    """Σ ‖d‖⁴ of every part."""

    @classmethod
    def empty(cls, widths: Sequence[int]) -> Statistics:
        """Return the statistics of no embeddings."""
        return cls(tuple(widths), Moments.empty(sum(widths)), np.zeros(sum(widths)), np.zeros(len(widths)))

    @classmethod
    def of(cls, vectors: NDArray[np.floating], widths: Sequence[int]) -> Statistics:
        """Return the statistics of an array (count, sum of the widths)."""
        found = cls.empty(widths)
        found.moments = Moments.of(vectors)
        deviations = np.asarray(vectors, dtype=np.float64) - found.moments.mean
        for part, place in enumerate(found.slices):
            squares = (deviations[:, place] ** 2).sum(axis=1)
            found.cubes[place] = squares @ deviations[:, place]
            found.fourths[part] = squares @ squares
        return found

    @property
    def slices(self) -> list[slice]:
        """Where in the embedding each part is."""
        ends = np.cumsum(self.widths).tolist()
        return [slice(end - width, end) for end, width in zip(ends, self.widths, strict=True)]

    @property
    def count(self) -> int:
        """Number of embeddings."""
        return self.moments.count

    def part(self, number: int) -> Moments:
        """Return count, mean and scatter of one part."""
        place = self.slices[number]
        return Moments(self.count, self.moments.mean[place], self.moments.scatter[place, place])

    def merge(self, other: Statistics) -> Statistics:
        """Return the statistics of both texts together."""
        moments = self.moments.merge(other.moments)
        ours, theirs = self._about(moments.mean), other._about(moments.mean)
        return Statistics(self.widths, moments, ours[0] + theirs[0], ours[1] + theirs[1])

    def _about(self, centre: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return Σ ‖d‖² d and Σ ‖d‖⁴ of deviations from another centre, by expanding those from the mean (Σ d = 0)."""
        cubes, fourths = self.cubes.copy(), self.fourths.copy()
        for part, place in enumerate(self.slices):
            step = centre[place] - self.moments.mean[place]
            scatter = self.moments.scatter[place, place]
            length, trace, along = step @ step, np.trace(scatter), scatter @ step
            fourths[part] += (
                4 * step @ along - 4 * step @ cubes[place] + 2 * length * trace + self.count * length * length
            )
            cubes[place] -= step * trace + 2 * along + self.count * length * step
        return cubes, fourths

    def shrinkage(self, number: int, wanted: str = "auto") -> float:
        """Return the share of a sphere to mix into a part's covariance.

        Args:
            number: The part.
            wanted: A number from 0 to 1, or ``auto``: 0 where there are enough sentences, else the Ledoit-Wolf estimate.
        """
        if wanted != "auto":
            return float(wanted)
        if self.count >= SENTENCES_PER_DIMENSION * self.widths[number]:
            return 0.0
        covariance = self.part(number).covariance
        squares = float((covariance**2).sum())
        noise = (self.fourths[number] / max(1, self.count) - squares) / max(1, self.count)
        distance = squares - np.trace(covariance) ** 2 / self.widths[number]
        estimate = min(1.0, noise / distance) if distance > 0 else 1.0
        # For two sentences the estimate is 0, and without a minimum a single direction of the embedding would be left.
        return float(max(estimate, 1 / max(1, self.count)))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the statistics as named arrays, for saving."""
        named = {"count": np.array([self.count]), "widths": np.array(self.widths), "mean": self.moments.mean}
        return named | {"scatter": self.moments.scatter, "cubes": self.cubes, "fourths": self.fourths}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> Statistics:
        """Return the statistics that :meth:`arrays` gave."""
        moments = Moments(int(arrays["count"][0]), arrays["mean"], arrays["scatter"])
        return cls(tuple(arrays["widths"].tolist()), moments, arrays["cubes"], arrays["fourths"])


@dataclass
class TextStatistics:
    """All that a calibration is fitted on: statistics of a text's sentence embeddings and, where needed, of its tokens."""

    sentences: Statistics
    tokens: Statistics | None = None

    def merge(self, other: TextStatistics) -> TextStatistics:
        """Return the statistics of both texts together."""
        both = None if self.tokens is None or other.tokens is None else self.tokens.merge(other.tokens)
        return TextStatistics(self.sentences.merge(other.sentences), both)

    def save(self, path: Path) -> None:
        """Write the statistics to a safetensors file."""
        tokens = {} if self.tokens is None else self.tokens.arrays()
        arrays = self.sentences.arrays() | {f"{_TOKEN_PREFIX}{name}": value for name, value in tokens.items()}
        save_file(arrays, path, metadata={"digest": _digest(arrays)})

    @classmethod
    def load(cls, path: Path) -> TextStatistics:
        """Read what :meth:`save` wrote.

        Args:
            path: The file.

        Returns:
            The statistics.

        Raises:
            SelfguideError: The file is damaged.
        """
        try:
            with safe_open(path, framework="numpy") as file:
                expected = (file.metadata() or {}).get("digest", "")
            arrays = load_file(path)
            if expected not in ("", _digest(arrays)):
                raise ValueError("the file has changed since it was written")
            tokens = {
                name.removeprefix(_TOKEN_PREFIX): value
                for name, value in arrays.items()
                if name.startswith(_TOKEN_PREFIX)
            }
            return cls(Statistics.from_arrays(arrays), Statistics.from_arrays(tokens) if tokens else None)
        except Exception as error:
            raise SelfguideError(f"The statistics in {path} cannot be read ({error}); use --fresh.") from None


def _digest(arrays: dict[str, NDArray[Any]]) -> str:
    return tensors_digest({name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()})


def measure(
    encoder: SentenceTransformer,
    batches: Iterable[list[str]],
    widths: Sequence[int],
    batch_size: int,
    reporter: Reporter,
    total: int | None = None,
) -> Statistics:
    """Measure an encoder's embeddings on a text.

    Args:
        encoder: The encoder.
        batches: The text, in chunks of sentences.
        widths: Widths of the embedding's parts.
        batch_size: Sentences in a forward pass.
        reporter: Shows progress.
        total: Number of sentences, if it is known.

    Returns:
        The statistics.

    Raises:
        SelfguideError: The embeddings are not finite.
    """
    statistics = Statistics.empty(widths)
    for vectors in encoded(encoder, batches, batch_size, reporter, total):
        statistics = statistics.merge(Statistics.of(vectors, widths))
    check_finite(statistics.moments)
    return statistics


def warn_if_few(
    statistics: TextStatistics,
    shrinkage: str,
    reporter: Reporter,
    by_sentences: bool = True,
    with_prior: bool = False,
) -> None:
    """Warn where a text is too small for a good estimate of its covariance.

    Args:
        statistics: Statistics of the text.
        shrinkage: As for :meth:`Statistics.shrinkage`.
        reporter: Gets the warning.
        by_sentences: Whether the covariance of the sentence embeddings is used at all.
        with_prior: Whether the covariance of the tokens is merged with that of general English.
    """
    sentences, tokens = statistics.sentences, statistics.tokens
    later = "`selfguide calibrate` adds text later, without training."
    if by_sentences and sentences.count < (enough := SENTENCES_PER_DIMENSION * max(sentences.widths)):
        remedy = _remedy([sentences.shrinkage(part, shrinkage) for part in range(len(sentences.widths))])
        reporter.warn(
            f"{sentences.count:,} sentences are few for an embedding dimension of {max(sentences.widths)}; their covariance "
            f"{remedy}. From {enough:,} sentences on it is a good estimate: {later}"
        )
    elif tokens is not None and tokens.count < (enough := SENTENCES_PER_DIMENSION * tokens.widths[0]):
        if with_prior:
            remedy = "is smoothed with a general-English prior"
        else:
            remedy = _remedy([tokens.shrinkage(0, shrinkage)]) if tokens.count else "is unknown"
        reporter.warn(
            f"{sentences.count:,} sentences are few for an embedding dimension of {tokens.widths[0]}: the covariance of their "
            f"{tokens.count:,} tokens {remedy}. From {enough:,} tokens on it is a good estimate: {later}"
        )


def _remedy(shares: list[float]) -> str:
    amounts = " and ".join(f"{share:.2f}" for share in shares)
    return f"is shrunk towards a sphere (shrinkage {amounts})" if any(shares) else "is used as it is"
