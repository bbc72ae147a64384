"""Readers of line-based formats and of strings: each yields batches of raw rows and names the row that is at fault."""

from __future__ import annotations

import csv
import json
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, ClassVar, Literal

from selfguide.data.cleaning import Row, has_surrogates, replace_surrogates
from selfguide.data.lines import BLOCK, LONGEST_LINE, ByteSource, TextLines, text_chunks
from selfguide.data.messages import NAME_THE_COLUMN, REPLACE_BAD_UTF8, listed, shortened
from selfguide.data.options import TextOptions
from selfguide.errors import SelfguideError, UsageError

Batches = Generator[list[Row], None, None]

BATCH_ROWS = 4096
_BATCH_CHARS = 1 << 20
# A mistyped field name should be found early, yet the first records of a file may lack a field.
_RECORDS_WITHOUT_FIELD = 100
_USUAL_NAMES = ("text", "sentence")


class Reader:
    """A source of rows.

    Args:
        name: What messages call the source.
        one_shot: Whether it can be read only once.
    """

    takes: ClassVar[Literal["column", "field"] | None] = None
    """The option that says where in a row the sentence is."""

    def __init__(self, name: str, *, one_shot: bool = False) -> None:
        self.name = name
        self.one_shot = one_shot

    def check(self) -> None:
        """Read a little, so that an unusable source is reported before anything costly starts."""
        if not self.one_shot:
            with closing(self.batches()) as batches:
                next(batches, None)

    def batches(self) -> Batches:
        """Yield lists of rows, bounded in number and characters; on an error, those before it come first."""
        batch: list[Row] = []
        chars = 0
        try:
            for row in self.rows():
                batch.append(row)
                chars += len(row) if row else 0
                if len(batch) >= BATCH_ROWS or chars >= _BATCH_CHARS:
                    yield batch
                    batch, chars = [], 0
        except SelfguideError as error:
            if batch:
                yield batch
            raise error
        if batch:
            yield batch

    def rows(self) -> Iterator[Row]:
        """Yield the rows one by one, for readers that do not read in batches."""
        raise NotImplementedError


class _FileReader(Reader):
    def __init__(self, source: ByteSource, options: TextOptions) -> None:
        super().__init__(source.name, one_shot=source.one_shot)
        self._source = source
        self._options = options


class LinesReader(_FileReader):
    """Reads one sentence per line."""

    def batches(self) -> Batches:
        """See :meth:`Reader.batches`."""
        # What is kept of a giant line must be long enough to be cut to max_chars after cleaning: a character has up to
        # 4 bytes, and some may be white space.
        longest = max(4 * BLOCK, 8 * self._options.max_chars)
        for lines in text_chunks(self._source, longest, self._options.on_bad_utf8):
            yield list[Row](lines)


class TableReader(_FileReader):
    """Reads a column of comma-separated rows (quoted as in spreadsheets) or tab-separated ones (nothing is quoted)."""

    takes = "column"

    def __init__(self, source: ByteSource, options: TextOptions, *, tabs: bool) -> None:
        super().__init__(source, options)
        self._tabs = tabs

    def rows(self) -> Iterator[Row]:
        """See :meth:`Reader.rows`."""
        lines = TextLines(self._source, self._options.on_bad_utf8)
        rows = _tab_rows(lines) if self._tabs else _comma_rows(lines)
        first = next((row for row in rows if row), None)
        if first is None:
            return
        index, is_header = _find_table_column(self.name, first, self._options.column)
        if not is_header:
            yield lines.marked(first[index]) or None
        for row in rows:
            if row and len(row) != len(first):
                way_out = "a cell cannot hold a tab" if self._tabs else "put quotes around cells that hold a comma"
                raise lines.error(f"has {len(row)} columns where the first row has {len(first)}: {way_out}.")
            # A row without cells is a blank line, an empty cell is a missing value.
            yield (lines.marked(row[index]) or None) if row else ""


def _tab_rows(lines: TextLines) -> Iterator[list[str]]:
    for line in lines:
        cells = line.rstrip("\r")
        yield cells.split("\t") if cells else []


def _comma_rows(lines: TextLines) -> Iterator[list[str]]:
    # The limit belongs to the whole process, so it is only ever raised, to our own bound on a line.
    csv.field_size_limit(max(LONGEST_LINE, csv.field_size_limit()))
    # Strict, because otherwise a quote that is never closed would silently swallow the rest of the file.
    rows = csv.reader((line + "\n" for line in lines), strict=True)
    while True:
        first_line = rows.line_num + 1
        try:
            row = next(rows, None)
        except csv.Error as error:
            raise SelfguideError(
                f"{lines.name}, line {first_line} begins a row that is not valid CSV ({error}): "
                f"look for a quote that is not closed or not doubled."
            ) from error
        if row is None:
            return
        yield row


class JsonReader(_FileReader):
    """Reads a field of one JSON object per line."""

    takes = "field"

    def rows(self) -> Iterator[Row]:
        """See :meth:`Reader.rows`."""
        lines = TextLines(self._source, self._options.on_bad_utf8)
        field = self._options.field
        met = False
        without: list[dict[str, Any]] = []  # records before the first that has the field
        held: list[Row] = []  # rows wait until then, so that a mistyped name is an error from the start
        for line in lines:
            row: Row = ""
            if line.strip():
                record = _parsed_record(line, lines)
                field = field or self._usual_field(record)
                value, present = _looked_up(record, field)
                row = self._checked(value, field, lines)
                met = met or present
                if not met:
                    without.append(record)
            held.append(row)
            if met:
                yield from held
                held.clear()
            elif len(without) == _RECORDS_WITHOUT_FIELD:
                break
        if without and not met:
            raise SelfguideError(
                f"{self.name} has no field {field!r} in its first {len(without):,} records: "
                f"set field to one of {listed(list(without[-1]))} (a dot leads into a nested object)."
            )
        yield from held

    def _usual_field(self, record: dict[str, Any]) -> str:
        names = list(record)
        found = _usual_name(names) or (names[0] if len(names) == 1 else None)
        if found is None:
            raise SelfguideError(
                f"{self.name} has the fields {listed(names)}: say which one holds the sentences with field."
            )
        return found

    def _checked(self, value: object, field: str, lines: TextLines) -> Row:
        if value is None:
            return None
        if not isinstance(value, str):
            raise lines.error(
                f"holds {type(value).__name__} {shortened(value)} in field {field!r}, where text is wanted."
            )
        return without_surrogates(lines.marked(value), f"{self.name}, line {lines.number}", self._options)


def _parsed_record(line: str, lines: TextLines) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise lines.error(f"is not valid JSON ({error}): every line must be one JSON object.") from error
    if not isinstance(record, dict):
        raise lines.error(f'is not a JSON object but {shortened(line)}: write {{"text": "..."}}.')
    return record


def _looked_up(record: dict[str, Any], path: str) -> tuple[object, bool]:
    """Return the value at a dotted path and whether it exists; a field whose own name has dots takes precedence."""
    if path in record:
        return record[path], True
    value: object = record
    for name in path.split("."):
        if not isinstance(value, dict) or name not in value:
            return None, False
        value = value[name]
    return value, True


class StringsReader(Reader):
    """Reads sentences from memory or from a caller's generator."""

    def __init__(self, strings: Iterable[str], options: TextOptions) -> None:
        super().__init__("the given sentences", one_shot=iter(strings) is strings)
        self._strings = strings
        self._options = options

    def check(self) -> None:
        """Check the elements of a list now, which is cheap, rather than in the middle of training."""
        if isinstance(self._strings, list | tuple):
            for index, value in enumerate(self._strings):
                _require_str(index, value)

    def rows(self) -> Iterator[Row]:
        """See :meth:`Reader.rows`."""
        for index, value in enumerate(self._strings):
            _require_str(index, value)
            yield without_surrogates(value, f"Element {index} of the given sentences", self._options)


def _require_str(index: int, value: object) -> None:
    if not isinstance(value, str):
        raise UsageError(
            f"Element {index} of the given sentences is {type(value).__name__} {shortened(value)}, not a str."
        )


def without_surrogates(text: str, where: str, options: TextOptions) -> str:
    """Treat half of a surrogate pair, which UTF-8 cannot encode, as ``on_bad_utf8`` says; ``where`` names the row.

    Args:
        text: What was read.
        where: The row, for the message.
        options: How text is read.

    Returns:
        The text, which UTF-8 can encode.
    """
    if not has_surrogates(text):
        return text
    if options.on_bad_utf8 == "error":
        raise SelfguideError(f"{where} holds half a surrogate pair, which is no text: mend it, or {REPLACE_BAD_UTF8}.")
    return replace_surrogates(text)


def _find_table_column(name: str, first: Sequence[str], wanted: str | None) -> tuple[int, bool]:
    """Return the number of the sentences' column, and whether the first row is a header."""
    titles = [cell.strip() for cell in first]
    if wanted is None:
        usual = _usual_name(titles)
        if usual is not None:
            return titles.index(usual), True
        if len(titles) == 1:
            return 0, False
        raise SelfguideError(f"{name} has {len(titles)} columns ({listed(titles)}): {NAME_THE_COLUMN}.")
    if wanted.isdecimal():
        if int(wanted) < len(titles):
            return int(wanted), False
        raise SelfguideError(f"{name} has no column {wanted}: it has {len(titles)}, counted from 0 ({listed(titles)}).")
    if wanted in titles:
        return titles.index(wanted), True
    raise SelfguideError(
        f"{name} has no column {wanted!r}: set column to one of {listed(titles)}, or to its number from 0."
    )


def find_named_column(name: str, columns: Sequence[str], wanted: str | None) -> str:
    """Return the name of the sentences' column in a table whose columns all have names."""
    if wanted is None:
        found = _usual_name(columns) or (columns[0] if len(columns) == 1 else None)
        if found is None:
            raise SelfguideError(f"{name} has the columns {listed(columns)}: {NAME_THE_COLUMN}.")
        return found
    if wanted in columns:
        return wanted
    if wanted.isdecimal() and int(wanted) < len(columns):
        return columns[int(wanted)]
    raise SelfguideError(f"{name} has no column {wanted!r}: set column to one of {listed(columns)}.")


def _usual_name(names: Sequence[str]) -> str | None:
    for usual in _USUAL_NAMES:
        for name in names:
            if name.strip().casefold() == usual:
                return name
    return None
