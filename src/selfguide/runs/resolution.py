"""From a configuration to the method it names, with every default written out."""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING

from selfguide.data import TextOptions
from selfguide.errors import UsageError
from selfguide.methods import registry
from selfguide.models.starting_points import StartingPoint, starting_point
from selfguide.training.configuration import RunConfig
from selfguide.training.settings import BY_METHOD

if TYPE_CHECKING:
    from selfguide.methods.base import Method
    from selfguide.training.settings import TrainingSettings


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
        if getattr(training, setting) == BY_METHOD != getattr(method.defaults, setting):
            raise UsageError(f"{setting} must be above 0 for the method {method.name}, got 0.")
    refuse_settings(method, training)
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


def refuse_settings(method: Method, training: TrainingSettings) -> None:
    """Refuse training settings that a method does not use.

    A value that equals the method's default passes: the record of a run states every setting.

    Args:
        method: The method.
        training: The settings asked for, over the method's defaults.

    Raises:
        UsageError: A setting would have no effect; the message says what to do.
    """
    refused = method.unused_settings()
    given = [
        item.name
        for item in fields(training)
        if item.name in refused and getattr(training, item.name) != getattr(method.defaults, item.name)
    ]
    if not given:
        return
    named = " and ".join(filter(None, [", ".join(given[:-1]), given[-1]]))
    why = "trains nothing" if not method.trains else "does not use " + ("it" if len(given) == 1 else "them")
    hint = (
        " For another length, load the encoder with it (selfguide.load_encoder, max_length)."
        if "max_length" in given
        else ""
    )
    raise UsageError(f"{named} would have no effect: the method {method.name} {why}. Leave {named} out.{hint}")
