"""The numbers of the geometry study: plain functions of unit vectors and grades, nothing random in them.

x and y are vectors of length one of different sentences, (x, x⁺) a pair that means the same:

    anisotropy        E cos(x, y)                                   0: spread over all directions, 1: all the same
    alignment         E ‖x − x⁺‖²                                   low is good   (Wang and Isola, ICML 2020)
    uniformity        log E exp(−2 ‖x − y‖²)                        low is good   (the same)
    effective rank    exp(−Σ p_i log p_i),  p_i = σ_i / Σ σ         σ: singular values of the centred vectors
                                                                    (Roy and Vetterli, EUSIPCO 2007)
    explained(m)      Σ_{i≤m} σ_i² / Σ σ²

A pair is *positive* from four fifths of the way from the lowest to the highest grade on, *negative* up to one fifth.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selfguide.runs.evidence import geometry

Floats = NDArray[np.float64]
EDGES = tuple(round(-1 + 0.05 * step, 2) for step in range(41))
"""Of the histograms of cosines."""
DIRECTIONS = (1, 2, 5, 10, 20, 50, 100, 200, 500)
POSITIVE, NEGATIVE = 0.8, 0.2
GRADE_BINS = 5
_MOST_SENTENCES = 3000
_MOST_POINTS = 400
_MOST_PAIRS = 150
_FEWEST_PAIRS = 8
_TSNE_SEED = 1


def numbers(units: Floats, left: Sequence[int], right: Sequence[int], shares: Floats) -> dict[str, Any]:
    """``units``: distinct sentences, a row each; pairs by their places; ``shares``: grades from 0 to 1."""
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
        # ‖x − y‖² = 2 − 2 cos for vectors of length 1.
        "alignment": _mean(2.0 - 2.0 * cosines[positive]),
        "positive_cosine": _mean(cosines[positive]),
        "negative_cosine": _mean(cosines[negative]),
        "explained": explained(spread),
        "histograms": histograms(cosines, shares),
    }


def spaced(count: int, most: int) -> NDArray[np.int64]:
    """At most so many places out of ``count``, evenly spaced: a sample that is always the same."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))


def explained(units: Floats) -> dict[str, float]:
    """The share of the variance in the first 1, 2, 5 … directions."""
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
    """Counts of cosines between EDGES, a list for each of five bins of grades."""
    bins = np.minimum((shares * GRADE_BINS).astype(int), GRADE_BINS - 1)
    return [np.histogram(cosines[bins == number], EDGES)[0].tolist() for number in range(GRADE_BINS)]


def points(cosines: Floats, grades: Floats) -> list[list[float]]:
    """Grade and cosine of at most a few hundred pairs."""
    # In the order of the grades, so that evenly spaced ones have the grades of all.
    order = np.argsort(grades, kind="stable")
    chosen = order[spaced(len(order), _MOST_POINTS)]
    return [[float(grades[place]), round(float(cosines[place]), 6)] for place in chosen]


def pair_map(units: Floats, left: Sequence[int], right: Sequence[int], shares: Floats) -> dict[str, list[list[float]]]:
    """A t-SNE of positive and negative pairs: a point is a pair, described by |x − y|, number by number.

    Where the vectors know what means the same, the two kinds come to lie apart. No grade goes into the map.
    """
    from sklearn.manifold import TSNE

    kinds = {"positive": np.flatnonzero(shares >= POSITIVE), "negative": np.flatnonzero(shares <= NEGATIVE)}
    chosen = {kind: places[spaced(len(places), _MOST_PAIRS)] for kind, places in kinds.items() if len(places)}
    if len(chosen) < 2 or min(map(len, chosen.values())) < _FEWEST_PAIRS:
        return {}
    places = np.concatenate(list(chosen.values()))
    rows = np.asarray(left)[places], np.asarray(right)[places]
    features = np.abs(units[rows[0]] - units[rows[1]])
    mapper = TSNE(
        2, perplexity=min(30.0, (len(features) - 1) / 4), init="pca", random_state=_TSNE_SEED, method="exact", n_jobs=1
    )
    flat = mapper.fit_transform(features).round(3).tolist()
    first = len(chosen["positive"])
    return {"positive": flat[:first], "negative": flat[first:]}


def _mean(values: Floats) -> float | None:
    return round(float(values.mean()), 6) if len(values) else None
