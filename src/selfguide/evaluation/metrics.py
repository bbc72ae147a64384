"""Numbers for pairs: how near two vectors are, how well nearness follows the grades, and how sure that is.

Everything here is a fraction (a correlation of 0.8, an accuracy of 0.9); whoever reports it multiplies by 100.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from selfguide.correlation import pearson, spearman
from selfguide.errors import UsageError
from selfguide.evaluation.protocol import AGGREGATIONS, SIMILARITIES, Aggregation, Similarity

Floats = NDArray[np.float64]
Correlation = Literal["spearman", "pearson"]
Pairs = tuple[ArrayLike, ArrayLike]
"""The grades (or labels) of some pairs, and their similarities."""
Resampled = Callable[[Floats], Floats]
"""How often each pair was drawn, a row for every resample → the statistic of every resample."""

_ROWS_AT_ONCE = 8192
_CELLS_AT_ONCE = 1_000_000


def similarities(first: NDArray[Any], second: NDArray[Any], kind: Similarity) -> Floats:
    """The similarity of each row of ``first`` to the same row of ``second``; larger is nearer, so distances are negated."""
    if kind not in SIMILARITIES:
        raise UsageError(f"There is no similarity {kind!r}; choose one of {', '.join(SIMILARITIES)}.")
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
    # The root is taken of the product: so the cosine of a vector with itself is 1 to the last bit, and pairs of equal
    # sentences are tied instead of being put in the order of their rounding errors.
    lengths = np.sqrt(_dots(first, first) * _dots(second, second))
    return np.divide(dots, lengths, out=np.zeros_like(dots), where=lengths > 0)


def _dots(first: Floats, second: Floats) -> Floats:
    return np.einsum("ij,ij->i", first, second)


def aggregate(parts: Sequence[Pairs], how: Aggregation, correlation: Correlation = "spearman") -> float:
    """One correlation for a task with subsets, in SentEval's three ways.

    ``all``: of all pairs as one list; ``mean``: the plain mean of the subsets' correlations; ``wmean``: their mean
    weighted by number of pairs. A subset without a correlation leaves the means without a value.
    """
    of = spearman if correlation == "spearman" else pearson
    groups = grouped(parts, how)
    return (
        float(np.dot(weights(groups, how), [of(grades, sims) for grades, sims in groups])) if groups else float("nan")
    )


def grouped(parts: Sequence[Pairs], how: Aggregation) -> list[tuple[Floats, Floats]]:
    """The lists of pairs that are correlated on their own: one for ``all``, one for each subset else."""
    if how not in AGGREGATIONS:
        raise UsageError(f"There is no aggregation {how!r}; choose one of {', '.join(AGGREGATIONS)}.")
    lists = [(np.asarray(one, dtype=np.float64), np.asarray(two, dtype=np.float64)) for one, two in parts]
    if how != "all" or not lists:
        return lists
    return [(np.concatenate([one for one, _ in lists]), np.concatenate([two for _, two in lists]))]


def weights(groups: Sequence[tuple[Floats, ...]], how: Aggregation) -> Floats:
    """What each list of pairs counts for; they sum to one."""
    sizes = np.array([len(group[0]) if how == "wmean" else 1 for group in groups], dtype=np.float64)
    return sizes / sizes.sum() if sizes.sum() else sizes


def bootstrap_interval(
    parts: Sequence[Pairs],
    how: Aggregation = "all",
    metric: Literal["spearman", "average precision"] = "spearman",
    resamples: int = 1000,
    seed: int = 1,
) -> tuple[float, float] | None:
    """The 95 % percentile interval of a task's Spearman correlation (or average precision) when pairs are drawn anew.

    Pairs are drawn from the whole list for ``all``, within each subset for the means. None where there is no value.
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
    """The middle 95 % of what resampling gave, resamples without a value left out; None where few have one."""
    usable = values[np.isfinite(values)]
    if len(usable) < max(1, len(values) / 2):
        return None
    low, high = np.percentile(usable, [2.5, 97.5])
    return float(low), float(high)


def draws(size: int, resamples: int, generator: np.random.Generator) -> Iterator[Floats]:
    """How often each of ``size`` pairs is drawn, a row for each resample, some rows at a time."""
    step = max(1, _CELLS_AT_ONCE // max(1, size))
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        picked = generator.integers(0, max(1, size), (rows, size)) + size * np.arange(rows)[:, None]
        yield np.bincount(picked.reshape(-1), minlength=rows * size).reshape(rows, size).astype(np.float64)


def spearman_resampled(grades: Floats, sims: Floats) -> Resampled:
    """Spearman's correlation of resamples.

    A resample holds the same values more or less often, so that the order found once serves for all of them: ranks come
    from running totals of the counts, and nothing is sorted again.
    """
    one, two = _Ranker(grades), _Ranker(sims)

    def statistic(counts: Floats) -> Floats:
        return _weighted_correlation(counts, one(counts), two(counts))

    return statistic


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
    """Average precision of resamples."""
    order = np.argsort(-sims, kind="stable")
    positive = labels[order] > 0
    ends = _group_ends(sims[order])

    def statistic(counts: Floats) -> Floats:
        ordered = counts[:, order]
        hits, taken = np.cumsum(ordered * positive, axis=1)[:, ends], np.cumsum(ordered, axis=1)[:, ends]
        precision = np.divide(hits, taken, out=np.zeros_like(hits), where=taken > 0)
        gained = np.diff(hits, axis=1, prepend=0.0)
        everything = hits[:, -1]
        found = (gained * precision).sum(axis=1)
        return np.divide(found, everything, out=np.full(len(counts), np.nan), where=everything > 0)

    return statistic


def _group_ends(ordered: Floats) -> NDArray[np.intp]:
    return np.flatnonzero(np.r_[ordered[1:] != ordered[:-1], True])


@dataclass(frozen=True)
class BinaryScores:
    """How well similarities tell pairs of label 1 from pairs of label 0."""

    average_precision: float
    auc: float
    accuracy: float
    threshold: float
    """Pairs at least this near are called 1 for the best accuracy; chosen on these very pairs."""
    f1: float
    f1_threshold: float


def binary_scores(labels: ArrayLike, sims: ArrayLike) -> BinaryScores:
    """Average precision, area under the ROC curve, and the best accuracy and F1 over all thresholds.

    Equal similarities stay together, whatever their labels. What needs both labels is NaN where there is one only.
    """
    truth, values = np.asarray(labels, dtype=np.float64) > 0, np.asarray(sims, dtype=np.float64)
    if not len(values) or not np.isfinite(values).all():
        return BinaryScores(*[float("nan")] * 6)
    order = np.argsort(-values, kind="stable")
    ordered, ends = values[order], _group_ends(values[order])
    # Entry k: the k nearest groups are called 1. Thresholds lie half-way between groups, so that they say the same
    # of pairs that differ in the last bit.
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
    return BinaryScores(
        float(precision),
        float(area),
        float(accuracy[best]),
        float(limits[best]),
        float(f1[best_f1]),
        float(limits[best_f1]),
    )
