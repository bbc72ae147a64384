"""Metrics of sentence pairs: similarities of vectors, how well they follow the grades, and bootstrap intervals.

Everything here is a fraction (a correlation of 0.8, an accuracy of 0.9); callers that report it multiply by 100.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from selfguide.correlation import pearson, spearman
from selfguide.evaluation.protocol import AGGREGATIONS, SIMILARITIES, Aggregation, Similarity
from selfguide.options import OneOf, check

Floats = NDArray[np.float64]
Correlation = Literal["spearman", "pearson"]
GradedSimilarities = tuple[ArrayLike, ArrayLike]
"""The grades (or labels) of some pairs, and their similarities."""
Resampled = Callable[[Floats], Floats]
"""From how often each pair was drawn, one row for each resample, to the statistic of each resample."""

_ROWS_AT_ONCE = 8192
_CELLS_AT_ONCE = 1_000_000


def similarities(first: NDArray[Any], second: NDArray[Any], kind: Similarity) -> Floats:
    """Compute the similarity of each row of one array to the same row of another, in double precision.

    Args:
        first: Vectors, one a row.
        second: As many vectors.
        kind: The similarity. Distances are negated, so that larger is always nearer.

    Returns:
        One similarity for each row.
    """
    check("similarity", kind, OneOf(*SIMILARITIES))
    result = np.empty(len(first), dtype=np.float64)
    for start in range(0, len(first), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        result[rows] = _similarities(first[rows].astype(np.float64), second[rows].astype(np.float64), kind)
    return result


def _similarities(first: Floats, second: Floats, kind: Similarity) -> Floats:
    if kind == "manhattan":
        return -np.abs(first - second).sum(axis=1)
    if kind == "euclidean":
        return -np.sqrt(_dots(first - second, first - second))
    dots = _dots(first, second)
    if kind == "dot":
        return dots
    # The root is taken of the product, so that the cosine of a vector with itself is 1 to the last bit and pairs of equal
    # sentences are tied instead of being ordered by their rounding errors.
    lengths = np.sqrt(_dots(first, first) * _dots(second, second))
    return np.divide(dots, lengths, out=np.zeros_like(dots), where=lengths > 0)


def _dots(first: Floats, second: Floats) -> Floats:
    return np.einsum("ij,ij->i", first, second)


def aggregate(parts: Sequence[GradedSimilarities], how: Aggregation, correlation: Correlation = "spearman") -> float:
    """Compute one correlation for a task with subsets, in one of SentEval's three ways.

    Args:
        parts: Grades and similarities of each subset.
        how: ``all``: the correlation over all pairs as one list; ``mean``: the plain mean of the subsets' correlations;
            ``wmean``: their mean weighted by the number of pairs.
        correlation: Which correlation.

    Returns:
        The correlation; NaN where it is undefined, for the means if it is undefined in any subset.
    """
    measure = spearman if correlation == "spearman" else pearson
    groups = grouped(parts, how)
    if not groups:
        return float("nan")
    return float(np.dot(weights(groups, how), [measure(grades, sims) for grades, sims in groups]))


def grouped(parts: Sequence[GradedSimilarities], how: Aggregation) -> list[tuple[Floats, Floats]]:
    """Return the lists of pairs that have a correlation each: one list for ``all``, else one for each subset."""
    check("aggregation", how, OneOf(*AGGREGATIONS))
    lists = [(np.asarray(one, dtype=np.float64), np.asarray(two, dtype=np.float64)) for one, two in parts]
    if how != "all" or not lists:
        return lists
    return [(np.concatenate([one for one, _ in lists]), np.concatenate([two for _, two in lists]))]


def weights(groups: Sequence[tuple[Floats, ...]], how: Aggregation) -> Floats:
    """Return the weight of each list of pairs in the aggregation; they sum to one."""
    sizes = np.array([len(group[0]) if how == "wmean" else 1 for group in groups], dtype=np.float64)
    return sizes / sizes.sum() if sizes.sum() else sizes


def bootstrap_interval(
    parts: Sequence[GradedSimilarities],
    how: Aggregation = "all",
    metric: Literal["spearman", "average precision"] = "spearman",
    resamples: int = 1000,
    seed: int = 1,
) -> tuple[float, float] | None:
    """Compute the 95 % percentile interval of a task's metric over resampled pairs.

    Written by hand because ``scipy.stats.bootstrap`` sorts every resample and takes about nine times as long (3,000 pairs).
    A resample holds the same values more or less often, so that the order found once serves for all of them: ranks are
    running totals of how often each value was drawn.

    Args:
        parts: Grades and similarities of each subset.
        how: The aggregation; pairs are drawn from the whole list for ``all``, within each subset for the means.
        metric: What is computed for each resample.
        resamples: How many resamples.
        seed: Seed of the draws.

    Returns:
        The two ends of the interval, or None where the metric is undefined or no resamples are wanted.
    """
    prepare = spearman_resampled if metric == "spearman" else precision_resampled
    groups = grouped(parts, how)
    if not resamples or not groups or any(len(sims) < 2 or not np.isfinite(sims).all() for _, sims in groups):
        return None
    total = np.zeros(resamples)
    for number, (weight, (grades, sims)) in enumerate(zip(weights(groups, how), groups, strict=True)):
        statistic = prepare(grades, sims)
        drawn = draws(len(grades), resamples, np.random.default_rng([seed, number]))
        total += weight * np.concatenate([statistic(counts) for counts in drawn])
    return percentile_interval(total)


def percentile_interval(values: Floats) -> tuple[float, float] | None:
    """Return the middle 95 % of resampled values, ignoring NaN; None where most values are NaN."""
    usable = values[np.isfinite(values)]
    if len(usable) < max(1, len(values) / 2):
        return None
    low, high = np.percentile(usable, [2.5, 97.5])
    return float(low), float(high)


def draws(size: int, resamples: int, generator: np.random.Generator) -> Iterator[Floats]:
    """Yield how often each of ``size`` pairs is drawn, one row for each resample, some rows at a time."""
    step = max(1, _CELLS_AT_ONCE // max(1, size))
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        picked = generator.integers(0, max(1, size), (rows, size)) + size * np.arange(rows)[:, None]
        yield np.bincount(picked.reshape(-1), minlength=rows * size).reshape(rows, size).astype(np.float64)


def spearman_resampled(grades: Floats, sims: Floats) -> Resampled:
    """Return a function that computes Spearman's correlation of resamples without sorting them."""
    one, two = _Ranker(grades), _Ranker(sims)
    return lambda counts: _weighted_correlation(counts, one(counts), two(counts))


class _Ranker:
    """Ranks of the values in resamples, less their mean."""

    def __init__(self, values: Floats) -> None:
        self.order = np.argsort(values, kind="stable")
        ordered = values[self.order]
        self.starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
        self.group = np.empty(len(values), dtype=np.intp)
        self.group[self.order] = np.repeat(np.arange(len(self.starts)), np.diff(np.r_[self.starts, len(values)]))

    def __call__(self, counts: Floats) -> Floats:
        in_group = np.add.reduceat(counts[:, self.order], self.starts, axis=1)
        middle = np.cumsum(in_group, axis=1) - (in_group - 1) / 2 - (counts.shape[1] + 1) / 2
        return middle[:, self.group]


def _weighted_correlation(counts: Floats, one: Floats, two: Floats) -> Floats:
    weighted = counts * one
    together = np.einsum("ij,ij->i", weighted, two)
    spread = np.einsum("ij,ij->i", weighted, one) * np.einsum("ij,ij,ij->i", counts, two, two)
    return np.divide(together, np.sqrt(spread), out=np.full(len(counts), np.nan), where=spread > 0)


def precision_resampled(labels: Floats, sims: Floats) -> Resampled:
    """Return a function that computes the average precision of resamples without sorting them."""
    order = np.argsort(-sims, kind="stable")
    positive = labels[order] > 0
    ends = _group_ends(sims[order])

    def statistic(counts: Floats) -> Floats:
        ordered = counts[:, order]
        hits, taken = np.cumsum(ordered * positive, axis=1)[:, ends], np.cumsum(ordered, axis=1)[:, ends]
        precision = np.divide(hits, taken, out=np.zeros_like(hits), where=taken > 0)
        found = (np.diff(hits, axis=1, prepend=0.0) * precision).sum(axis=1)
        everything = hits[:, -1]
        return np.divide(found, everything, out=np.full(len(counts), np.nan), where=everything > 0)

    return statistic


def _group_ends(ordered: Floats) -> NDArray[np.intp]:
    return np.flatnonzero(np.r_[ordered[1:] != ordered[:-1], True])


@dataclass(frozen=True)
class BinaryScores:
    """How well similarities separate pairs of label 1 from pairs of label 0."""

    average_precision: float
    auc: float
    accuracy: float
    threshold: float
    """Pairs at least this near are classified as 1 for the best accuracy; chosen on these very pairs."""
    f1: float
    f1_threshold: float


def binary_scores(labels: ArrayLike, sims: ArrayLike) -> BinaryScores:
    """Compute average precision, area under the ROC curve, and the best accuracy and F1 over all thresholds.

    Args:
        labels: 0 or 1 for each pair.
        sims: The similarity of each pair; equal ones stay together whatever their labels.

    Returns:
        The scores; those that need both labels are NaN where there is only one.
    """
    truth, values = np.asarray(labels, dtype=np.float64) > 0, np.asarray(sims, dtype=np.float64)
    if not len(values) or not np.isfinite(values).all():
        return BinaryScores(*[float("nan")] * 6)
    order = np.argsort(-values, kind="stable")
    ordered, ends = values[order], _group_ends(values[order])
    # Entry k: the k nearest groups are classified as 1. Thresholds lie midway between groups, so that they treat alike
    # pairs that differ in the last bit.
    hits = np.r_[0.0, np.cumsum(truth[order])[ends]]
    taken = np.r_[0.0, ends + 1.0]
    groups = ordered[ends]
    limits = np.r_[np.nextafter(groups[0], np.inf), (groups[:-1] + groups[1:]) / 2, groups[-1]]
    positives, negatives = hits[-1], len(values) - hits[-1]
    accuracy = (hits + negatives - (taken - hits)) / len(values)
    f1 = 2 * hits / (taken + positives) if positives else np.full(len(hits), np.nan)
    best, best_f1 = int(np.argmax(accuracy)), int(np.argmax(f1))
    both = positives > 0 and negatives > 0
    precision = np.sum(np.diff(hits) * hits[1:] / taken[1:]) / positives if both else np.nan
    area = np.sum(np.diff(taken - hits) * (hits[1:] + hits[:-1]) / 2) / (positives * negatives) if both else np.nan
    scores = (precision, area, accuracy[best], limits[best], f1[best_f1], limits[best_f1])
    return BinaryScores(*map(float, scores))
