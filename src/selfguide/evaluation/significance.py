"""Is one encoder better than another? Tests for two encoders on the same pairs, and for two methods over several seeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from selfguide.correlation import ranks, spearman
from selfguide.errors import UsageError
from selfguide.evaluation.metrics import Floats, draws, grouped, percentile_interval, spearman_resampled, weights
from selfguide.evaluation.protocol import Aggregation

_PAIRS_AT_ONCE = 2_000_000


@dataclass(frozen=True)
class PairedResult:
    """The first score less the second, × 100."""

    difference: float
    interval: tuple[float, float] | None
    """95 %; None where there is no difference to speak of."""
    p_value: float
    """How often chance alone would give a difference at least this large, to either side; NaN where it cannot be said."""
    resamples: int
    """Resamples of the interval and of the p-value; for seeds, the number of seeds."""


def paired_test(
    parts: Sequence[tuple[ArrayLike, ArrayLike, ArrayLike]],
    aggregation: Aggregation = "all",
    *,
    resamples: int = 5000,
    seed: int = 1,
) -> PairedResult:
    """Compare the Spearman correlations of two encoders on the same pairs; a part is (grades, first's, second's).

    The interval is a paired bootstrap: pairs are drawn anew, the same ones for both encoders, so that what makes a pair
    hard for both cancels. The p-value is of a permutation test: were the encoders equally good, it would not matter whose
    similarity a pair is given, so the two are swapped at random, pair by pair, and the difference is found again. It needs
    no formula for the spread of a correlation, which Spearman's with many tied grades does not have. Similarities are
    replaced by their ranks first, since one encoder's cosines may all lie near 0.9 and the other's near 0.3: swapped as
    they are they would mix two scales, and every swap would spoil both correlations.

    Both take pairs to be drawn independently. Data sets use a sentence in several pairs, so a p-value close to a limit
    should not be leaned upon. The two answers come from different questions and may disagree there as well.
    """
    if resamples < 1:
        raise UsageError(f"resamples must be at least 1, got {resamples}.")
    # Aligned lists, each encoder's made in the same way: one list for "all", one for each subset else.
    first = grouped([(grades, one) for grades, one, _ in parts], aggregation)
    second = grouped([(grades, two) for grades, _, two in parts], aggregation)
    groups = [(grades, one, two) for (grades, one), (_, two) in zip(first, second, strict=True)]
    shares = weights(groups, aggregation)
    difference = float(np.dot(shares, [spearman(grades, one) - spearman(grades, two) for grades, one, two in groups]))
    if not groups or not np.isfinite(difference):
        return PairedResult(float("nan"), None, float("nan"), resamples)
    drawn, swapped = np.zeros(resamples), np.zeros(resamples)
    for number, (share, (grades, one, two)) in enumerate(zip(shares, groups, strict=True)):
        drawn += share * _drawn_differences(grades, one, two, resamples, np.random.default_rng([seed, number, 0]))
        swapped += share * _swapped_differences(grades, one, two, resamples, np.random.default_rng([seed, number, 1]))
    interval = percentile_interval(100 * drawn)
    # What was seen is one of the possible swaps, so it is counted: no p-value is 0. Equal but for rounding is equal.
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
    """Differences of the correlations with the grades' ranks after random swaps of the similarities' ranks.

    With s = ±1 for each pair, the first encoder has (a + b)/2 + s (a − b)/2 and the second the same with −s; sums over
    pairs of it, of its square and of its product with the grades are then each a constant and a product with s.
    """
    size = len(grades)
    graded, a, b = (ranks(values) - (size + 1) / 2 for values in (grades, one, two))
    columns = np.stack([a - b, a * a - b * b, graded * (a - b)], axis=1) / 2
    middles = np.array([0.0, (a @ a + b @ b) / 2, graded @ (a + b) / 2])
    parts = [signs @ columns for signs in _signs(size, resamples, generator)]
    changes = np.concatenate(parts)

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
    """Compare two methods by their scores (× 100), one of each for every seed: a paired t-test with its 95 % interval.

    It speaks of other seeds, as :func:`paired_test` speaks of other pairs. With the handful of seeds one has, a rank test
    could not give a small p-value at all (five seeds: 0.0625 at best), hence the t-test.
    """
    if len(first) != len(second):
        raise UsageError(
            f"There are {len(first)} scores on one side and {len(second)} on the other; each seed needs both."
        )
    gains = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    mean = float(gains.mean()) if len(gains) else float("nan")
    if len(gains) < 2 or not np.isfinite(gains).all() or gains.max() == gains.min():
        return PairedResult(mean, None, float("nan"), len(gains))
    from scipy.stats import t

    error = float(gains.std(ddof=1)) / len(gains) ** 0.5
    reach = float(t.ppf(0.975, len(gains) - 1)) * error
    p_value = float(2 * t.sf(abs(mean) / error, len(gains) - 1))
    return PairedResult(mean, (mean - reach, mean + reach), p_value, len(gains))
