"""Atomic writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from selfguide.files import atomic_path, remove_leftovers, replace_folder, write_text


def _write_half(path: Path) -> None:
    path.write_text("half")
    raise RuntimeError("on purpose")


def test_a_file_appears_only_when_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "vectors.npy"
    with atomic_path(target) as temporary:
        temporary.write_text("new")
        assert temporary.suffix == ".npy"
        assert not target.exists()
    assert target.read_text() == "new"
    with pytest.raises(RuntimeError, match="on purpose"), atomic_path(target) as temporary:
        _write_half(temporary)
    assert target.read_text() == "new"
    assert list(tmp_path.iterdir()) == [target]


def test_leftovers_of_killed_processes_are_removed_and_nothing_else(tmp_path: Path) -> None:
    target, other = tmp_path / "views-[1].npy", tmp_path / "views-2.npy"
    for path in (target, other):
        with atomic_path(path) as temporary:
            temporary.touch()
            left = temporary.with_name(temporary.name.replace(".tmp", "0.tmp"))  # another process's number
            left.touch()
    remove_leftovers(target)
    assert {path.name for path in tmp_path.iterdir()} == {target.name, other.name, left.name}


def test_text_and_folders_are_replaced(tmp_path: Path) -> None:
    write_text(tmp_path / "a.txt", "ä")
    assert (tmp_path / "a.txt").read_bytes() == "ä".encode()
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    replace_folder(tmp_path / "new", tmp_path / "old")
    assert [path.name for path in (tmp_path / "old").iterdir()] == ["new"]
    assert not (tmp_path / "new").exists()
