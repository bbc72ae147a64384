"""A table of ``study.json`` as a :class:`~selfguide.report.table.Table`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from selfguide.report.table import MISSING, Cell, Heading, Table


def study_table(content: Mapping[str, Any]) -> Table:
    """Make a table of what ``study.json`` holds under ``tables``.

    Args:
        content: The table's columns, and its rows by the columns' keys. An entry is a value over seeds, a number, a text,
            or None where it failed.

    Returns:
        The table, with its title as caption.
    """
    columns, rows = content["columns"], content["rows"]
    headings = []
    for column in columns:
        entries = [row.get(column["key"]) for row in rows]
        headings.append(
            Heading(
                column["title"],
                numeric=any(not isinstance(entry, str | None) for entry in entries),
                key=column["key"],
                spread=any(isinstance(entry, Mapping) for entry in entries),
                better=column["better"],
            )
        )
    cells = [[_cell(row.get(column["key"]), column) for column in columns] for row in rows]
    return Table(headings, cells, content["title"], tuple(content["notes"]))


def _cell(entry: Any, column: Mapping[str, Any]) -> Cell:
    if isinstance(entry, str):
        return Cell(entry)
    mean, deviation = (entry["mean"], entry["deviation"]) if isinstance(entry, Mapping) else (entry, None)
    if mean is None:
        return MISSING
    form = ",.0f" if isinstance(mean, int) else "g" if column["decimals"] is None else f",.{column['decimals']}f"
    text = f"{mean:{'+' if column['sign'] else ''}{form}}".replace("-", "−")
    return Cell(text, "" if deviation is None else f"± {deviation:{form}}", mean, deviation)
