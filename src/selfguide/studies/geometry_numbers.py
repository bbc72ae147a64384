"""The numbers of the geometry study: deterministic functions of unit vectors and grades.

x and y are unit vectors of different sentences, (x, x⁺) a pair that means the same:

    anisotropy        E cos(x, y)                                   0: spread over all directions, 1: all the same
    alignment         E ‖x − x⁺‖²                                   low is good   (Wang and Isola, ICML 2020)
    uniformity        log E exp(−2 ‖x − y‖²)                        low is good   (the same)
    effective rank    exp(−Σ p_i log p_i),  p_i = σ_i / Σ σ         σ: singular values of the centred vectors
                                                                    (Roy and Vetterli, EUSIPCO 2007)
    explained(m)      Σ_{i≤m} σ_i² / Σ σ²

A pair is *positive* if its grade is in the top fifth of the scale, *negative* in the bottom fifth.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.manifold import TSNE

from selfguide.runs.evidence import geometry

Floats = NDArray[np.float64]
EDGES = tuple(round(-1 + 0.05 * step, 2) for step in range(41))
"""Bin edges of the histograms of cosines."""
DIRECTIONS = (1, 2, 5, 10, 20, 50, 100, 200, 500)
POSITIVE, NEGATIVE = 0.8, 0.2
GRADE_BINS = 5
_MOST_SENTENCES = 3000
_MOST_POINTS = 400
_MOST_PAIRS = 150
_FEWEST_PAIRS = 8
_TSNE_SEED = 1


def numbers(units: Floats, left: Sequence[int], right: Sequence[int], shares: Floats) -> dict[str, Any]:
    """Return the numbers of all embeddings, and of positive and negative pairs.

    Args:
        units: Unit vectors of distinct sentences, a row each.
        left: Row of the first sentence of each pair.
        right: Row of the second.
        shares: Grades scaled to [0, 1].
    """
    spread = units[spaced(len(units), _MOST_SENTENCES)]
    cloud = geometry(spread)
    cosines = np.einsum("pd,pd->p", units[left], units[right]).clip(-1.0, 1.0)
    positive, negative = shares >= POSITIVE, shares <= NEGATIVE
    return {
        "sentences": len(spread),
        "dimensions": cloud.dimensions,
        "anisotropy": cloud.mean_cosine,
        "uniformity": cloud.uniformity,
        "effective_rank": cloud.effective_rank,
        # ‖x − y‖² = 2 − 2 cos for unit vectors.
        "alignment": _mean(2.0 - 2.0 * cosines[positive]),
        "positive_cosine": _mean(cosines[positive]),
        "negative_cosine": _mean(cosines[negative]),
        "explained": explained(spread),
        "histograms": histograms(cosines, shares),
    }


def spaced(count: int, most: int) -> NDArray[np.int64]:
    """Return at most ``most`` of ``count`` indices, evenly spaced: a sample that is always the same."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))


def explained(units: Floats) -> dict[str, float]:
    """Return the share of the variance in the first 1, 2, 5 … principal directions."""
    variances = np.linalg.svd(units - units.mean(axis=0), compute_uv=False) ** 2
    total = float(variances.sum())
    if total <= 0:
        return {}
    most = min(len(variances), units.shape[1])
    return {
        str(count): round(float(variances[:count].sum()) / total, 6)
        for count in DIRECTIONS
        if count < most or count == DIRECTIONS[0]
    }


def histograms(cosines: Floats, shares: Floats) -> list[list[int]]:
    """Count cosines between :data:`EDGES`, a list for each of five bins of grades.

    Args:
        cosines: Of the pairs.
        shares: Their grades, scaled to [0, 1].

    Returns:
        The counts, by bin of grades and interval of cosines.
    """
    bins = np.minimum((shares * GRADE_BINS).astype(int), GRADE_BINS - 1)
    return [np.histogram(cosines[bins == number], EDGES)[0].tolist() for number in range(GRADE_BINS)]


def points(cosines: Floats, grades: Floats) -> list[list[float]]:
    """Return grade and cosine of at most a few hundred pairs."""
    # Sorted by grade, so that evenly spaced pairs cover all grades.
    order = np.argsort(grades, kind="stable")
    chosen = order[spaced(len(order), _MOST_POINTS)]
    return [[float(grades[index]), round(float(cosines[index]), 6)] for index in chosen]


def pair_map(units: Floats, left: Sequence[int], right: Sequence[int], shares: Floats) -> dict[str, list[list[float]]]:
    """Lay out positive and negative pairs by t-SNE; a pair's features are the elementwise |x − y|, without its grade.

    Where the embeddings know what means the same, the two kinds are separated.

    Args:
        units: Unit vectors of the sentences.
        left: Index of each pair's first sentence.
        right: Index of each pair's second sentence.
        shares: Grade of each pair as a share of the highest.

    Returns:
        Coordinates by kind; empty where there are too few pairs of either.
    """
    kinds = {"positive": np.flatnonzero(shares >= POSITIVE), "negative": np.flatnonzero(shares <= NEGATIVE)}
    chosen = {kind: pairs[spaced(len(pairs), _MOST_PAIRS)] for kind, pairs in kinds.items() if len(pairs)}
    if len(chosen) < 2 or min(map(len, chosen.values())) < _FEWEST_PAIRS:
        return {}
    pairs = np.concatenate(list(chosen.values()))
    features = np.abs(units[np.asarray(left)[pairs]] - units[np.asarray(right)[pairs]])
    perplexity = min(30.0, (len(features) - 1) / 4)
    mapper = TSNE(2, perplexity=perplexity, init="pca", random_state=_TSNE_SEED, method="exact", n_jobs=1)
    flat = mapper.fit_transform(features).round(3).tolist()
    first = len(chosen["positive"])
    return {"positive": flat[:first], "negative": flat[first:]}


def _mean(values: Floats) -> float | None:
    return round(float(values.mean()), 6) if len(values) else None
