"""The device that a run trains on, and waiting for the other processes of a distributed run."""

from __future__ import annotations

import os

import torch

from selfguide.training.settings import TrainingSettings


def runs_on_cpu(settings: TrainingSettings) -> bool:
    """Return whether training runs on the CPU: by request, or because there is no accelerator."""
    accelerated = torch.cuda.is_available() or torch.backends.mps.is_available()
    return settings.device == "cpu" or (settings.device == "auto" and not accelerated)


def wait_for_everyone(settings: TrainingSettings) -> None:
    """Wait for the other processes of a run that torchrun or accelerate started; do nothing in a single process."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        from accelerate import PartialState

        PartialState(cpu=runs_on_cpu(settings)).wait_for_everyone()
