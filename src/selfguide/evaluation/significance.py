"""Significance tests: two encoders on the same pairs, and two methods over several seeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import t

from selfguide.correlation import ranks, spearman
from selfguide.errors import UsageError
from selfguide.evaluation.metrics import Floats, draws, grouped, percentile_interval, spearman_resampled, weights
from selfguide.evaluation.protocol import Aggregation
from selfguide.options import AtLeast, check

_PAIRS_AT_ONCE = 2_000_000


@dataclass(frozen=True)
class PairedResult:
    """The first score minus the second, × 100."""

    difference: float
    interval: tuple[float, float] | None
    """95 %; None where it is undefined."""
    p_value: float
    """Two-sided: how often chance alone would give a difference at least this large; NaN where it is undefined."""
    resamples: int
    """Resamples of the interval and of the p-value; for seeds, the number of seeds."""


def paired_test(
    parts: Sequence[tuple[ArrayLike, ArrayLike, ArrayLike]],
    aggregation: Aggregation = "all",
    *,
    resamples: int = 5000,
    seed: int = 1,
) -> PairedResult:
    """Compare the Spearman correlations of two encoders on the same pairs.

    The interval is a paired bootstrap: pairs are drawn anew, the same ones for both encoders, so that what makes a pair
    hard for both cancels. The p-value is of a permutation test: under the null hypothesis the two similarities of a pair are
    exchangeable, so they are swapped at random, pair by pair, and the difference is computed again. It needs
    no formula for the spread of a correlation, which Spearman's with many tied grades does not have. Similarities are
    replaced by their ranks first, since one encoder's cosines may all lie near 0.9 and the other's near 0.3: swapped as
    they are they would mix two scales, and every swap would spoil both correlations.

    Both assume that pairs are drawn independently. Datasets use a sentence in several pairs, so a p-value close to a limit
    should not be relied upon. The two answer different questions and may disagree there as well.

    Args:
        parts: For each subset, the grades, the first encoder's similarities and the second's.
        aggregation: How subsets become one correlation.
        resamples: How many resamples and permutations.
        seed: Seed of both.

    Returns:
        The difference × 100, with its interval and p-value.
    """
    check("resamples", resamples, AtLeast(1))
    first = grouped([(grades, one) for grades, one, _ in parts], aggregation)
    second = grouped([(grades, two) for grades, _, two in parts], aggregation)
    groups = [(grades, one, two) for (grades, one), (_, two) in zip(first, second, strict=True)]
    shares = weights(groups, aggregation)
    difference = float(np.dot(shares, [spearman(grades, one) - spearman(grades, two) for grades, one, two in groups]))
    if not groups or not np.isfinite(difference):
        return PairedResult(float("nan"), None, float("nan"), resamples)
    drawn, swapped = np.zeros(resamples), np.zeros(resamples)
    for number, (share, group) in enumerate(zip(shares, groups, strict=True)):
        drawn += share * _drawn_differences(*group, resamples, np.random.default_rng([seed, number, 0]))
        swapped += share * _swapped_differences(*group, resamples, np.random.default_rng([seed, number, 1]))
    interval = percentile_interval(100 * drawn)
    # The observed assignment is one of the possible permutations, so it is counted and no p-value is 0. Differences that
    # are equal up to rounding count as equal.
    extreme = int(np.count_nonzero(np.abs(swapped) >= abs(difference) - 1e-12))
    return PairedResult(100 * difference, interval, (1 + extreme) / (1 + resamples), resamples)


def _drawn_differences(
    grades: Floats, one: Floats, two: Floats, resamples: int, generator: np.random.Generator
) -> Floats:
    first, second = spearman_resampled(grades, one), spearman_resampled(grades, two)
    return np.concatenate([first(counts) - second(counts) for counts in draws(len(grades), resamples, generator)])


def _swapped_differences(
    grades: Floats, one: Floats, two: Floats, resamples: int, generator: np.random.Generator
) -> Floats:
    """Compute differences of the correlations with the grades' ranks after random swaps of the similarities' ranks.

    With s = ±1 for each pair, the first encoder has (a + b)/2 + s (a − b)/2 and the second the same with −s; sums over
    pairs of it, of its square and of its product with the grades are then each a constant and a product with s.
    """
    size = len(grades)
    graded, a, b = (ranks(values) - (size + 1) / 2 for values in (grades, one, two))
    columns = np.stack([a - b, a * a - b * b, graded * (a - b)], axis=1) / 2
    middles = np.array([0.0, (a @ a + b @ b) / 2, graded @ (a + b) / 2])
    changes = np.concatenate([signs @ columns for signs in _signs(size, resamples, generator)])

    def correlations(sums: Floats) -> Floats:
        spread = (sums[:, 1] - sums[:, 0] ** 2 / size) * (graded @ graded)
        return np.divide(sums[:, 2], np.sqrt(spread), out=np.zeros(len(sums)), where=spread > 0)

    return correlations(middles + changes) - correlations(middles - changes)


def _signs(size: int, resamples: int, generator: np.random.Generator) -> Iterator[Floats]:
    step = max(1, _PAIRS_AT_ONCE // size)
    for start in range(0, resamples, step):
        flips = generator.integers(0, 2, (min(step, resamples - start), size), dtype=np.int8)
        yield flips.astype(np.float64) * 2 - 1


def paired_over_seeds(first: Sequence[float], second: Sequence[float]) -> PairedResult:
    """Compare two methods by their scores over seeds, with a paired t-test and its 95 % interval.

    It generalises to other seeds, as :func:`paired_test` generalises to other pairs. With the handful of seeds one has, a
    rank test could not give a small p-value at all (five seeds: 0.0625 at best), hence the t-test.

    Args:
        first: Scores × 100, one for each seed.
        second: The other method's scores with the same seeds.

    Returns:
        The mean difference; without an interval and p-value where there are fewer than two seeds or all differences are equal.

    Raises:
        UsageError: The two have different numbers of scores.
    """
    if len(first) != len(second):
        raise UsageError(
            f"There are {len(first)} scores on one side and {len(second)} on the other; each seed needs both."
        )
    gains = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    mean = float(gains.mean()) if len(gains) else float("nan")
    if len(gains) < 2 or not np.isfinite(gains).all() or gains.max() == gains.min():
        return PairedResult(mean, None, float("nan"), len(gains))
    error = float(gains.std(ddof=1)) / len(gains) ** 0.5
    reach = float(t.ppf(0.975, len(gains) - 1)) * error
    p_value = float(2 * t.sf(abs(mean) / error, len(gains) - 1))
    return PairedResult(mean, (mean - reach, mean + reach), p_value, len(gains))
