"""Exact de-duplication of a stream of many millions of sentences in little memory.

It is written by hand because no library at hand does this on a stream: a Python set of 50 million strings needs several
gigabytes, data frames and ``datasets`` hold or sort the whole text, and a Bloom filter drops new sentences at random.
Here a sentence is remembered as a 64-bit hash (Python's own, which is keyed anew in every process, so that no one can prepare
sentences that share one), and the hashes are kept in a few sorted numpy arrays ("runs"), merged as they
grow so that each is at least twice as long as the next. That takes 8 bytes per distinct sentence (16 while the longest runs
are merged), and a lookup is a handful of binary searches. The probability that any two of 50 million distinct sentences share
a hash, so that one of them is lost, is 7 in 100,000.

A pass over more sentences than :data:`~selfguide.data.spilled.IN_MEMORY` moves its hashes to disk.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Hashes = NDArray[np.uint64]
    Mask = NDArray[np.bool_]
    Positions = NDArray[np.intp]

BUFFER_SIZE = 32_768


_LENGTH_KEY = 0x9E3779B97F4A7C15
_OWN_HASH = sys.hash_info.width == 64 and sys.hash_info.algorithm.startswith("siphash")


def hash_sentences(sentences: Sequence[str], lengths: Hashes | None = None) -> Hashes:
    """Return a 64-bit hash of each sentence, equal for equal sentences within this process.

    Args:
        sentences: The sentences.
        lengths: The number of characters of each, where they are known.

    Returns:
        Their hashes: SipHash, or BLAKE2b where Python's own hash is another or shorter.
    """
    import numpy as np

    if not _OWN_HASH:
        digests = [blake2b(sentence.encode(), digest_size=8).digest() for sentence in sentences]
        return np.frombuffer(b"".join(digests), dtype=np.uint64)
    hashes = np.fromiter(map(hash, sentences), dtype=np.int64, count=len(sentences)).view(np.uint64)
    # Python hashes the bytes in memory, which two characters of ASCII and one of Chinese may share; their lengths differ.
    if lengths is None:
        lengths = np.fromiter(map(len, sentences), dtype=np.uint64, count=len(sentences))
    return hashes ^ (lengths * np.uint64(_LENGTH_KEY))


def distinct(hashes: Hashes) -> tuple[Hashes, Positions]:
    """Return the different hashes, sorted, and where each occurs first (``numpy.unique``, whose stable sort is far slower)."""
    import numpy as np

    if not hashes.size:
        return hashes, np.empty(0, dtype=np.intp)
    order = np.argsort(hashes)
    values = hashes[order]
    starts = np.flatnonzero(np.concatenate(([True], values[1:] != values[:-1])))
    return values[starts], np.minimum.reduceat(order, starts)


class SeenHashes:
    """The set of all hashes so far; ``buffer_size`` of them are collected before they become a run."""

    def __init__(self, buffer_size: int = BUFFER_SIZE) -> None:
        import numpy as np

        self._buffer_size = buffer_size
        self._buffer: Hashes = np.empty(0, dtype=np.uint64)  # sorted, and small, so that adding a batch is cheap
        self._runs: list[Hashes] = []  # each sorted; the longest first

    def __len__(self) -> int:
        """Return the number of distinct hashes."""
        return self._buffer.size + sum(run.size for run in self._runs)

    def take_runs(self) -> list[Hashes]:
        """Return all hashes as sorted arrays without a common element, the longest first, and forget them."""
        runs, self._runs, self._buffer = [*self._runs, self._buffer], [], self._buffer[:0]
        return runs

    @property
    def nbytes(self) -> int:
        """Bytes that the hashes take in memory."""
        return self._buffer.nbytes + sum(run.nbytes for run in self._runs)

    def first_occurrences(self, hashes: Hashes) -> Mask:
        """Add the next hashes of the stream, and return where one occurs for the first time in all of it.

        Args:
            hashes: Of the next sentences.

        Returns:
            A mask, true where a hash is new.
        """
        import numpy as np

        values, positions = distinct(hashes)
        for run in (self._buffer, *self._runs):
            new = ~_contains(run, values)
            values, positions = values[new], positions[new]
        self._add(values)
        first = np.zeros(hashes.size, dtype=np.bool_)
        first[positions] = True
        return first

    def _add(self, values: Hashes) -> None:
        import numpy as np

        self._buffer = _merged(self._buffer, values)
        if self._buffer.size < self._buffer_size:
            return
        self._runs.append(self._buffer)
        self._buffer = np.empty(0, dtype=np.uint64)
        while len(self._runs) > 1 and self._runs[-2].size < 2 * self._runs[-1].size:
            self._runs[-2:] = [_merged(*self._runs[-2:])]


def _contains(run: Hashes, values: Hashes) -> Mask:
    """Return which of the sorted values are in the sorted run."""
    import numpy as np

    if not run.size:
        return np.zeros(values.size, dtype=np.bool_)
    nearest = np.minimum(np.searchsorted(run, values), run.size - 1)
    found: Mask = run[nearest] == values
    return found


def _merged(one: Hashes, other: Hashes) -> Hashes:
    import numpy as np

    both = np.concatenate((one, other))
    both.sort()  # in place: a merge would be no faster here, and needs half as much memory again
    return both
