"""From a configuration to the method it names, with every default written out."""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING

from selfguide.data import TextOptions
from selfguide.errors import UsageError
from selfguide.methods import registry
from selfguide.models.starting_points import StartingPoint, starting_point
from selfguide.training.configuration import RunConfig
from selfguide.training.settings import BY_TEXT_SIZE

if TYPE_CHECKING:
    from selfguide.methods.base import Method


def resolve(config: RunConfig, start: StartingPoint | None = None) -> tuple[RunConfig, Method]:
    """Make the method and write out every default, so that a run can be repeated after a default has changed.

    Args:
        config: What the user asked for.
        start: What the encoder is, by which a method is chosen where none is named; ``None`` looks at the encoder's name.

    Returns:
        The complete configuration, and the method with its options checked.

    Raises:
        UsageError: A method, an option or a setting is unknown, or a value is not allowed.
    """
    reference = config.method or registry.default_method((start or starting_point(config.encoder)).kind)
    method = registry.make(reference, config.options)
    training = method.defaults.override(config.training)
    for setting in ("epochs", "learning_rate"):
        if getattr(training, setting) == BY_TEXT_SIZE != getattr(method.defaults, setting):
            raise UsageError(f"{setting} must be above 0 for the method {method.name}, got 0.")
    if method.family != "tuning" and training.max_length != method.defaults.max_length:
        raise UsageError(
            f"The method {method.name} does not tune the encoder, so it has no training length: leave max_length out, and "
            "load the encoder with another limit instead (selfguide.load_encoder, max_length)."
        )
    unknown = sorted(set(config.text_options) - {item.name for item in fields(TextOptions)})
    if unknown:
        raise UsageError(f"There is no text option {unknown[0]!r}; `selfguide train --help` lists them.")
    complete = replace(
        config,
        method=reference,
        options=method.describe_options(),
        training=asdict(training),
        text_options=asdict(TextOptions(**config.text_options)),
    )
    return complete, method
