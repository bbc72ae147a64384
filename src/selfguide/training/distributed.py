"""Several processes of one run, started by torchrun or accelerate: waiting for one another, and the device they run on."""

from __future__ import annotations

import os

import torch

from selfguide.training.settings import TrainingSettings


def runs_on_cpu(settings: TrainingSettings) -> bool:
    """Whether training happens on the CPU: asked for, or nothing else there."""
    accelerated = torch.cuda.is_available() or torch.backends.mps.is_available()
    return settings.device == "cpu" or (settings.device == "auto" and not accelerated)


def wait_for_everyone(settings: TrainingSettings) -> None:
    """Under torchrun or accelerate, wait for the other processes; alone, do nothing."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        from accelerate import PartialState

        PartialState(cpu=runs_on_cpu(settings)).wait_for_everyone()
