"""One lock: a second process is told who has it, a dead holder's is taken over, shared work is claimed piece by piece."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from selfguide.errors import FolderInUse, SelfguideError
from selfguide.locks import Holder, beside, check_free, claim, claimed, held, holders, inside, joined, waited_for

Start = Callable[[str], "subprocess.Popen[str]"]

HOLD = "with held(lock, Path('notes')): ready()"
JOIN = "with joined(lock, Path('notes'), 'one setting'): ready()"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Run a statement about ``lock`` in another process, up to where it says that it is ready, and leave it there."""
    processes = []

    def run(statement: str) -> subprocess.Popen[str]:
        program = (
            "import sys\nfrom pathlib import Path\nfrom selfguide.locks import *\nlock = Path(sys.argv[1])\n"
            f"def ready():\n    print('ready', flush=True)\n    sys.stdin.readline()\n{statement}\n"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path / ".notes.lock")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    yield run
    for process in processes:
        process.kill()
        process.communicate()


def test_a_second_process_is_told_who_holds_it_and_since_when(tmp_path: Path, start: Start) -> None:
    lock = beside(tmp_path / "notes")
    assert lock == tmp_path / ".notes.lock"
    process = start(HOLD)
    with pytest.raises(FolderInUse) as caught, held(lock, Path("notes")):
        pass
    (holder,) = holders(lock)
    assert str(caught.value).startswith(f"notes is being written by `python {lock}` (process {process.pid}, since 20")
    assert holder.since in str(caught.value)
    process.communicate("\n")
    assert not lock.exists()
    with held(lock, Path("notes")):
        assert [holder.pid for holder in holders(lock)] == [os.getpid()]
    assert not list(tmp_path.iterdir())


def test_a_holder_that_has_not_written_its_name_yet_is_waited_for(tmp_path: Path, start: Start) -> None:
    """Between taking the lock and writing who has it there is a moment, in which a second process may come."""
    process = start(
        "import fcntl, json, os, time\n"
        "from dataclasses import asdict\n"
        "number = os.open(lock, os.O_RDWR | os.O_CREAT)\n"
        "fcntl.flock(number, fcntl.LOCK_EX)\n"
        "print('ready', flush=True)\n"
        "time.sleep(0.3)\n"
        "os.write(number, json.dumps(asdict(Holder.me())).encode())\n"
        "sys.stdin.readline()"
    )
    with (
        pytest.raises(FolderInUse, match=rf"process {process.pid}, since 20"),
        held(tmp_path / ".notes.lock", Path("notes")),
    ):
        pass


def test_an_output_can_be_asked_for_its_holder_first(tmp_path: Path, start: Start) -> None:
    lock = beside(tmp_path / "notes")
    check_free(lock, Path("notes"))
    with held(lock, Path("notes")):
        check_free(lock, Path("notes"))  # this process's own
    process = start(HOLD)
    with pytest.raises(FolderInUse, match=rf"process {process.pid}, since 20"):
        check_free(lock, Path("notes"))
    process.kill()
    process.communicate()
    check_free(lock, Path("notes"))


def test_a_dead_holder_is_taken_over(tmp_path: Path, start: Start) -> None:
    process = start(HOLD)
    process.kill()
    process.wait()
    lock = beside(tmp_path / "notes")
    assert lock.exists()
    assert holders(lock) == []
    with held(lock, Path("notes")):
        pass
    assert not lock.exists()


def test_without_locks_of_the_kernel_the_named_holder_decides(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network drive without ``flock``, and Windows."""
    process, lock = start(HOLD), beside(tmp_path / "notes")
    monkeypatch.setattr("selfguide.locks.fcntl", None)
    with pytest.raises(FolderInUse, match=f"process {process.pid}"), held(lock, Path("notes")):
        pass
    process.kill()
    process.wait()
    with held(lock, Path("notes")), held(lock, Path("notes")):
        assert lock.exists()
    assert not lock.exists()


def test_a_holder_on_another_machine_is_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("selfguide.locks.fcntl", None)
    lock = beside(tmp_path / "notes")
    with monkeypatch.context() as patch:
        patch.setattr("socket.gethostname", lambda: "far-away")
        mine = claim(lock)
    assert mine is not None
    with pytest.raises(FolderInUse, match=f"on far-away, since .* delete {lock}"), held(lock, Path("notes")):
        pass


def test_processes_with_the_same_setting_work_together(tmp_path: Path, start: Start) -> None:
    lock = beside(tmp_path / "notes")
    first, second = start(JOIN), start(JOIN)
    with joined(lock, Path("notes"), "one setting"):
        assert {holder.pid for holder in holders(lock)} == {first.pid, second.pid, os.getpid()}
    with pytest.raises(FolderInUse, match=str(first.pid)), joined(lock, Path("notes"), "another"):
        pass
    with pytest.raises(FolderInUse), held(lock, Path("notes")):
        pass
    first.communicate("\n")
    with pytest.raises(FolderInUse, match=str(second.pid)), joined(lock, Path("notes"), "another"):
        pass
    second.communicate("\n")
    with joined(lock, Path("notes"), "another"):
        pass
    assert not lock.exists()


def test_a_piece_of_work_is_claimed_once(tmp_path: Path, start: Start) -> None:
    process = start("with claimed(lock): ready()")
    lock = tmp_path / ".notes.lock"
    with claimed(lock) as mine:
        assert not mine
    process.communicate("\n")
    with claimed(lock) as mine, claimed(lock) as again:
        assert (mine, again) == (True, False)


def test_short_locks_wait(tmp_path: Path, start: Start) -> None:
    counter, lock = tmp_path / "counter", inside(tmp_path)
    counter.write_text("0")
    statement = (
        f"from selfguide.locks import inside\ncounter = Path({str(counter)!r})\nready()\n"
        "for _ in range(50):\n"
        "    with waited_for(inside(counter.parent)):\n"
        "        counter.write_text(str(int(counter.read_text()) + 1))\n"
    )
    processes = [start(statement), start(statement)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for _ in range(50):
        with waited_for(lock):
            counter.write_text(str(int(counter.read_text()) + 1))
    assert [process.wait(60) for process in processes] == [0, 0]
    assert counter.read_text() == "150"
    assert not lock.exists()


def test_a_planted_link_is_not_followed(tmp_path: Path) -> None:
    victim, lock = tmp_path / "victim", beside(tmp_path / "notes")
    victim.write_text("precious")
    lock.symlink_to(victim)
    with pytest.raises(SelfguideError, match="symbolic link"), held(lock, Path("notes")):
        pass
    assert victim.read_text() == "precious"


def test_this_process_is_alive_and_a_later_one_of_its_number_is_not() -> None:
    me = Holder.me()
    assert me.alive
    assert not Holder(me.pid, me.host, "1", me.since, me.command).alive
