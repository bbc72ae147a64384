"""Writing files and folders so that a reader never sees half of one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Provide a temporary path beside a file, and rename it to the file's own name when the block succeeds.

    The temporary name keeps the suffix, because some writers choose a format by it. It is removed when the block fails.

    Args:
        path: The file to be written; its folder must exist.

    Yields:
        The temporary path to write to.
    """
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.tmp{path.suffix}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def remove_leftovers(path: Path) -> None:
    """Remove temporary files of :func:`atomic_path` that killed processes left behind.

    Args:
        path: The file they were meant for; the caller makes sure that no process is writing it.
    """
    for temporary in path.parent.glob(f".{escape(path.stem)}.*.tmp{path.suffix}"):
        temporary.unlink(missing_ok=True)


def write_text(path: Path, content: str) -> None:
    """Write a text file in UTF-8 under a temporary name, then rename it.

    Args:
        path: The file to be written.
        content: What it will hold.
    """
    with atomic_path(path) as temporary:
        temporary.write_text(content, encoding="utf-8")


def replace_folder(source: Path, target: Path) -> None:
    """Rename a finished folder into place, and only then remove what stood there before.

    Args:
        source: The finished folder, on the same file system.
        target: The name it is to have.
    """
    former = target.with_name(target.name + ".former")
    shutil.rmtree(former, ignore_errors=True)
    if target.exists():
        target.rename(former)
    source.rename(target)
    shutil.rmtree(former, ignore_errors=True)
