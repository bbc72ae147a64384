"""A text in slices of consecutive rows, each of which any process can read without reading what comes before it.

:func:`plan` passes over the bytes of the files once: it counts rows, finds where each slice begins, and takes a digest of
every slice. :func:`read` gives a slice's sentences, exactly those that a pass over the whole text would give, and refuses a
slice whose bytes have changed since.

A slice never reaches over the end of a file. Plain ``.txt`` and ``.jsonl`` files in UTF-8 and ``.parquet`` files are
divided; compressed files and other encodings, which can only be read from the beginning, are one slice each.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from selfguide.data.dataset_readers import ParquetReader, column_of
from selfguide.data.lines import BLOCK, COMPRESSIONS, ByteSource, translated_errors
from selfguide.data.options import TextOptions
from selfguide.data.readers import JsonReader, LinesReader, Reader
from selfguide.data.sentences import Sentences
from selfguide.data.sources import open_sources
from selfguide.errors import SelfguideError, UsageError

_SCAN = 1 << 20
_LINES, _JSON, _PARQUET = "lines", "json lines", "parquet"


@dataclass(frozen=True)
class Slice:
    """Consecutive rows of one file."""

    path: str
    kind: str
    """lines, json lines or parquet."""
    first: int
    """Number of its first row in the whole text, from 0."""
    rows: int
    start: int
    """Where it begins in the file: a byte, of a Parquet file a row."""
    stop: int
    """Where it ends; −1 for a file that can only be read as a whole."""
    digest: str
    """Of its bytes, of a Parquet file of its values."""
    field: str | None = None
    """The column or field that holds the sentences."""

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as values that JSON can hold."""
        return asdict(self)


def plan(
    sources: Sequence[str | Path],
    options: TextOptions,
    rows: int,
    advance: Callable[[int, str], None] = lambda count, extra: None,
) -> list[Slice]:
    """Divide a text into slices.

    Args:
        sources: Files, globs or folders of ``.txt``, ``.jsonl`` and ``.parquet``.
        options: How the text is read; every row must be kept (``keep_blank``, ``keep_duplicates``, ``long_lines="cut"``).
        rows: Rows of a slice, at most.
        advance: Called with the number of rows that have been counted.

    Returns:
        The slices, in the order of the text.

    Raises:
        UsageError: A source is none that can be divided.
        SelfguideError: A source cannot be read, or there is no row.
    """
    slices: list[Slice] = []
    for reader in open_sources(sources, options):
        first = slices[-1].first + slices[-1].rows if slices else 0
        for found in _slices_of(reader, rows):
            slices.append(replace(found, first=first))
            first += found.rows
            advance(found.rows, "")
    if not slices:
        raise SelfguideError("There is no sentence: the input is empty.")
    return slices


def read(part: Slice, options: TextOptions) -> Sentences:
    """Read a slice.

    Args:
        part: The slice.
        options: Those it was planned with.

    Returns:
        Its sentences, one a row; iterating over them raises a ``SelfguideError`` where the text has changed.
    """
    return Sentences.from_readers([_reader_of(part, options)], options)


def text_digest(slices: Iterable[Slice]) -> str:
    """Return a digest of a whole text, which depends on how it was divided."""
    return hashlib.sha256("\n".join(part.digest for part in slices).encode()).hexdigest()


def _slices_of(reader: Reader, rows: int) -> Iterator[Slice]:
    if isinstance(reader, ParquetReader):
        yield from _parquet_slices(reader, rows)
        return
    if not isinstance(reader, LinesReader | JsonReader) or reader.one_shot:
        raise UsageError(
            f"{reader.name} cannot be read from the middle: parts are made of .txt, .jsonl and .parquet files. Save it as one of "
            "them."
        )
    kind = _JSON if isinstance(reader, JsonReader) else _LINES
    field = reader.field() if isinstance(reader, JsonReader) else None
    source = reader.source
    assert source.path is not None
    path = str(source.path.resolve())
    if source.compression or source.encoding != "utf-8" or _has_returns_only(source.path):
        checked = _CheckedSource.of(source)
        count = _count_lines(checked.blocks())
        yield Slice(path, kind, 0, count, 0, -1, checked.met[0].hexdigest(), field)
        return
    with translated_errors(source):
        for count, start, stop, digest in _line_slices(source.path, rows):
            yield Slice(path, kind, 0, count, start, stop, digest, field)


def _line_slices(path: Path, rows: int) -> Iterator[tuple[int, int, int, str]]:
    """Yield the number of lines, the first and last byte and the digest of each slice of a plain file."""
    import numpy as np

    digest, count, start, place = hashlib.blake2b(digest_size=16), 0, 0, 0
    ended = True  # whether the last line had an end
    with path.open("rb") as file:
        while block := file.read(_SCAN):
            ends = np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == 10)
            used = taken = 0  # bytes and line ends of this block
            while len(ends) - taken >= rows - count:
                cut = int(ends[taken + rows - count - 1]) + 1
                digest.update(block[used:cut])
                yield rows, start, place + cut, digest.hexdigest()
                taken += rows - count
                used, start, count = cut, place + cut, 0
                digest = hashlib.blake2b(digest_size=16)
            digest.update(block[used:])
            count += len(ends) - taken
            place += len(block)
            ended = block.endswith(b"\n")
    if place > start:
        yield count + (not ended), start, place, digest.hexdigest()


def _count_lines(blocks: Iterator[bytes]) -> int:
    count, ended = 0, True
    for block in blocks:
        count += block.count(b"\n")
        ended = block.endswith(b"\n") if block else ended
    return count + (not ended)


def _has_returns_only(path: Path) -> bool:
    with path.open("rb") as file:
        first = file.read(BLOCK)
    return b"\r" in first[:-1] and b"\n" not in first


def _parquet_slices(reader: ParquetReader, rows: int) -> Iterator[Slice]:
    digest, count, start = hashlib.blake2b(digest_size=16), 0, 0
    path = str(reader.path.resolve())
    for column in reader.columns():
        values = _values(column)
        while values:
            taken, values = values[: rows - count], values[rows - count :]
            digest.update(b"".join(taken))
            count += len(taken)
            if count == rows:
                yield Slice(path, _PARQUET, 0, count, start, start + count, digest.hexdigest(), reader.column())
                digest, start, count = hashlib.blake2b(digest_size=16), start + count, 0
    if count:
        yield Slice(path, _PARQUET, 0, count, start, start + count, digest.hexdigest(), reader.column())


def _values(column: Any) -> list[bytes]:
    """Return the values of a column of text as bytes, delimited so that joined values stay distinct."""
    import pyarrow as pa

    plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    if pa.types.is_null(plain.type):
        return [b"n"] * len(plain)
    values = plain.cast(pa.large_binary()).to_pylist()
    return [b"n" if value is None else b"%d:%b" % (len(value), value) for value in values]


def _reader_of(part: Slice, options: TextOptions) -> Reader:
    path = Path(part.path)
    if part.kind == _PARQUET:
        return _ParquetSlice(path, replace(options, column=part.field), part)
    compression = COMPRESSIONS.get(path.suffix.lower())
    source = _CheckedSource(
        part.path, path, compression, encoding=options.encoding, on_bad_bytes=options.on_bad_utf8, part=part
    )
    if part.kind == _JSON:
        return JsonReader(source, replace(options, field=part.field), known_field=True)
    return LinesReader(source, options)


class _ParquetSlice(ParquetReader):
    """Reads some rows of a Parquet file, and takes their digest."""

    def __init__(self, path: Path, options: TextOptions, part: Slice) -> None:
        super().__init__(path, part.path, options, rows=(part.start, part.stop))
        self._part = part

    def pieces(self) -> Iterator[tuple[Any, str]]:
        digest = hashlib.blake2b(digest_size=16)
        for batch, column in super().pieces():
            digest.update(b"".join(_values(column_of(batch, column))))
            yield batch, column
        _require_same(digest.hexdigest(), self._part)


@dataclass(frozen=True)
class _CheckedSource(ByteSource):
    """The bytes of a slice; at their end their digest is compared with that of the plan."""

    part: Slice | None = None
    met: tuple[Any, ...] = ()

    @classmethod
    def of(cls, source: ByteSource) -> _CheckedSource:
        """Return a source of a whole file that takes a digest, in ``met``."""
        known = (source.name, source.path, source.compression, source.stdin, source.encoding, source.on_bad_bytes)
        return cls(*known, met=(hashlib.blake2b(digest_size=16),))

    def blocks(self) -> Iterator[bytes]:
        if self.part is None or self.part.start == 0:
            yield from super().blocks()
            return
        # From the middle: no byte-order mark is expected, and what a line begins with says nothing about the file.
        with translated_errors(self), self._open() as stream:
            while block := stream.read(BLOCK):
                yield block

    @contextmanager
    def _opened(self) -> Iterator[_Digested]:
        with super()._open() as stream:
            start, stop = (self.part.start, self.part.stop) if self.part is not None else (0, -1)
            if start:
                stream.seek(start)
            digest = self.met[0] if self.met else hashlib.blake2b(digest_size=16)
            yield _Digested(stream, digest, stop - start if stop >= 0 else None, self.part)

    def _open(self) -> AbstractContextManager[Any]:
        return self._opened()


class _Digested:
    """A stream of so many bytes whose digest is taken."""

    def __init__(self, stream: Any, digest: Any, left: int | None, part: Slice | None) -> None:
        self._stream, self._digest, self._left, self._part = stream, digest, left, part

    def read(self, size: int) -> bytes:
        data: bytes = self._stream.read(size if self._left is None else min(size, self._left))
        self._digest.update(data)
        if self._left is not None:
            self._left -= len(data)
        if not data and size and self._part is not None:
            _require_same(self._digest.hexdigest(), self._part)
        return data


def _require_same(digest: str, part: Slice) -> None:
    if digest != part.digest:
        last = part.first + part.rows
        raise SelfguideError(
            f"{part.path} has changed since the parts were planned: rows {part.first:,} to {last:,} of the text are others. Put "
            "the former file back, or start over in another folder."
        )


def paths_of(sources: Sequence[str | Path], options: TextOptions) -> list[Path]:
    """Return the files of a text, in their order.

    Args:
        sources: As for :func:`plan`.
        options: As for :func:`plan`.

    Returns:
        Absolute paths.
    """
    found = [
        reader.path if isinstance(reader, ParquetReader) else reader.source.path
        for reader in open_sources(sources, options)
        if isinstance(reader, ParquetReader | LinesReader | JsonReader)
    ]
    return [path.resolve() for path in found if path is not None]
