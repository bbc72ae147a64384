"""The outcome of a study: tables and figures as plain data, before anything is printed or drawn.

``study.json`` holds all of it, and every table, picture and page is made from that file alone. The kinds of figures are in
:mod:`selfguide.report.plots`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal

from selfguide.comparison.summary import Row, Summary
from selfguide.report.plots import Figure, Matrix, Series
from selfguide.studies.values import Value

Entry = Value | float | int | str | None
"""A table's entry: a number over seeds, a number, a word, or None where it failed."""
TableRow = dict[str, Entry]
UNTUNED = {"cls": "[CLS], untuned", "mean": "mean, untuned"}
"""Rows of the untuned encoder that studies compare with, and their titles."""


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    key: str
    title: str
    decimals: int | None = 2
    """None: as many as the number has."""
    better: Literal["", "high", "low"] = ""
    """Which entry is the best one, to be shown in bold."""
    sign: bool = False
    """Whether it is a difference, shown with plus or minus."""


@dataclass(frozen=True)
class Table:
    """Rows by the columns' keys; the first column names the row."""

    key: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Entry]]
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Outcome:
    """The tables, figures and notes of a study."""

    tables: Sequence[Table]
    figures: Sequence[Figure] = ()
    notes: Sequence[str] = ()
    """Notes for the reader, one sentence each."""


# -- from values over seeds ----------------------------------------------------------------------------------------------


def main_value(row: Row, summary: Summary) -> Value | None:
    """Return the score that rows are compared by; None where the row failed or has none."""
    value = row.values.get(summary.main.key)
    return None if value is None or math.isnan(value.mean) else value


def score_columns(summary: Summary, every: bool = True) -> list[Column]:
    """Return the columns of the scores, the main one last; ``every=False``: the main one alone."""
    others = [column for column in summary.columns if column.key != summary.main.key] if every else []
    return [Column(column.key, column.title, better="high") for column in [*others, summary.main]]


def score_entries(row: Row, summary: Summary) -> TableRow:
    """Return a row's entries for :func:`score_columns`."""
    return {column.key: row.values.get(column.key) for column in summary.columns}


def row_columns(summary: Summary) -> list[Column]:
    """Return columns of the scores, the dev score where there is one, steps and time."""
    # Not "dev": a file of pairs may have that name, and its scores have a column of their own.
    dev = [Column("dev score", "dev")] if any(row.dev for row in summary.rows) else []
    return [*score_columns(summary), *dev, Column("steps", "steps"), Column("seconds", "seconds", decimals=1)]


def row_entries(row: Row, summary: Summary) -> TableRow:
    """Return a row's entries for :func:`row_columns`."""
    return {**score_entries(row, summary), "dev score": row.dev, "steps": row.steps, "seconds": round(row.seconds, 2)}


def known_series(lines: Mapping[str, Iterable[tuple[float | str, Value | None]]]) -> tuple[Series, ...]:
    """Return a figure's lines by name, without the points that have no value."""
    return tuple(
        Series(name, tuple((x, value) for x, value in points if value is not None)) for name, points in lines.items()
    )


def known_means(values: Mapping[str, Value | None]) -> dict[str, float]:
    """Return a figure's levels: the means of the values that are not None."""
    return {name: value.mean for name, value in values.items() if value is not None}


def matrix(
    key: str,
    title: str,
    caption: str,
    axes: tuple[str, str],
    columns: Mapping[str, str],
    rows: Mapping[str, Mapping[str, Value | None]],
) -> Matrix:
    """Make a heat map of rows of values.

    Args:
        key: The figure's key.
        title: Its title.
        caption: How to read it.
        axes: What the columns and what the rows are.
        columns: The columns' titles by key.
        rows: By title, the value in each column.

    Returns:
        The heat map.
    """
    values = tuple(tuple(row.get(column) for column in columns) for row in rows.values())
    return Matrix(key, title, caption, *axes, tuple(columns.values()), tuple(rows), values)


# -- as plain values -----------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it: no NaN, no tuples, and keys that are text (a missing seed is ``once``)."""
    if isinstance(value, Figure):
        made = {"kind": value.kind, **{item.name: plain(getattr(value, item.name)) for item in fields(value)}}
        alt = made.pop("alt")
        return {**made, "alt": alt or describe_figure(made)}
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {"once" if key is None else str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def describe_figure(figure: Mapping[str, Any]) -> str:
    """Return a figure's alternative text: all its numbers in a sentence or two."""

    def shown(value: Mapping[str, Any] | None) -> str:
        return "none" if value is None or value["mean"] is None else f"{value['mean']:.2f}"

    lines = []
    if figure["kind"] == "lines":
        for series in figure["series"]:
            points = (f"{shown(value)} at {x if isinstance(x, str) else f'{x:g}'}" for x, value in series["points"])
            lines.append(f"{series['name']}: {', '.join(points) or 'nothing'}")
        lines += [f"{name} {level:.2f}" for name, level in figure["levels"].items() if level is not None]
    elif figure["kind"] == "dots":
        lines = [f"{label} {shown(value)}" for label, value in figure["dots"]]
    elif figure["kind"] == "matrix":
        for name, row in zip(figure["rows"], figure["values"], strict=True):
            columns = (f"{column} {shown(value)}" for column, value in zip(figure["columns"], row, strict=True))
            lines.append(f"{name}: {', '.join(columns)}")
    return "; ".join(lines) + "." if lines else figure["title"]
