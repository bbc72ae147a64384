"""Linear maps that calibrate embeddings, fitted on the statistics of a text.

With the mean μ and the covariance Σ = U diag(s) Uᵀ:

    whitening   y = diag(s^−e) Uᵀ (x − μ)            e = 1/2 makes the covariance the identity
    removal     y = x − V Vᵀ x                       V: leading directions of E[x xᵀ]
    joining     y = R [√w_1 · c_1 W_1 (x_1 − μ_1) ; … ; √w_m · c_m W_m (x_m − μ_m)]

Joining is for embeddings made of parts x_1 … x_m: W_p whitens part p, c_p scales its mean squared length on the text to 1,
w_p is its share, and R keeps the leading directions of the joined embedding's covariance (or all of them).

Each is saved as a stock ``Dense`` module without an activation, and costs one small matrix product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from selfguide.calibration.moments import Moments
from selfguide.errors import SelfguideError, UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sentence_transformers.base.modules import Dense

    from selfguide.calibration.text_statistics import Statistics

# Variances below this share of the mean squared length are rounding errors of single precision. Almost every BERT has one:
# its last layer norm confines all embeddings to a hyperplane. Whitened, the rounding error would become a feature.
MIN_VARIANCE_SHARE = 1e-8
_NO_VARIANCE = "All sentences of this text have the same vector; there is nothing to whiten."


@dataclass
class LinearMap:
    """y = weight · x + bias."""

    weight: NDArray[np.float64]
    bias: NDArray[np.float64]

    def dense(self) -> Dense:
        """Return the map as a stock module, in single precision."""
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


def whitening_map(moments: Moments, keep: int = 0, shrinkage: float = 0.0, exponent: float = 0.5) -> LinearMap:
    """Return the map that whitens embeddings.

    Args:
        moments: Moments of the embeddings.
        keep: How many directions to keep, the largest variance first; 0 keeps all that are not rounding errors.
        shrinkage: Share of a sphere that is mixed into the covariance.
        exponent: e of the formula: 0.5 whitens, 0 only subtracts the mean and rotates.

    Returns:
        The map.

    Raises:
        UsageError: ``keep`` is more than the embedding dimension.
        SelfguideError: All embeddings are the same.
    """
    width = len(moments.mean)
    if keep > width:
        raise UsageError(f"k = {keep} is more than the encoder's embedding dimension, {width}.")
    covariance = moments.covariance
    sphere = np.eye(width) * np.trace(covariance) / width
    values, directions = _leading((1 - shrinkage) * covariance + shrinkage * sphere)
    alive = int((values > MIN_VARIANCE_SHARE * (np.trace(covariance) + moments.mean @ moments.mean)).sum())
    if alive == 0:
        raise SelfguideError(_NO_VARIANCE)
    size = min(keep or width, alive)
    weight = (directions[:, :size] * values[:size] ** -exponent).T
    return LinearMap(weight, -weight @ moments.mean)


def removal_map(moments: Moments, count: int) -> LinearMap:
    """Return the map that removes the leading directions of embeddings that are not centred, as in SIF.

    Args:
        moments: Moments of the embeddings.
        count: How many directions to remove.

    Returns:
        The map.

    Raises:
        UsageError: Nothing would be removed, or nothing left.
    """
    width = len(moments.mean)
    if not 0 < count < width:
        raise UsageError(f"remove must be at least 1 and below the embedding dimension, {width}; got {count}.")
    _, directions = _leading(moments.covariance + np.outer(moments.mean, moments.mean))
    leading = directions[:, :count]
    return LinearMap(np.eye(width) - leading @ leading.T, np.zeros(width))


def joined_map(
    statistics: Statistics,
    shares: Sequence[float],
    keep: int = 0,
    shrinkage: str = "auto",
    exponents: Sequence[float] | None = None,
    whitenings: Sequence[LinearMap | None] | None = None,
) -> LinearMap:
    """Return the map that whitens the parts of embeddings and joins them.

    Args:
        statistics: Statistics of the embeddings.
        shares: w_p of each part; a part whose share is 0 is left out.
        keep: How many directions of the joined embedding to keep; 0 keeps all.
        shrinkage: As for :meth:`Statistics.shrinkage`.
        exponents: How far each part is whitened: 0.5 (the default) whitens it, 0 only subtracts the mean.
        whitenings: Maps that replace a part's own whitening; the part's mean is still the one subtracted.

    Returns:
        The map.

    Raises:
        UsageError: ``keep`` is more than the joined embedding has dimensions.
        SelfguideError: All embeddings are the same.
    """
    weights, biases = [], []
    for number, (share, place) in enumerate(zip(shares, statistics.slices, strict=True)):
        if share == 0:
            continue
        moments = statistics.part(number)
        exponent = exponents[number] if exponents is not None else 0.5
        given = whitenings[number] if whitenings is not None else None
        if given is not None:
            white = LinearMap(given.weight, -given.weight @ moments.mean)
            if not np.trace(moments.covariance) > MIN_VARIANCE_SHARE * (moments.mean @ moments.mean):
                raise SelfguideError(_NO_VARIANCE)
        else:
            white = whitening_map(moments, shrinkage=statistics.shrinkage(number, shrinkage), exponent=exponent)
        squared_length = np.trace(white.weight @ moments.covariance @ white.weight.T)
        scale = np.sqrt(share / squared_length)
        weight = np.zeros((len(white.weight), sum(statistics.widths)))
        weight[:, place] = scale * white.weight
        weights.append(weight)
        biases.append(scale * white.bias)
    joined = LinearMap(np.concatenate(weights), np.concatenate(biases))
    if not keep:
        return joined
    size = len(joined.weight)
    if keep > size:
        raise UsageError(f"dim = {keep} is more than the {size} dimensions of the joined embedding.")
    scatter = joined.weight @ statistics.moments.scatter @ joined.weight.T
    leading = whitening_map(Moments(statistics.count, np.zeros(size), scatter), keep, exponent=0.0).weight
    return LinearMap(leading @ joined.weight, leading @ joined.bias)


def _leading(matrix: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return eigenvalues, largest first, and eigenvectors as columns."""
    values, directions = np.linalg.eigh(matrix)
    values, directions = values[::-1], directions[:, ::-1]
    # Signs are arbitrary and differ between machines: the largest entry of each vector is made positive.
    largest = np.abs(directions).argmax(axis=0)
    return values, directions * np.sign(directions[largest, np.arange(len(values))])
