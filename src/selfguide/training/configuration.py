"""Configuration and record of a run, which ``run.json`` keeps."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from selfguide.errors import SelfguideError
from selfguide.files import read_json

RUN_FILE = "run.json"


@dataclass(frozen=True)
class RunConfig:
    """Everything that determines a run; ``run.json`` holds it and ``--config`` reads it."""

    text: tuple[str, ...]
    encoder: str = "mini"
    method: str = ""
    """A reference of :mod:`selfguide.methods.registry`; empty for its default."""
    options: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    text_options: dict[str, Any] = field(default_factory=dict)
    dev: str | None = None

    @classmethod
    def from_file(cls, path: str | Path) -> RunConfig:
        """Read a configuration.

        Args:
            path: A ``run.json``, or a JSON file with the same keys, either at the top or under ``config``.

        Returns:
            The configuration; names and values of options are checked when it is used.

        Raises:
            SelfguideError: The file is missing or is not a configuration.
        """
        try:
            content = read_json(Path(path))
        except FileNotFoundError:
            raise SelfguideError(f"There is no configuration file {path}.") from None
        except (OSError, ValueError) as error:
            raise SelfguideError(f"{path} is not a configuration that can be read: {error}.") from None
        values = content.get("config", content) if isinstance(content, dict) else None
        if not isinstance(values, dict) or not _is_configuration(values):
            raise SelfguideError(f"{path} is not a run's configuration; it should hold what a run.json holds.")
        return cls(**{**values, "text": tuple(values["text"])})


def _is_configuration(values: dict[str, Any]) -> bool:
    """Return whether the keys and the types of their values are those of a configuration."""
    kinds = {"encoder": str, "method": str, "options": dict, "training": dict, "text_options": dict}
    text = values.get("text")
    return (
        isinstance(text, list)
        and all(isinstance(source, str) for source in text)
        and set(values) <= {*kinds, "text", "dev"}
        and all(isinstance(values.get(name, kind()), kind) for name, kind in kinds.items())
        and isinstance(values.get("dev"), str | None)
    )


@dataclass
class RunRecord:
    """What a run did; the content of ``run.json``."""

    config: RunConfig
    text: dict[str, Any] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)
    dev_curve: list[tuple[int, float]] = field(default_factory=list)
    loss_curve: list[tuple[int, float]] = field(default_factory=list)
    start: dict[str, Any] = field(default_factory=dict)
    """What the run started from: ``kind``, ``reason``, and ``own``, what a sentence encoder brought along."""
    checkpoint: str = ""
    choice: dict[str, Any] = field(default_factory=dict)
    """Which weights were kept, where the method chose between several, and on what evidence."""
    chosen: dict[str, float] = field(default_factory=dict)
    """Options selected on the dev pairs."""
    optimiser: dict[str, Any] = field(default_factory=dict)
    """The optimiser that the trainer had, its settings and the learning rate of some steps."""
    length: dict[str, float] = field(default_factory=dict)
    """Tokens that training saw of a sentence, the encoder's own limit, the share of sentences truncated in training."""
    steps: int = 0
    final_loss: float | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    sentences_per_second: float = 0.0
    warnings: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    finished: str = ""
    """Date and time of the end, in ISO format."""

    @classmethod
    def from_file(cls, path: Path) -> RunRecord:
        """Read the record of a finished run.

        Args:
            path: Its ``run.json``.

        Returns:
            The record; what a later version added is left out.

        Raises:
            SelfguideError: The file is missing or holds something else.
        """
        config = RunConfig.from_file(path)
        content = read_json(path)
        known = {item.name: content[item.name] for item in fields(cls) if item.name in content}
        return cls(**{**known, "config": config})
