"""Measurements: functions of this package called with plain arguments, each result in a file of its own.

A measurement whose file has the same function, arguments, encoder, text, tasks and dev pairs is finished and is not made
again.
"""

from __future__ import annotations

import json
import os
import time
import traceback
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass, field, fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfguide.comparison.cells import CellFolder
from selfguide.comparison.runner import run_in_processes
from selfguide.comparison.texts import DatasetLocator, dev_rows
from selfguide.errors import InterruptedRun, SelfguideError
from selfguide.evaluation.evaluate import load_tasks
from selfguide.evaluation.protocol import Protocol
from selfguide.evaluation.rows import TaskData
from selfguide.evaluation.tasks import task_named
from selfguide.files import write_text
from selfguide.studies.base import Measurement, grid_folder

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

FOLDER = "measurements"
PROTOCOL = Protocol(bootstrap=0)
"""How a study scores: the deviation over seeds is what it tells, so there are no intervals."""


@dataclass(frozen=True)
class Place:
    """Where a measurement finds what it needs beside its arguments."""

    encoder: str
    device: str
    data: str | None
    text: Path
    """The study's sentences, cleaned, one a line."""
    output: Path
    dev: str | None
    tasks: str
    pairs: tuple[str, ...] = ()
    batch_size: int = 64

    def load_encoder(self, pooling: str | None = None) -> SentenceTransformer:
        """The encoder that the study starts from."""
        from selfguide.models.encoders import load_encoder

        return load_encoder(self.encoder, pooling=pooling, device=self.device)

    def kept(self, grid: str, label: str, seed: int | None) -> SentenceTransformer:
        """An encoder that a grid with ``keep=True`` has made."""
        from selfguide.models.encoders import load

        for record in CellFolder(grid_folder(self.output, grid)).read_all():
            if (record.label, record.seed) == (label, seed) and record.error is None:
                folder = grid_folder(self.output, grid) / "encoders" / record_stem(record.label, record.seed)
                return load(folder, device=self.device)
        raise SelfguideError(f"There is no finished encoder {label!r} with seed {seed} in the grid {grid!r}.")

    def sentences(self) -> list[str]:
        """The study's text."""
        return self.text.read_text(encoding="utf-8").split("\n")[:-1]

    def task_rows(self) -> list[TaskData]:
        """The rows of the study's tasks, and of the user's own pairs."""
        return load_tasks(self.tasks, self.pairs, self.data, PROTOCOL)

    def rows(self, task: str) -> TaskData:
        """The rows of any task."""
        return DatasetLocator(self.data).rows(task_named(task))

    def dev_rows(self) -> TaskData | None:
        """The dev pairs."""
        return dev_rows(self.dev, DatasetLocator(self.data))


@dataclass(frozen=True)
class MeasurementRecord:
    """What became of a measurement: its result, or the sentence that says why there is none."""

    key: str
    identity: dict[str, Any]
    """Everything that decides the result."""
    result: dict[str, Any] | None = None
    error: str | None = None
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()
    device: str = ""
    threads: int = 0
    versions: dict[str, str] = field(default_factory=dict)
    command: str | None = None
    finished: str = ""

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> MeasurementRecord:
        """Back from ``asdict`` and JSON."""
        known = {item.name: values[item.name] for item in fields(cls)}
        return cls(**known | {"warnings": tuple(values["warnings"])})


@dataclass(frozen=True)
class MeasurementJob:
    """A measurement and where everything is that it needs."""

    measurement: Measurement
    place: Place
    identity: dict[str, Any]
    work: Path
    command: str | None = None

    @property
    def stem(self) -> str:
        """For file names."""
        return self.measurement.key

    @property
    def path(self) -> Path:
        """The measurement's file."""
        return self.place.output / FOLDER / f"{self.stem}.json"

    def find_record(self) -> MeasurementRecord | None:
        """What is kept of it."""
        if not self.path.is_file():
            return None
        try:
            return MeasurementRecord.from_dict(json.loads(self.path.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SelfguideError(
                f"{self.path} is not a measurement that can be read ({type(error).__name__}: {error}); delete it to make "
                "the measurement again."
            ) from None

    def finished(self) -> MeasurementRecord | None:
        """What is kept of it, if it is what would be measured now."""
        former = self.find_record()
        return former if former and former.error is None and former.identity == self.identity else None

    def remove_record(self) -> None:
        """Take away what a former run left."""
        self.path.unlink(missing_ok=True)

    def keep(self, record: MeasurementRecord) -> None:
        """Write the measurement's file, in place of a former one."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            content = json.dumps(asdict(record), indent=1, ensure_ascii=False, allow_nan=False)
            write_text(self.path, content + "\n")
        except OSError as error:
            raise SelfguideError(
                f"The measurement cannot be written to {self.path}: {error.strerror or error}. Make room, or name "
                "another --output."
            ) from None

    def run(self) -> MeasurementRecord:
        """Make the measurement in this process."""
        return measure(self)

    def record_failure(self, reason: str) -> MeasurementRecord:
        """The record of a measurement whose process left nothing."""
        record = MeasurementRecord(self.stem, self.identity, error=reason, command=self.command, finished=_now())
        self.keep(record)
        return record


def record_stem(label: str, seed: int | None) -> str:
    """The name under which `selfguide compare --keep` keeps an encoder."""
    from selfguide.comparison.cells import Cell
    from selfguide.comparison.specs import Spec

    return Cell(Spec(label, "", ()), seed, 0).stem


def run_measurements(jobs: Sequence[MeasurementJob], side_by_side: int) -> Generator[MeasurementRecord, None, None]:
    """Each measurement's record as it is made; those that measure time or memory come last, one by one."""
    together = [job for job in jobs if not job.measurement.alone]
    if side_by_side == 1:
        for job in together:
            yield measure(job)
    else:
        yield from run_in_processes(together, side_by_side)
    alone = [job for job in jobs if job.measurement.alone]
    # A process's memory tells of all it has done, so each has one of its own; a GPU's is counted anew for each.
    yield from run_in_processes(alone, 1, fresh=not (alone and _on_gpu(alone[0].place)))


def measure(job: MeasurementJob) -> MeasurementRecord:
    """Make it and write its file. What goes wrong becomes a record too; only a user's stop is passed on."""
    try:
        record = _made(job)
        job.keep(record)
        return record
    except (InterruptedRun, KeyboardInterrupt):
        raise
    except SelfguideError as error:
        return job.record_failure(str(error))
    except Exception as error:
        if os.environ.get("SELFGUIDE_DEBUG") == "1":
            traceback.print_exc()
        return job.record_failure(f"{type(error).__name__}: {' '.join(str(error).split())}")


def function_of(address: str) -> Callable[..., dict[str, Any]]:
    """The function of ``module:name``."""
    module, _, name = address.partition(":")
    found: Callable[..., dict[str, Any]] = getattr(import_module(module), name)
    return found


def _made(job: MeasurementJob) -> MeasurementRecord:
    import torch

    from selfguide.models.encoders import quiet_libraries
    from selfguide.versions import versions

    began = time.monotonic()
    with quiet_libraries():
        result = function_of(job.measurement.function)(job.place, **job.measurement.arguments)
    return MeasurementRecord(
        key=job.stem,
        identity=job.identity,
        result=json.loads(
            json.dumps(result, allow_nan=False)
        ),  # what is plain comes back as it is, now and from the file
        seconds=round(time.monotonic() - began, 2),
        device="cuda" if _on_gpu(job.place) else "cpu",
        threads=torch.get_num_threads(),
        versions=versions("scipy", "scikit-learn"),
        command=job.command,
        finished=_now(),
    )


def _on_gpu(place: Place) -> bool:
    import torch

    return place.device != "cpu" and torch.cuda.is_available()


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
