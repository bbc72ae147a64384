"""Markdown tables of texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from experiments.pages.figures import figure

SETS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
SET_TITLES = ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R")


def table(head: str, rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table.

    Args:
        head: Titles of the columns, separated by bars.
        rows: The cells of each row.
    """
    titles = [title.strip() for title in head.split("|")]
    lines = [titles, *map(list, rows)]
    for line in lines:
        assert len(line) == len(titles), f"{len(line)} cells under {len(titles)} titles: {line}"
    return "\n".join([_line(titles), "|" + "---|" * len(titles), *map(_line, lines[1:])])


def seven(label: str, row: str, decimals: int = 2, *, spread: bool = False, average: str = "") -> list[str]:
    """Return a row of the seven STS sets and their average.

    Args:
        label: The first cell.
        row: The path of the row.
        decimals: Digits after the point.
        spread: Whether deviations are shown.
        average: The path of the average; by default that of the row.
    """
    cells = [figure(f"{row}/{name}", decimals, spread=spread) for name in SETS]
    return [label, *cells, figure(average or row, decimals, spread=True)]


def bold(text: str) -> str:
    """Return a text in bold."""
    return f"**{text}**"


def best_in_bold(rows: list[list[str]], columns: Iterable[int], among: Iterable[int] | None = None) -> list[list[str]]:
    """Return rows with the highest figure of each column in bold.

    Args:
        rows: Texts of cells; a figure is what stands before ` ±`.
        columns: The columns concerned.
        among: The rows concerned; by default all.
    """
    chosen = list(range(len(rows)) if among is None else among)
    found = [list(row) for row in rows]
    for column in columns:
        numbers = {place: _number(rows[place][column]) for place in chosen if _number(rows[place][column]) is not None}
        for place in numbers:
            if numbers[place] == max(value for value in numbers.values() if value is not None):
                found[place][column] = bold(rows[place][column])
    return found


def _number(cell: str) -> float | None:
    try:
        return float(cell.split(" ±")[0].replace("−", "-").replace(",", ""))
    except ValueError:
        return None


def _line(cells: Sequence[str]) -> str:
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"
