"""One reader a line-based format: each turns a source into batches of raw rows, and knows how to name a faulty one."""

from __future__ import annotations

import csv
import json
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from typing import Any, ClassVar, Literal

from selfguide.data.cleaning import Row, has_surrogates, replace_surrogates
from selfguide.data.columns import find_table_column, find_usual_name
from selfguide.data.messages import REPLACE_BAD_UTF8, listed, shortened
from selfguide.data.options import TextOptions
from selfguide.data.streams import BLOCK, LONGEST_LINE, ByteSource, TextLines, text_chunks
from selfguide.errors import SelfguideError, UsageError

Batches = Generator[list[Row], None, None]

BATCH_ROWS = 4096
_BATCH_CHARS = 1 << 20
# Typing mistakes in a field's name are to be found early, yet the first records of a file may well lack a field.
_RECORDS_WITHOUT_FIELD = 100


class Reader:
    """A named source of rows. ``takes`` is the option that says where in a row the sentence is."""

    takes: ClassVar[Literal["column", "field"] | None] = None

    def __init__(self, name: str, *, one_shot: bool = False) -> None:
        self.name = name
        self.one_shot = one_shot

    def check(self) -> None:
        """Read a little, so that an unusable source is reported before anything costly is begun."""
        if not self.one_shot:
            with closing(self.batches()) as batches:
                next(batches, None)

    def batches(self) -> Batches:
        """The rows in order; when a row is at fault, those before it come first and then the error."""
        raise NotImplementedError


class LinesReader(Reader):
    """One sentence a line."""

    def __init__(self, source: ByteSource, options: TextOptions) -> None:
        super().__init__(source.name, one_shot=source.one_shot)
        self._source = source
        self._on_bad_utf8 = options.on_bad_utf8
        # The head that is held of a giant line must be long enough to be cut to max_chars after cleaning: a character
        # has up to 4 bytes, and some of them may be white space.
        self._longest = max(4 * BLOCK, 8 * options.max_chars)

    def batches(self) -> Batches:
        for lines in text_chunks(self._source, self._longest, self._on_bad_utf8):
            yield list[Row](lines)


class TableReader(Reader):
    """Comma-separated (quoted as spreadsheets do) or tab-separated (nothing is quoted or escaped) rows."""

    takes = "column"

    def __init__(self, source: ByteSource, options: TextOptions, *, tabs: bool) -> None:
        super().__init__(source.name, one_shot=source.one_shot)
        self._source = source
        self._options = options
        self._tabs = tabs

    def batches(self) -> Batches:
        return in_batches(self._cells())

    def _cells(self) -> Iterator[Row]:
        lines = TextLines(self._source, self._options.on_bad_utf8)
        rows = _tab_rows(lines) if self._tabs else _comma_rows(lines)
        first = next((row for row in rows if row), None)
        if first is None:
            return
        index, is_header = find_table_column(self.name, first, self._options.column)
        if not is_header:
            yield lines.marked(first[index]) or None
        for row in rows:
            if row and len(row) != len(first):
                raise lines.error(self._misfit(len(row), len(first)))
            # No cells at all is a blank line, an empty cell is a missing value.
            yield (lines.marked(row[index]) or None) if row else ""

    def _misfit(self, found: int, expected: int) -> str:
        way_out = "a cell cannot hold a tab" if self._tabs else "put quotes around cells that hold a comma"
        return f"has {found} columns where the first row has {expected}: {way_out}."


def _tab_rows(lines: TextLines) -> Iterator[list[str]]:
    for line in lines:
        cells = line.rstrip("\r")
        yield cells.split("\t") if cells else []


def _comma_rows(lines: TextLines) -> Iterator[list[str]]:
    # The limit is one for the whole process; it is only ever raised, to where our own bound on a line is what counts.
    csv.field_size_limit(max(LONGEST_LINE, csv.field_size_limit()))
    # Strict, or else a quote that is never closed would swallow the rest of the file without a word.
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


class JsonReader(Reader):
    """One JSON object a line."""

    takes = "field"

    def __init__(self, source: ByteSource, options: TextOptions) -> None:
        super().__init__(source.name, one_shot=source.one_shot)
        self._source = source
        self._options = options

    def batches(self) -> Batches:
        return in_batches(self._values())

    def _values(self) -> Iterator[Row]:
        lines = TextLines(self._source, self._options.on_bad_utf8)
        field = self._options.field
        met = False
        without: list[dict[str, Any]] = []  # records before the first that has the field
        held: list[Row] = []  # rows are held back until then, so that a mistyped name is an error from the start
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
        found = find_usual_name(names) or (names[0] if len(names) == 1 else None)
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
    """The value at a dotted path and whether there is one; a field whose own name has dots in it goes first."""
    if path in record:
        return record[path], True
    value: object = record
    for name in path.split("."):
        if not isinstance(value, dict) or name not in value:
            return None, False
        value = value[name]
    return value, True


class StringsReader(Reader):
    """Sentences that are in memory already, or come from a caller's generator."""

    def __init__(self, strings: Iterable[str], options: TextOptions) -> None:
        super().__init__("the given sentences", one_shot=iter(strings) is strings)
        self._strings = strings
        self._options = options

    def check(self) -> None:
        """A list costs little to look through, so a wrong element is named now and not in the middle of training."""
        if isinstance(self._strings, list | tuple):
            for index, value in enumerate(self._strings):
                _require_str(index, value)

    def batches(self) -> Batches:
        return in_batches(self._values())

    def _values(self) -> Iterator[Row]:
        for index, value in enumerate(self._strings):
            _require_str(index, value)
            yield without_surrogates(value, f"Element {index} of the given sentences", self._options)


def _require_str(index: int, value: object) -> None:
    if not isinstance(value, str):
        raise UsageError(
            f"Element {index} of the given sentences is {type(value).__name__} {shortened(value)}, not a str."
        )


def in_batches(rows: Iterator[Row]) -> Batches:
    """Lists of rows, bounded in number and in characters; on an error the rows before it are handed out first."""
    batch: list[Row] = []
    chars = 0
    try:
        for row in rows:
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


def without_surrogates(text: str, where: str, options: TextOptions) -> str:
    """Half characters cannot be written as UTF-8, so they are treated like bad UTF-8."""
    if not has_surrogates(text):
        return text
    if options.on_bad_utf8 == "error":
        raise SelfguideError(f"{where} holds half a surrogate pair, which is no text: mend it, or {REPLACE_BAD_UTF8}.")
    return replace_surrogates(text)
