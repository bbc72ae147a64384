"""Cached views: the guide never changes, so its views of a sentence are computed once and read from a file afterwards.

A store lies in the cache folder (:mod:`selfguide.engine.cache`): the views of all sentences of a text, (sentences, layers,
dim), memory-mapped. Its name is a digest of all that decides its content: the encoder's weights, the tokens (text,
tokenizer, length limit), the pooling, the layers and the precision; runs with other seeds, temperatures, heads or epochs
share it. Its size is known before it is made.

A large store is several files, its shards, of sentences of similar length. A process that needs the store makes the shards that
are missing or damaged and that no other process is at, then waits for the others; so the processes of a distributed run share
the work. What is in a shard depends on the text alone, not on who makes it or on how many there are, and a shard gets its name
only when it is complete.

Views are stored in fp32 where the encoder runs in fp32, so that training on them equals training on computed ones: fp16 would
change losses in the third digit. An encoder that runs in half precision loses nothing in fp16, and the file is half as large;
``fp16`` can also be requested.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from selfguide.engine.cache import VIEWS, cache_folder, entries, exclusive, lock_of
from selfguide.engine.tokens import TokenisedText, rows_by_length
from selfguide.files import atomic_path, content_hash, file_digest, remove_leftovers, reserve
from selfguide.locks import claimed
from selfguide.progress import Reporter

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BATCH_TOKENS = 2048
_SHARD_BYTES = 1 << 24
_MOST_SHARDS = 128
"""Every one of them is an open file."""


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


@dataclass(frozen=True)
class Shard:
    """One file of a store."""

    path: Path
    rows: NDArray[np.int64]
    """Its sentences, ascending."""
    batches: list[NDArray[np.int64]]
    """Those that have tokens, as they go through the guide together."""


def shards_of(key: ViewsKey, text: TokenisedText, width: int) -> list[Shard]:
    """Return the files of a store, which need not exist.

    Args:
        key: What the views depend on.
        text: The sentences.
        width: Embedding dimension of the views.

    Returns:
        The shards; together they have every sentence once.
    """
    size = size_of(len(text), len(key.layers), width, key.kept_in)
    rows_of_one = -(-len(text) * max(_SHARD_BYTES, -(-size // _MOST_SHARDS)) // max(1, size))
    groups: list[list[NDArray[np.int64]]] = [[]]
    held = 0
    for batch in rows_by_length(text.lengths, _BATCH_TOKENS, parts=0):
        if held >= rows_of_one:
            groups.append([])
            held = 0
        groups[-1].append(batch)
        held += len(batch)
    folder, shards = cache_folder(VIEWS), []
    for number, batches in enumerate(groups):
        without_tokens = [np.flatnonzero(text.lengths == 0)] if number == 0 else []
        name = key.name if len(groups) == 1 else key.name.replace(".npy", f"-{number:03d}-of-{len(groups):03d}.npy")
        shards.append(Shard(folder / name, np.sort(np.concatenate([*without_tokens, *batches])), batches))
    return shards


class CachedViews:
    """A complete store, open for reading; a digest of each file stands at its end, after the array.

    Args:
        shards: Its files.

    Raises:
        OSError: One is missing, or cannot be read.
        ValueError: One is damaged.
    """

    def __init__(self, shards: Sequence[Shard]) -> None:
        self.paths = [shard.path for shard in shards]
        for path in self.paths:
            if not _is_sound(path):
                raise ValueError(f"{path} is damaged")
        self._views: list[NDArray[Any]] = [np.load(path, mmap_mode="r") for path in self.paths]
        count = sum(len(shard.rows) for shard in shards)
        self._shard, self._place = np.empty(count, dtype=np.int16), np.empty(count, dtype=np.int32)
        for number, shard in enumerate(shards):
            self._shard[shard.rows], self._place[shard.rows] = number, np.arange(len(shard.rows))
        with suppress(OSError):  # the time of last use decides which stores are deleted first
            for path in self.paths:
                os.utime(path)

    def __len__(self) -> int:
        return len(self._place)

    def rows(self, rows: Sequence[int]) -> Tensor:
        """Return the views of these rows of the text, (rows, layers, dim), in the precision of the store."""
        wanted = np.asarray(rows, dtype=np.int64)
        shards, places = self._shard[wanted], self._place[wanted]
        found = np.empty((len(wanted), *self._views[0].shape[1:]), dtype=self._views[0].dtype)
        for number in set(shards.tolist()):
            here = shards == number
            found[here] = self._views[number][places[here]]
        return torch.from_numpy(found)


def find(key: ViewsKey, text: TokenisedText, width: int) -> CachedViews | None:
    """Open a store, or return ``None`` where there is none that is complete and can be read.

    Args:
        key: What the views depend on.
        text: The sentences.
        width: Embedding dimension of the views.

    Returns:
        The store.
    """
    return _opened(shards_of(key, text, width))


def _opened(shards: Sequence[Shard]) -> CachedViews | None:
    try:
        return CachedViews(shards)
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
    """Open a store, and make first what is missing of it.

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
    shards = shards_of(key, text, width)
    folder = cache_folder(VIEWS)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        found = _opened(shards)
        if found is not None:
            return found
        size = size_of(len(text), len(key.layers), width, key.kept_in)
        _make_room(limit - size, {shard.path for shard in shards})
        reporter.note(f"Caching the guide's views of {len(text):,} sentences: {size / 1e6:,.0f} MB in {folder}.")
        with reporter.bar("views", len(text), "sentences") as advance:
            for shard in _to_make(shards):
                _make(shard, text, compute, (len(key.layers), width), key.kept_in, advance)
    except OSError as error:
        reporter.note(f"The guide's views are not cached, but computed in every step: {error}.")
        return None
    return _opened(shards)


def _to_make(shards: Sequence[Shard]) -> Iterator[Shard]:
    """Yield the shards that this process is to make, each while it holds the shard's lock; none is missing at the end."""
    # The processes of a distributed run begin at different shards, and each continues with what the others left.
    first = len(shards) * int(os.environ.get("LOCAL_RANK", "0")) // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    busy = []
    for shard in [*shards[first:], *shards[:first]]:
        with claimed(lock_of(shard.path)) as mine:
            if not mine:
                busy.append(shard)
            elif not _is_there(shard.path):
                yield shard
    for shard in busy:
        with exclusive(shard.path):
            if not _is_there(shard.path):  # the process that was at it has ended
                yield shard


def _make(
    shard: Shard,
    text: TokenisedText,
    compute: Callable[[dict[str, Tensor]], Tensor],
    shape: tuple[int, int],
    kept_in: str,
    advance: Callable[[int, str], None],
) -> None:
    remove_leftovers(shard.path)
    with atomic_path(shard.path) as temporary:
        size = (len(shard.rows), *shape)
        views = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.dtype(kept_in), shape=size)
        reserve(temporary)
        for rows in shard.batches:
            features = text.batch(rows)
            tensors = {name: value for name, value in features.items() if isinstance(value, Tensor)}
            views[np.searchsorted(shard.rows, rows)] = compute(tensors).to("cpu").numpy().astype(kept_in)
            advance(len(rows), "")
        views.flush()
        del views
        digest = bytes.fromhex(file_digest(temporary))
        with temporary.open("ab") as file:
            file.write(digest)


def _is_there(path: Path) -> bool:
    try:
        return _is_sound(path)
    except OSError:
        return False


def _is_sound(path: Path) -> bool:
    """Return whether a store ends in the digest of what stands before it."""
    size = path.stat().st_size - hashlib.sha256().digest_size
    with path.open("rb") as file:
        return content_hash(file, size).digest() == file.read()


def _make_room(room: int, own: set[Path]) -> None:
    """Delete the least recently used stores until the others fit, but nothing of the one that is being made."""
    for entry in entries(VIEWS):
        if entry.path in own:
            continue
        room -= entry.size
        if room < 0:
            entry.path.unlink(missing_ok=True)
