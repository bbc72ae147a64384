"""How a run trains: the settings every tuning method shares, with the paper's values as defaults.

Kept apart from the training code so that the command line can show and check them without importing torch.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from selfguide.errors import UsageError
from selfguide.options import at_least, require_types

PRECISIONS = ("auto", "fp32", "bf16", "fp16")
TRACKERS = ("none", "tensorboard", "wandb")


@dataclass(frozen=True)
class TrainingSettings:
    """Settings of the one fine-tuning path; the defaults are those of the SG-OPT paper."""

    epochs: float = 1.0
    """Passes over the text."""
    max_steps: int = 0
    """Stop after so many steps; 0: as many as the epochs ask for."""
    batch_size: int = 16
    """Sentences a step on each device; the others in the batch are the negatives."""
    gradient_accumulation: int = 1
    """Batches added up before the weights move."""
    learning_rate: float = 5e-5
    """Highest rate, after the warm-up."""
    warmup: float = 0.1
    """Share of the steps over which the rate climbs; it falls linearly afterwards."""
    weight_decay: float = 0.0
    """AdamW's weight decay."""
    gradient_clip: float = 1.0
    """Largest norm of the encoder's gradient; 0: do not clip."""
    max_length: int = 128
    """Tokens a sentence is cut to."""
    dev_every: int = 50
    """Steps between two checks on the dev pairs."""
    patience: int = 10
    """Dev checks without a new best before training stops; 0: never stop early."""
    checkpoint_minutes: float = 2.0
    """Minutes between two checkpoints to resume from; 0: after every step."""
    precision: str = "auto"
    """fp32, bf16, fp16, or auto: fp32 on a CPU, bf16 on a GPU that has it."""
    device: str = "auto"
    """cpu, cuda, mps, or auto."""
    seed: int = 1
    """Everything random comes from it."""
    track: str = "none"
    """Where to send curves: none, tensorboard, wandb, or several with commas."""

    def __post_init__(self) -> None:
        require_types(self)
        at_least(self.epochs, "epochs", 0, exclusive=True)
        at_least(self.max_steps, "max_steps", 0)
        at_least(self.batch_size, "batch_size", 2)
        at_least(self.gradient_accumulation, "gradient_accumulation", 1)
        at_least(self.learning_rate, "learning_rate", 0, exclusive=True)
        at_least(self.weight_decay, "weight_decay", 0)
        at_least(self.gradient_clip, "gradient_clip", 0)
        at_least(self.max_length, "max_length", 3)
        at_least(self.dev_every, "dev_every", 1)
        at_least(self.patience, "patience", 0)
        at_least(self.checkpoint_minutes, "checkpoint_minutes", 0)
        at_least(self.seed, "seed", 0)
        if not 0 <= self.warmup < 1:
            raise UsageError(f"warmup is a share of the steps, from 0 up to 1, got {self.warmup}.")
        if self.precision not in PRECISIONS:
            raise UsageError(f"There is no precision {self.precision!r}; choose one of {', '.join(PRECISIONS)}.")
        for tracker in self.trackers:
            if tracker not in TRACKERS:
                raise UsageError(f"There is nothing called {tracker!r} to track with; choose {', '.join(TRACKERS)}.")

    @property
    def trackers(self) -> list[str]:
        """The names in ``track``."""
        return [name.strip() for name in self.track.split(",")]

    def override(self, values: dict[str, Any]) -> TrainingSettings:
        """A copy with the given values; ``None`` leaves a setting as it is, an unknown name is refused."""
        known = {field.name for field in fields(self)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise UsageError(f"There is no training setting {unknown[0]!r}; there are {', '.join(sorted(known))}.")
        return replace(self, **{name: value for name, value in values.items() if value is not None})
