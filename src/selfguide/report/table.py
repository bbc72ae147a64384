"""The one table model, with its writers for the terminal, CSV, Markdown and LaTeX.

Its HTML form is the macro ``table`` in ``templates/parts.html.j2``.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from rich.markup import escape
from rich.table import Table as TerminalTable

from selfguide.escaping import csv_text, markdown_text
from selfguide.report.formatting import setting

if TYPE_CHECKING:
    from rich.console import Console

_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "−": "$-$"}
_LATEX |= {character: "\\" + character for character in "&%$#_{}"} | {"<": "$<$", ">": "$>$", "†": r"$^\dagger$"}


@dataclass(frozen=True)
class Cell:
    """One cell of a table; everything that is shown of it is plain text."""

    text: str
    note: str = ""
    """Shown smaller after the text: a deviation or a p-value."""
    value: float | None = None
    """The exact number: sorted by and written to CSV."""
    deviation: float | None = None
    """The exact standard deviation over seeds."""
    sentence: bool = False
    """Whether the text is a sentence of the user's, in any language and direction."""


MISSING = Cell("–")
"""A cell without a value; its field in CSV is empty."""


@dataclass(frozen=True)
class Heading:
    """The heading of a column, and how the column is written."""

    title: str
    numeric: bool = True
    key: str = ""
    """The column's name in CSV; the title unless given."""
    spread: bool = False
    """Whether CSV gets a second column for the deviations, ``KEY sd``."""
    better: Literal["", "high", "low"] = ""
    """Which of the column's numbers is the best one, to be set in bold."""
    help: str = ""
    optional_notes: bool = False
    """Whether a terminal that is too narrow may leave out the column's notes."""


@dataclass(frozen=True)
class Table:
    """Rows of cells under headings; the first column names the row."""

    headings: Sequence[Heading]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    notes: tuple[str, ...] = ()
    sortable: bool = True
    """Whether a reader of the page can sort the rows."""

    @cached_property
    def best(self) -> list[str | None]:
        """The best number of each column as it is shown: what looks the same is equally good."""
        found: list[str | None] = []
        for place, heading in enumerate(self.headings):
            known = [(row[place].value or 0.0, row[place].text) for row in self.rows if row[place].value is not None]
            choose = {"high": max, "low": min}.get(heading.better)
            found.append(choose(known, key=lambda pair: pair[0])[1] if choose and known else None)
        return found

    @cached_property
    def note_widths(self) -> list[int]:
        """The number of characters of each column's longest note."""
        return [max((len(row[place].note) for row in self.rows), default=0) for place in range(len(self.headings))]

    def is_best(self, place: int, cell: Cell) -> bool:
        """Return whether a cell of a column is to be set in bold."""
        return cell.value is not None and cell.text == self.best[place]


def settings_table(values: Mapping[str, Any], caption: str) -> Table:
    """Make a table of settings.

    Args:
        values: The settings by their names.
        caption: The table's caption.

    Returns:
        A table of two columns.
    """
    rows = [[Cell(name.replace("_", " ")), Cell(setting(value))] for name, value in values.items()]
    return Table([Heading("setting", numeric=False), Heading("value", numeric=False)], rows, caption, sortable=False)


def to_csv(table: Table) -> str:
    """Write a table as CSV, numbers in full.

    Args:
        table: The table.

    Returns:
        The CSV text.
    """
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    keys = [(heading.key or heading.title, heading.spread) for heading in table.headings]
    writer.writerow([csv_text(name) for key, spread in keys for name in ([key, f"{key} sd"] if spread else [key])])
    for row in table.rows:
        fields: list[str | float] = []
        for heading, cell in zip(table.headings, row, strict=True):
            text = "" if cell is MISSING else csv_text(cell.text)
            fields.append(text if cell.value is None else cell.value)
            if heading.spread:
                fields.append("" if cell.deviation is None else cell.deviation)
        writer.writerow(fields)
    return target.getvalue()


def to_markdown(table: Table, *, markup: bool = False) -> str:
    """Write a table in Markdown, the best of each column in bold, with its notes as paragraphs below it.

    Args:
        table: The table.
        markup: Whether its texts are Markdown themselves; otherwise they are shown as they are, also where they come from outside
            and hold characters that would be markup.

    Returns:
        The Markdown text.
    """
    shown: Callable[[str], str] = _in_a_cell if markup else markdown_text

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cells) + " |"

    lines = [line([shown(heading.title) for heading in table.headings])]
    lines.append(f"| {' | '.join(['---', *['--:'] * (len(table.headings) - 1)])} |")
    for row in table.rows:
        plain = [shown(cell.text) for cell in row]
        texts = [f"**{text}**" if table.is_best(place, row[place]) else text for place, text in enumerate(plain)]
        lines.append(line([f"{text} {shown(cell.note)}".strip() for text, cell in zip(texts, row, strict=True)]))
    return "\n\n".join(["\n".join(lines), *(table.notes if markup else map(markdown_text, table.notes))])


def _in_a_cell(text: str) -> str:
    return text.replace("|", "\\|")


def to_latex(table: Table) -> str:
    """Write a table as a booktabs tabular, with its notes as comments above it.

    Args:
        table: The table.

    Returns:
        The LaTeX text.
    """

    def shown(place: int, cell: Cell) -> str:
        text = rf"\textbf{{{_latex(cell.text)}}}" if table.is_best(place, cell) else _latex(cell.text)
        return text + (rf" {{\scriptsize {_latex(cell.note)}}}" if cell.note else "")

    lines = [*(f"% {' '.join(note.split())}" for note in table.notes), "% needs \\usepackage{booktabs}"]
    lines += [rf"\begin{{tabular}}{{l{'r' * (len(table.headings) - 1)}}}", r"\toprule"]
    lines += [" & ".join(_latex(heading.title) for heading in table.headings) + r" \\", r"\midrule"]
    lines += [" & ".join(shown(place, cell) for place, cell in enumerate(row)) + r" \\" for row in table.rows]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def print_table(table: Table, console: Console) -> None:
    """Print a table with its caption and notes on a terminal.

    Args:
        table: The table. Where the terminal is too narrow, the notes of columns with ``optional_notes`` are left out.
        console: Where to print. It is widened for a table that is wider still, since wrapped lines are better than
            numbers cut short.
    """

    def width(made: TerminalTable) -> int:
        return console.measure(made, options=console.options.update(width=10_000)).maximum

    made = _terminal_table(table, every_note=True)
    if width(made) > console.width:
        made = _terminal_table(table, every_note=False)
    console.width = max(console.width, width(made))
    console.print(made)
    for note in table.notes:
        console.print(note, markup=False)


def _terminal_table(table: Table, every_note: bool) -> TerminalTable:
    first, *others = table.headings
    made = TerminalTable(escape(first.title), box=None, padding=(0, 2, 0, 0))
    if table.caption:
        made.title, made.title_justify = escape(table.caption), "left"
    for heading in others:
        made.add_column(escape(heading.title), justify="right", no_wrap=True)
    for row in table.rows:
        line = []
        for place, (heading, cell) in enumerate(zip(table.headings, row, strict=True)):
            text = f"[bold]{escape(cell.text)}[/bold]" if table.is_best(place, cell) else escape(cell.text)
            line.append(f"{text} {cell.note}".strip() if every_note or not heading.optional_notes else text)
        made.add_row(*line)
    return made


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
