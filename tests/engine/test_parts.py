"""Folders of parts: every row once, whoever makes them, however often they are killed; damage is found."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import selfguide
from selfguide.data.options import TextOptions
from selfguide.engine import parts as module
from selfguide.engine.parts import Manifest, PartsJob, part_path
from selfguide.engine.parts_run import check_folder, encode_to_parts
from selfguide.engine.vector_form import VectorForm
from selfguide.errors import SelfguideError, UsageError
from selfguide.locks import claimed
from toys import Outcome, toy_sentences

Command = Callable[..., Outcome]
EVERY_ROW = TextOptions(keep_duplicates=True, keep_blank=True, long_lines="cut")
LINES = [*toy_sentences(20), "", *toy_sentences(5)]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("\n".join(LINES))
    return path


def job(bert: Path, tmp_path: Path, **options: object) -> PartsJob:
    return PartsJob(tmp_path / "parts", str(bert), **options)  # type: ignore[arg-type]


def vectors_of(folder: Path) -> np.ndarray:
    table = pa.concat_tables([pq.read_table(path) for path in sorted(folder.glob("part-*"))])
    assert table["id"].to_pylist() == list(range(len(LINES)))
    assert table["sentence"].to_pylist() == LINES
    return np.array(table["embedding"].to_pylist())


def test_two_shards_make_the_whole(command: Command, bert: Path, text: Path, tmp_path: Path) -> None:
    words = ("encode", text, "--encoder", bert, "--output", tmp_path / "parts", "--part-rows", "4")
    first = command(*words, "--shard", "1/2")
    assert first.code == 0
    assert "3 of 7 parts made now; 26 rows in all" in first.err
    assert "4 parts are still missing" in first.err
    found = command("encode", "--check", tmp_path / "parts")
    assert found.code == 1
    assert "14 of 26 rows are not there: part-00000.parquet, part-00002.parquet" in found.err
    assert "All parts are there" in command(*words, "--shard", "0/2").err
    np.testing.assert_allclose(vectors_of(tmp_path / "parts"), selfguide.encode(bert, LINES), atol=1e-6)
    found = command("encode", "--check", tmp_path / "parts")
    assert found.code == 0
    assert "Every one of the 26 rows of the text is in" in found.err
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "parts").iterdir()}
    again = command(*words, "--shard", "0/1")
    assert "7 of 7 parts are there already" in again.err
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "parts").iterdir()} == before


def test_one_part_is_one(command: Command, bert: Path, text: Path, tmp_path: Path) -> None:
    words = ("encode", text, "--encoder", bert, "--output", tmp_path / "parts", "--part-rows", "13")
    first = command(*words, "--shard", "0/2").err
    assert "1 of 2 parts made now" in first
    assert "1 part is still missing" in first
    assert "1 of 1 part is there already" in command(*words, "--shard", "0/2").err


def test_the_bytes_do_not_depend_on_who_makes_them(bert: Path, text: Path, tmp_path: Path) -> None:
    encode_to_parts(job(bert, tmp_path), [text], EVERY_ROW, part_rows=10)
    other = PartsJob(tmp_path / "other", str(bert))
    for shard in ((2, 3), (0, 3), (1, 3)):
        encode_to_parts(other, [text], EVERY_ROW, part_rows=10, shard=shard)
    for path in (tmp_path / "parts").iterdir():
        assert path.read_bytes() == (tmp_path / "other" / path.name).read_bytes()


def test_form(bert: Path, text: Path, tmp_path: Path) -> None:
    encode_to_parts(job(bert, tmp_path, form=VectorForm(True, 8, "binary")), [text], EVERY_ROW)
    expected = selfguide.encode(bert, LINES, normalise=True, dim=8, precision="binary")
    np.testing.assert_array_equal(vectors_of(tmp_path / "parts"), expected)
    with pytest.raises(UsageError, match=r"share their ranges.*--ranges"):
        encode_to_parts(PartsJob(tmp_path / "x", str(bert), form=VectorForm(precision="int8")), [text], EVERY_ROW)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    "damage", ["gone", "truncated", "another part", "other numbers", "one too many", "changed text"]
)
def test_check_finds(bert: Path, text: Path, tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "parts"
    encode_to_parts(job(bert, tmp_path), [text], EVERY_ROW, part_rows=7)
    assert check_folder(folder).rows == 26
    path = part_path(folder, 1)
    table = pq.read_table(path)
    if damage == "gone":
        path.unlink()
    elif damage == "truncated":
        path.write_bytes(path.read_bytes()[:-20])
    elif damage == "another part":
        shutil.copy(part_path(folder, 0), path)
    elif damage == "one too many":
        shutil.copy(path, folder / "part-00009.parquet")
    elif damage == "changed text":
        text.write_text(text.read_text().replace(LINES[9], LINES[9][::-1], 1))
    else:
        ids = pa.array(table["id"].to_pylist()[::-1])
        pq.write_table(table.set_column(0, "id", ids).replace_schema_metadata(table.schema.metadata), path)
    expected = {
        "gone": "7 of 26 rows are not there",
        "truncated": "7 of 26 rows are not there",
        "another part": "7 of 26 rows are not there",
        "other numbers": "has the row 13 where 7 is due",
        "one too many": "count twice",
        "changed text": "has changed since the parts were planned",
    }[damage]
    with pytest.raises(SelfguideError, match=expected):
        check_folder(folder)
    if damage in ("gone", "truncated", "another part"):
        assert encode_to_parts(job(bert, tmp_path), [text], EVERY_ROW).made == 1
        check_folder(folder)


def test_a_folder_of_something_else_is_refused(command: Command, bert: Path, text: Path, tmp_path: Path) -> None:
    made = encode_to_parts(job(bert, tmp_path), [text], EVERY_ROW, part_rows=7)
    assert made == module_outcome(26, 4, 4, 4, 0, 0)
    for change, message in (
        ({"backend": "bf16"}, "there, backend is 'torch', here it is 'bf16'"),
        ({"form": VectorForm(True)}, "normalise is False"),
        ({"max_length": 4}, "encoder is"),
    ):
        with pytest.raises(UsageError, match=message):
            encode_to_parts(job(bert, tmp_path, **change), [text], EVERY_ROW)
    with pytest.raises(UsageError, match="part rows is 7, here it is 8"):
        encode_to_parts(job(bert, tmp_path), [text], EVERY_ROW, part_rows=8)
    with pytest.raises(UsageError, match="it comes from other files"):
        encode_to_parts(job(bert, tmp_path), [text, text], EVERY_ROW)
    text.write_text("\n".join([*LINES, "more"]))
    with pytest.raises(UsageError, match="has another size"):
        encode_to_parts(job(bert, tmp_path), [text], EVERY_ROW)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes").touch()
    with pytest.raises(UsageError, match="holds notes and no manifest"):
        encode_to_parts(PartsJob(tmp_path / "full", str(bert)), [text], EVERY_ROW)
    (tmp_path / "parts" / "manifest.json").write_text("{}")
    with pytest.raises(SelfguideError, match="is damaged"):
        check_folder(tmp_path / "parts")
    for words, message in (
        (("--shard", "2/2"), "--shard is i/n with i from 0 to n-1"),
        (("--shard", "0/2", "--output", "v.npy"), "name one with --output"),
        (("--shard", "0/2", "--output", "p", "--limit", "3"), "not for parts"),
        (("--shard", "0/2", "--output", "p", "--engine", "ray"), "leave one of them out"),
        (("--engine", "spark", "--output", "p"), "engine must be one of plain, ray"),
        (("--workers", "2"), "are for --engine ray"),
        (("--check", tmp_path), "give nothing else"),
    ):
        outcome = command("encode", text, "--encoder", bert, *words)
        assert outcome.code != 0
        assert message in " ".join(outcome.err.split()), words


def module_outcome(*numbers: int) -> object:
    from selfguide.engine.parts_run import PartsOutcome

    return PartsOutcome(*numbers)


def test_a_part_that_another_process_makes_is_left_to_it(bert: Path, text: Path, tmp_path: Path) -> None:
    encode_to_parts(job(bert, tmp_path), [text], EVERY_ROW, part_rows=7, shard=(0, 4))
    path = part_path(tmp_path / "parts", 2)
    with claimed(path.with_name(f".{path.name}.lock")) as mine:
        assert mine
        code = f"""
from pathlib import Path
from selfguide.data.options import TextOptions
from selfguide.engine.parts import PartsJob
from selfguide.engine.parts_run import encode_to_parts
options = TextOptions(keep_duplicates=True, keep_blank=True, long_lines="cut")
print(encode_to_parts(PartsJob(Path({str(tmp_path / "parts")!r}), {str(bert)!r}), [{str(text)!r}], options))
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "made=2, busy=1, missing=1" in done.stdout


def test_the_lock_of_a_killed_process_does_not_stay(bert: Path, text: Path, tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    encode_to_parts(job(bert, tmp_path), [text], EVERY_ROW, part_rows=7)
    left, held = folder / ".part-00001.parquet.lock", folder / ".part-00002.parquet.lock"
    left.write_text("")
    with claimed(held) as mine:
        assert mine
        encode_to_parts(job(bert, tmp_path), [text], EVERY_ROW)
        assert not left.exists()
        assert held.exists()


def test_a_failure_leaves_whole_parts_only(
    bert: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, real = tmp_path / "parts", module.vector_chunks

    def failing(model: object, sentences: object, *rest: object) -> object:
        for number, chunk in enumerate(real(model, sentences, *rest)):  # type: ignore[arg-type]
            yield chunk
            if any(folder.glob("part-00001*")):
                raise OSError(28, "No space left on device")
            assert number == 0

    monkeypatch.setattr(module, "vector_chunks", failing)
    with pytest.raises(SelfguideError, match=r"part-00002.parquet cannot be written: No space left.*continues"):
        encode_to_parts(job(bert, tmp_path), [text], EVERY_ROW, part_rows=7)
    assert sorted(path.name for path in folder.iterdir()) == [
        "manifest.json",
        "part-00000.parquet",
        "part-00001.parquet",
    ]
    monkeypatch.setattr(module, "vector_chunks", real)
    assert encode_to_parts(job(bert, tmp_path), [text], EVERY_ROW).made == 2
    check_folder(folder)


def _command(*words: object) -> list[str]:
    return [sys.executable, "-m", "selfguide", "encode", *map(str, words)]


def _until(folder: Path, count: int, seconds: float = 300) -> None:
    """Wait for so many finished parts."""
    end = time.monotonic() + seconds
    while len(list(folder.glob("part-*.parquet"))) < count:
        assert time.monotonic() < end, sorted(path.name for path in folder.iterdir())
        time.sleep(0.02)


@pytest.fixture
def long_text(tmp_path: Path) -> Path:
    path = tmp_path / "long.txt"
    path.write_text("\n".join(f"{sentence} {number}" for number, sentence in enumerate(toy_sentences(40) * 150)))
    return path


@pytest.mark.slow
def test_killed_again_and_again(bert: Path, long_text: Path, tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    words = _command(long_text, "--encoder", bert, "--output", folder, "--part-rows", 200, "--shard", "0/1")
    for count in (1, 8, 20):
        running = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _until(folder, count)
        running.send_signal(signal.SIGKILL)
        running.wait()
        with pytest.raises(SelfguideError, match="rows are not there"):
            check_folder(folder)
    subprocess.run(words, check=True, capture_output=True)
    assert check_folder(folder).rows == 6000
    assert not list(folder.glob(".part*"))


def _workers(driver: int) -> list[int]:
    """The processes below a driver in which an actor of ours runs."""
    import psutil

    found = []
    for process in psutil.Process(driver).children(recursive=True):
        try:
            if "PartsActor" in " ".join(process.cmdline()):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


@pytest.mark.slow
def test_ray_loses_a_worker_and_then_its_driver(bert: Path, long_text: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    folder = tmp_path / "parts"
    words = _command(long_text, "--encoder", bert, "--output", folder, "--part-rows", 100, "--engine", "ray")
    words += ["--workers", "2"]
    running = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    _until(folder, 2)
    workers = _workers(running.pid)
    assert len(workers) == 2
    os.kill(workers[0], signal.SIGKILL)
    _until(folder, 25)
    assert running.poll() is None
    assert len(set(_workers(running.pid)) - {workers[0]}) >= 1
    running.send_signal(signal.SIGKILL)
    running.wait()
    kept = {path: path.stat().st_mtime_ns for path in folder.glob("part-*.parquet")}
    assert 25 <= len(kept) < 60
    done = subprocess.run(words, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    assert "All parts are there" in done.stderr
    assert check_folder(folder).rows == 6000
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert not list(folder.glob(".part*.tmp*"))


@pytest.mark.slow
def test_an_actor_s_error_is_one_sentence(bert: Path, long_text: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    folder = tmp_path / "parts"
    words = _command(long_text, "--encoder", bert, "--output", folder, "--part-rows", 3000)
    subprocess.run([*words, "--shard", "0/2"], check=True, capture_output=True)
    content = long_text.read_text()
    long_text.write_text(content[:-1] + "0")  # as long as before
    done = subprocess.run([*words, "--engine", "ray", "--workers", "1"], capture_output=True, text=True, timeout=180)
    assert done.returncode == 1, done.stderr
    assert "selfguide: " in done.stderr
    assert "has changed since the parts were planned" in done.stderr, done.stderr[-6000:]
    assert "Traceback" not in done.stderr
    assert Manifest.from_folder(folder).rows == 6000
    assert json.loads((folder / "manifest.json").read_text())["format"] == 1
