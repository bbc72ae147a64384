"""Studies that vary one number for several methods: a table of scores, and a line for each method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from selfguide.comparison.summary import Row, Summary
from selfguide.report.plots import Lines
from selfguide.studies.base import Findings, Grid, Plan, Setup, Study
from selfguide.studies.outcome import (
    UNTUNED,
    Column,
    Outcome,
    Table,
    TableRow,
    known_means,
    known_series,
    main_value,
    row_columns,
    row_entries,
)

Number = float | int


class OptionSweep(Study):
    """A study of one option: its values × methods, in one grid with the untuned encoder."""

    option: ClassVar[str]
    """The option or training setting that is varied."""
    values_name: ClassVar[str]
    """The list of its values in the scale."""
    axis: ClassVar[str]
    caption: ClassVar[str]
    notes: ClassVar[tuple[str, ...]] = ()

    def plan(self, setup: Setup) -> Plan:
        """See :meth:`Study.plan`."""
        specs = [f"{label}={method}:{self.option}={value!r}" for method, value, label in self._rows(setup)]
        return Plan((Grid(self.name, (*UNTUNED, *specs)),))

    def outcome(self, findings: Findings) -> Outcome:
        """See :meth:`Study.outcome`."""
        summary, column = findings.summary(self.name), Column(self.option, self.axis, decimals=None)
        points = [(method, value, summary[label], summary) for method, value, label in self._rows(findings.setup)]
        return sweep_outcome(points, summary, column, self.option, self.axis, self.caption, self.notes)

    def _rows(self, setup: Setup) -> list[tuple[str, Number, str]]:
        """Return method, value and label of each row."""
        return [
            (method, value, f"{method} at {value:g}" if isinstance(value, float) else f"{method} at {value}")
            for method in setup.values("methods")
            for value in setup.values(self.values_name)
        ]


def sweep_outcome(
    points: Sequence[tuple[str, Number, Row, Summary]],
    untuned: Summary,
    column: Column,
    key: str,
    varied: str,
    caption: str,
    notes: Sequence[str],
) -> Outcome:
    """Make the table and the figure of a sweep.

    Args:
        points: Method, value, and the row with the comparison it stands in.
        untuned: The comparison with the rows of the untuned encoder, which become horizontal lines.
        column: The column of the values; its title is the figure's axis.
        key: The figure's key.
        varied: What is varied, for titles.
        caption: The figure's caption.
        notes: The study's notes.

    Returns:
        The table, the figure and the notes.
    """
    rows: list[TableRow] = [{"method": m, column.key: x, **row_entries(row, of)} for m, x, row, of in points]
    for label, title in UNTUNED.items():
        rows.append({"method": title, column.key: None, **row_entries(untuned[label], untuned)})
    columns = [Column("method", "method"), column, *row_columns(untuned)]
    lines = {method: [(x, main_value(row, of)) for m, x, row, of in points if m == method] for method, *_ in points}
    levels = {title: main_value(untuned[label], untuned) for label, title in UNTUNED.items()}
    score = untuned.main.title
    figure = Lines(
        key, f"{score} by {varied}", caption, column.title, score, known_series(lines), known_means(levels), True
    )
    return Outcome([Table("scores", f"Scores by {varied}", columns, rows)], [figure], notes)
