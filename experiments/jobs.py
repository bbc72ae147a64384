"""Function calls that leave a JSON file each, run side by side by the package's process pool.

A call whose file exists is not made again, so an interrupted command can be repeated.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from experiments.provenance import write_part
from selfguide.comparison.runner import run_in_processes
from selfguide.system import cores


@dataclass(frozen=True)
class FunctionJob:
    """A call of ``module:function``, in the form that :func:`selfguide.comparison.runner.run_in_processes` takes."""

    path: Path
    """The file that will hold the function's result."""
    function: str
    arguments: dict[str, Any] = field(default_factory=dict)

    @property
    def stem(self) -> str:
        """Return the name for the job's own files."""
        return self.path.stem

    @property
    def work(self) -> Path:
        """Return the folder for the job's own files."""
        return self.path.parent

    def remove_record(self) -> None:
        """Delete a former result."""
        self.path.unlink(missing_ok=True)

    def run(self) -> dict[str, Any]:
        """Call the function in this process, and write its result."""
        module, _, name = self.function.partition(":")
        result: dict[str, Any] = getattr(import_module(module), name)(**self.arguments)
        write_part(self.path, result)
        return result

    def find_record(self) -> dict[str, Any] | None:
        """Return the result, if the file exists."""
        return json.loads(self.path.read_text(encoding="utf-8")) if self.path.is_file() else None

    def record_failure(self, reason: str) -> dict[str, Any]:
        """Return a record of the failure; no file is written, so that the job is tried again next time."""
        return {"job": self.stem, "error": reason}


def run_jobs(jobs: Sequence[FunctionJob], processes: int) -> dict[str, str]:
    """Run the jobs that have no file yet.

    Args:
        jobs: The jobs, in the order in which they are started.
        processes: How many run at a time, at most one a core; 0 runs nothing.

    Returns:
        Why a job has no file, by the name of the file.
    """
    due = [job for job in jobs if not job.path.is_file()]
    reasons = {job.stem: "it was not run" for job in due}
    if processes:
        for job in due:
            job.work.mkdir(parents=True, exist_ok=True)
        for number, record in enumerate(run_in_processes(due, min(processes, cores())), 1):
            if "error" in record:
                reasons[record["job"]] = record["error"]
                print(f"FAILED {record['job']}: {record['error']}", file=sys.stderr)
            print(f"{number} of {len(due)} runs done", file=sys.stderr, flush=True)
    return {job.stem: reasons[job.stem] for job in due if not job.path.is_file()}
