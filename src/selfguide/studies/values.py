"""Numbers over seeds: means, differences paired by seed, and their form in JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from selfguide.comparison.summary import AVERAGE, Summary
from selfguide.comparison.summary import Value as Value  # for studies to take from here


def over_seeds(by_seed: Mapping[int | None, float] | Mapping[int, float] | Mapping[None, float]) -> Value:
    """Return mean and sample deviation.

    Args:
        by_seed: A number for each seed; the seed is None where nothing is drawn at random.
    """
    values = list(by_seed.values())
    seeds: list[int | None] = [*by_seed]
    return Value(fmean(values), stdev(values) if len(values) > 1 else None, dict(zip(seeds, values, strict=True)))


def known_over_seeds(by_seed: Mapping[int | None, float | None]) -> Value | None:
    """Return mean and deviation of the numbers that are not None; None where there is none."""
    known = {seed: value for seed, value in by_seed.items() if value is not None}
    return over_seeds(known) if known else None


def mean_value(values: Sequence[Value | None]) -> Value | None:
    """Return the mean of the values that are not None, seed by seed, over the seeds that all of them have."""
    known = [value for value in values if value is not None]
    seeds = [seed for seed in known[0].by_seed if all(seed in value.by_seed for value in known)] if known else []
    return over_seeds({seed: fmean(value.by_seed[seed] for value in known) for seed in seeds}) if seeds else None


def difference(one: Value | None, other: Value | None) -> Value | None:
    """Return one value less another, paired by seed; a value without a seed is paired with every seed of the other."""
    if one is None or other is None:
        return None

    def at(value: Value, seed: int | None) -> float | None:
        return value.by_seed.get(seed, value.by_seed.get(None))

    every = {**one.by_seed, **other.by_seed}
    seeds = [seed for seed in every if seed is not None or len(every) == 1]
    pairs = {seed: (at(one, seed), at(other, seed)) for seed in seeds}
    return known_over_seeds({seed: a - b for seed, (a, b) in pairs.items() if a is not None and b is not None})


def nan_to_none(number: float) -> float | None:
    """Return the number, or None for NaN, which JSON cannot hold."""
    return None if number != number else number


def scores_to_json(summary: Summary) -> dict[str, Any]:
    """Return a comparison's scores as plain values, by row, column and seed (``once`` where there is no seed)."""
    return {
        "titles": {column.key: column.title for column in summary.columns if column.key != AVERAGE},
        "rows": {
            row.label: {
                "scores": {
                    key: {"once" if seed is None else str(seed): nan_to_none(n) for seed, n in value.by_seed.items()}
                    for key, value in row.values.items()
                    if key != AVERAGE
                },
                "steps": row.steps,
                "seconds": round(row.seconds, 2),
            }
            for row in summary.rows
        },
    }


def value_from_json(by_seed: Mapping[str, float | None]) -> Value | None:
    """Return a value that :func:`scores_to_json` wrote; None where any seed has no score."""
    if None in by_seed.values():
        return None
    return known_over_seeds({None if seed == "once" else int(seed): score for seed, score in by_seed.items()})
