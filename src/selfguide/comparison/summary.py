"""From cells to a table: means and deviations over seeds, averages of groups, tests between rows. No model is needed.

The names of the fields of these classes are keys of ``comparison.json``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any

from selfguide.comparison.cells import CellRecord, SharedSetting
from selfguide.errors import SelfguideError, UsageError
from selfguide.evaluation.results import Evaluation
from selfguide.evaluation.significance import paired_over_seeds
from selfguide.methods import registry

FEWEST_SEEDS = 3
AVERAGE = "average"
Runs = Mapping[int | None, Mapping[str, float]]
"""Scores by seed (None: the method draws nothing at random) and column."""


@dataclass(frozen=True)
class Column:
    """A task, or the average of a group of tasks."""

    key: str
    title: str
    average: bool = False


@dataclass(frozen=True)
class Value:
    """A score over the seeds; NaN where a seed has none."""

    mean: float
    deviation: float | None
    """The sample standard deviation; None for a single run."""
    by_seed: dict[int | None, float]


@dataclass(frozen=True)
class Versus:
    """A row's main column minus that of another row."""

    other: str
    difference: float
    interval: tuple[float, float] | None = None
    p_value: float | None = None
    """Of a paired t-test over seeds; None where there are too few of them."""


@dataclass(frozen=True)
class Row:
    """One method over its seeds."""

    label: str
    words: str
    """The method and its options as they were typed, without the label."""
    stages: tuple[dict[str, Any], ...]
    values: dict[str, Value]
    """By column; empty where every cell failed."""
    dev: Value | None
    seconds: float
    """The mean time of a cell."""
    steps: int
    errors: dict[int | None, str]
    """Why a seed has no scores."""
    warnings: tuple[str, ...]
    versus_baseline: Versus | None = None
    versus_best: Versus | None = None
    below_floor: bool = False

    @property
    def runs(self) -> int:
        """The number of cells with scores."""
        return len(next(iter(self.values.values())).by_seed) if self.values else 0


@dataclass(frozen=True)
class Summary:
    """Everything that the tables show."""

    setting: SharedSetting
    columns: tuple[Column, ...]
    main: Column
    """The column that rows are compared by: the papers' STS average where it is there."""
    rows: tuple[Row, ...]
    baseline: str
    best: str | None
    floor: str | None
    """The row of the baseline (the bag of words), if it was run."""
    metrics: dict[str, str]

    def __getitem__(self, label: str) -> Row:
        return next(row for row in self.rows if row.label == label)


def summarise(records: Sequence[CellRecord], baseline: str | None = None) -> Summary:
    """Make the table of cells that share a setting.

    Args:
        records: The cells; rows keep their order.
        baseline: The row that the others are tested against; by default the first.

    Returns:
        The table.

    Raises:
        SelfguideError: There are no cells.
        UsageError: There is no such row.
    """
    if not records:
        raise SelfguideError("There are no cells to make a table of.")
    by_label: dict[str, list[CellRecord]] = {}
    for record in records:
        by_label.setdefault(record.label, []).append(record)
    if baseline is not None and baseline not in by_label:
        raise UsageError(f"There is no row {baseline!r} to compare with; there are {', '.join(by_label)}.")
    baseline = baseline or records[0].label
    columns, main = _columns(records)
    runs = {label: _runs(found, columns) for label, found in by_label.items()}
    rows = [_row(found, runs[label], columns) for label, found in by_label.items()]
    ranked = [row for row in rows if row.values and not math.isnan(row.values[main.key].mean)]
    best = max(ranked, key=lambda row: row.values[main.key].mean, default=None)
    floor = next((row for row in ranked if _is_floor(row)), None)
    main_runs = {label: {seed: run[main.key] for seed, run in found.items()} for label, found in runs.items()}
    return Summary(
        setting=records[0].setting,
        columns=columns,
        main=main,
        rows=tuple(
            replace(
                row,
                versus_baseline=_versus(baseline, row.label, main_runs),
                versus_best=_versus(best.label, row.label, main_runs) if best else None,
                below_floor=_is_below(row, floor, main.key),
            )
            for row in rows
        ),
        baseline=baseline,
        best=best.label if best else None,
        floor=floor.label if floor else None,
        metrics={score.task: score.metric for record in records for score in record.scores},
    )


def _is_floor(row: Row) -> bool:
    return len(row.stages) == 1 and registry.describe(row.stages[0]["method"]).is_floor


def _is_below(row: Row, floor: Row | None, key: str) -> bool:
    return floor is not None and bool(row.values) and row.values[key].mean < floor.values[key].mean


def _columns(records: Sequence[CellRecord]) -> tuple[tuple[Column, ...], Column]:
    """Return tasks, then averages; and the one of them that rows are compared by."""
    scored = next((record for record in records if record.scores), None)
    if scored is None:
        tasks = [Column(name, name) for name in records[0].setting.tasks]
        return tuple(tasks), tasks[0]
    tasks = [Column(score.task, score.title) for score in scored.scores]
    groups = [Column(f"{name} avg", f"{name} avg", True) for name in _averages(scored)]
    if not groups and len(tasks) > 1:
        groups = [Column(AVERAGE, AVERAGE, True)]
    return (*tasks, *groups), (groups or tasks)[0]


def _averages(record: CellRecord) -> dict[str, float]:
    return Evaluation(record.scores[0].encoder, record.scores).averages()


def _runs(records: Sequence[CellRecord], columns: Sequence[Column]) -> Runs:
    """Return each seed's own scores and averages, so that an average's deviation is over the seeds' averages."""
    found: dict[int | None, dict[str, float]] = {}
    for record in records:
        if record.scores:
            values = {score.task: score.value for score in record.scores}
            values[AVERAGE] = fmean(values.values())
            values |= {f"{group} avg": value for group, value in _averages(record).items()}
            found[record.seed] = {column.key: values[column.key] for column in columns}
    return found


def _row(records: Sequence[CellRecord], runs: Runs, columns: Sequence[Column]) -> Row:
    done = [record for record in records if record.error is None]
    dev = {record.seed: record.dev_score for record in done if record.dev_score is not None}
    keys = [column.key for column in columns] if runs else []
    return Row(
        label=records[0].label,
        words=records[0].words,
        stages=records[0].stages,
        values={key: _value({seed: run[key] for seed, run in runs.items()}) for key in keys},
        dev=_value(dev) if dev else None,
        seconds=fmean(sum(record.seconds.values()) for record in done) if done else 0.0,
        steps=round(fmean(record.steps for record in done)) if done else 0,
        errors={record.seed: record.error for record in records if record.error is not None},
        warnings=tuple(dict.fromkeys(warning for record in records for warning in record.warnings)),
    )


def _value(by_seed: dict[int | None, float]) -> Value:
    values = list(by_seed.values())
    return Value(fmean(values), stdev(values) if len(values) > 1 else None, by_seed)


def _versus(other: str, label: str, runs: Mapping[str, Mapping[int | None, float]]) -> Versus | None:
    """Compare two rows; a method without a seed has the same score with every seed, so it is paired with any."""
    ours, theirs = runs[label], runs[other]
    if other == label or not ours or not theirs:
        return None
    if None in ours and None in theirs:
        return Versus(other, ours[None] - theirs[None])
    seeds = [seed for seed in {**theirs, **ours} if seed is not None]
    common = [seed for seed in seeds if all(seed in side or None in side for side in (ours, theirs))]
    if len(common) < FEWEST_SEEDS:
        return Versus(other, fmean(ours.values()) - fmean(theirs.values()))
    first, second = ([side[None] if None in side else side[seed] for seed in common] for side in (ours, theirs))
    found = paired_over_seeds(first, second)
    return Versus(other, found.difference, found.interval, None if math.isnan(found.p_value) else found.p_value)
