"""Writing files and folders so that a reader never sees half of one, and other users never see what is not finished.

A file is written under a temporary name and renamed; a folder is exchanged with the one it replaces in a single step where the
system can do that. Temporary files are newly created (a planted link is not followed) and readable by their owner alone.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from glob import escape
from pathlib import Path
from typing import IO, Any

_BLOCK = 1 << 20


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Provide a temporary file beside a file, and rename it to the file's own name when the block succeeds.

    The temporary name keeps the suffix, because some writers choose a format by it. It is removed when the block fails; what a
    killed process of this machine left is removed by the next one that writes the file, and :func:`remove_leftovers` removes all.

    Args:
        path: The file to be written; its folder must exist.

    Yields:
        The path of the temporary file, which exists and is empty.
    """
    _remove_abandoned(path)
    temporary = path.with_name(f".{path.stem}.{os.getpid()}-{_here()}-{secrets.token_hex(4)}.tmp{path.suffix}")
    mode = create_private(temporary)
    try:
        yield temporary
        temporary.chmod(mode)
        temporary.replace(path)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _remove_abandoned(path: Path) -> None:
    """Remove temporary files for a file whose processes ran here and are gone."""
    if os.name != "posix":
        return
    named = re.compile(re.escape(f".{path.stem}.") + r"(\d+)-" + _here() + r"-[0-9a-f]+\.tmp" + re.escape(path.suffix))
    with suppress(OSError), os.scandir(path.parent) as entries:
        for name in [entry.name for entry in entries]:
            if (found := named.fullmatch(name)) and int(found[1]) != os.getpid():
                try:
                    os.kill(int(found[1]), 0)
                except ProcessLookupError:
                    path.with_name(name).unlink(missing_ok=True)
                except OSError:  # another user's, and alive
                    pass


@cache
def _here() -> str:
    """Return a mark of this machine and container, within which process ids can be looked up."""
    try:
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        space = ""
    return hashlib.sha256(f"{socket.gethostname()} {space}".encode()).hexdigest()[:8]


def create_private(path: Path) -> int:
    """Make a new empty file that its owner alone can read; a file or link of that name is not touched.

    Args:
        path: The file, which must not exist.

    Returns:
        The permissions that a new file has by default, for when it is finished.

    Raises:
        FileExistsError: There is a file or a link of that name.
    """
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o666)
    try:
        usual = os.fstat(number).st_mode & 0o777
        if hasattr(os, "fchmod"):
            os.fchmod(number, usual & 0o700)
        return usual
    finally:
        os.close(number)


def reserve(file: Path | IO[bytes]) -> None:
    """Take the disk space of a file that has its final length already and is about to be written through memory.

    A memory-mapped file takes its space while it is written, and on a full disk that kills the process (SIGBUS).

    Args:
        file: The file, or an open one.

    Raises:
        OSError: There is not enough room.
    """
    if not hasattr(os, "posix_fallocate"):
        return
    if isinstance(file, Path):
        with file.open("r+b") as opened:
            reserve(opened)
        return
    try:
        os.posix_fallocate(file.fileno(), 0, os.fstat(file.fileno()).st_size)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS):  # the file system cannot
            raise


def remove_leftovers(path: Path) -> list[Path]:
    """Remove temporary files of :func:`atomic_path` that killed processes left behind.

    Args:
        path: The file they were meant for; the caller makes sure that no process is writing it.

    Returns:
        What was removed.
    """
    found = list(path.parent.glob(f".{escape(path.stem)}.*.tmp{escape(path.suffix)}"))
    for temporary in found:
        temporary.unlink(missing_ok=True)
    return found


def write_text(path: Path, content: str) -> None:
    """Write a text file in UTF-8 under a temporary name, then rename it.

    Args:
        path: The file to be written.
        content: What it will hold.
    """
    with atomic_path(path) as temporary:
        temporary.write_text(content, encoding="utf-8")


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    with path.open("rb") as file:
        return content_hash(file).hexdigest()


def content_hash(file: IO[bytes], size: int | None = None) -> hashlib._Hash:
    """Hash what follows in an open file.

    Args:
        file: The file, at the position from which it is read.
        size: Number of bytes; ``None`` reads to the end.

    Returns:
        The SHA-256, which can be continued; a file that ends before ``size`` bytes leaves it shorter.
    """
    digest = hashlib.sha256()
    left = float("inf") if size is None else size
    while left > 0 and (block := file.read(int(min(left, _BLOCK)))):
        digest.update(block)
        left -= len(block)
    return digest


def json_digest(content: Any) -> str:
    """Return the SHA-256 of plain values, whatever the order of their keys; what JSON does not know is taken as text."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def seal(path: Path) -> None:
    """Write the digest of a finished file beside it; see :func:`is_sealed`."""
    write_text(path.with_name(path.name + ".sha256"), file_digest(path))


def is_sealed(path: Path) -> bool:
    """Return whether a file is there as it was when it was sealed; otherwise it has to be made again."""
    try:
        return path.with_name(path.name + ".sha256").read_text(encoding="utf-8") == file_digest(path)
    except (OSError, ValueError):
        return False


def folder_digests(folder: Path, leave_out: Callable[[Path], bool] = lambda path: False) -> dict[str, str]:
    """Return the digest of every file in a folder, by its path below it; of a link, the digest of what it points to.

    Args:
        folder: The folder.
        leave_out: Whether to leave a file out.

    Returns:
        The digests, sorted by path.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not leave_out(path))
    return {path.relative_to(folder).as_posix(): file_digest(path) for path in files}


def damage_of(folder: Path, digests: dict[str, str]) -> str | None:
    """Return a description of the first missing or changed file of a folder; ``None`` where all are as they were.

    Args:
        folder: The folder.
        digests: What :func:`folder_digests` returned when they were written.
    """
    for name, digest in digests.items():
        path = folder / name
        try:
            if file_digest(path) != digest:
                return f"{path} has changed since it was written"
        except FileNotFoundError:
            return f"{path} is missing"
        except OSError as error:
            return f"{path} cannot be read ({error.strerror or error})"
    return None


def read_json(path: Path) -> Any:
    """Return what a JSON file holds.

    Raises:
        OSError: It cannot be read.
        ValueError: It holds something else, or is nested too deeply.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def replace_folder(source: Path, target: Path) -> None:
    """Give a finished folder the name of another, which is then removed.

    Where the system can exchange two names in one step (Linux, macOS), there is no moment without a folder of that name.
    Elsewhere a process killed at the wrong moment leaves the former folder as ``NAME.former``, and :func:`restore_folder` brings
    it back.

    Args:
        source: The finished folder, on the same file system.
        target: The name it is to have; the caller holds its lock.
    """
    former = former_folder(target)
    if not os.path.lexists(target):
        source.rename(target)
    elif exchange(source, target):
        former = source
    else:
        _remove_tree(former)
        target.rename(former)
        source.rename(target)
    _remove_tree(former)


def former_folder(target: Path) -> Path:
    """Return the name that a folder has while it is replaced in two steps."""
    return target.with_name(target.name + ".former")


def restore_folder(target: Path) -> bool:
    """Bring back a folder whose replacement was killed half-way, and remove one that was replaced but not yet removed.

    Args:
        target: The folder; the caller holds its lock.

    Returns:
        Whether the former folder was brought back.
    """
    former = former_folder(target)
    if not former.is_dir():
        return False
    if os.path.lexists(target):
        _remove_tree(former)
        return False
    former.rename(target)
    return True


def _remove_tree(path: Path) -> None:
    """Remove a folder, or the link to one but not what it points to."""
    if path.is_symlink():
        path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)


def exchange(one: Path, other: Path) -> bool:
    """Exchange two names of one file system in a single step.

    Returns:
        Whether the system can do that; otherwise nothing has changed.

    Raises:
        OSError: It can, but not with these two.
    """
    call = _exchange_call()
    if call is None:
        return False
    if call(os.fsencode(one), os.fsencode(other)) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP):
        return False  # the file system cannot
    raise OSError(number, os.strerror(number), str(other))


def system_error(error: BaseException) -> OSError | None:
    """Return the operating system's error behind an error, if there is one.

    Libraries written in Rust (tokenizers, safetensors) report a full disk as an error of their own, which says ``(os error 28)``.

    Args:
        error: The error.
    """
    if isinstance(error, OSError):
        return error
    found = re.search(r"\(os error (\d+)\)", str(error))
    return OSError(int(found[1]), os.strerror(int(found[1]))) if found else None


@contextmanager
def system_errors() -> Iterator[None]:
    """Raise the operating system's error where a library in the block raises one of its own (:func:`system_error`).

    Yields:
        Nothing.

    Raises:
        OSError: Such an error.
    """
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        found = system_error(error)
        if found is None:
            raise
        raise found from error


def _exchange_call() -> Callable[[bytes, bytes], int] | None:
    if sys.platform not in ("linux", "darwin"):
        return None
    library = ctypes.CDLL(None, use_errno=True)
    if sys.platform == "darwin":
        swap = getattr(library, "renamex_np", None)
        return None if swap is None else lambda one, other: int(swap(one, other, 2))
    rename = getattr(library, "renameat2", None)
    here = -100  # AT_FDCWD
    return None if rename is None else lambda one, other: int(rename(here, one, here, other, 2))


@contextmanager
def private_folder(prefix: str) -> Iterator[Path]:
    """Provide a temporary folder that its owner alone can read, and that is removed even if this process is killed.

    On POSIX systems a shell waits at the other end of a pipe: the pipe closes when this process ends, in whatever way, and the
    shell then removes the folder.

    Args:
        prefix: How its name begins.

    Yields:
        The folder.
    """
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as folder:
        watcher = _watcher(folder)
        try:
            yield Path(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            if watcher is not None:
                if not os.path.lexists(folder):
                    watcher.kill()
                watcher.communicate()  # closes the pipe; where the folder could not be removed, the shell tries again


def _watcher(folder: str) -> subprocess.Popen[bytes] | None:
    if os.name != "posix":
        return None
    with suppress(OSError):
        return subprocess.Popen(
            # Processes that this one has started end with it, but not in the same instant.
            ["/bin/sh", "-c", 'cat >/dev/null; sleep 0.2; exec rm -rf -- "$1"', "sh", folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,  # Ctrl-C is for this process alone
        )
    return None
