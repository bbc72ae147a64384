"""De-duplication on disk: the same sentences, counts and errors as in memory, in memory that does not grow."""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from selfguide.data import Sentences, TextOptions
from selfguide.data import sentences as module
from selfguide.data.cleaning import RowFilter
from selfguide.data.dedup import SeenHashes
from selfguide.data.spilled import SpilledHashes
from selfguide.errors import SelfguideError


def on_disk(monkeypatch: pytest.MonkeyPatch, in_memory: int, segment: int) -> None:
    """Read in small blocks, and leave the memory early."""
    monkeypatch.setattr("selfguide.data.lines.BLOCK", 2048)
    monkeypatch.setattr(
        module, "RowFilter", lambda options, most, ahead: RowFilter(options, min(in_memory, most), segment, ahead)
    )


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """Repeats near and far, blanks, over-long lines, invisible characters."""
    draw = random.Random(3)
    lines = [f"sentence number {draw.randrange(6000)}" for _ in range(20_000)]
    for row in range(0, 20_000, 97):
        lines[row] = draw.choice(["", "  ", "x" * 6000, "caf\u00e9 \u200b noir", "cafe\u0301  noir"])
    path = tmp_path / "text.txt"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.mark.parametrize("settings", [(0, 1), (50, 400), (5000, 100_000), (100, 20_001), (10**9, 1)])
@pytest.mark.parametrize(
    "options",
    [
        TextOptions(),
        TextOptions(keep_blank=True, long_lines="cut"),
        TextOptions(limit=3000),
        TextOptions(keep_duplicates=True),
    ],
)
def test_the_same_as_in_memory(
    text: Path, monkeypatch: pytest.MonkeyPatch, settings: tuple[int, int], options: TextOptions
) -> None:
    plain = Sentences([text], options)
    expected = list(plain)
    on_disk(monkeypatch, *settings)
    found = Sentences([text], options)
    assert list(found) == expected
    assert found.summary == plain.summary
    if options == TextOptions():
        assert plain.summary.duplicates > 10_000


@pytest.mark.parametrize("stop", [1, 2500, 5400])
def test_counts_are_exact_where_a_reader_stops(text: Path, monkeypatch: pytest.MonkeyPatch, stop: int) -> None:
    def begun() -> Sentences:
        sentences = Sentences([text])
        rows = iter(sentences)
        for _ in range(stop):
            next(rows)
        rows.close()  # type: ignore[attr-defined]
        return sentences

    expected = begun().summary
    on_disk(monkeypatch, 100, 700)
    assert begun().summary == expected


def test_an_error_comes_after_the_rows_before_it(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with text.open("ab") as file:
        file.write(b"\nbroken \xff line\nand more\n")
    on_disk(monkeypatch, 100, 100_000)
    found: list[str] = []
    rows = iter(Sentences([text]))
    with pytest.raises(SelfguideError, match=r"line 20001: byte 0xff"):
        found.extend(rows)
    assert len(found) > 5000
    assert list(Sentences([text], TextOptions(limit=5000)))[:10] == found[:10]


def test_nothing_is_left_on_disk(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    on_disk(monkeypatch, 100, 700)
    rows = iter(Sentences([text]))
    for _ in range(3000):
        next(rows)
    assert any(scratch.rglob("hashes-*"))
    rows.close()  # type: ignore[attr-defined]
    assert not any(scratch.iterdir())
    list(Sentences([text]))
    assert not any(scratch.iterdir())


def test_a_full_disk_is_said(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    on_disk(monkeypatch, 100, 700)
    monkeypatch.setattr(SpilledHashes, "_add", full)
    with pytest.raises(SelfguideError, match=r"No space left on device.*TMPDIR"):
        list(Sentences([text]))


def test_hashes_on_disk_are_those_in_memory(tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    memory, disk = SeenHashes(16), SpilledHashes(tmp_path, [], block=7)
    for size in (1, 0, 50, 3, 200, 11, 11, 400):
        hashes = draw.integers(0, 500, size, dtype=np.uint64)
        np.testing.assert_array_equal(disk.first_occurrences(hashes), memory.first_occurrences(hashes))
        assert len(disk) == len(memory)
        stored = np.concatenate([np.fromfile(path, dtype=np.uint64) for path in tmp_path.iterdir()] or [hashes])
        assert len(stored) == len(set(stored.tolist())) == len(memory)


def test_memory_does_not_grow_with_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def peak(count: int) -> int:
        sentences = Sentences.from_strings(f"line {number}" for number in range(count))
        tracemalloc.start()
        assert sum(1 for _ in sentences) == count
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    on_disk(monkeypatch, 1000, 4096)
    monkeypatch.setattr("selfguide.data.spilled._BLOCK", 1024)
    assert peak(60_000) < peak(15_000) + 100_000  # in memory the hashes alone are 360,000 bytes more
