"""Mean and covariance of embeddings in one pass.

They are accumulated in double precision and can be merged (Chan, Golub and LeVeque 1983), so that a text of any size is read
in chunks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from selfguide.errors import SelfguideError, UsageError

if TYPE_CHECKING:
    from datasets import Dataset
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer

    from selfguide.progress import Reporter

# With fewer sentences per embedding dimension a covariance is mostly noise, and is shrunk.
SENTENCES_PER_DIMENSION = 10


@dataclass
class Moments:
    """Count, mean and scatter Σ (x − μ)(x − μ)ᵀ of a set of vectors."""

    count: int
    mean: NDArray[np.float64]
    scatter: NDArray[np.float64]

    @classmethod
    def empty(cls, width: int) -> Moments:
        """Return the moments of no vectors."""
        return cls(0, np.zeros(width), np.zeros((width, width)))

    @classmethod
    def of(cls, vectors: NDArray[np.floating]) -> Moments:
        """Return the moments of an array (count, width)."""
        exact = np.asarray(vectors, dtype=np.float64)
        mean = exact.mean(axis=0)
        deviations = exact - mean
        return cls(len(exact), mean, deviations.T @ deviations)

    def merge(self, other: Moments) -> Moments:
        """Return the moments of both sets together."""
        count = self.count + other.count
        if count == 0:
            return self
        step = other.mean - self.mean
        mean = self.mean + step * (other.count / count)
        between = np.outer(step, step) * (self.count * other.count / count)
        return Moments(count, mean, self.scatter + other.scatter + between)

    @property
    def covariance(self) -> NDArray[np.float64]:
        """The covariance, with the count as divisor."""
        return self.scatter / max(1, self.count)


def check_shrinkage(shrinkage: str) -> None:
    """Check that a shrinkage is ``auto`` or a number from 0 to 1.

    Args:
        shrinkage: The option's value.

    Raises:
        UsageError: It is something else.
    """
    try:
        good = shrinkage == "auto" or 0 <= float(shrinkage) <= 1
    except ValueError:
        good = False
    if not good:
        raise UsageError(f"shrinkage must be auto or a number from 0 to 1, got {shrinkage!r}.")


def check_finite(moments: Moments, what: str = "embeddings") -> None:
    """Check that a covariance can be computed.

    Args:
        moments: The moments.
        what: What they are of, for the error.

    Raises:
        SelfguideError: A vector was infinite or not a number.
    """
    if not np.isfinite(moments.scatter).all():
        raise SelfguideError(
            f"The encoder gave {what} that are not finite, so they have no covariance; choose another encoder."
        )


def encoded(
    encoder: SentenceTransformer,
    batches: Iterable[list[str]],
    batch_size: int,
    reporter: Reporter,
    total: int | None = None,
) -> Iterator[NDArray[np.float32]]:
    """Encode a text chunk by chunk.

    Args:
        encoder: The encoder.
        batches: Chunks of sentences.
        batch_size: Sentences in a forward pass.
        reporter: Shows progress.
        total: Number of sentences, if it is known.

    Yields:
        The embeddings of each chunk.
    """
    with reporter.bar("encoding", total, "sentences") as advance:
        for sentences in batches:
            vectors = encoder.encode(sentences, batch_size=batch_size, show_progress_bar=False)
            advance(len(sentences), "")
            yield np.asarray(vectors, dtype=np.float32)


def fit_moments(
    encoder: SentenceTransformer, text: Dataset, shrinkage: str, batch_size: int, reporter: Reporter
) -> tuple[Moments, float]:
    """Encode a text, and estimate its moments and how much to shrink its covariance.

    Args:
        encoder: The encoder.
        text: A dataset with a column ``sentence``.
        shrinkage: A number from 0 to 1, or ``auto``: 0 for a text that is large enough, else the estimate of Ledoit and
            Wolf (2004).
        batch_size: Sentences in a forward pass.
        reporter: Shows progress, and warns where the text is small.

    Returns:
        The moments, and the shrinkage as a number.

    Raises:
        SelfguideError: The embeddings are not finite.
    """
    width = int(encoder.get_embedding_dimension() or 0)
    few = len(text) < SENTENCES_PER_DIMENSION * width
    moments = Moments.empty(width)
    kept: list[NDArray[np.float32]] = []
    chunks = (list(rows["sentence"]) for rows in text.iter(batch_size=4096))
    for vectors in encoded(encoder, chunks, batch_size, reporter, len(text)):
        moments = moments.merge(Moments.of(vectors))
        if few and shrinkage == "auto":  # the estimate needs the embeddings themselves, which are few enough to keep
            kept.append(vectors)
    check_finite(moments)
    if shrinkage != "auto":
        share = float(shrinkage)
    elif few:
        share = _ledoit_wolf(np.concatenate(kept))
    else:
        share = 0.0
    if few:
        remedy = f"is shrunk towards a sphere (shrinkage {share:.2f})" if share else "is used as it is (no shrinkage)"
        reporter.warn(
            f"{len(text):,} sentences are few for an embedding dimension of {width}; their covariance {remedy}. "
            f"From {SENTENCES_PER_DIMENSION * width:,} sentences on it is a good estimate."
        )
    return moments, share


def _ledoit_wolf(vectors: NDArray[np.float32]) -> float:
    from sklearn.covariance import ledoit_wolf_shrinkage

    return float(ledoit_wolf_shrinkage(vectors.astype(np.float64)))
