"""Exact-repeat removal for many millions of sentences in little memory.

A Python set of 50 million strings needs several gigabytes. Here a sentence is remembered as a 64-bit hash, and the
hashes lie in sorted numpy arrays ("runs") that are merged as they grow, so that there are few of them, each at least
twice as long as the next: 8 bytes a distinct sentence, 16 for the moment in which the longest runs are merged, and a
look-up is a handful of binary searches. That any two of 50 million distinct sentences share a hash, so that one of them
is lost, has a probability of 7 in 100,000.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Hashes = NDArray[np.uint64]
    Mask = NDArray[np.bool_]

BUFFER_SIZE = 32_768


def hash_sentences(sentences: Iterable[str]) -> Hashes:
    import numpy as np

    digests = [blake2b(sentence.encode(), digest_size=8).digest() for sentence in sentences]
    return np.frombuffer(b"".join(digests), dtype=np.uint64)


class SeenHashes:
    """The set of the hashes met so far, asked and added to a batch at a time."""

    def __init__(self, buffer_size: int = BUFFER_SIZE) -> None:
        import numpy as np

        self._buffer_size = buffer_size
        self._buffer: Hashes = np.empty(0, dtype=np.uint64)  # sorted; small, so that taking in a batch is cheap
        self._runs: list[Hashes] = []  # sorted; the longest first

    def __len__(self) -> int:
        return self._buffer.size + sum(run.size for run in self._runs)

    @property
    def nbytes(self) -> int:
        return self._buffer.nbytes + sum(run.nbytes for run in self._runs)

    def first_met(self, hashes: Hashes) -> Mask:
        """True where a hash comes for the first time ever, and not just in this batch; then it is remembered."""
        import numpy as np

        values, positions = np.unique(hashes, return_index=True)
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
    """For each of the sorted values, whether it is in the sorted run."""
    import numpy as np

    if not run.size:
        return np.zeros(values.size, dtype=np.bool_)
    nearest = np.minimum(np.searchsorted(run, values), run.size - 1)
    found: Mask = run[nearest] == values
    return found


def _merged(one: Hashes, other: Hashes) -> Hashes:
    import numpy as np

    both = np.concatenate((one, other))
    both.sort()  # in place: a merging sort would be no faster here, and wants half as much memory again
    return both
