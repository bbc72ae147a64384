"""The shape of the cloud of vectors, which the literature holds to be telling.

x and y are vectors of length one of sentences, x⁺ that of a thinned copy (half of the words):

    alignment        − E ‖x − x⁺‖²                                          (Wang and Isola, ICML 2020; the sign turned)
    uniformity       − log E_{x≠y} exp(−2 ‖x − y‖²)                         (the same)
    align-uniform    their sum
    isotropy         1 − E_{x≠y} cos(x, y)
    effective-rank   exp(− Σ p_i log p_i) / min(n − 1, d)                    p: the shares of the covariance's eigenvalues
                                                                             (Roy and Vetterli, EUSIPCO 2007)
    hubness          − skewness of how often a sentence is among the ten nearest of others
                                                                             (Radovanović et al., JMLR 2010; the sign turned)

All say how vectors are spread and none whether the right ones are near each other, alignment apart; so they can be had by
noise. They are here to be compared with.
"""

from __future__ import annotations

import numpy as np

from experiments.choosing.retrieval import thinned_copies
from experiments.choosing.sample import Sample
from experiments.choosing.vectors import Floats, Vectors, unit

MOST = 1000
_NEIGHBOURS = 10


def alignment(vectors: Vectors, sample: Sample) -> float:
    """How near two thinned copies of a sentence are: 0 at best, −4 at worst."""
    first, second = thinned_copies(sample)
    return -float(np.mean(np.sum((unit(vectors(first)) - unit(vectors(second))) ** 2, axis=1)))


def uniformity(vectors: Vectors, sample: Sample) -> float:
    """How evenly the sentences are spread over the sphere: 0 where all are the same."""
    cosines = _cosines_of_others(vectors, sample)
    return -float(np.log(np.mean(np.exp(-2.0 * np.maximum(0.0, 2.0 - 2.0 * cosines)))))


def align_uniform(vectors: Vectors, sample: Sample) -> float:
    """The sum of the two."""
    return alignment(vectors, sample) + uniformity(vectors, sample)


def isotropy(vectors: Vectors, sample: Sample) -> float:
    """One less the mean cosine of different sentences."""
    return 1.0 - float(np.mean(_cosines_of_others(vectors, sample)))


def effective_rank(vectors: Vectors, sample: Sample) -> float:
    """The share of the directions that are in use, 0 to 1."""
    rows = unit(vectors(sample.sentences[:MOST]))
    spread = np.linalg.svd(rows - rows.mean(axis=0), compute_uv=False) ** 2
    if spread.sum() <= 1e-12:
        return 0.0
    shares = spread[spread > 0] / spread.sum()
    return float(np.exp(-np.sum(shares * np.log(shares)))) / max(1, min(len(rows) - 1, rows.shape[1]))


def hubness(vectors: Vectors, sample: Sample) -> float:
    """Minus the skewness of the numbers of times that each sentence is a near neighbour."""
    rows = unit(vectors(sample.sentences[:MOST]))
    cosines = np.round(rows @ rows.T, 9)
    np.fill_diagonal(cosines, -np.inf)
    count = min(_NEIGHBOURS, len(rows) - 1)
    nearest = np.argsort(-cosines, axis=1, kind="stable")[:, :count]
    times = np.bincount(nearest.ravel(), minlength=len(rows)).astype(np.float64)
    spread = times.std()
    return -float(np.mean(((times - times.mean()) / spread) ** 3)) if spread > 0 else 0.0


def _cosines_of_others(vectors: Vectors, sample: Sample) -> Floats:
    rows = unit(vectors(sample.sentences[:MOST]))
    return (rows @ rows.T)[~np.eye(len(rows), dtype=bool)]
