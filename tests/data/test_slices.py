"""A text in slices: together the rows of one pass over it, whatever the format, the size of a slice and the odd line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from selfguide.data import Sentences, TextOptions
from selfguide.data.slices import Slice, plan, read, text_digest
from selfguide.errors import SelfguideError, UsageError

EVERY_ROW = TextOptions(keep_duplicates=True, keep_blank=True, long_lines="cut")
LINES = ["one", "", "  two \u00a0 two ", "one", "%PDF-1.7 is no document here", "caf\u00e9", "x" * 7000, "\ufefflast"]


def written(path: Path, lines: list[str]) -> Path:
    """Write lines in the format that the file's name says."""
    if path.suffix == ".parquet":
        table = pa.table({"id": list(range(len(lines))), "text": pa.array([line or None for line in lines])})
        pq.write_table(table, path, row_group_size=3)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps({"n": 1, "text": line or None}) + "\n" for line in lines))
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress("\n".join(lines).encode()))
    else:
        path.write_text("\n".join(lines), encoding="utf-16" if "wide" in path.name else "utf-8")
    return path


def rows_of(slices: list[Slice], options: TextOptions = EVERY_ROW) -> list[str]:
    found = []
    for part in slices:
        rows = list(read(part, options))
        assert len(rows) == part.rows
        assert part.first == len(found)
        found += rows
    return found


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.parquet", "a.txt.gz"])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_the_rows_of_one_pass(tmp_path: Path, name: str, size: int) -> None:
    path = written(tmp_path / name, [*LINES, *LINES[::-1]])
    slices = plan([path], EVERY_ROW, size)
    assert rows_of(slices) == list(Sentences([path], EVERY_ROW))
    assert len(slices) == (1 if name.endswith("gz") else -(-16 // size))


@pytest.mark.parametrize("ends", ["", "\n", "\n\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_ends_of_lines_and_byte_order_marks(tmp_path: Path, ends: str, mark: str, size: int) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes((mark + "a\r\nb\n\nc d\n e" + ends).encode())
    assert rows_of(plan([path], EVERY_ROW, size)) == list(Sentences([path], EVERY_ROW))


def test_lines_longer_than_a_block_and_line_ends_of_old(tmp_path: Path) -> None:
    long, old = tmp_path / "long.txt", tmp_path / "old.txt"
    long.write_text("a\n" + "y z " * 700_000 + "\nb\n" * 3)
    old.write_bytes(b"a\rb\rc d")
    options = TextOptions(keep_duplicates=True, keep_blank=True, long_lines="cut", max_chars=50)
    slices = plan([long, old], options, 2)
    assert rows_of(slices, options) == list(Sentences([long, old], options))
    assert slices[-1].rows == 3  # such a file is not divided
    wide = written(tmp_path / "wide.txt", LINES)
    coded = TextOptions(keep_duplicates=True, keep_blank=True, long_lines="cut", encoding="utf-16")
    assert rows_of(plan([wide], coded, 2), coded) == list(Sentences([wide], coded))


def test_several_files_and_the_digest(tmp_path: Path) -> None:
    first, second = written(tmp_path / "1.txt", LINES), written(tmp_path / "2.parquet", LINES[::-1])
    counted: list[int] = []
    slices = plan([str(tmp_path / "*")], EVERY_ROW, 3, lambda count, extra: counted.append(count))
    assert sum(counted) == 16
    assert rows_of(slices) == list(Sentences([first, second], EVERY_ROW))
    assert [part.first for part in slices] == [0, 3, 6, 8, 11, 14]
    before = text_digest(slices)
    assert text_digest(plan([str(tmp_path / "*")], EVERY_ROW, 3)) == before
    written(second, [*LINES[:-1], "another"])
    assert text_digest(plan([str(tmp_path / "*")], EVERY_ROW, 3)) != before


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.parquet", "a.txt.gz"])
def test_a_changed_slice_is_refused(tmp_path: Path, name: str) -> None:
    path = written(tmp_path / name, ["one", "two", "six", "ten"])
    slices = plan([path], EVERY_ROW, 2)
    written(path, ["one", "two", "sax", "ten"])
    if len(slices) == 2:
        assert list(read(slices[0], EVERY_ROW)) == ["one", "two"]
    with pytest.raises(SelfguideError, match="has changed since the parts were planned"):
        list(read(slices[-1], EVERY_ROW))


def test_the_field_is_that_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    records = [{"title": "t", "text": "first"}, *[{"title": "a title of some length"}] * 150, {"text": "last"}]
    path.write_text("\n".join(map(json.dumps, records)))
    assert rows_of(plan([path], EVERY_ROW, 120)) == list(Sentences([path], EVERY_ROW))


@pytest.mark.parametrize("name", ["-", "a.csv", "a.tsv"])
def test_what_cannot_be_divided(tmp_path: Path, name: str) -> None:
    if name != "-":
        (tmp_path / name).write_text("text\na\nb\n")
    with pytest.raises(UsageError, match="cannot be read from the middle"):
        plan([name if name == "-" else tmp_path / name], EVERY_ROW, 2)
