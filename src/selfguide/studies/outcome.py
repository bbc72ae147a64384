"""Tables and figures as plain data: what a study makes of its numbers, before anything is drawn or printed.

Everything is written to ``study.json``, and every table, picture and page is made of that file's content alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from statistics import fmean, stdev
from typing import Any, ClassVar, Literal

from selfguide.comparison.summary import Row, Summary
from selfguide.comparison.summary import Value as Value  # for studies to take from here

Entry = Value | float | int | str | None
"""What stands in one place of a table: a number over seeds, a number, a word, or nothing (it failed)."""


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
    """A difference: shown with plus or minus."""


@dataclass(frozen=True)
class Table:
    """Rows by the columns' keys; the first column names the row."""

    key: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Mapping[str, Entry], ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Figure:
    """What every kind of figure has."""

    kind: ClassVar[str]
    key: str
    title: str
    caption: str
    """How to read it."""


@dataclass(frozen=True)
class Series:
    """A line of a figure: what it is called, and values over numbers or words."""

    name: str
    points: tuple[tuple[float | str, Value], ...]


@dataclass(frozen=True)
class Lines(Figure):
    """Values over something, a line for each series. Words instead of numbers across stand at equal distances."""

    kind = "lines"
    across: str
    up: str
    series: tuple[Series, ...]
    levels: Mapping[str, float] = field(default_factory=dict)
    """Horizontal lines to compare with, by their names."""
    log: bool = False
    """Logarithmic across."""


@dataclass(frozen=True)
class Dots(Figure):
    """One value for each label: a dot with its deviation."""

    kind = "dots"
    across: str
    dots: tuple[tuple[str, Value], ...]
    levels: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Matrix(Figure):
    """A heat map with the number in each field."""

    kind = "matrix"
    across: str
    down: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    values: tuple[tuple[Value | None, ...], ...]
    """Row by row."""


@dataclass(frozen=True)
class Scatter(Figure):
    """Points in groups."""

    kind = "scatter"
    across: str
    up: str
    groups: Mapping[str, tuple[tuple[float, float], ...]]
    alt: str
    """What a reader who does not see it should know."""


@dataclass(frozen=True)
class Histogram(Figure):
    """Counts in bins, an outline for each series; drawn as shares of each series' sum."""

    kind = "histogram"
    across: str
    edges: tuple[float, ...]
    series: Mapping[str, tuple[int, ...]]
    alt: str


@dataclass(frozen=True)
class Outcome:
    """What a study comes to."""

    tables: tuple[Table, ...]
    figures: tuple[Figure, ...] = ()
    notes: tuple[str, ...] = ()
    """What a reader must know, a sentence each."""


# -- from the rows of a comparison ---------------------------------------------------------------------------------------


def over_seeds(by_seed: Mapping[int | None, float] | Mapping[int, float] | Mapping[None, float]) -> Value:
    """Mean and sample deviation of a measured number; the seed is None where there is none."""
    values = list(by_seed.values())
    seeds: list[int | None] = [*by_seed]
    return Value(fmean(values), stdev(values) if len(values) > 1 else None, dict(zip(seeds, values, strict=True)))


def main_value(row: Row, summary: Summary) -> Value | None:
    """The score that rows are compared by; None where the row failed or has none."""
    value = row.values.get(summary.main.key)
    return None if value is None or math.isnan(value.mean) else value


def score_columns(summary: Summary, every: bool = True) -> tuple[Column, ...]:
    """Columns of the scores, the main one last; ``every=False``: the main one alone."""
    others = [column for column in summary.columns if column.key != summary.main.key] if every else []
    return tuple(Column(column.key, column.title, better="high") for column in [*others, summary.main])


def score_entries(row: Row, summary: Summary) -> dict[str, Entry]:
    """A row's entries for :func:`score_columns`."""
    return {column.key: row.values.get(column.key) for column in summary.columns}


# -- as plain values -----------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """As JSON can hold it: no NaN, no tuples, and no keys but text (a method without a seed is run ``once``)."""
    if isinstance(value, Figure):
        made = {"kind": value.kind, **{item.name: plain(getattr(value, item.name)) for item in fields(value)}}
        return {**made, "alt": made.get("alt") or described(made)}
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {"once" if key is None else str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def described(figure: Mapping[str, Any]) -> str:
    """A figure in words, for those who do not see it: all its numbers, in a sentence or two."""

    def told(value: Mapping[str, Any] | None) -> str:
        return "none" if value is None or value["mean"] is None else f"{value['mean']:.2f}"

    lines = []
    if figure["kind"] == "lines":
        for series in figure["series"]:
            points = ", ".join(f"{told(value)} at {_short(x)}" for x, value in series["points"])
            lines.append(f"{series['name']}: {points or 'nothing'}")
        lines += [f"{name} {level:.2f}" for name, level in figure["levels"].items() if level is not None]
    elif figure["kind"] == "dots":
        lines = [f"{label} {told(value)}" for label, value in figure["dots"]]
    elif figure["kind"] == "matrix":
        for name, row in zip(figure["rows"], figure["values"], strict=True):
            fields_ = [f"{column} {told(value)}" for column, value in zip(figure["columns"], row, strict=True)]
            lines.append(f"{name}: {', '.join(fields_)}")
    return "; ".join(lines) + "." if lines else figure["title"]


def _short(x: float | str) -> str:
    return x if isinstance(x, str) else f"{x:g}"
