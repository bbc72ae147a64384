"""Rank and linear correlation, defined where a side is constant or not finite."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def ranks(values: ArrayLike) -> Floats:
    """Return ranks from 1; equal values share their mean rank."""
    _, group, counts = np.unique(np.asarray(values, dtype=np.float64), return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - (counts - 1) / 2
    return middle[group.reshape(-1)].astype(np.float64)


def pearson(first: ArrayLike, second: ArrayLike) -> float:
    """Return Pearson's correlation; NaN, without a warning, where a side is constant or not finite."""
    one, two = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if not _varies(one) or not _varies(two):
        return float("nan")
    one, two = one - one.mean(), two - two.mean()
    # Scaled before squaring, so that neither tiny nor huge values underflow or overflow.
    one, two = one / np.abs(one).max(), two / np.abs(two).max()
    return float(np.clip(one @ two / np.sqrt((one @ one) * (two @ two)), -1.0, 1.0))


def spearman(first: ArrayLike, second: ArrayLike) -> float:
    """Return Spearman's rank correlation; NaN, without a warning, where a side is constant or not finite."""
    one, two = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    return pearson(ranks(one), ranks(two)) if _varies(one) and _varies(two) else float("nan")


def _varies(values: Floats) -> bool:
    return len(values) > 1 and bool(np.isfinite(values).all()) and bool(values.max() > values.min())
