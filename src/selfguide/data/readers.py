"""Readers of line-based formats and of strings: each yields batches of raw rows and names the row that is at fault."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

from selfguide.data.bad_rows import BadRows
from selfguide.data.cleaning import Record, Row, has_surrogates, replace_surrogates
from selfguide.data.columns import USUAL_NAMES, has_sentences, usual_name
from selfguide.data.lines import BLOCK, ByteSource, TextLines, text_chunks
from selfguide.data.messages import REPLACE_BAD_UTF8, listed, shortened
from selfguide.data.options import TextOptions
from selfguide.errors import SelfguideError, UsageError

Batches = Generator[list[Row], None, None]

BATCH_ROWS = 4096
_BATCH_CHARS = 1 << 20
# A mistyped field name should be found early, yet the first records of a file may lack a field.
_RECORDS_WITHOUT_FIELD = 100
_SAMPLED_LINES = 100


class Reader:
    """A source of rows.

    Args:
        name: What messages call the source.
        one_shot: Whether it can be read only once.
    """

    takes: ClassVar[Literal["column", "field"] | None] = None
    """The option that says where in a row the sentence is."""
    took: str | None = None
    """Which column or field is read and why, for the user to check; known after the first row."""
    with_columns = False
    """Whether rows carry the other cells of their record, as :class:`~selfguide.data.cleaning.Record`."""

    def __init__(self, name: str, *, one_shot: bool = False) -> None:
        self.name = name
        self.one_shot = one_shot

    def check(self) -> None:
        """Read a little, so that an unusable source is reported before anything costly starts."""
        if not self.one_shot:
            with closing(self.batches()) as batches:
                next(batches, None)

    def file(self) -> Path | None:
        """Return the file that is read; ``None`` where the source is none."""
        return None

    def progress(self) -> tuple[int, int] | None:
        """Return how much of the source has been read and how much there is, in bytes; ``None`` where that is not known."""
        return None

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


class FileReader(Reader):
    """Reads text from a file, a pipe or standard input."""

    def __init__(self, source: ByteSource, options: TextOptions) -> None:
        super().__init__(source.name, one_shot=source.one_shot)
        self.source = source
        self._options = options

    def file(self) -> Path | None:
        """See :meth:`Reader.file`."""
        return self.source.path

    def progress(self) -> tuple[int, int] | None:
        """See :meth:`Reader.progress`."""
        path = self.source.path
        if path is None or self.one_shot:
            return None
        try:
            return self.source.meter.place, path.stat().st_size
        except OSError:
            return None


class LinesReader(FileReader):
    """Reads one sentence per line."""

    def batches(self) -> Batches:
        """See :meth:`Reader.batches`."""
        # What is kept of a giant line must be long enough to be cut to max_chars after cleaning: a character has up to
        # 4 bytes, and some may be white space.
        longest = max(4 * BLOCK, 8 * self._options.max_chars)
        for lines in text_chunks(self.source, longest, self._options.on_bad_utf8):
            yield cast("list[Row]", lines)


class JsonReader(FileReader):
    """Reads a field of one JSON object per line."""

    takes = "field"

    def __init__(self, source: ByteSource, options: TextOptions, known_field: bool = False) -> None:
        super().__init__(source, options)
        self._known_field = known_field  # some record of the file has it, though perhaps none of this slice

    def field(self) -> str:
        """Return the field that holds the sentences."""
        lines = TextLines(self.source, self._options.on_bad_utf8)
        return self._options.field or self._found_field(lines.peek(_SAMPLED_LINES))

    def rows(self) -> Iterator[Row]:
        """See :meth:`Reader.rows`."""
        lines = TextLines(self.source, self._options.on_bad_utf8)
        field = self._options.field or self._found_field(lines.peek(_SAMPLED_LINES))
        bad = BadRows(self._options.skip_bad_rows)
        met = self._known_field
        without: list[dict[str, Any]] = []  # records before the first that has the field
        held: list[Row] = []  # rows wait until then, so that a mistyped name is an error from the start
        for line in lines:
            row: Row = ""
            if line.strip():
                try:
                    record = _parsed_record(line, lines)
                    value, present = _looked_up(record, field)
                    row = self._checked(value, field, lines)
                    if self.with_columns and row is not None:
                        row = Record.of(row, {name: cell for name, cell in flat(record) if name != field})
                except SelfguideError as error:
                    row = bad.refused(error)
                else:
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

    def _found_field(self, sample: list[str]) -> str:
        """Return the field of the sentences by the first records, which need not all have the same fields."""
        values: dict[str, list[object]] = {}
        for record in _records(sample):
            for name, value in flat(record):
                values.setdefault(name, []).append(value)
        names = list(values)
        found = usual_name(names) or (names[0] if len(names) == 1 else None)
        why = "by its name" if found is not None and len(names) > 1 else "the only one"
        if found is None:
            texts = [name for name in names if has_sentences([x for x in values[name] if isinstance(x, str)])]
            found, why = (texts[0] if len(texts) == 1 else None), "the only one with sentences"
        if names and found is None:
            raise SelfguideError(
                f"{self.name} has the fields {listed(names)}: say which one holds the sentences with --field (in Python field=)."
            )
        if len(names) > 1 or (found and "." in found):
            self.took = f"{self.name}: field {shortened(found)} of {len(names)}, {why}."
        return found or USUAL_NAMES[0]

    def _checked(self, value: object, field: str, lines: TextLines) -> Row:
        if value is None:
            return None
        if not isinstance(value, str):
            raise lines.error(
                f"holds {type(value).__name__} {shortened(value)} in field {field!r}, where text is wanted."
            )
        return without_surrogates(lines.marked(value), f"{self.name}, line {lines.number}", self._options)


def _records(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the records among some lines; others are skipped here and refused when they are read."""
    for line in lines:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            yield record


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


_DEEPEST = 8


def flat(record: dict[str, Any], prefix: str = "", depth: int = 0) -> Iterator[tuple[str, object]]:
    """Yield the fields of a record, those of nested objects under dotted names.

    Args:
        record: The record.
        prefix: What stands before their names.
        depth: How deep it is nested; what is nested too deeply stays an object.

    Yields:
        Name and value.
    """
    for name, value in record.items():
        if isinstance(value, dict) and value and depth < _DEEPEST:
            yield from flat(value, f"{prefix}{name}.", depth + 1)
        else:
            yield prefix + name, value


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
        raise SelfguideError(
            f"{where} holds half a surrogate pair, which is not valid text: fix it, or {REPLACE_BAD_UTF8}."
        )
    return replace_surrogates(text)
