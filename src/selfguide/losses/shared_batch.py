"""One batch over the processes of a distributed run: each sees the candidates of all, and computes the rows of its own anchors.

A trainer averages the gradients of its W processes. So each multiplies its share of the loss by W, and the average is the
gradient that one process with the whole batch would have. Vectors are gathered with their gradient: the gradient that the
anchors of another process give a vector is returned to the process that computed it.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def is_distributed() -> bool:
    """Return whether this process is one of a distributed run."""
    return dist.is_available() and dist.is_initialized()


def for_all(true: bool, device: torch.device) -> bool:
    """Return whether something is true for every process of the run; all of them must ask.

    Args:
        true: Whether it is for this one.
        device: Where the answers are exchanged.
    """
    if not is_distributed():
        return true
    votes = torch.tensor([true], dtype=torch.int32, device=device)
    dist.all_reduce(votes, op=dist.ReduceOp.MIN)
    return bool(votes.item())


class SharedBatch:
    """Which rows of the whole batch are this process's.

    Making one is a collective operation: every process of the run takes part.

    Args:
        count: Sentences of this process; the processes may have different numbers, as in a last batch.
        device: Where the numbers are exchanged.
    """

    def __init__(self, count: int, device: torch.device) -> None:
        mine = torch.tensor([count], device=device)
        counts = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(counts, mine)
        self.counts = [int(number) for number in counts]
        first = sum(self.counts[: dist.get_rank()])
        self.own = slice(first, first + count)
        self.processes = len(self.counts)

    def gather(self, vectors: Tensor) -> Tensor:
        """Return the rows of all processes, in the order of the processes.

        Args:
            vectors: This process's rows (count, …); the other dimensions are equal everywhere.

        Returns:
            All rows. Their gradient reaches every process's own.
        """
        return _Gather.apply(vectors, self.counts, self.own)


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, vectors: Tensor, counts: list[int], own: slice) -> Tensor:
        ctx.own = own
        most = max(counts)
        padded = vectors.new_zeros(most, *vectors.shape[1:])
        padded[: len(vectors)] = vectors
        parts = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(parts, padded)
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        total = grads[0].contiguous().clone()
        dist.all_reduce(total)
        return total[ctx.own], None, None
