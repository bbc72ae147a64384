"""Files of embeddings that are written chunk by chunk: killed at any moment, resumed to the same bytes, damage noticed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from selfguide.engine.vector_files import FORMATS, vector_file
from selfguide.errors import FolderInUse, SelfguideError, UsageError
from selfguide.locks import beside, claim

SENTENCES = [f"sentence {number}, «quoted»\n" for number in range(50)]
VECTORS = np.random.default_rng(0).standard_normal((50, 3)).astype(np.float32)
SETTING = {"encoder": "abc"}


class Killed(BaseException):
    """Stands for SIGKILL; a test throws away what clean-up did after it by looking only at the disk before."""


def write(output: Path, until: Callable[[int], None] = lambda rows: None, **options: Any) -> None:
    with vector_file(output, 3, setting=SETTING, **options) as writer:
        rest = list(writer.skip(SENTENCES))
        for start in range(writer.rows, 50, 8):
            until(start)
            assert rest[start - (50 - len(rest))] == SENTENCES[start]
            writer.state["last"] = start
            writer.write(SENTENCES[start : start + 8], VECTORS[start : start + 8])


@pytest.fixture(params=FORMATS)
def output(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / f"vectors{request.param}"


@pytest.fixture
def whole(output: Path) -> bytes:
    other = output.with_name("whole").with_suffix(output.suffix)
    write(other)
    return other.read_bytes()


def _killed_at(monkeypatch: pytest.MonkeyPatch, output: Path, number: int, **options: Any) -> bool:
    """Write, and stop dead just before the n-th rename; return whether there were so many."""
    count = [0]
    replace = os.replace

    def killing(one: Any, other: Any) -> None:
        count[0] += 1
        if count[0] == number:
            raise Killed
        replace(one, other)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killing)
        # What a killed process does not do: neither clean up nor close.
        patch.setattr("shutil.rmtree", lambda *args, **kwargs: None)
        try:
            write(output, **options)
        except Killed:
            return True
    return False


def test_killed_before_any_rename_it_ends_in_the_same_bytes(
    output: Path, whole: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 30):
        for path in (output, *output.parent.glob("vectors*.partial/*")):
            path.unlink(missing_ok=True)
        if not _killed_at(monkeypatch, output, number):
            break
        if number <= 2:  # killed before there was anything to go on with
            with pytest.raises(UsageError, match="no interrupted encoding"):
                write(output, resume=True)
            write(output)
        else:
            write(output, resume=True)
        assert output.read_bytes() == whole, number
        assert not output.with_name(output.name + ".partial").exists()
        assert sorted(path.name for path in output.parent.iterdir()) == sorted([output.name, f"whole{output.suffix}"])
    assert number > 8


def test_half_a_chunk_is_cut_off(output: Path, whole: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _killed_at(monkeypatch, output, 6)
    data = output.with_name(output.name + ".partial") / "data"
    with data.open("ab") as file:
        file.write(b"half a chu")
    write(output, resume=True)
    assert output.read_bytes() == whole


def test_content(output: Path, whole: bytes) -> None:
    path = output.with_name("whole").with_suffix(output.suffix)
    if output.suffix == ".npy":
        np.testing.assert_array_equal(np.load(path), VECTORS)
    elif output.suffix == ".parquet":
        table = pq.read_table(path)
        assert table["sentence"].to_pylist() == SENTENCES
        np.testing.assert_array_equal(np.array(table["embedding"].to_pylist(), dtype=np.float32), VECTORS)


@pytest.mark.parametrize("name", ["data", "progress.json", "setting.json"])
@pytest.mark.parametrize("damage", ["flipped", "truncated", "gone"])
def test_damage_is_refused(output: Path, monkeypatch: pytest.MonkeyPatch, name: str, damage: str) -> None:
    assert _killed_at(monkeypatch, output, 6)
    path = output.with_name(output.name + ".partial") / name
    content = path.read_bytes()
    middle = len(content) * 2 // 3
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(
            content[:middle] + (bytes([content[middle] ^ 4]) + content[middle + 1 :]) * (damage == "flipped")
        )
    with pytest.raises(SelfguideError):
        write(output, resume=True)
    assert not output.exists()


def test_another_setting_or_text_is_refused(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _killed_at(monkeypatch, output, 6)
    with (
        pytest.raises(UsageError, match="there, encoder was 'abc', here it is 'xyz'"),
        vector_file(output, 3, setting={"encoder": "xyz"}, resume=True),
    ):
        pass
    with (
        pytest.raises(SelfguideError, match="The text has changed"),
        vector_file(output, 3, setting=SETTING, resume=True) as writer,
    ):
        writer.skip(["another", *SENTENCES])
    with pytest.raises(UsageError, match="--resume continues it, --overwrite starts over"):
        write(output)
    write(output, overwrite=True)


def test_one_writer_at_a_time(output: Path) -> None:
    other = claim(beside(output))
    assert other is not None
    with pytest.raises(FolderInUse, match="since 20"):
        write(output)
    other.release()
    write(output)
    with pytest.raises(UsageError, match="exists already"):
        write(output)
    with pytest.raises(UsageError, match="it is finished"):
        write(output, resume=True)


def test_what_another_process_is_writing_is_not_called_interrupted(
    output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The advice to start over, or that there is nothing to go on with, would be wrong."""
    assert _killed_at(monkeypatch, output, 6)
    program = (
        "import sys\nfrom pathlib import Path\nfrom selfguide.locks import beside, held\noutput = Path(sys.argv[1])\n"
        "with held(beside(output), output):\n    print(flush=True)\n    sys.stdin.readline()"
    )
    words = [sys.executable, "-c", program, str(output)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        for options in ({}, {"resume": True}, {"overwrite": True}):
            with pytest.raises(FolderInUse, match=f"process {process.pid}, since 20"):
                write(output, **options)
        process.communicate(b"\n")
    write(output, resume=True)
    assert [path.name for path in output.parent.iterdir()] == [output.name]
