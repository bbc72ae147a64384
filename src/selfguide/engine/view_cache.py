"""Cached views: the guide never changes, so its views of a sentence are computed once and read from a file afterwards.

A store is one file of the cache folder (:mod:`selfguide.engine.cache`): the views of all sentences of a text, (sentences,
layers, dim), memory-mapped. Its name is a digest of all that decides its content: the encoder's weights, the tokens (text,
tokenizer, length limit), the pooling, the layers and the precision; runs with other seeds, temperatures, heads or epochs
share it. Its size is known before it is made, it gets its name only when it is complete, and one process makes it while
others that need the same one wait.

Views are stored in fp32 where the encoder runs in fp32, so that training on them equals training on computed ones: fp16 would
change losses in the third digit. An encoder that runs in half precision loses nothing in fp16, and the file is half as large;
``fp16`` can also be requested.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from selfguide.engine.cache import VIEWS, cache_folder, entries, exclusive
from selfguide.engine.tokens import TokenisedText, rows_by_length
from selfguide.files import atomic_path, file_digest, remove_leftovers, reserve
from selfguide.progress import Reporter

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BATCH_TOKENS = 2048


@dataclass(frozen=True)
class ViewsKey:
    """All that decides what a store holds. The names of the fields are part of its digest."""

    encoder: str
    """Digest of the guide's weights and configuration."""
    tokens: str
    """Digest of the text as tokens."""
    pooling: str
    layers: tuple[int, ...]
    computed_in: str
    kept_in: str

    @property
    def name(self) -> str:
        """The file's name."""
        return "views-" + hashlib.sha256(repr(sorted(asdict(self).items())).encode()).hexdigest()[:32] + ".npy"


def size_of(sentences: int, layers: int, width: int, kept_in: str) -> int:
    """Return the size of a store in bytes."""
    return sentences * layers * width * np.dtype(kept_in).itemsize


def room_for(size: int, limit: int) -> bool:
    """Return whether a store of this size is allowed, and leaves as much disk space again to others."""
    if size > limit:
        return False
    folder = cache_folder(VIEWS)
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free > 2 * size


class CachedViews:
    """A complete store, open for reading; a digest of the file stands at its end, after the array.

    Raises:
        OSError: There is none, or it cannot be read.
        ValueError: It is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not _is_sound(path):
            raise ValueError(f"{path} is damaged")
        self._views: NDArray[Any] = np.load(path, mmap_mode="r")
        with suppress(OSError):  # the time of last use decides which stores are deleted first
            os.utime(path)

    def __len__(self) -> int:
        return len(self._views)

    def rows(self, rows: Sequence[int]) -> Tensor:
        """Return the views of these rows of the text, (rows, layers, dim), in the precision of the store."""
        return torch.from_numpy(self._views[list(rows)])


def find(key: ViewsKey) -> CachedViews | None:
    """Open a store, or return ``None`` where there is none that can be read.

    Args:
        key: What the views depend on.

    Returns:
        The store.
    """
    try:
        return CachedViews(cache_folder(VIEWS) / key.name)
    except (OSError, ValueError):  # missing, or not an array
        return None


def find_or_make(
    key: ViewsKey,
    text: TokenisedText,
    compute: Callable[[dict[str, Tensor]], Tensor],
    width: int,
    limit: int,
    reporter: Reporter,
) -> CachedViews | None:
    """Open a store, and make it first if necessary.

    Args:
        key: What the store holds.
        text: The sentences.
        compute: Computes the views of a padded batch that is on the CPU.
        width: Embedding dimension of the views.
        limit: Bytes that all stores may take together; the least recently used are deleted to make room.
        reporter: Shows progress.

    Returns:
        The store, or ``None`` where the cache folder cannot be written.
    """
    path = cache_folder(VIEWS) / key.name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with exclusive(path):
            found = find(key)  # another process may have made it while this one waited
            if found is not None:
                return found
            size = size_of(len(text), len(key.layers), width, key.kept_in)
            _make_room(limit - size)
            reporter.note(
                f"Caching the guide's views of {len(text):,} sentences: {size / 1e6:,.0f} MB in {path.parent}."
            )
            _make(path, text, compute, (len(text), len(key.layers), width), key.kept_in, reporter)
    except OSError as error:
        reporter.note(f"The guide's views are not cached, but computed in every step: {error}.")
        return None
    return find(key)


def _make(
    path: Path,
    text: TokenisedText,
    compute: Callable[[dict[str, Tensor]], Tensor],
    shape: tuple[int, int, int],
    kept_in: str,
    reporter: Reporter,
) -> None:
    remove_leftovers(path)
    with atomic_path(path) as temporary:
        views = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.dtype(kept_in), shape=shape)
        reserve(temporary)
        with reporter.bar("views", shape[0], "sentences") as advance:
            for rows in rows_by_length(text.lengths, _BATCH_TOKENS, parts=0):
                features = text.batch(rows)
                tensors = {name: value for name, value in features.items() if isinstance(value, Tensor)}
                views[rows] = compute(tensors).to("cpu").numpy().astype(kept_in)
                advance(len(rows), "")
        views.flush()
        del views
        digest = bytes.fromhex(file_digest(temporary))
        with temporary.open("ab") as file:
            file.write(digest)


def _is_sound(path: Path) -> bool:
    """Return whether a store ends in the digest of what stands before it."""
    left = path.stat().st_size - hashlib.sha256().digest_size
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while left > 0 and (block := file.read(min(left, 1 << 20))):
            digest.update(block)
            left -= len(block)
        return left == 0 and file.read() == digest.digest()


def _make_room(room: int) -> None:
    """Delete the least recently used stores until the others fit."""
    for entry in entries(VIEWS):
        room -= entry.size
        if room < 0:
            entry.path.unlink(missing_ok=True)
