"""Warnings about runs that are too short to be of use, with a way out that fits the run's own settings."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from selfguide.training.settings import TrainingSettings

if TYPE_CHECKING:
    from selfguide.progress import Reporter

LEAST_MOVEMENT = 1e-4
"""Sum of the learning rates of all steps below which AdamW hardly changes an encoder. AdamW moves a weight by about the learning
rate at most in a step, so the sum bounds how far it can get. ``python -m experiments.first_steps`` follows first steps."""


def warn_if_short(
    rows: int, settings: TrainingSettings, reporter: Reporter, few_sentences: int = 0, *, bounded: bool = True
) -> None:
    """Warn if a run sees too little text, or if its learning rates add up to too little.

    Args:
        rows: Rows of the training set.
        settings: The training settings.
        reporter: Gets the warning.
        few_sentences: Sentences that training must see before the encoder is likely to be better than it began.
        bounded: Whether a step moves a weight by about the learning rate at most, as AdamW does.
    """
    per_step = settings.batch_size * settings.gradient_accumulation
    steps = settings.max_steps or math.ceil(settings.epochs * rows / per_step)
    if not steps or not settings.learning_rate:  # the method decides
        return
    if steps * per_step < few_sentences:
        enough = math.ceil(few_sentences / per_step)
        reporter.warn(
            f"training is short: {_steps(steps)} of {per_step} sentences. This method gets worse before it gets better, and with "
            f"fewer than about {few_sentences:,} sentences seen the result may be worse than the untuned encoder: add text, or "
            f"say {_longer(settings, enough, rows, per_step)}."
        )
    elif bounded and settings.sum_of_rates(steps) < LEAST_MOVEMENT:
        enough = math.ceil(steps * LEAST_MOVEMENT / settings.sum_of_rates(steps))
        rate = settings.learning_rate * LEAST_MOVEMENT / settings.sum_of_rates(steps)
        change = "changes" if steps == 1 else "change"
        reporter.warn(
            f"{_steps(steps)} at a learning rate of {settings.learning_rate:g} hardly {change} the encoder: use --learning-rate "
            f"{_rounded_up(rate)} or more, or {_longer(settings, enough, rows, per_step)}."
        )


def _steps(count: int) -> str:
    return f"{count:,} step" if count == 1 else f"{count:,} steps"


def _longer(settings: TrainingSettings, steps: int, rows: int, per_step: int) -> str:
    """Return the option that makes the run so long."""
    if settings.max_steps:
        return f"--max-steps {steps}"
    return f"--epochs {math.ceil(steps * per_step / rows)}"


def _rounded_up(rate: float) -> str:
    """Return a rate with one digit, so that it can be typed."""
    power = math.floor(math.log10(rate))
    return f"{math.ceil(rate / 10**power - 1e-9) * 10.0**power:.0e}".replace("e-0", "e-").replace("e+0", "e+")
