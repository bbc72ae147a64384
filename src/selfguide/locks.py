"""One lock for everything that several processes could write: folders, files, single cells of a comparison, cache entries.

A lock is a small hidden file. The kernel's ``flock`` decides who has it, so that a process that dies, however it dies, has
released it; the file itself only says who the holder is, for the message that another process gets. It is removed when the lock
is released; one that a killed process left behind is taken over.

Which function:

=====================  =====================================================================================================
:func:`held`           a command that owns its output: a second one is refused; the error names the holder and the time
:func:`joined`         a command that several processes may run together with the same setting (``compare``)
:func:`waited_for`     a short read-modify-write, or something that is made once (cache entries): others wait
:func:`claimed`        one piece of shared work: ``None`` where another process is at it
=====================  =====================================================================================================

Where the file lies: :func:`beside` an output that is replaced as a whole, :func:`inside` a folder that is added to.
"""

from __future__ import annotations

import errno
import json
import os
import shlex
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from selfguide.errors import FolderInUse, SelfguideError

try:
    import fcntl
except ImportError:  # Windows: see _record_decides
    fcntl = None  # type: ignore[assignment]

_UNSUPPORTED = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
_POLL_S = 0.05
_PATIENCE_S = 2.0  # another process holds a joined lock alone only for as long as it takes to write a line


@dataclass(frozen=True)
class Holder:
    """The holder of a lock."""

    pid: int
    host: str
    started: str
    """Distinguishes the process from a later one with the same id."""
    since: str
    command: str
    setting: str = ""
    """What processes that share the work must have in common; see :func:`joined`."""

    @classmethod
    def me(cls, setting: str = "") -> Holder:
        """Return this process as a holder."""
        words = [Path(sys.argv[0] or "python").name, *sys.argv[1:]]
        if words[0] in ("__main__.py", "-m", "-c"):
            words[0] = "selfguide" if words[0] == "__main__.py" else "python"
        command = shlex.join(words)
        command = command if len(command) <= 200 else command[:199] + "…"
        now = time.strftime("%Y-%m-%d %H:%M:%S")
        return cls(os.getpid(), socket.gethostname(), _started(os.getpid()) or "", now, command, setting)

    @property
    def alive(self) -> bool:
        """Whether the process is still there; one on another machine is taken to be."""
        if self.host != socket.gethostname():
            return True
        found = _started(self.pid)
        return found is not None and found == self.started

    def describe(self) -> str:
        """Return a description of the holder: its command, machine and start time."""
        place = f" on {self.host}" if self.host != socket.gethostname() else ""
        return f"`{self.command}` (process {self.pid}{place}, since {self.since})"


def beside(target: Path) -> Path:
    """Return the lock file of an output that is replaced as a whole: ``notes`` has ``.notes.lock`` beside it."""
    real = Path(os.path.realpath(target))
    return real.with_name(f".{real.name}.lock")


def inside(folder: Path) -> Path:
    """Return the lock file of a folder that is added to, which must exist."""
    return folder / ".selfguide.lock"


@contextmanager
def held(lock: Path, target: Path) -> Iterator[None]:
    """Own an output while the block runs; missing parent folders are made.

    Of a job of several processes (torchrun) only the main one asks: the job counts as one holder.

    Args:
        lock: The lock file, from :func:`beside` or :func:`inside`.
        target: What it is about, for the message.

    Yields:
        Nothing.

    Raises:
        FolderInUse: Another process holds it; the message says which one, and since when.
        OSError: The lock file cannot be made.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    mine = Claim(lock)
    if not mine.acquire(Holder.me()):
        raise FolderInUse(_refusal(target, mine.holders(), lock))
    try:
        yield
    finally:
        mine.release()


@contextmanager
def owned_folder(folder: Path, setting: str | None = None) -> Iterator[None]:
    """Own a folder that a command adds to, or share it; it is made, and removed again if it stays empty.

    Args:
        folder: The folder.
        setting: See :func:`joined`; ``None``: own it alone.

    Yields:
        Nothing.

    Raises:
        FolderInUse: Another process holds it.
        SelfguideError: The folder cannot be made.
    """
    made = not folder.exists()
    stack = ExitStack()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = inside(folder)
        stack.enter_context(held(lock, folder) if setting is None else joined(lock, folder, setting))
    except OSError as error:
        raise SelfguideError(f"{folder} cannot be written: {error.strerror or error}.") from None
    try:
        with stack:
            yield
    finally:
        if made:
            with suppress(OSError):  # something stands there
                folder.rmdir()


@contextmanager
def joined(lock: Path, target: Path, setting: str) -> Iterator[None]:
    """Work on an output together with processes that have the same setting, and refuse others.

    Args:
        lock: The lock file.
        target: What it is about, for the message.
        setting: A digest of all that processes which share the work must have in common.

    Yields:
        Nothing.

    Raises:
        FolderInUse: A process with another setting is at work there.
        OSError: The lock file cannot be made.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    mine = Claim(lock)
    until = time.monotonic() + _PATIENCE_S
    while not mine.join(Holder.me(setting)):
        others = mine.holders()
        if time.monotonic() > until or any(other.setting not in ("", setting) for other in others):
            raise FolderInUse(_refusal(target, others, lock))
        time.sleep(_POLL_S)
    try:
        yield
    finally:
        mine.release()


@contextmanager
def waited_for(lock: Path) -> Iterator[None]:
    """Run the block when no other process does.

    Args:
        lock: The lock file; its folder must exist.

    Yields:
        Nothing, as soon as the lock is this process's.

    Raises:
        OSError: The lock file cannot be made.
    """
    mine = Claim(lock)
    mine.acquire(Holder.me(), wait=True)
    try:
        yield
    finally:
        mine.release()


@contextmanager
def claimed(lock: Path) -> Iterator[bool]:
    """Try to take a piece of shared work.

    Args:
        lock: The lock file; its folder must exist.

    Yields:
        Whether it is this process's while the block runs; otherwise another one has it.
    """
    mine = claim(lock)
    try:
        yield mine is not None
    finally:
        if mine is not None:
            mine.release()


def claim(lock: Path) -> Claim | None:
    """Take a piece of shared work until it is released.

    Args:
        lock: The lock file; its folder must exist.

    Returns:
        The claim, or ``None`` where another process has it.
    """
    mine = Claim(lock)
    return mine if mine.acquire(Holder.me()) else None


def check_free(lock: Path, target: Path) -> None:
    """Refuse an output that another process is writing, before anything incomplete there is reported.

    Args:
        lock: The lock file.
        target: What it is about, for the message.

    Raises:
        FolderInUse: Another process holds it.
    """
    host = socket.gethostname()
    if others := [holder for holder in holders(lock) if (holder.pid, holder.host) != (os.getpid(), host)]:
        raise FolderInUse(_refusal(target, others, lock))


def holders(lock: Path) -> list[Holder]:
    """Return the processes that a lock file names and that are still there."""
    return Claim(lock).holders()


class Claim:
    """A lock file, opened by this process once the lock is its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None

    def acquire(self, me: Holder, wait: bool = False) -> bool:
        """Return whether the lock was free and is now this process's alone."""
        while True:
            number = self._open()
            try:
                got = _flock(number, shared=False, wait=wait)
                if got is None:
                    got = self._record_decides(me, wait)
                if got and self._is_current(number):
                    self._write(number, me)
                    self._file, number = number, -1
                    return True
                if not got:
                    return False
            finally:
                if number >= 0:
                    os.close(number)

    def join(self, me: Holder) -> bool:
        """Return whether the lock could be taken together with holders of the same setting."""
        if self.acquire(me):
            assert self._file is not None
            _flock(self._file, shared=True, wait=True)  # from here on others may join
            return True
        number = self._open()
        try:
            same = [other.setting == me.setting for other in self.holders()]
            if not (same and all(same) and _flock(number, shared=True, wait=False) and self._is_current(number)):
                return False
            os.lseek(number, 0, os.SEEK_END)
            os.write(number, _line(me))
            self._file, number = number, -1
            return True
        finally:
            if number >= 0:
                os.close(number)

    def release(self) -> None:
        """Release the lock, and remove its file if no other process holds it."""
        if self._file is None:
            return
        number, self._file = self._file, None
        if _flock(number, shared=False, wait=False) is not False and self._is_current(number):
            with suppress(OSError):
                self.path.unlink()
        os.close(number)

    def holders(self) -> list[Holder]:
        """Return the holders that are still there."""
        found = []
        with suppress(OSError):
            for line in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
                with suppress(ValueError, TypeError):
                    found.append(Holder(**json.loads(line)))
        return [holder for holder in found if holder.alive]

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
        try:
            return os.open(self.path, flags, 0o666)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise SelfguideError(
                    f"The lock file {self.path} is a symbolic link, which selfguide did not make; remove it."
                ) from None
            raise

    def _is_current(self, number: int) -> bool:
        """Return whether the open file is still the one of that name: a former holder removes it when it is done."""
        try:
            return os.path.samestat(os.fstat(number), os.stat(self.path, follow_symlinks=False))
        except OSError:
            return False

    def _write(self, number: int, me: Holder) -> None:
        os.ftruncate(number, 0)
        os.lseek(number, 0, os.SEEK_SET)
        os.write(number, _line(me))

    def _record_decides(self, me: Holder, wait: bool) -> bool:
        """Decide by the holder that the file names, on systems without ``flock`` (Windows, some network drives)."""
        while any(other.pid != me.pid or other.host != me.host for other in self.holders()):
            if not wait:
                return False
            time.sleep(_POLL_S)
        return True


def _flock(number: int, shared: bool, wait: bool) -> bool | None:
    """Ask the kernel for the lock; return whether it is ours, and ``None`` where it knows no such locks."""
    if fcntl is None:
        return None
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(number, kind if wait else kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return None
        raise
    return True


def _line(holder: Holder) -> bytes:
    return (json.dumps(asdict(holder), ensure_ascii=False) + "\n").encode(errors="replace")


def _refusal(target: Path, others: list[Holder], lock: Path) -> str:
    if not others:
        return f"{target} is being written by another process. Wait for it, or name another folder."
    far = any(other.host != socket.gethostname() for other in others)
    way_out = f" If that process is gone, delete {lock}." if far else ""
    names = " and ".join(other.describe() for other in others)
    return f"{target} is being written by {names}. Wait for it, stop it, or name another folder.{way_out}"


def _started(pid: int) -> str | None:
    """Return what distinguishes a process from a later one with the same id, or ``None`` where it is gone."""
    try:
        content = Path(f"/proc/{pid}/stat").read_bytes()
        fields = content[content.rindex(b")") + 2 :].split()
        return None if fields[0] in (b"Z", b"X") else fields[19].decode()
    except (OSError, ValueError, IndexError):
        if Path("/proc/self/stat").exists():
            return None
    try:  # macOS and others: the number alone
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        return ""
    return ""
