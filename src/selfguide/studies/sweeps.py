"""What studies share that vary one number for several methods: labels, the table and the line of each method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from selfguide.comparison.summary import Row, Summary
from selfguide.studies.base import Found
from selfguide.studies.outcome import (
    Column,
    Entry,
    Lines,
    Outcome,
    Series,
    Table,
    main_value,
    score_columns,
    score_entries,
)


def label_of(method: str, value: float | int) -> str:
    """The row's name in the grid."""
    return f"{method} at {value:g}" if isinstance(value, float) else f"{method} at {value}"


def labelled(method: str, value: float | int, spec: str) -> str:
    """The row as a spec with its label."""
    return f"{label_of(method, value)}={spec}"


def sweep_outcome(
    found: Found,
    *,
    grid: str,
    name: str,
    title: str,
    values: Sequence[float | int],
    methods: Sequence[str],
    levels: Mapping[str, str],
    caption: str,
    log: bool,
    notes: tuple[str, ...] = (),
) -> Outcome:
    """A row for each method and value, a line for each method; ``levels`` are rows without a value, by their labels."""
    summary = found.summary(grid)
    rows: list[dict[str, Entry]] = []
    series = []
    for method in methods:
        points = []
        for value in values:
            row = summary[label_of(method, value)]
            rows.append({"method": method, name: value, **row_entries(row, summary)})
            score = main_value(row, summary)
            if score is not None:
                points.append((value, score))
        series.append(Series(method, tuple(points)))
    rows += [{"method": shown, name: None, **row_entries(summary[label], summary)} for label, shown in levels.items()]
    columns = (Column("method", "method"), Column(name, title, decimals=None), *row_columns(summary))
    known = {shown: main_value(summary[label], summary) for label, shown in levels.items()}
    return Outcome(
        (Table("scores", f"Scores by {title}", columns, tuple(rows)),),
        (
            Lines(
                name,
                f"{summary.main.title} by {title}",
                caption,
                title,
                summary.main.title,
                tuple(series),
                {shown: value.mean for shown, value in known.items() if value is not None},
                log,
            ),
        ),
        notes,
    )


def row_columns(summary: Summary) -> tuple[Column, ...]:
    """Scores, the dev score where there is one, steps and time."""
    # Not "dev": a file of pairs may well be called so, and its scores have a column of their own.
    dev = (Column("dev score", "dev"),) if any(row.dev for row in summary.rows) else ()
    return (*score_columns(summary), *dev, Column("steps", "steps"), Column("seconds", "seconds", decimals=1))


def row_entries(row: Row, summary: Summary) -> dict[str, Entry]:
    """Entries for :func:`row_columns`."""
    return {**score_entries(row, summary), "dev score": row.dev, "steps": row.steps, "seconds": round(row.seconds, 2)}
