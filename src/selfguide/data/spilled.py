"""De-duplication of a text whose hashes should not stay in memory: they go to sorted files, a segment of rows at a time.

Once a pass has met more distinct sentences than ``IN_MEMORY``, the next rows wait in a segment, and their hashes in one array.
When a segment is full (or the source ends), its hashes are sorted and compared with those of all earlier rows, which lie in
a few sorted files on disk and are read from front to back; then the rows come out in their order, without the repeats. So
memory does not grow with the text, and the result is that of :class:`~selfguide.data.dedup.SeenHashes` to the last
sentence.

The files take 8 bytes a distinct sentence (24 while the two largest are merged).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from selfguide.data.blocks import Block
from selfguide.data.dedup import distinct

if TYPE_CHECKING:
    from selfguide.data.dedup import Hashes, Mask

IN_MEMORY = 4_000_000
"""Distinct sentences whose hashes stay in memory: 32 MB."""
SEGMENT = 2_000_000
"""Rows that wait together once there are more."""
SEGMENT_BYTES = 1 << 27
"""Bytes of text that wait together; longer sentences make smaller segments."""
_BLOCK = 1 << 17
"""Hashes that are read from a file at a time: 1 MB, so that a search stays in the processor's cache."""


class SpilledHashes:
    """The set of all hashes so far, in sorted files, each at least twice as long as the next.

    Args:
        folder: An empty folder for the files, which this object owns.
        runs: Sorted arrays of distinct hashes to begin with, the longest first.
        block: Hashes that are read at a time; by default 1 MB of them.
    """

    def __init__(self, folder: Path, runs: list[Hashes], block: int | None = None) -> None:
        self._folder, self._block = folder, block or _BLOCK
        self._files: list[tuple[Path, int]] = []
        self._made = 0
        for run in runs:
            self._add(run)

    def __len__(self) -> int:
        """Return the number of distinct hashes."""
        return sum(count for _, count in self._files)

    def first_occurrences(self, hashes: Hashes) -> Mask:
        """Add the next hashes of the stream, and return where one occurs for the first time in all of it.

        Args:
            hashes: Of the next rows.

        Returns:
            A mask, true where a hash is new.
        """
        import numpy as np

        values, positions = distinct(hashes)
        new = np.ones(values.size, dtype=np.bool_)
        for path, _ in self._files:
            start = 0
            for block in self._blocks(path):
                end = start + int(np.searchsorted(values[start:], block[-1], side="right"))
                wanted = values[start:end]
                if wanted.size:
                    new[start:end] &= block[np.searchsorted(block, wanted)] != wanted
                start = end
                if start == values.size:
                    break
        first = np.zeros(hashes.size, dtype=np.bool_)
        first[positions[new]] = True
        self._add(values[new])
        return first

    def _add(self, values: Hashes) -> None:
        if not values.size:
            return
        path = self._new_path()
        values.tofile(path)
        self._files.append((path, int(values.size)))
        while len(self._files) > 1 and self._files[-2][1] < 2 * self._files[-1][1]:
            one, other = self._files[-2:]
            self._files[-2:] = [(self._merged(one[0], other[0]), one[1] + other[1])]

    def _new_path(self) -> Path:
        self._made += 1
        return self._folder / f"hashes-{self._made}"

    def _blocks(self, path: Path) -> Iterator[Hashes]:
        import numpy as np

        with path.open("rb") as file:
            while (block := np.fromfile(file, dtype=np.uint64, count=self._block)).size:
                yield block

    def _merged(self, one: Path, other: Path) -> Path:
        """Merge two sorted files block by block, and remove them."""
        import numpy as np

        path = self._new_path()
        streams = [self._blocks(one), self._blocks(other)]
        held = [next(stream) for stream in streams]
        with path.open("wb") as file:
            while held[0].size and held[1].size:
                bound = min(held[0][-1], held[1][-1])
                cuts = [int(np.searchsorted(block, bound, side="right")) for block in held]
                both = np.concatenate([block[:cut] for block, cut in zip(held, cuts, strict=True)])
                both.sort()
                both.tofile(file)
                for number, cut in enumerate(cuts):
                    rest = held[number][cut:]
                    held[number] = rest if rest.size else next(streams[number], rest)
            for block, stream in zip(held, streams, strict=True):
                block.tofile(file)
                for more in stream:
                    more.tofile(file)
        one.unlink()
        other.unlink()
        return path


class Segment:
    """Cleaned batches whose repeats are still to be found, and the hashes of their sentences."""

    def __init__(self) -> None:
        self.batches: list[tuple[bytearray, Block]] = []
        self._hashes: list[Hashes] = []
        self._rows = self._bytes = 0

    def add(self, flags: bytearray, sentences: Block) -> None:
        """Append a batch.

        Args:
            flags: The flags of its rows.
            sentences: The sentences that were kept.
        """
        self._hashes.append(sentences.hashes())
        sentences.drop_strings()
        self.batches.append((flags, sentences))
        self._rows += len(flags)
        self._bytes += len(sentences.lines)

    def is_full(self, rows: int) -> bool:
        """Return whether so many rows are there, or as many bytes as should be in memory at a time."""
        return self._rows >= rows or self._bytes >= SEGMENT_BYTES

    def take_hashes(self) -> Hashes:
        """Return the hashes of all sentences, in order, and forget them."""
        import numpy as np

        hashes, self._hashes = self._hashes, []
        return np.concatenate(hashes) if hashes else np.empty(0, dtype=np.uint64)
