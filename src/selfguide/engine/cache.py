"""The cache folder: what is expensive to compute and can be computed again.

It is ``$SELFGUIDE_CACHE``, or ``selfguide`` in the user's cache folder (``$XDG_CACHE_HOME``, else ``~/.cache``), with one
sub-folder for each kind of entry. It may be deleted at any time; ``selfguide cache`` shows and clears it. This module
imports no torch, so that the command starts quickly.
"""

from __future__ import annotations

import os
import time
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path

from selfguide.errors import UsageError
from selfguide.locks import waited_for

FOLDER_VARIABLE = "SELFGUIDE_CACHE"
VIEWS = "views"
GRAPHS = "graphs"


@dataclass(frozen=True)
class Kind:
    """One kind of entry."""

    name: str
    """Also the name of its sub-folder."""
    pattern: str
    """Glob pattern of its files."""
    description: str


KINDS = {
    kind.name: kind
    for kind in (
        Kind(VIEWS, "views-*.npy", "pooled layers of the guide, for training"),
        Kind(GRAPHS, "*.onnx", "ONNX graphs of encoders, for encoding"),
    )
}


@dataclass(frozen=True)
class Entry:
    """One file of the cache."""

    kind: str
    path: Path
    size: int
    """In bytes."""
    age: float
    """Seconds since it was last used (views) or made (graphs)."""


def cache_root() -> Path:
    """Return the cache folder, which need not exist yet."""
    own = os.environ.get(FOLDER_VARIABLE)
    return Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "selfguide"


def cache_folder(kind: str) -> Path:
    """Return the sub-folder for one kind of entry, which need not exist yet."""
    return cache_root() / kind


def entries(kind: str | None = None) -> list[Entry]:
    """List complete entries, the most recently used first.

    Args:
        kind: A name of ``KINDS``; ``None`` lists all kinds.

    Returns:
        The entries.

    Raises:
        UsageError: There is no such kind.
    """
    now = time.time()
    found = []
    for one in _kinds(kind):
        for path in cache_folder(one.name).glob(one.pattern):
            with suppress(OSError):  # another process may have removed it by now
                if not path.name.startswith("."):
                    status = path.stat()
                    found.append(Entry(one.name, path, status.st_size, now - status.st_mtime))
    return sorted(found, key=lambda entry: entry.age)


def clear(kind: str | None = None) -> list[Entry]:
    """Delete entries, with temporary files and locks beside them. Processes that read an entry keep their open file.

    Args:
        kind: A name of ``KINDS``; ``None`` clears all kinds.

    Returns:
        The entries that were deleted.

    Raises:
        UsageError: There is no such kind.
    """
    found = entries(kind)
    for entry in found:
        entry.path.unlink(missing_ok=True)
    for one in _kinds(kind):
        for path in [*cache_folder(one.name).glob(".*.tmp*"), *cache_folder(one.name).glob(".*.lock")]:
            path.unlink(missing_ok=True)
    return found


def exclusive(path: Path) -> AbstractContextManager[None]:
    """Let one process at a time make an entry; the lock of a process that dies is released.

    Args:
        path: The entry; its folder must exist.

    Returns:
        A context that is entered as soon as no other process holds the lock.
    """
    return waited_for(lock_of(path))


def lock_of(path: Path) -> Path:
    """Return the lock file of an entry."""
    return path.with_name(f".{path.name}.lock")


def _kinds(name: str | None) -> list[Kind]:
    if name is not None and name not in KINDS:
        raise UsageError(f"The cache holds no {name!r}; choose one of {', '.join(KINDS)}.")
    return list(KINDS.values()) if name is None else [KINDS[name]]
