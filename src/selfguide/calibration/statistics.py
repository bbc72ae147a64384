"""Mean and covariance of sentence vectors in one pass, and the linear maps that calibrate vectors by them.

Statistics are kept in double precision and can be merged (Chan, Golub and LeVeque 1983), so that a text of any size is read
in chunks. With the covariance Σ = U diag(s) Uᵀ and the mean μ there are two maps:

    whitening   y = diag(s^−e) Uᵀ (x − μ)            e = 1/2 makes the covariance the identity
    removal     y = x − V Vᵀ x                       V: leading directions of E[x xᵀ]

Each is saved as a stock ``Dense`` module without an activation, and costs one small matrix product.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from selfguide.errors import SelfguideError, UsageError

if TYPE_CHECKING:
    from datasets import Dataset
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Dense

    from selfguide.progress import Reporter

# Below so many sentences for each number of the vector a covariance is more noise than not, and is shrunk.
SENTENCES_A_DIMENSION = 10
# Variances below this share of the vectors' mean squared length are rounding errors of single precision. There is one in
# almost every BERT: its last layer norm confines all vectors to a hyperplane. Whitened, the error would become a feature.
SMALLEST_SHARE = 1e-8


@dataclass
class Moments:
    """Count, mean and summed outer products of deviations; grows by chunks and merges with others."""

    count: int
    mean: NDArray[np.float64]
    scatter: NDArray[np.float64]

    @classmethod
    def empty(cls, width: int) -> Moments:
        """Nothing seen yet."""
        return cls(0, np.zeros(width), np.zeros((width, width)))

    @classmethod
    def of(cls, vectors: NDArray[np.floating]) -> Moments:
        """The statistics of an array (count, width)."""
        exact = np.asarray(vectors, dtype=np.float64)
        mean = exact.mean(axis=0)
        deviations = exact - mean
        return cls(len(exact), mean, deviations.T @ deviations)

    def merge(self, other: Moments) -> Moments:
        """The statistics of both sets together."""
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


@dataclass
class LinearMap:
    """y = weight · x + bias."""

    weight: NDArray[np.float64]
    bias: NDArray[np.float64]

    def dense(self) -> Dense:
        """As a stock module."""
        import torch
        from sentence_transformers.base.modules import Dense

        size, width = self.weight.shape
        return Dense(
            width,
            size,
            activation_function=None,
            init_weight=torch.tensor(self.weight, dtype=torch.float32),
            init_bias=torch.tensor(self.bias, dtype=torch.float32),
        ).requires_grad_(False)


def check_shrinkage(shrinkage: str) -> None:
    """Refuse a shrinkage that is neither ``auto`` nor a share."""
    try:
        good = shrinkage == "auto" or 0 <= float(shrinkage) <= 1
    except ValueError:
        good = False
    if not good:
        raise UsageError(f"shrinkage must be auto or a number from 0 to 1, got {shrinkage!r}.")


def fit_moments(
    encoder: SentenceTransformer, text: Dataset, shrinkage: str, batch_size: int, reporter: Reporter
) -> tuple[Moments, float]:
    """Encode a text in chunks; returns its statistics and how much to shrink the covariance.

    ``auto`` is 0 for a text that is large enough and the estimate of Ledoit and Wolf (2004) for one that is not.
    """
    width = int(encoder.get_embedding_dimension() or 0)
    few = len(text) < SENTENCES_A_DIMENSION * width
    moments = Moments.empty(width)
    kept: list[NDArray[np.float32]] = []
    for vectors in _encoded(encoder, text, batch_size, reporter):
        moments = moments.merge(Moments.of(vectors))
        if few and shrinkage == "auto":  # few enough to keep: the estimate needs the vectors themselves
            kept.append(vectors)
    if not np.isfinite(moments.scatter).all():
        raise SelfguideError(
            "The encoder gave vectors that are not finite, so they have no covariance; choose another."
        )
    if shrinkage != "auto":
        share = float(shrinkage)
    elif few:
        share = _ledoit_wolf(np.concatenate(kept))
    else:
        share = 0.0
    if few:
        remedy = f"is drawn towards a sphere (shrinkage {share:.2f})" if share else "is taken as it is (no shrinkage)"
        reporter.warn(
            f"{len(text):,} sentences are few for vectors of {width} numbers; their covariance {remedy}. "
            f"From {SENTENCES_A_DIMENSION * width:,} sentences on it is a good estimate."
        )
    return moments, share


def whitening_map(moments: Moments, keep: int = 0, shrinkage: float = 0.0, exponent: float = 0.5) -> LinearMap:
    """y = diag(s^−exponent) Uᵀ (x − μ) with the ``keep`` largest variances first (0: all that are not rounding errors)."""
    width = len(moments.mean)
    if keep > width:
        raise UsageError(f"k = {keep} is more than the {width} numbers of the encoder's vector.")
    covariance = moments.covariance
    sphere = np.eye(width) * np.trace(covariance) / width
    values, directions = _leading((1 - shrinkage) * covariance + shrinkage * sphere)
    alive = int((values > SMALLEST_SHARE * (np.trace(covariance) + moments.mean @ moments.mean)).sum())
    if alive == 0:
        raise SelfguideError("All sentences of this text have the same vector; there is nothing to whiten.")
    size = min(keep or width, alive)
    weight = (directions[:, :size] * values[:size] ** -exponent).T
    return LinearMap(weight, -weight @ moments.mean)


def removal_map(moments: Moments, count: int) -> LinearMap:
    """y = x − V Vᵀ x, V the ``count`` leading directions of the vectors themselves (not centred, as in SIF)."""
    width = len(moments.mean)
    if not 0 < count < width:
        raise UsageError(f"remove must leave something of the vector's {width} numbers, got {count}.")
    _, directions = _leading(moments.covariance + np.outer(moments.mean, moments.mean))
    leading = directions[:, :count]
    return LinearMap(np.eye(width) - leading @ leading.T, np.zeros(width))


def _leading(matrix: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Eigenvalues, largest first, and eigenvectors as columns, each with its largest entry positive: signs are free, and
    fixing them makes the result the same everywhere."""
    values, directions = np.linalg.eigh(matrix)
    values, directions = values[::-1], directions[:, ::-1]
    largest = np.abs(directions).argmax(axis=0)
    return values, directions * np.sign(directions[largest, np.arange(len(values))])


def _ledoit_wolf(vectors: NDArray[np.float32]) -> float:
    from sklearn.covariance import ledoit_wolf_shrinkage

    return float(ledoit_wolf_shrinkage(vectors.astype(np.float64)))


def _encoded(
    encoder: SentenceTransformer, text: Dataset, batch_size: int, reporter: Reporter, chunk: int = 4096
) -> Iterator[NDArray[np.float32]]:
    with reporter.bar("encoding", len(text), "sentences") as advance:
        for rows in text.iter(batch_size=chunk):
            sentences = list(rows["sentence"])
            vectors = encoder.encode(sentences, batch_size=batch_size, show_progress_bar=False)
            advance(len(sentences), "")
            yield np.asarray(vectors, dtype=np.float32)
