"""A cell of the table, one method with one seed: what decides its result, and the file that keeps it.

A cell that has a file with the same method, options, encoder, text, dev pairs, tasks and protocol is finished and is not run
again. The names of the fields of :class:`CellRecord` and :class:`SharedSetting` are the keys of that file.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from selfguide.comparison.specs import Spec, Stage
from selfguide.errors import SelfguideError
from selfguide.evaluation.results import TaskScore
from selfguide.files import json_digest, read_json, write_text

FOLDER = "cells"
# Training settings that must not change a result.
_IRRELEVANT = ("device", "checkpoint_minutes", "track", "share_negatives")


@dataclass(frozen=True)
class SharedSetting:
    """What all cells of a comparison share. Names are shown to the user; digests are compared."""

    encoder: str
    encoder_digest: str
    text: tuple[str, ...]
    fingerprint: str
    sentences: int
    dev: str | None
    dev_digest: str | None
    tasks: dict[str, str]
    """The name of each task, and the digest of its rows."""
    protocol: dict[str, Any]

    @property
    def digest(self) -> str:
        """A hash of everything that decides the results; comparisons with the same hash can share cells."""
        decisive = (self.encoder_digest, self.fingerprint, self.dev_digest, self.tasks, self.protocol)
        return json_digest(decisive)[:16]

    def difference(self, other: SharedSetting) -> str | None:
        """Return briefly why results of the two cannot be in one table; None if they can."""
        kinds = {
            "encoder": (self.encoder_digest, other.encoder_digest),
            "text": (self.fingerprint, other.fingerprint),
            "dev pairs": (self.dev_digest, other.dev_digest),
            "tasks": (self.tasks, other.tasks),
            "protocol": (self.protocol, other.protocol),
        }
        return next((f"other {name}" for name, (one, two) in kinds.items() if one != two), None)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> SharedSetting:
        """Make a setting from the values of a file.

        Args:
            values: What the file holds.

        Returns:
            The setting.
        """
        return cls(**{item.name: values[item.name] for item in fields(cls)} | {"text": tuple(values["text"])})


@dataclass(frozen=True)
class Cell:
    """One method with one seed; the seed is None for methods that draw nothing at random."""

    spec: Spec
    seed: int | None
    order: int
    """The position of the row in the table."""

    @property
    def name(self) -> str:
        """The name in messages."""
        return cell_name(self.spec.label, self.seed)

    @property
    def stem(self) -> str:
        """The name of its files."""
        return file_stem(self.spec.label, self.seed)

    def steps(self, sentences: int) -> int:
        """Return the maximum number of training steps on a text of this size; early stopping may end sooner."""
        total = 0
        for stage in self.spec.stages:
            training = stage.training
            size = training["batch_size"] * training["gradient_accumulation"]
            if stage.trained:
                total += training["max_steps"] or -int(-training["epochs"] * sentences // size)
        return total


@dataclass(frozen=True)
class CellRecord:
    """The outcome of a cell: its scores, or an error message."""

    label: str
    words: str
    """The method and its options as they were typed, without the label."""
    stages: tuple[dict[str, Any], ...]
    seed: int | None
    order: int
    setting: SharedSetting
    error: str | None = None
    scores: tuple[TaskScore, ...] = ()
    dev_score: float | None = None
    """The score of the finished encoder on the dev pairs, × 100."""
    steps: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    begun_by: str | None = None
    """The row whose kept encoder this one started from; its steps are counted here, its seconds are not."""
    device: str = ""
    threads: int = 0
    versions: dict[str, str] = field(default_factory=dict)
    command: str | None = None
    finished: str = ""
    """When the cell ended."""

    @classmethod
    def of(cls, cell: Cell, setting: SharedSetting, **facts: Any) -> CellRecord:
        """Make the record of a cell that was run; ``facts`` are the fields that the cell does not decide.

        Args:
            cell: The cell.
            setting: What it shares with the others.
            **facts: Scores, time, versions and the like.

        Returns:
            The record.
        """
        return cls(cell.spec.label, cell.spec.words, _plain_stages(cell.spec), cell.seed, cell.order, setting, **facts)

    @property
    def name(self) -> str:
        """The name of the cell in messages."""
        return cell_name(self.label, self.seed)

    def rerun_reason(self, cell: Cell, setting: SharedSetting) -> str | None:
        """Return briefly why the cell must be run again despite this record; None if it need not."""
        if self.error is not None:
            return "failed before"
        if _decisive(self.stages) != _decisive(_plain_stages(cell.spec)):
            return "other options"
        return self.setting.difference(setting)

    def fits(self, cell: Cell, setting: SharedSetting) -> bool:
        """Return whether the record belongs to this cell and setting, even if the cell failed."""
        return replace(self, error=None).rerun_reason(cell, setting) is None

    @property
    def stem(self) -> str:
        """The name of the cell's files."""
        return file_stem(self.label, self.seed)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {**asdict(self), "scores": [score.to_dict() for score in self.scores]}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> CellRecord:
        """Make a record from what :meth:`to_dict` returned; files without ``begun_by`` are older than this field.

        Args:
            values: What the file holds.

        Returns:
            The record.
        """
        known = {
            item.name: values[item.name] for item in fields(cls) if item.name != "begun_by" or "begun_by" in values
        }
        known["scores"] = tuple(TaskScore.from_dict(score) for score in values["scores"])
        known |= {name: tuple(values[name]) for name in ("stages", "warnings")}
        return cls(**known | {"setting": SharedSetting.from_dict(values["setting"])})


class CellFolder:
    """The files of a comparison's cells."""

    def __init__(self, output: Path) -> None:
        self.output = output
        self.folder = output / FOLDER

    def find(self, cell: Cell) -> CellRecord | None:
        """Return the record of a cell, whatever it was run on, or None."""
        path = self.path(cell)
        return _read(path) if path.is_file() else None

    def write(self, cell: Cell, record: CellRecord) -> None:
        """Write the file of a cell, in place of a former one.

        Raises:
            SelfguideError: The disk is full, or the folder cannot be written to.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_text(self.path(cell), json.dumps(record.to_dict(), indent=1, ensure_ascii=False) + "\n")
        except OSError as error:
            raise SelfguideError(
                f"The cell cannot be written to {self.folder}: {error.strerror or error}. Make room, or name another "
                "--output."
            ) from None

    def remove(self, cell: Cell) -> None:
        """Remove the file of a cell, if there is one."""
        self.path(cell).unlink(missing_ok=True)

    def read_all(self) -> list[CellRecord]:
        """Return the records of all cells, in the order of the rows.

        Raises:
            SelfguideError: There are none, or one cannot be read.
        """
        records = list(self.records_by_stem().values())
        if not records:
            raise SelfguideError(f"There are no cells in {self.folder}: name the --output of a comparison.")
        return sorted(records, key=lambda record: (record.order, record.label, record.seed or 0))

    def records_by_stem(self) -> dict[str, CellRecord]:
        """Return the records of all cells by the names of their files."""
        # A hidden file is a temporary one, of a process that was killed or is still writing.
        files = (path for path in self.folder.glob("*.json") if not path.name.startswith("."))
        return {path.stem: _read(path) for path in sorted(files)}

    def path(self, cell: Cell) -> Path:
        """Return the file of a cell, which need not exist."""
        return self.folder / f"{cell.stem}.json"


def file_stem(label: str, seed: int | None) -> str:
    """Return the name of a cell's files; a label that is not a valid file name gets a few hash digits against collisions."""
    plain = re.sub(r"[^\w.+-]+", "-", label, flags=re.ASCII).strip("-.")
    if plain != label:
        plain = f"{plain[:80]}-{hashlib.sha256(label.encode()).hexdigest()[:6]}"
    return f"{plain}.{'once' if seed is None else f'seed{seed}'}"


def cell_name(label: str, seed: int | None) -> str:
    """Return the name of a cell in messages."""
    return label if seed is None else f"{label}, seed {seed}"


def split_by_setting(records: Iterable[CellRecord]) -> tuple[list[CellRecord], list[CellRecord]]:
    """Split cells into those comparable with the newest, and those of another text, encoder or protocol.

    Args:
        records: Finished cells.

    Returns:
        The comparable ones, and the others.
    """
    everything = list(records)
    newest = max(everything, key=lambda record: record.finished)
    fitting = [record for record in everything if record.setting.difference(newest.setting) is None]
    return fitting, [record for record in everything if record not in fitting]


def _plain_stages(spec: Spec) -> tuple[dict[str, Any], ...]:
    """Return the stages as they are read back from a file."""
    return tuple(json.loads(json.dumps([asdict(stage) for stage in spec.stages])))


def _decisive(stages: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the options and settings that change the result: without training, of the settings only the length limit."""
    kept: list[dict[str, Any]] = []
    for stage in stages:
        training: dict[str, Any] = stage["training"]
        names = set(training) - set(_IRRELEVANT) if Stage(**stage).trained else {"max_length"}
        kept.append({**stage, "training": {name: training[name] for name in sorted(names)}})
    return kept


def _read(path: Path) -> CellRecord:
    try:
        return CellRecord.from_dict(read_json(path))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SelfguideError(
            f"{path} is not a cell that can be read ({type(error).__name__}: {error}); delete it to run the cell again."
        ) from None
