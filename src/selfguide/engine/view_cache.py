"""Views that are kept: the guide never changes, so what it says of a sentence is computed once and read ever after.

A store is one file: the views of all sentences of a text, (sentences, layers, dim), memory-mapped, in a cache folder. What
it holds depends on the encoder's weights, the tokens (text, tokenizer, length limit), the pooling, the layers and the
precision, and its name is a digest of these: runs with other seeds, temperatures, heads or epochs share it. Its size is
known before it is begun. It gets its name only when it is complete, and only one process makes it while others that want
the same one wait for it.

Views are kept in fp32 where the encoder runs in fp32, so that training on them is training on the computed ones: fp16 would
shift losses in the third digit. An encoder that runs in half precision gives no more than half precision, and there fp16
halves the file without a loss. ``fp16`` can be asked for.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from selfguide.engine.tokens import TokenisedText, rows_by_length
from selfguide.progress import Reporter

if TYPE_CHECKING:
    from numpy.typing import NDArray

FOLDER_VARIABLE = "SELFGUIDE_CACHE"
_BATCH_TOKENS = 2048


@dataclass(frozen=True)
class ViewsKey:
    """All that decides what a store holds."""

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


def cache_folder() -> Path:
    """Where views are kept: ``$SELFGUIDE_CACHE``, or ``selfguide`` in the user's cache folder."""
    own = os.environ.get(FOLDER_VARIABLE)
    if own:
        return Path(own) / "views"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "selfguide" / "views"


def weights_digest(model: nn.Module) -> str:
    """A digest of a model's configuration and weights."""
    config: Any = getattr(model, "config", None)
    shape = {name: value for name, value in config.to_dict().items() if not name.startswith("_")} if config else {}
    digest = hashlib.sha256(repr(sorted((name, str(value)) for name, value in shape.items())).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().to("cpu").contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def size_of(sentences: int, layers: int, width: int, kept_in: str) -> int:
    """Bytes of a store."""
    return sentences * layers * width * np.dtype(kept_in).itemsize


def room_for(size: int, limit: int) -> bool:
    """Whether a store of this size is allowed and the disk can take it, with as much again left for others."""
    if size > limit:
        return False
    folder = cache_folder()
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free > 2 * size


class KeptViews:
    """A complete store, open for reading."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._views: NDArray[Any] = np.load(path, mmap_mode="r")
        with contextlib.suppress(OSError):  # the time of use, by which the oldest are given up first
            os.utime(path)

    def __len__(self) -> int:
        return len(self._views)

    def rows(self, rows: Sequence[int]) -> Tensor:
        """Views of these rows of the text, (rows, layers, dim), as they are kept."""
        return torch.from_numpy(self._views[list(rows)])


def find(key: ViewsKey) -> KeptViews | None:
    """The store, if it is there and can be read."""
    path = cache_folder() / key.name
    try:
        return KeptViews(path)
    except (OSError, ValueError):  # not there, or not an array: made anew
        return None


def find_or_make(
    key: ViewsKey,
    text: TokenisedText,
    compute: Callable[[dict[str, Tensor]], Tensor],
    width: int,
    limit: int,
    reporter: Reporter,
) -> KeptViews | None:
    """The store, made if it is not there; ``None`` if the folder cannot be written.

    ``compute`` gives the views of a padded batch on the host, wherever it computes them.
    """
    path = cache_folder() / key.name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _alone(path):
            there = find(key)  # another process may have made it while this one waited
            if there is not None:
                return there
            size = size_of(len(text), len(key.layers), width, key.kept_in)
            _make_room(path.parent, limit - size)
            reporter.note(
                f"Keeping the guide's views of {len(text):,} sentences: {size / 1e6:,.0f} MB in {path.parent}."
            )
            _make(path, text, compute, (len(text), len(key.layers), width), key.kept_in, reporter)
    except OSError as error:
        reporter.note(f"The guide's views are not kept, but computed in every step: {error}.")
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
    for left_over in path.parent.glob(f".{path.name}.*.tmp"):  # nobody else is at it, so its maker was killed
        left_over.unlink(missing_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        views = np.lib.format.open_memmap(fresh, mode="w+", dtype=np.dtype(kept_in), shape=shape)
        with reporter.bar("views", shape[0], "sentences") as advance:
            for rows in rows_by_length(text.lengths, _BATCH_TOKENS, parts=0):
                features = text.batch(rows)
                tensors = {name: value for name, value in features.items() if isinstance(value, Tensor)}
                views[rows] = compute(tensors).to("cpu").numpy().astype(kept_in)
                advance(len(rows), "")
        views.flush()
        fresh.replace(path)
    finally:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)


def _make_room(folder: Path, room: int) -> None:
    """Give up the stores that were used longest ago, until the others fit. (A process that reads one keeps reading it.)"""
    stores = sorted(folder.glob("views-*.npy"), key=lambda path: path.stat().st_mtime, reverse=True)
    for store in stores:
        room -= store.stat().st_size
        if room < 0:
            store.unlink(missing_ok=True)


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process at a time for a store; a process that dies gives its place up."""
    try:
        import fcntl
    except ImportError:  # not on this system: two processes may make it twice, and the last one's stands
        yield
        return
    lock = path.with_name(f".{path.name}.lock")
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)
