"""Which sentences are in a batch: the order of an epoch, and each process's share of a batch.

A batch of a run of several processes is cut into one share a process, in order, and the shares of the last, smaller batch
differ by one sentence at most. So every process takes the same number of steps, no sentence is read twice in an epoch, and
together the shares are the batch that one process would have. (The stock sharding gives whole batches to the
processes in turn, and leaves out what does not fill a round.)

Up to :data:`SHUFFLED` sentences the order is that of a list which is shuffled. Of a larger text that list would take
gigabytes, and its order is computed from the places instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.utils.data import BatchSampler, Sampler

if TYPE_CHECKING:
    from numpy.typing import NDArray

SHUFFLED = 5_000_000
"""Sentences up to which an epoch's order is a shuffled list."""
_ROUNDS = 6
_BLOCK = 1 << 16


class ProcessBatches(BatchSampler):
    """The share of one process in every batch of a run.

    Args:
        batches: The batches of all processes together.
        sentences: How many sentences an epoch of them has.
        rank: Number of this process.
        processes: How many there are.
    """

    def __init__(self, batches: BatchSampler, sentences: int, rank: int, processes: int) -> None:
        self.batch_sampler = batches
        self._sentences, self._rank, self._processes = sentences, rank, processes
        self.batch_size, self.drop_last = batches.batch_size // processes, batches.drop_last
        self.sampler = batches.sampler

    def __len__(self) -> int:
        """Return the number of batches; a last one with fewer sentences than processes is left out."""
        last = self._sentences % self.batch_sampler.batch_size
        return len(self.batch_sampler) - (0 < last < self._processes)

    def __iter__(self) -> Iterator[list[int]]:
        """Yield this process's rows of each batch."""
        for batch in self.batch_sampler:
            if len(batch) >= self._processes:
                yield share_of(batch, self._rank, self._processes)

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch."""
        for part in (self.batch_sampler, self.batch_sampler.sampler):
            if hasattr(part, "set_epoch"):
                part.set_epoch(epoch)


def share_of(batch: Sequence[int], rank: int, processes: int) -> list[int]:
    """Return the consecutive rows of a batch that are one process's; shares differ by one row at most."""
    each, more = divmod(len(batch), processes)
    start = rank * each + min(rank, more)
    return list(batch[start : start + each + (rank < more)])


class ScatteredOrder(Sampler[int]):
    """All numbers below a count, each once, in an order that looks random and takes no memory.

    It is a Feistel network on the smallest even number of bits: a place is halved, and each half is changed by a function of the
    other, which can be undone, so that no two places become the same number. A number that is too large goes through again.

    Args:
        count: How many numbers.
        seed: Seed of the order.
    """

    def __init__(self, count: int, seed: int) -> None:
        self.count, self.seed = count, seed
        self._half = max(1, ((count - 1).bit_length() + 1) // 2)

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        """Yield the numbers."""
        for start in range(0, self.count, _BLOCK):
            yield from self.numbers(np.arange(start, min(start + _BLOCK, self.count), dtype=np.uint64)).tolist()

    def numbers(self, places: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return the numbers at some places of the order."""
        keys = np.random.default_rng([self.seed, self.count]).integers(1, 1 << 63, (_ROUNDS, 2), dtype=np.uint64) | 1
        found = self._once(places, keys)
        while (beyond := found >= self.count).any():
            found[beyond] = self._once(found[beyond], keys)
        return found

    def _once(self, places: NDArray[np.uint64], keys: Any) -> NDArray[np.uint64]:
        half, mask = np.uint64(self._half), np.uint64((1 << self._half) - 1)
        left, right = places >> half, places & mask
        for multiplier, shift in keys:
            mixed = (right + shift) * multiplier
            left, right = right, left ^ ((mixed ^ (mixed >> np.uint64(29))) * multiplier >> np.uint64(17)) & mask
        return (left << half) | right


class ScatteredBatches(BatchSampler):
    """Batches of a text in scattered order, another one in each epoch.

    Args:
        count: Sentences of the text.
        batch_size: Sentences of a batch.
        seed: Seed of the orders.
    """

    def __init__(self, count: int, batch_size: int, seed: int) -> None:
        super().__init__(ScatteredOrder(count, seed), batch_size, drop_last=False)
        self._seed = seed

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch."""
        self.sampler = ScatteredOrder(len(self.sampler), self._seed + epoch)  # type: ignore[arg-type]
