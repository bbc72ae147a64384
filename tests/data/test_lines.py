"""Lines from files and pipes: files that are not text, damaged compression, memory, lines too long to hold."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reading import COMPRESS, counts, early_refusal, read, refusal, zstd
from selfguide.data import Sentences, TextOptions
from selfguide.data.lines import LONGEST_LINE, line_chunks
from selfguide.errors import SelfguideError

# -- what is wrong with a file


@pytest.mark.parametrize("name", ["a.txt", "a.csv", "a.jsonl", "a.parquet", "a.txt.gz", "a.txt.zst"])
def test_an_empty_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"")
    assert "is empty: pass a file" in early_refusal(tmp_path / name)


def test_a_file_that_unpacks_to_nothing(put: Callable[..., Path]) -> None:
    assert "is empty" in early_refusal(put("a.txt.gz", b""))
    assert "is empty" in early_refusal(put("b.txt", b"\xef\xbb\xbf"))


def test_empty_standard_input() -> None:
    with pytest.raises(SelfguideError, match="standard input is empty"):
        list(Sentences(["-"], stdin=io.BytesIO(b"")))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"some text\0and more", "NUL bytes"),
        (gzip.compress(b"text", mtime=0), "gzip data, which is binary: give its name the ending .gz"),
        (lzma.compress(b"text"), "ending .xz"),
        (bz2.compress(b"text"), "ending .bz2"),
        (zstd(b"text"), "ending .zst"),
        (b"PAR1\x15\x04", "ending .parquet"),
        (b"PK\x03\x04 and so on", "save the text as"),
        (b"%PDF-1.7 and so on", "PDF"),
        (b"\x89PNG and so on", "image"),
    ],
)
def test_a_binary_file(tmp_path: Path, data: bytes, expected: str) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(data)
    message = early_refusal(path)
    assert expected in message
    assert "binary" in message


def test_binary_standard_input() -> None:
    with pytest.raises(SelfguideError, match=r"standard input is not text but gzip data.*unpack it"):
        list(Sentences(["-"], stdin=io.BytesIO(gzip.compress(b"text", mtime=0))))


@pytest.mark.parametrize("encoding", ["UTF-16", "UTF-32"])
def test_wide_encodings_are_refused(put: Callable[..., Path], encoding: str) -> None:
    message = early_refusal(put("notes.txt", "some words".encode(encoding)))
    assert f"is {encoding}; convert it with iconv -f {encoding} -t UTF-8" in message


@pytest.mark.parametrize("ending", [".gz", ".xz", ".bz2", ".zst"])
def test_truncated_and_false_compression(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"notes.txt{ending}"
    path.write_bytes(COMPRESS[ending](b"some words\n" * 50)[:-9])
    message = refusal(path)
    assert "cut short; copy or download it again" in message
    path.write_bytes(b"this is plain text in truth\n")
    assert "correct the ending of its name" in early_refusal(path)


def test_a_gzip_that_breaks_late_gives_its_lines_first(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt.gz"
    data = "\n".join(f"line {number} {number * 7919 % 10007}" for number in range(100_000)).encode()
    path.write_bytes(gzip.compress(data)[:-100])
    sentences = Sentences([path])
    with pytest.raises(SelfguideError, match=r"notes\.txt\.gz ends too early"):
        list(sentences)
    assert sentences.summary.kept > 10_000
    assert sentences.summary.fingerprint is None


def test_a_file_that_may_not_be_read(put: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    path = put("notes.txt", "one")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)  # root could read the file whatever its permissions
    assert "cannot be read: Permission denied" in early_refusal(path)


def test_a_file_that_is_gone_when_it_is_read(put: Callable[..., Path]) -> None:
    path = put("notes.txt", "one")
    sentences = Sentences([path])
    path.unlink()
    with pytest.raises(SelfguideError, match=r"notes\.txt cannot be read: No such file"):
        list(sentences)


def test_zstd_that_pyarrow_lacks(put: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    path = put("notes.txt.zst", "one")

    class Codec:
        @staticmethod
        def is_available(_: str) -> bool:
            return False

    monkeypatch.setattr(pa, "Codec", Codec)
    assert "built without zstd: unpack it first with: zstd -d" in early_refusal(path)


# -- memory, and blocks into lines


class Endless(io.RawIOBase):
    """A file of the given size without a newline, generated as it is read."""

    def __init__(self, size: int, tail: bytes) -> None:
        self._left = size
        self._tail = tail

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if not self._left:
            tail, self._tail = self._tail, b""
            return tail
        size = min(size, self._left)
        self._left -= size
        return b"x" * size


@pytest.mark.parametrize("long_lines", ["drop", "cut"])
def test_a_giant_line_is_never_held(long_lines: Any) -> None:
    stdin: Any = Endless(300 << 20, b"\nan ordinary line\n")
    sentences = Sentences(["-"], TextOptions(long_lines=long_lines), stdin=stdin)
    tracemalloc.start()
    try:
        result = list(sentences)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert result == (["x" * 5000] if long_lines == "cut" else []) + ["an ordinary line"]
    assert (sentences.summary.read, sentences.summary.too_long) == (2, 1)
    assert peak < 12 << 20


def test_a_giant_line_of_a_table_is_an_error(put: Callable[..., Path]) -> None:
    path = put("a.jsonl", b'{"text": "' + b"x" * (LONGEST_LINE + 10) + b'"}\n')
    assert "line 1 is longer than 16 MiB" in refusal(path)


def test_a_character_on_the_edge_of_a_giant_line(put: Callable[..., Path]) -> None:
    path = put("a.txt", b"a" + "\u00e9".encode() * (1 << 20) + b"\nb")
    assert read(path, long_lines="cut", max_chars=3) == ["a\u00e9\u00e9", "b"]
    bad = put("b.txt", b"a\xff" + b"x" * (2 << 20) + b"\nb")
    assert "line 1" in refusal(bad)
    assert read(bad, long_lines="cut", max_chars=3, on_bad_utf8="replace") == ["a\ufffdx", "b"]
    assert counts(bad, on_bad_utf8="replace") == {"read": 2, "kept": 1, "too_long": 1, "replaced": 1}


few_bytes = st.lists(st.sampled_from(b"\nab"), max_size=60).map(bytes)


@given(few_bytes, st.integers(1, 9))
def test_lines_in_pieces_are_the_lines(data: bytes, size: int) -> None:
    def blocks() -> Iterator[bytes]:
        for start in range(0, len(data), size):
            yield data[start : start + size]

    longest = 9
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    number = 1
    found: list[bytes] = []
    for chunk in line_chunks(blocks(), longest):
        assert chunk.first_line == number
        part = chunk.data.split(b"\n")
        assert chunk.whole or (part == [lines[number - 1][:longest]] and len(lines[number - 1]) > longest)
        found += part
        number += len(part)
    assert found == [line[:longest] for line in lines]


def test_a_large_file_takes_little_memory(put: Callable[..., Path]) -> None:
    path = put("a.txt", b"".join(b"this is the sentence of number %d\n" % number for number in range(200_000)))
    list(Sentences([path], TextOptions(limit=10)))  # import numpy now, so that it is not measured
    tracemalloc.start()
    try:
        assert sum(1 for _ in Sentences([path])) == 200_000
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 12 << 20
