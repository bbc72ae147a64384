"""Training settings that every tuning method shares. The defaults are those of the SG-OPT paper; a method states its own.

They live apart from the training code so that the command line can show and check them without importing torch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any

from selfguide.errors import UsageError
from selfguide.options import SEED, Above, AtLeast, Between, CheckedOptions, OneOf, SeveralOf

BY_METHOD = 0.0
"""Value of ``epochs`` and ``learning_rate`` that leaves them to the method, which goes by text and encoder."""
_BY_METHOD = Above(0, or_else=BY_METHOD, or_else_means="by text and encoder, where the method can")
WITHOUT_TRAINING = frozenset({"batch_size", "device", "seed"})
"""Settings that matter for a method that trains nothing too: it encodes text."""


@dataclass(frozen=True)
class TrainingSettings(CheckedOptions):
    """Settings of :func:`~selfguide.training.trainer.fine_tune`."""

    epochs: Annotated[float, _BY_METHOD] = 1.0
    """Passes over the text; 0: by the size of the text, where the method can."""
    max_steps: Annotated[int, AtLeast(0)] = 0
    """Stop after this many steps; 0: after ``epochs``."""
    batch_size: Annotated[int, AtLeast(2)] = 16
    """Sentences per step and device; the other sentences of the batch are the negatives."""
    gradient_accumulation: Annotated[int, AtLeast(1)] = 1
    """Batches whose gradients are summed before the weights are updated."""
    learning_rate: Annotated[float, _BY_METHOD] = 5e-5
    """Peak learning rate, reached after the warm-up; 0: by text and encoder, where the method can."""
    warmup: Annotated[float, Between(0, 1, open_high=True)] = 0.1
    """Fraction of the steps over which the learning rate rises."""
    schedule: Annotated[str, OneOf("linear", "constant")] = "linear"
    """Learning rate after the warm-up: linear (it decays to 0) or constant."""
    beta2: Annotated[float, Between(0, 1, open_high=True)] = 0.999
    """AdamW's decay rate of the second moment."""
    weight_decay: Annotated[float, AtLeast(0)] = 0.0
    """AdamW's weight decay."""
    gradient_clip: Annotated[float, AtLeast(0)] = 1.0
    """Maximum norm of the gradient; 0: do not clip."""
    max_length: Annotated[int, AtLeast(3, or_else=0, or_else_means="follow the text")] = 0
    """Tokens of a sentence that training sees; 0: enough for 99 % of the text's sentences. The encoder's own limit applies
    as well, and is kept in the encoder that is saved."""
    dev_every: Annotated[int, AtLeast(1)] = 50
    """Steps between two evaluations on the dev pairs."""
    patience: Annotated[int, AtLeast(0)] = 10
    """Dev evaluations without a new best score before training stops; 0: never stop early."""
    checkpoint_minutes: Annotated[float, AtLeast(0)] = 2.0
    """Minutes between two checkpoints; 0: save one after every step."""
    share_negatives: bool = True
    """Whether the processes of a distributed run take the sentences of all as negatives, as one process with the whole batch
    would; otherwise each contrasts within its own batch."""
    precision: Annotated[str, OneOf("auto", "fp32", "bf16", "fp16")] = "auto"
    """fp32, bf16, fp16, or auto: bf16 on a GPU that supports it, fp32 elsewhere."""
    device: str = "auto"
    """cpu, cuda, mps, or auto."""
    seed: Annotated[int, SEED] = 1
    """Seed of everything random."""
    track: Annotated[str, SeveralOf("none", "tensorboard", "wandb")] = "none"
    """Experiment tracker: none, tensorboard, wandb, or several separated by commas."""

    def sum_of_rates(self, steps: int) -> float:
        """Return the sum of the learning rates over a number of steps."""
        climbing = math.ceil(self.warmup * steps)
        after = steps - climbing
        return self.learning_rate * (climbing / 2 + (after / 2 if self.schedule == "linear" else after))

    @property
    def trackers(self) -> list[str]:
        """The trackers named in ``track``."""
        return [name.strip() for name in self.track.split(",")]

    def override(self, values: dict[str, Any]) -> TrainingSettings:
        """Return a copy with other values.

        Args:
            values: New values by name; ``None`` leaves a setting as it is.

        Returns:
            The new settings, checked.

        Raises:
            UsageError: A name is unknown or a value is not allowed.
        """
        known = {field.name for field in fields(self)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise UsageError(f"There is no training setting {unknown[0]!r}; there are {', '.join(sorted(known))}.")
        return replace(self, **{name: value for name, value in values.items() if value is not None})


TRAINING_ONLY = frozenset(item.name for item in fields(TrainingSettings)) - WITHOUT_TRAINING
"""Settings that have no effect where nothing is trained."""
