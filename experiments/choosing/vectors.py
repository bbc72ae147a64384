"""Cosines of an encoder's vectors, as every score here needs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Vectors = Callable[[Sequence[str]], NDArray[Any]]
"""Sentences to vectors, a row each: an :class:`~selfguide.evaluation.embedder.Embedder`, which checks them, or any function."""


def unit(vectors: NDArray[Any]) -> Floats:
    """Rows of length one; a row without length stays 0, so that its cosine with everything is 0."""
    rows = np.asarray(vectors, dtype=np.float64)
    # By the largest number first, or the squares of huge and tiny vectors would leave the range of numbers.
    largest = np.abs(rows).max(axis=1, keepdims=True)
    rows = rows / np.where(largest > 0, largest, 1.0)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths > 0, lengths, 1.0)


def row_cosines(first: NDArray[Any], second: NDArray[Any]) -> Floats:
    """The cosine of each row with the same row of the other; rounded, so that equal ones are tied and not in chance order."""
    return np.round(np.einsum("ij,ij->i", unit(first), unit(second)), 9)


def mean_reciprocal_rank(queries: NDArray[Any], targets: NDArray[Any]) -> float:
    """Query i looks for target i among all targets. Targets as near as the right one count half before it.

    1 is perfect. An encoder that gives every sentence the same vector gets 2 / (n + 1), which is hardly anything.
    """
    cosines = np.round(unit(queries) @ unit(targets).T, 9)
    right = np.diagonal(cosines)[:, None]
    nearer = (cosines > right).sum(axis=1)
    as_near = (cosines == right).sum(axis=1) - 1
    return float(np.mean(1.0 / (1.0 + nearer + as_near / 2)))


def or_nothing(correlation: float) -> float:
    """A correlation, or 0 where there is none because every cosine is the same: such an encoder knows nothing."""
    return 0.0 if np.isnan(correlation) else correlation
