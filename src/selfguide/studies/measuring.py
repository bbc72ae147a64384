"""Measurements: functions of this package called with plain arguments, each result kept in a file.

A measurement is reused if its file has the same function, arguments, encoder, text, tasks and dev pairs.
"""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass, field, fields
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from selfguide.comparison.runner import run_in_processes
from selfguide.errors import InterruptedRun, SelfguideError, one_line
from selfguide.files import read_json, write_text
from selfguide.models.encoders import quiet_libraries
from selfguide.studies.base import Measurement
from selfguide.studies.context import MeasurementContext
from selfguide.system import debugging, timestamp
from selfguide.versions import versions

FOLDER = "measurements"


@dataclass(frozen=True)
class MeasurementRecord:
    """The result of a measurement, or the reason why there is none."""

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
    """When it ended."""

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> MeasurementRecord:
        """Return the record from its JSON form."""
        known = {item.name: values[item.name] for item in fields(cls)}
        return cls(**known | {"warnings": tuple(values["warnings"])})


@dataclass(frozen=True)
class MeasurementJob:
    """A measurement with the data it needs; a :class:`~selfguide.comparison.runner.SubprocessJob`."""

    measurement: Measurement
    context: MeasurementContext
    identity: dict[str, Any]
    work: Path
    command: str | None = None

    @property
    def stem(self) -> str:
        """The name of its files, without suffix."""
        return self.measurement.key

    @property
    def path(self) -> Path:
        """The file of its record."""
        return self.context.output / FOLDER / f"{self.stem}.json"

    def find_record(self) -> MeasurementRecord | None:
        """Read the record in the folder; None where there is none.

        Returns:
            The record, or ``None``.

        Raises:
            SelfguideError: The file cannot be read.
        """
        if not self.path.is_file():
            return None
        try:
            return MeasurementRecord.from_dict(read_json(self.path))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SelfguideError(
                f"{self.path} is not a measurement that can be read ({type(error).__name__}: {error}); delete it to make "
                "the measurement again."
            ) from None

    def reusable_record(self) -> MeasurementRecord | None:
        """Return the record in the folder if this job would measure the same; else None."""
        former = self.find_record()
        return former if former and former.error is None and former.identity == self.identity else None

    def remove_record(self) -> None:
        """Remove the record of an earlier run."""
        self.path.unlink(missing_ok=True)

    def write_record(self, record: MeasurementRecord) -> None:
        """Write the record, in place of an earlier one.

        Raises:
            SelfguideError: The file cannot be written.
        """
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
        """Make the measurement in this process.

        Returns:
            The record.
        """
        return measure(self)

    def record_failure(self, reason: str) -> MeasurementRecord:
        """Write and return the record of a measurement that failed.

        Args:
            reason: What is known about the failure.

        Returns:
            The record.
        """
        record = MeasurementRecord(self.stem, self.identity, error=reason, command=self.command, finished=timestamp())
        self.write_record(record)
        return record


def run_measurements(jobs: Sequence[MeasurementJob], process_count: int) -> Generator[MeasurementRecord, None, None]:
    """Yield each measurement's record as it ends; those that measure time or memory come last, one by one.

    Args:
        jobs: What to measure.
        process_count: How many run in parallel; 1: in this process.
    """
    shared = [job for job in jobs if not job.measurement.isolated]
    isolated = [job for job in jobs if job.measurement.isolated]
    if process_count == 1:
        for job in shared:
            yield measure(job)
    else:
        yield from run_in_processes(shared, process_count)
    # A process's peak memory covers everything it has done, so each job gets a new one; a GPU's peak can be reset.
    yield from run_in_processes(isolated, 1, fresh=not (isolated and isolated[0].context.on_gpu))


def measure(job: MeasurementJob) -> MeasurementRecord:
    """Make a measurement and write its record. An error becomes a record too; only an interrupt is passed on.

    Args:
        job: The measurement.

    Returns:
        The record.
    """
    try:
        record = _measured(job)
        job.write_record(record)
        return record
    except (InterruptedRun, KeyboardInterrupt):
        raise
    except SelfguideError as error:
        return job.record_failure(str(error))
    except Exception as error:
        if debugging():
            traceback.print_exc()
        return job.record_failure(f"{type(error).__name__}: {one_line(error)}")


def function_of(address: str) -> Callable[..., dict[str, Any]]:
    """Import the function at ``module:name``.

    Args:
        address: The address.

    Returns:
        The function.
    """
    module, _, name = address.partition(":")
    found: Callable[..., dict[str, Any]] = getattr(import_module(module), name)
    return found


def _measured(job: MeasurementJob) -> MeasurementRecord:
    began = time.monotonic()
    with quiet_libraries():
        result = function_of(job.measurement.function)(job.context, **job.measurement.arguments)
    return MeasurementRecord(
        key=job.stem,
        identity=job.identity,
        # Through JSON, so that a new result is exactly what the file gives back later.
        result=json.loads(json.dumps(result, allow_nan=False)),
        seconds=round(time.monotonic() - began, 2),
        device="cuda" if job.context.on_gpu else "cpu",
        threads=torch.get_num_threads(),
        versions=versions("scipy", "scikit-learn"),
        command=job.command,
        finished=timestamp(),
    )
