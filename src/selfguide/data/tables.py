"""Readers of comma-separated and tab-separated files: separator, quotation marks and header are detected and reported."""

from __future__ import annotations

import csv
from collections.abc import Iterator

from selfguide.data.bad_rows import BadRows
from selfguide.data.cleaning import Cell, Record, Row
from selfguide.data.columns import FoundColumn, find_table_column
from selfguide.data.dialect import Dialect, detect_dialect, named_separator, sample_rows, tabs_are_quoted
from selfguide.data.lines import ByteSource, TextLines
from selfguide.data.messages import shortened
from selfguide.data.options import NO_SEPARATOR, SEPARATOR_NAMES, TextOptions
from selfguide.data.readers import FileReader
from selfguide.errors import SelfguideError

_SAMPLED_LINES = 200


class TableReader(FileReader):
    """Reads a column of comma-separated rows (quoted as in spreadsheets) or tab-separated ones (seldom quoted)."""

    takes = "column"

    def __init__(self, source: ByteSource, options: TextOptions, *, tabs: bool) -> None:
        super().__init__(source, options)
        self._tabs = tabs

    def rows(self) -> Iterator[Row]:
        """See :meth:`Reader.rows`."""
        lines = TextLines(self.source, self._options.on_bad_utf8)
        sample = lines.peek(_SAMPLED_LINES)
        named = named_separator(sample) if self._options.delimiter is None else None
        if named is not None:
            next(iter(lines))
            sample = sample[1:]
        dialect = Dialect(named) if named is not None else self._dialect(sample)
        sampled = sample_rows(dialect, sample)
        if not sampled:
            yield from ("" for _ in lines)  # blank lines alone, or an error
            return
        column = find_table_column(self.name, sampled, self._options.column, self._options.header)
        self.took = _description(self.name, dialect, column, sampled[0])
        bad = BadRows(self._options.skip_bad_rows)
        rows = self._divided(lines, dialect, bad)
        first = next((row for row in rows if row), None)
        if first is None:
            return
        titles = _titles(first, column)
        if not column.header:
            yield self._row(first, titles, column.place, lines)
        for row in rows:
            if row is None:
                yield bad.row
            elif row and len(row) != len(first):
                yield bad.refused(lines.error(_ragged(row, first, dialect)))
            else:
                # A row without cells is a blank line, an empty cell is a missing value.
                yield self._row(row, titles, column.place, lines) if row else ""

    def _row(self, cells: list[str], titles: list[str], place: int, lines: TextLines) -> Row:
        row = lines.marked(cells[place]) or None
        if row is None or not self.with_columns:
            return row
        others = zip(titles, cells, strict=True)
        return Record.of(row, {name: Cell(cell) for number, (name, cell) in enumerate(others) if number != place})

    def _dialect(self, sample: list[str]) -> Dialect:
        wanted = self._options.delimiter
        if wanted == NO_SEPARATOR:
            return Dialect(None, None)
        quote = None if self._tabs else '"'
        if wanted is not None:
            return Dialect(SEPARATOR_NAMES.get(wanted, wanted), quote)
        if self._tabs:
            return Dialect("\t", '"' if tabs_are_quoted(sample) else None)
        return detect_dialect(sample)

    def _divided(self, lines: TextLines, dialect: Dialect, bad: BadRows) -> Iterator[list[str] | None]:
        """Yield the rows, None for a bad row that is skipped."""
        rows = dialect.rows(lines)
        while True:
            first_line = lines.number + 1
            try:
                row = next(rows, None)
            except csv.Error as error:
                problem = SelfguideError(
                    f"{lines.name}, line {first_line} begins a row that is not valid CSV ({error}): "
                    "look for a quote that is not closed or not doubled."
                )
                if "end of data" in str(error):  # the rest of the file is inside the quotes
                    raise problem from error
                bad.refused(problem)
                yield None
                continue
            if row is None:
                return
            yield row


def _titles(first: list[str], column: FoundColumn) -> list[str]:
    """Return the columns' names: those of the header, ``column 2`` where it has none, and no name twice."""
    titles: list[str] = []
    for place, cell in enumerate(first):
        title = cell.strip() if column.header else ""
        titles.append(title if title and title not in titles else f"column {place}")
    return titles


def _ragged(row: list[str], first: list[str], dialect: Dialect) -> str:
    """Return what is wrong with a row of another width, and the advice that fits."""
    mark = "tab" if dialect.delimiter == "\t" else dialect.separator_name
    columns = f"has {len(row)} column{'' if len(row) == 1 else 's'} where the first row has {len(first)}"
    if len(first) == 1:
        way_out = (
            f"if every line is one sentence, give the file the ending .txt or pass --delimiter {NO_SEPARATOR} (in Python "
            f'delimiter="{NO_SEPARATOR}"); if not, put quotes around cells that hold a {mark}'
        )
    elif len(row) < len(first):
        way_out = "a cell is missing, or a line break in a cell has divided the row"
        way_out += "" if dialect.quote is None else ": put quotes around such a cell"
    elif dialect.quote is None:
        way_out = f"a cell cannot hold a {mark}"
    else:
        way_out = f"put quotes around cells that hold a {mark}"
    return f"{columns}: {way_out}."


def _description(name: str, dialect: Dialect, column: FoundColumn, first: list[str]) -> str:
    width = len(first)
    named = f" {shortened(first[column.place].strip())}" if column.header else ""
    which = (
        f"column {column.place}{named} of {width} (from 0), {column.why}" if width > 1 else f"its only column{named}"
    )
    header = "the first row is a header" if column.header else "no header, the first row is text"
    separated = f"; separator: {dialect.separator_name}" if width > 1 else ""
    return f"{name}: {which}; {header}{separated}."
