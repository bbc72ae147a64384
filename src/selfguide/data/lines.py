"""Lines of text from files and standard input: decompressed, checked to be UTF-8, and read a block at a time.

Line numbers are kept throughout, so that an error names the line.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import lzma
import sys
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from selfguide.data.blocks import SplitLines
from selfguide.data.cleaning import MarkedText
from selfguide.data.messages import REPLACE_BAD_UTF8
from selfguide.errors import SelfguideError

BLOCK = 1 << 18
_SMALL = 1 << 14
LONGEST_LINE = 1 << 24  # in structured formats, where a line must be complete to be parsed

_UNPACKED: dict[str, Callable[[BinaryIO], AbstractContextManager[Any]]] = {
    "gzip": lambda raw: gzip.GzipFile(fileobj=raw),
    "xz": lzma.LZMAFile,
    "bzip2": bz2.BZ2File,
}  # zstd: see _open_zstd
COMPRESSIONS = {".gz": "gzip", ".xz": "xz", ".bz2": "bzip2", ".zst": "zstd"}

_UTF8_BOM = b"\xef\xbb\xbf"
# UTF-32 comes first: its little-endian mark starts with that of UTF-16.
_WIDE_BOMS = {b"\xff\xfe\0\0": "UTF-32", b"\0\0\xfe\xff": "UTF-32", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
_MAGICS: dict[bytes | tuple[bytes, ...], tuple[str, str]] = {
    b"\x1f\x8b": ("gzip data", "give its name the ending .gz"),
    b"\xfd7zXZ\0": ("xz data", "give its name the ending .xz"),
    b"BZh91AY&SY": ("bzip2 data", "give its name the ending .bz2"),
    b"\x28\xb5\x2f\xfd": ("zstd data", "give its name the ending .zst"),
    b"PAR1\x15": ("a Parquet file", "give its name the ending .parquet"),
    b"ARROW1\0\0": ("an Arrow file", "save it as .parquet or .jsonl"),
    b"PK\x03\x04": ("a zip archive or an Office document", "unpack it, or save the text as .txt or .csv"),
    b"\xd0\xcf\x11\xe0": ("an Office document", "save the text as .txt or .csv"),
    b"%PDF-": ("a PDF document", "extract its text into a .txt file"),
    b"{\\rtf": ("a rich-text document", "save the text as .txt"),
    b"7z\xbc\xaf\x27\x1c": ("a 7z archive", "unpack it"),
    b"Rar!\x1a": ("a rar archive", "unpack it"),
    b"SQLite format 3\0": ("an SQLite database", "export the sentences as .csv"),
    b"\x89HDF": ("an HDF5 file", "save the sentences as .txt or .parquet"),
    (b"\x89PNG", b"\xff\xd8\xff", b"GIF8"): ("an image", "pass a file of text"),
    b"\x7fELF": ("a program", "pass a file of text"),
}


class Meter:
    """How far a file has been read."""

    def __init__(self) -> None:
        self._file: Any = None
        self._last = 0

    @contextmanager
    def watching(self, file: Any) -> Iterator[Any]:
        """Yield a file that is watched while it is open, and close it."""
        with file:
            self._file = file
            try:
                yield file
            finally:
                self._file = None
                # A pipe has no position, and the garbage collector may have closed a file.
                with suppress(OSError, ValueError):
                    self._last = file.tell()

    @property
    def place(self) -> int:
        """How many bytes have been read, or had been when the file was closed."""
        return self._last if self._file is None else int(self._file.tell())


@dataclass(frozen=True)
class ByteSource:
    """A file, or standard input."""

    name: str
    """What messages call it."""
    path: Path | None = None
    """The file; ``None``: standard input."""
    compression: str | None = None
    stdin: BinaryIO | None = None
    """Stands in for the process's standard input."""
    encoding: str = "utf-8"
    on_bad_bytes: str = "error"
    """In another encoding than UTF-8: ``error``, or ``replace`` by U+FFFD."""
    meter: Meter = field(default_factory=Meter, compare=False, repr=False)

    @property
    def one_shot(self) -> bool:
        """Whether it can be read only once: standard input, a pipe or a device."""
        return self.path is None or not self.path.is_file()

    def blocks(self) -> Iterator[bytes]:
        """Read and decompress.

        Yields:
            Blocks of bytes, without a byte-order mark.

        Raises:
            SelfguideError: The source is empty, cannot be read or decompressed, or is not UTF-8 text by its first bytes.
        """
        with translated_errors(self), self._open() as raw:
            stream = raw if codecs.lookup(self.encoding).name == "utf-8" else _Recoded(raw, self)
            # read1 returns what a pipe holds now, so that lines are not held back until a slow writer fills a block.
            read: Callable[[int], bytes] = stream.read1 if self.one_shot and hasattr(stream, "read1") else stream.read
            first = read(BLOCK)
            while 0 < len(first) < 16 and (more := read(BLOCK)):
                first += more
            # Lines that end in a carriage return alone, as on old Macs; a last one may be half of a pipe's "\\r\\n".
            returns_only = b"\r" in first[:-1] and b"\n" not in first
            first = self._checked(first)
            yield first.replace(b"\r", b"\n") if returns_only else first
            while block := read(BLOCK):
                yield block.replace(b"\r", b"\n") if returns_only else block

    def _checked(self, first: bytes) -> bytes:
        text = first.removeprefix(_UTF8_BOM)
        if not text:
            raise SelfguideError(f"{self.name} is empty: pass a file with sentences in it.")
        for mark, encoding in _WIDE_BOMS.items():
            if first.startswith(mark):
                raise SelfguideError(
                    f"{self.name} is {encoding}; convert it with iconv -f {encoding} -t UTF-8 first, or for a text pass "
                    f"--encoding {encoding.lower()} (in Python encoding=)."
                )
        for magic, (kind, way_out) in _MAGICS.items():
            if first.startswith(magic):
                way_out = way_out if self.path else "unpack it, or take the text out of it, on the way"
                raise SelfguideError(f"{self.name} is not text but {kind}, which is binary: {way_out}.")
        if b"\0" in first:
            raise SelfguideError(
                f"{self.name} is a binary file (it holds NUL bytes): save its text as UTF-8, one sentence a line."
            )
        return text

    def _open(self) -> AbstractContextManager[Any]:
        return self._unpacked()

    @contextmanager
    def _unpacked(self) -> Iterator[Any]:
        if self.path is None:
            with _standard_input(self.stdin) as stream:
                yield stream
        elif self.compression == "zstd":
            with _open_zstd(self.path, self.meter) as stream:
                yield stream
        else:
            with self.meter.watching(self.path.open("rb")) as raw:
                if self.compression is None:
                    yield raw
                else:
                    with _UNPACKED[self.compression](raw) as stream:
                        yield stream


class _Recoded:
    """A stream of another encoding, read as UTF-8."""

    def __init__(self, stream: Any, source: ByteSource) -> None:
        errors = "replace" if source.on_bad_bytes == "replace" else "strict"
        self._decoder = codecs.getincrementaldecoder(source.encoding)(errors)
        self._stream, self._source, self._line = stream, source, 1

    def read(self, size: int) -> bytes:
        """Return about so many bytes; none at the end."""
        return self._next(self._stream.read, size)

    def read1(self, size: int) -> bytes:
        """Return what can be read without waiting."""
        return self._next(getattr(self._stream, "read1", self._stream.read), size)

    def _next(self, read: Callable[[int], bytes], size: int) -> bytes:
        while True:
            data = read(size)
            try:
                text = self._decoder.decode(data, final=not data).encode("utf-8", "surrogatepass")
            except UnicodeDecodeError as error:
                line = self._line + error.object[: error.start].count(b"\n")
                raise SelfguideError(
                    f"{self._source.name}, line {line}: byte 0x{error.object[error.start]:02x} is not valid in the encoding "
                    f"{self._source.encoding}; name another with --encoding, or {REPLACE_BAD_UTF8}."
                ) from error
            self._line += text.count(b"\n")
            if text or not data:
                return text


@contextmanager
def _standard_input(stdin: BinaryIO | None) -> Iterator[BinaryIO]:
    """Yield standard input, which is not closed here."""
    stream = stdin if stdin is not None else getattr(sys.stdin, "buffer", None)
    if stream is None:
        raise SelfguideError("Standard input is closed: pass a file instead of -.")
    yield stream


@contextmanager
def _open_zstd(path: Path, meter: Meter) -> Iterator[Any]:
    import pyarrow as pa

    if not pa.Codec.is_available("zstd"):
        raise SelfguideError(
            f"{path} is zstd-compressed, and this pyarrow was built without zstd: unpack it first with: zstd -d {path}"
        )
    with meter.watching(pa.OSFile(str(path))) as raw:
        yield pa.CompressedInputStream(
            raw, "zstd"
        )  # not closed by itself: it would close the file, whose place is wanted


@contextmanager
def translated_errors(source: ByteSource) -> Iterator[None]:
    """Turn errors of the file system and of decompressors into a sentence about the source.

    Args:
        source: What is being read.

    Yields:
        Nothing; the block reads the source.

    Raises:
        SelfguideError: It cannot be read.
    """
    try:
        yield
    except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        kind = source.compression
        if kind and (isinstance(error, EOFError) or "truncated" in str(error).lower()):
            message = f"{source.name} ends too early: its {kind} data is cut short; copy or download it again."
        elif kind and not getattr(error, "errno", None):
            message = (
                f"{source.name} is damaged or no {kind} file at all: copy it again, or correct the ending of its name."
            )
        else:
            message = f"{source.name} cannot be read: {getattr(error, 'strerror', None) or error}."
        raise SelfguideError(message) from error


class Chunk(NamedTuple):
    """Complete lines joined by newlines, or (not ``whole``) the start of one line that is too long to hold in memory."""

    data: bytes
    first_line: int
    whole: bool = True


def line_chunks(blocks: Iterable[bytes], longest: int) -> Iterator[Chunk]:
    """Regroup blocks of bytes into complete lines.

    Of a line of more than ``longest`` bytes, which must be no less than a block, the start is kept and the rest skipped.

    Args:
        blocks: The file's content.
        longest: Bytes of a line that are kept.

    Yields:
        Chunks of complete lines.
    """
    line = 1
    held: list[bytes] = []  # the start of a line whose end has not come yet
    skipping = False
    for block in blocks:
        if skipping:
            _, newline, block = block.partition(b"\n")
            skipping = not newline
            line += bool(newline)
        held.append(block)
        if b"\n" not in block:
            if sum(map(len, held)) > longest:
                yield Chunk(b"".join(held)[:longest], line, whole=False)
                held = []
                skipping = True
            continue
        lines, _, rest = b"".join(held).rpartition(b"\n")
        held = [rest]
        # A block is no longer than the longest line, so only a line that started in an earlier block can be too long.
        first, newline, others = lines.partition(b"\n")
        if len(first) > longest:
            yield Chunk(first[:longest], line, whole=False)
            line += 1
            lines = others
            if not newline:
                continue
        yield Chunk(lines, line)
        line += _line_breaks(lines) + 1
    if last := b"".join(held):
        yield Chunk(last, line) if len(last) <= longest else Chunk(last[:longest], line, whole=False)


def _line_breaks(data: bytes) -> int:
    if len(data) < _SMALL:
        return data.count(b"\n")
    import numpy as np

    return int(np.count_nonzero(np.frombuffer(data, dtype=np.uint8) == ord("\n")))  # several times as fast


def text_chunks(source: ByteSource, longest: int, on_bad_utf8: str) -> Iterator[list[str]]:
    """Yield the decoded lines of a source in lists; truncated or repaired ones are :class:`MarkedText`.

    Lines before an invalid one are yielded before the error is raised, since a limit may end the reading there.
    """
    for chunk in line_chunks(source.blocks(), longest):
        try:
            lines = SplitLines(chunk.data.decode(), chunk.data) if chunk.whole else [_decoded_head(chunk.data)]
        except UnicodeDecodeError:
            yield from _decoded_one_by_one(chunk, source.name, on_bad_utf8)
        else:
            yield lines


def _decoded_head(data: bytes, errors: str = "strict") -> str:
    # An incremental decoder, because the start may end in the middle of a character, which is no fault of the file.
    return MarkedText(codecs.getincrementaldecoder("utf-8")(errors).decode(data), truncated=True)


def _decoded_one_by_one(chunk: Chunk, name: str, on_bad_utf8: str) -> Iterator[list[str]]:
    """Find the lines with invalid bytes in a chunk."""
    lines: list[str] = []
    for number, data in enumerate(chunk.data.split(b"\n"), chunk.first_line):
        try:
            lines.append(data.decode())
        except UnicodeDecodeError as error:
            if on_bad_utf8 == "error":
                yield lines
                raise SelfguideError(
                    f"{name}, line {number}: byte 0x{data[error.start]:02x} is not valid UTF-8; convert the text "
                    f"(with iconv -f LATIN1 -t UTF-8 if it is Latin-1), say --encoding latin1, or {REPLACE_BAD_UTF8}."
                ) from error
            text = data.decode(errors="replace") if chunk.whole else _decoded_head(data, "replace")
            lines.append(MarkedText(text, replaced=True, truncated=not chunk.whole))
    yield lines


class TextLines:
    """Lines one by one, with the number of the latest one, for formats that are parsed line by line."""

    def __init__(self, source: ByteSource, on_bad_utf8: str = "error") -> None:
        self.number = 0
        self.name = source.name
        self._lines = (line for chunk in text_chunks(source, LONGEST_LINE, on_bad_utf8) for line in chunk)
        self._replaced = False
        self._peeked: deque[str] = deque()
        self._failure: SelfguideError | None = None

    def peek(self, count: int) -> list[str]:
        """Return the next lines without passing them, an error among them waits until it is reached.

        Args:
            count: How many that are not blank; fewer come back where lines are long or the text is short.
        """
        size = filled = 0
        try:
            while filled < count and size < BLOCK and (line := next(self._lines, None)) is not None:
                self._peeked.append(line)
                size += len(line)
                filled += bool(line.strip())
        except SelfguideError as error:
            self._failure = error
        return list(self._peeked)

    def _remaining(self) -> Iterator[str]:
        while self._peeked:
            yield self._peeked.popleft()
        if self._failure is not None:
            raise self._failure
        yield from self._lines

    def __iter__(self) -> Iterator[str]:
        """Yield the lines; raise a ``SelfguideError`` for one that is too long to be a row."""
        for line in self._remaining():
            self.number += 1
            if isinstance(line, MarkedText):
                if line.truncated:
                    raise self.error(
                        f"is longer than {LONGEST_LINE >> 20} MiB, which cannot be a row of a table; is it the right file?"
                    )
                self._replaced = self._replaced or line.replaced
            yield line

    def error(self, what: str) -> SelfguideError:
        """Return an error about the latest line."""
        return SelfguideError(f"{self.name}, line {self.number} {what}")

    def column_error(self, cells: list[str], layout: str) -> SelfguideError:
        """Return the error that the latest line has the wrong number of tab-separated cells."""
        return self.error(
            f"has {len(cells)} tab-separated column{'s' if len(cells) > 1 else ''}: every line must be {layout}."
        )

    def marked(self, text: str) -> str:
        """Return the text of a row, marked if invalid UTF-8 was replaced in the lines since the last call."""
        if not self._replaced:
            return text
        self._replaced = False
        return MarkedText(text, replaced=True)
