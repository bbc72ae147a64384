"""Atomic writes."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from selfguide.files import (
    atomic_path,
    damage_of,
    folder_digests,
    private_folder,
    remove_leftovers,
    replace_folder,
    restore_folder,
    system_error,
    system_errors,
    write_text,
)


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


def test_temporary_files_are_new_and_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, victim = tmp_path / "vectors.npy", tmp_path / "victim"
    victim.write_text("precious")
    monkeypatch.setattr("secrets.token_hex", lambda size: "0" * 2 * size)
    with atomic_path(target) as temporary:
        assert temporary.stat().st_mode & 0o077 == 0
        name = temporary.name
    assert target.stat().st_mode & 0o777 == victim.stat().st_mode & 0o777
    (tmp_path / name).symlink_to(victim)
    with pytest.raises(FileExistsError), atomic_path(target):
        pass
    assert victim.read_text() == "precious"


def _folder(path: Path, content: str) -> Path:
    path.mkdir()
    (path / "content").write_text(content)
    return path


def test_a_folder_is_exchanged_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every call that changes a name there is a folder of the target's name: a kill just then leaves one."""
    target = _folder(tmp_path / "notes", "old")

    def watched(*names: object) -> None:
        assert (target / "content").is_file()
        raise AssertionError("no rename is needed")

    monkeypatch.setattr("os.rename", watched)
    replace_folder(_folder(tmp_path / "new", "new"), target)
    assert (target / "content").read_text() == "new"
    assert list(tmp_path.iterdir()) == [target]


def test_a_replacement_killed_between_two_renames_is_brought_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, new = _folder(tmp_path / "notes", "old"), _folder(tmp_path / "new", "new")
    monkeypatch.setattr("selfguide.files.exchange", lambda one, other: False)
    with monkeypatch.context() as patch:

        def fail(source: Path, name: Path) -> None:
            raise KeyboardInterrupt

        first = Path.rename
        patch.setattr(Path, "rename", lambda self, name: fail(self, name) if self == new else first(self, name))
        with pytest.raises(KeyboardInterrupt):
            replace_folder(new, target)
    assert not target.exists()
    assert restore_folder(target)
    assert (target / "content").read_text() == "old"
    replace_folder(new, target)
    assert (target / "content").read_text() == "new"
    assert not restore_folder(target)
    assert list(tmp_path.iterdir()) == [target]


def test_a_link_to_a_folder_is_replaced_and_the_folder_stays(tmp_path: Path) -> None:
    far = _folder(tmp_path / "far", "far")
    (tmp_path / "notes").symlink_to(far)
    replace_folder(_folder(tmp_path / "new", "new"), tmp_path / "notes")
    assert (tmp_path / "notes" / "content").read_text() == "new"
    assert (far / "content").read_text() == "far"


def test_damage_is_named(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "notes", "sound")
    digests = folder_digests(folder)
    assert damage_of(folder, digests) is None
    (folder / "content").write_text("sounD")
    assert damage_of(folder, digests) == f"{folder / 'content'} has changed since it was written"
    (folder / "content").unlink()
    assert damage_of(folder, digests) == f"{folder / 'content'} is missing"


def test_a_private_folder_does_not_outlive_a_killed_process() -> None:
    program = (
        "import os, signal\nfrom selfguide.files import private_folder\n"
        "with private_folder('selfguide-test-') as folder:\n"
        "    (folder / 'text.txt').write_text('mine')\n"
        "    print(folder, oct(folder.stat().st_mode & 0o777), flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False).stdout
    folder, mode = out.split()
    assert mode == "0o700"
    until = time.monotonic() + 10
    while Path(folder).exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    with private_folder("selfguide-test-") as mine:
        (mine / "text.txt").touch()
    assert not mine.exists()


def test_a_private_folder_that_python_cannot_remove_is_removed_by_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.rmtree", lambda *args, **kwargs: None)
    with private_folder("selfguide-test-") as mine:
        (mine / "text.txt").touch()
    assert not mine.exists()


def test_a_full_disk_is_one_whatever_library_says_so() -> None:
    """tokenizers and safetensors are written in Rust, and raise errors of their own."""
    found = system_error(Exception("No space left on device (os error 28)"))
    assert found is not None
    assert (found.errno, found.strerror) == (28, "No space left on device")
    assert system_error(error := OSError(5, "broken")) is error
    assert system_error(ValueError("a value")) is None
    with pytest.raises(OSError, match="No space left"), system_errors():
        raise Exception("No space left on device (os error 28)")
    with pytest.raises(ValueError, match="a value"), system_errors():
        raise ValueError("a value")


def test_what_a_killed_process_left_is_removed_by_the_next_writer(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom selfguide.files import atomic_path\n"
        "with atomic_path(Path(sys.argv[1])) as temporary:\n"
        "    temporary.write_text('half')\n    print('here', flush=True)\n    sys.stdin.read()\n"
    )
    page = tmp_path / "page.html"
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(page)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    (tmp_path / ".page.123-0.tmp.html").touch()  # of another machine, for all that is known
    write_text(page, "whole")
    assert len(list(tmp_path.glob(".page.*.tmp.html"))) == 2  # it is being written
    process.kill()
    process.communicate()
    write_text(page, "whole again")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".page.123-0.tmp.html", "page.html"]
