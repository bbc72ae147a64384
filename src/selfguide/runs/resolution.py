"""A run's configuration with every default written out."""

from __future__ import annotations

from dataclasses import asdict, fields, replace

from selfguide.data import TextOptions
from selfguide.errors import UsageError
from selfguide.methods import registry
from selfguide.training.configuration import RunConfig


def resolved(config: RunConfig) -> RunConfig:
    """Write out every default, so that a run can be repeated after a default has changed."""
    method = registry.make(config.method, config.options)
    training = method.defaults.override(config.training)
    unknown = sorted(set(config.text_options) - {item.name for item in fields(TextOptions)})
    if unknown:
        raise UsageError(f"There is no text option {unknown[0]!r}; `selfguide train --help` lists them.")
    return replace(
        config,
        options=method.describe_options(),
        training=asdict(training),
        text_options=asdict(TextOptions(**config.text_options)),
    )
