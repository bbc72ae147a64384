"""How the cells of a table are separated and quoted, found from its first lines."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from selfguide.data.lines import LONGEST_LINE
from selfguide.data.options import SEPARATOR_NAMES

_CANDIDATES = (",", ";", "\t", "|")
_CONSISTENT = 0.9
"""The share of rows that must have as many columns as the first row."""


@dataclass(frozen=True)
class Dialect:
    """Separator and quotation mark; None: lines are not divided, and nothing is quoted."""

    delimiter: str | None = ","
    quote: str | None = '"'

    @property
    def separator_name(self) -> str:
        """The separator in words."""
        words = {mark: word for word, mark in SEPARATOR_NAMES.items()}
        return words.get(self.delimiter, repr(self.delimiter)) if self.delimiter else "none"

    def rows(self, lines: Iterable[str], *, strict: bool = True) -> Iterator[list[str]]:
        """Divide lines, without their line ends, into cells; a row without cells is a blank line.

        Args:
            lines: The lines.
            strict: Raise ``csv.Error`` at a quotation mark that is out of place, instead of taking it as it is.

        Yields:
            The cells of each row.
        """
        if self.delimiter is None:
            return ([cells] if (cells := line.rstrip("\r")) else [] for line in lines)
        if self.quote is None:
            return (cells.split(self.delimiter) if (cells := line.rstrip("\r")) else [] for line in lines)
        # The limit belongs to the whole process, so it is only ever raised, to our own bound on a line.
        csv.field_size_limit(max(LONGEST_LINE, csv.field_size_limit()))
        # Strict, because otherwise a quote that is never closed would silently swallow the rest of the file.
        return csv.reader(
            (line + "\n" for line in lines), delimiter=self.delimiter, quotechar=self.quote, strict=strict
        )


def detect_dialect(lines: Sequence[str]) -> Dialect:
    """Find the separator and the quotation mark of a CSV file.

    A separator is one if nine rows of ten have as many columns as the first row, and more than one. Of several, the one with the
    fewest exceptions is taken, then the one with the most columns.

    Args:
        lines: The first lines of the file, without their line ends.

    Returns:
        The dialect; commas and double quotes where no separator divides the rows evenly.
    """
    quote = "'" if _single_quoted(lines) else '"'
    best, dialect = (0.0, 0), Dialect(",", quote)
    for delimiter in _CANDIDATES:
        candidate = Dialect(delimiter, quote)
        widths = [len(row) for row in sample_rows(candidate, lines)]
        if not widths or widths[0] < 2:
            continue
        share = Counter(widths)[widths[0]] / len(widths)
        if share >= _CONSISTENT and (share, widths[0]) > best:
            best, dialect = (share, widths[0]), candidate
    return dialect


def sample_rows(dialect: Dialect, lines: Sequence[str]) -> list[list[str]]:
    """Return the rows that are not blank among the first lines; a row that the sample cuts off is left out."""
    rows: list[list[str]] = []
    try:
        for row in dialect.rows(lines, strict=False):
            if row:
                rows.append(row)
    except csv.Error:
        pass
    open_quote = dialect.quote is not None and sum(line.count(dialect.quote) for line in lines) % 2
    return rows[:-1] if open_quote and len(rows) > 1 else rows


def _single_quoted(lines: Sequence[str]) -> bool:
    """Return whether every cell that is not a number is enclosed in single quotation marks."""
    filled = [line.rstrip("\r") for line in lines if line.strip()]
    cell = r"(?:'(?:[^']|'')*'|[\d.,+-]*)"
    row = re.compile(rf"{cell}(?:[,;\t|]{cell})*")
    return bool(filled) and filled[0].startswith("'") and all(row.fullmatch(line) for line in filled)
