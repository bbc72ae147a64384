"""Measure what a cosine means for a finished encoder on its text, and rank a given cosine by it."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, overload

import numpy as np

from selfguide.engine.similarity_scale import SAMPLED, SCALE_FILE, SimilarityScale, measure_scale, read_scale
from selfguide.errors import InterruptedRun, SelfguideError, UsageError, one_line
from selfguide.progress import Reporter, share_of
from selfguide.system import debugging

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer


class Reservoir:
    """Sentences of a stream that passes through, drawn uniformly and without replacement."""

    def __init__(self, sentences: Iterable[str], size: int = SAMPLED, seed: int = 1) -> None:
        self._sentences, self._size, self.seed = sentences, size, seed
        self.drawn: list[str] = []
        self.seen = 0

    def share_read(self) -> float | None:
        """Return how much of the stream has been read, where it can tell."""
        share = share_of(self._sentences)
        return None if share is None else share()

    def __iter__(self) -> Iterator[str]:
        """Pass the sentences on; ``drawn`` and ``seen`` are those up to the last one."""
        generator = random.Random(self.seed)
        self.drawn, self.seen = [], 0
        for sentence in self._sentences:
            self.seen += 1
            if len(self.drawn) < self._size:
                self.drawn.append(sentence)
            elif (place := generator.randrange(self.seen)) < self._size:
                self.drawn[place] = sentence
            yield sentence


def scale_or_warn(
    encoder: SentenceTransformer, sentences: Sequence[str], available: int, seed: int, reporter: Reporter
) -> SimilarityScale | None:
    """Measure a finished encoder's scale, at the end of a run that is worth more than it.

    Args:
        encoder: The finished encoder.
        sentences: Sentences drawn from its text.
        available: How many sentences the text has.
        seed: The seed of the draw.
        reporter: Gets a warning where the scale cannot be measured.

    Returns:
        The scale; None where it cannot be measured.
    """
    from selfguide.engine.encode import sentence_vectors

    try:
        different = list(dict.fromkeys(sentences))
        return measure_scale(sentence_vectors(encoder, different), different, available, seed)
    except Exception as error:
        if isinstance(error, InterruptedRun) or debugging():
            raise
        reporter.warn(f"the folder will not say what a cosine means: {one_line(error)}")
        return None


@overload
def similarity_percentile(encoder: str | Path, cosine: float) -> float: ...


@overload
def similarity_percentile(
    encoder: str | Path, cosine: Sequence[float] | NDArray[np.floating]
) -> NDArray[np.float64]: ...


def similarity_percentile(
    encoder: str | Path, cosine: float | Sequence[float] | NDArray[np.floating]
) -> float | NDArray[np.float64]:
    """Say where a cosine lies among those of random pairs of the text that an encoder was made on.

    Args:
        encoder: A folder that ``selfguide train``, ``adapt`` or ``calibrate`` made.
        cosine: A cosine of two of the encoder's embeddings, or several.

    Returns:
        The percentage of random pairs of the text whose cosine is not greater: of 99.7, three of 1,000 random pairs are closer.
        It is 100 beyond the greatest cosine that was measured, and 0 below the smallest.

    Raises:
        UsageError: The folder does not exist, or it is not a folder but a loaded encoder or a name.
        SelfguideError: The folder keeps no cosines, or those of other weights.

    Example::

        one, other = selfguide.encode("notes-encoder", ["a late train", "the train has a delay"], normalise=True)
        selfguide.similarity_percentile("notes-encoder", float(one @ other))
    """
    if not isinstance(encoder, str | Path) or not Path(encoder).is_dir():
        shown = encoder if isinstance(encoder, str | Path) else type(encoder).__name__
        raise UsageError(f"similarity_percentile takes the folder of an encoder that selfguide made, not {shown}.")
    scale = read_scale(Path(encoder))
    if scale is None:
        raise SelfguideError(
            f"{encoder} keeps no cosines of its text ({SCALE_FILE}): tune or adapt the encoder with this version of selfguide."
        )
    found = scale.percentile(cosine)
    return float(found) if np.ndim(cosine) == 0 else found
