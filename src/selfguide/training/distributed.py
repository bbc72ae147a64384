"""The device that a run trains on, and what concerns the other processes of a distributed run: waiting for them, losing one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from selfguide.errors import InterruptedRun, one_line
from selfguide.losses.shared_batch import is_distributed
from selfguide.training.settings import TrainingSettings

# What gloo and NCCL say when a process on the other end of a connection has gone.
_LOST = ("closed by peer", "reset by peer", "connection refused", "broken pipe", "nccl", "timed out", "socket closed")


def runs_on_cpu(settings: TrainingSettings) -> bool:
    """Return whether training runs on the CPU: by request, or because there is no accelerator."""
    accelerated = torch.cuda.is_available() or torch.backends.mps.is_available()
    return settings.device == "cpu" or (settings.device == "auto" and not accelerated)


def world_size() -> int:
    """Return the number of processes of the run."""
    return int(os.environ.get("WORLD_SIZE", "1"))


class Agreement:
    """Joint decisions of the processes of a run, so that all of them act after the same step.

    A signal reaches the processes at different moments, and their clocks differ. Where one of them stopped or wrote a checkpoint
    a step before the others, each would wait for a message that the others never send.
    """

    def __init__(self) -> None:
        self._group: Any = None

    def anyone(self, wants: bool) -> bool:
        """Return whether any process wants something; all processes must ask, at the same step.

        Args:
            wants: Whether this one does.
        """
        if not is_distributed() or dist.get_world_size() == 1:
            return wants
        if self._group is None:  # on the CPU, so that no GPU has to be waited for
            self._group = dist.new_group(backend="gloo")
        votes = torch.tensor([wants], dtype=torch.int32)
        dist.all_reduce(votes, op=dist.ReduceOp.MAX, group=self._group)
        return bool(votes.item())


def wait_for_everyone(settings: TrainingSettings) -> None:
    """Wait for the other processes of a run that torchrun or accelerate started; do nothing in a single process."""
    if world_size() > 1:
        from accelerate import PartialState

        PartialState(cpu=runs_on_cpu(settings)).wait_for_everyone()


@contextmanager
def lost_process_as_error() -> Iterator[None]:
    """Turn the error of a collective operation whose other processes have gone into one sentence.

    Yields:
        Nothing.

    Raises:
        InterruptedRun: Another process of the run ended; what was checkpointed is kept.
    """
    try:
        yield
    except RuntimeError as error:
        reason = one_line(error)
        if not (is_distributed() and any(word in reason.lower() for word in _LOST)):
            raise
        raise InterruptedRun(
            "Another process of this distributed run ended, so this one stopped too; the other's message says why, unless it was "
            f"killed ({reason[:120]} …). Everything up to the last checkpoint is kept."
        ) from error
