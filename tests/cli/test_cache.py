"""``selfguide cache``: what is there, how large it is, and clearing it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from toys import Outcome

Command = Callable[..., Outcome]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with two stores of views, one graph, and what a killed process left behind."""
    monkeypatch.setenv("SELFGUIDE_CACHE", str(tmp_path))
    for name, size in (("views/views-1.npy", 1500), ("views/views-2.npy", 500), ("graphs/a-2.onnx", 3_000_000)):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(size))
    (tmp_path / "views" / ".views-3.77.tmp.npy").write_bytes(bytes(10))
    (tmp_path / "views" / ".views-1.npy.lock").touch()
    (tmp_path / "graphs" / "notes.txt").write_text("not ours")
    past = time.time() - 3 * 86_400
    os.utime(tmp_path / "graphs" / "a-2.onnx", (past, past))
    return tmp_path


def test_it_shows_kinds_entries_sizes_and_ages(command: Command, folder: Path) -> None:
    code, out, err = command("cache")
    assert (code, err) == (0, "")
    assert out.startswith(f"{folder}\n")
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines()[3:]}
    assert rows["views"][:5] == ["2", "2", "kB", "just", "now"]
    assert rows["graphs"][:5] == ["1", "3", "MB", "3", "days"]
    assert "graphs" not in command("cache", "views").out


def test_it_clears_one_kind_or_all_and_leaves_other_files(command: Command, folder: Path) -> None:
    assert command("cache", "--clear", "views") == Outcome(0, "Deleted 2 entries, 2 kB.\n", "")
    assert not list((folder / "views").iterdir())
    assert command("cache", "--clear").out == "Deleted 1 entry, 3 MB.\n"
    assert [path.name for path in (folder / "graphs").iterdir()] == ["notes.txt"]
    assert command("cache", "--clear").out == "Deleted 0 entries, 0 B.\n"


def test_an_empty_cache_and_a_wrong_kind(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELFGUIDE_CACHE", str(tmp_path / "none"))
    code, out, _ = command("cache")
    assert code == 0
    assert [line.split()[1] for line in out.splitlines()[3:]] == ["0", "0"]
    code, out, err = command("cache", "models")
    assert (code, out) == (2, "")
    assert err == "selfguide: The cache holds no 'models'; choose one of views, graphs.\n"


def test_it_needs_no_torch(folder: Path) -> None:
    script = """
import sys
sys.argv = ["selfguide", "cache"]
from selfguide.cli.main import run
run()
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
