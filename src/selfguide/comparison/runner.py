"""All cells, one after the other or side by side in processes.

A cell that fails does not stop the others. Ctrl-C stops the cells in hand; those that are finished have their files.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from selfguide.comparison.cells import CellFolder, CellRecord
from selfguide.comparison.child import DONE
from selfguide.comparison.worker import CellJob, run_cell
from selfguide.errors import UsageError
from selfguide.progress import Reporter

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")
_GRACE = 10.0  # seconds that a stopped process has to clean up after itself
Record = TypeVar("Record")
_Made = TypeVar("_Made", covariant=True)


class SubprocessJob(Protocol[_Made]):
    """A job that another process can do (:mod:`selfguide.comparison.child`) and that leaves its record in a file."""

    @property
    def stem(self) -> str: ...
    @property
    def work(self) -> Path: ...
    def remove_record(self) -> None:
        """Take away what a former run left."""

    def run(self) -> _Made:
        """Do it in this process, and keep the record."""

    def find_record(self) -> _Made | None:
        """What the process left."""

    def record_failure(self, reason: str) -> _Made:
        """The record of a job whose process left nothing, kept as one that failed."""


def cores() -> int:
    """The processor's cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def process_count(asked: int | None, device: str, cells: int) -> int:
    """How many cells run side by side: what was asked for, else one on a GPU, else half as many as there are cores."""
    if asked is not None and asked < 1:
        raise UsageError(f"--jobs must be at least 1, got {asked}.")
    if asked is None:
        import torch

        accelerated = device != "cpu" and (torch.cuda.is_available() or torch.backends.mps.is_available())
        asked = 1 if accelerated or cores() <= 2 else cores() // 2
    # More processes than cores would only wait for each other.
    return max(1, min(asked, cores(), cells))


def split_finished(jobs: Sequence[CellJob], again: bool, reporter: Reporter) -> tuple[list[CellRecord], list[CellJob]]:
    """The cells that need not be run, and the others; where there is a result that will not do, say why."""
    done: list[CellRecord] = []
    due: list[tuple[int, CellJob]] = []
    reasons: Counter[str] = Counter()
    places: Counter[str] = Counter()
    for job in jobs:
        former = CellFolder(job.output).find(job.cell)
        reason = former.rerun_reason(job.cell, job.setting) if former else None
        if former and not reason and job.keep and not job.kept_encoder.is_dir():
            reason = "their encoders were not kept"
        if former and not reason and not again:
            done.append(former)
            continue
        due.append((places[job.cell.spec.label], job))
        places[job.cell.spec.label] += 1
        if reason:
            reasons[reason] += 1
    for reason, count in reasons.items():
        reporter.note(f"{count} of the cells in the folder will be run again: {reason}.")
    # Seed by seed, so that a comparison that is stopped half-way has something of every row.
    return done, [job for _, job in sorted(due, key=lambda pair: pair[0])]


def run_jobs(jobs: Sequence[CellJob], side_by_side: int) -> Generator[CellRecord, None, None]:
    """Each cell's record as it is done."""
    if side_by_side == 1:
        for job in jobs:
            yield run_cell(job)
        return
    yield from run_in_processes(jobs, side_by_side)


@dataclass
class _Worker(Generic[Record]):
    """A process (:mod:`selfguide.comparison.child`) and the job that it has in hand."""

    process: subprocess.Popen[bytes]
    log: Path
    job: SubprocessJob[Record]
    said: int = 0
    """How long the log was when the job began."""

    @property
    def file(self) -> Path:
        """Where the process finds the job."""
        return self.job.work / f"{self.job.stem}.job"

    @property
    def done(self) -> bool:
        """Whether the job has ended; the process then waits for another."""
        return self.file.with_suffix(DONE).exists()

    def give(self, job: SubprocessJob[Record]) -> None:
        """Hand over a job."""
        self.job, self.said = job, self.log.stat().st_size
        job.remove_record()  # so that what is there afterwards is this process's own
        self.file.with_suffix(DONE).unlink(missing_ok=True)
        self.file.write_bytes(pickle.dumps(job))
        assert self.process.stdin is not None
        with suppress(OSError):  # a process that has ended is noticed by its code
            self.process.stdin.write(f"{self.file}\n".encode())
            self.process.stdin.flush()


def run_in_processes(
    jobs: Sequence[SubprocessJob[Record]], side_by_side: int, *, fresh: bool = False
) -> Iterator[Record]:
    """Each job's record as it is done, in processes that do one job after another (``fresh``: each job in a new one)."""
    waiting, workers = list(jobs), list[_Worker[Record]]()
    try:
        while waiting or workers:
            while waiting and len(workers) < side_by_side:
                workers.append(_started(waiting.pop(0), cores() // side_by_side))
            ended = [worker for worker in workers if worker.done or worker.process.poll() is not None]
            for worker in ended:
                record = _record(worker)
                if waiting and not fresh and worker.process.poll() is None:
                    worker.give(waiting.pop(0))
                else:
                    workers.remove(worker)
                    _stop([worker])
                yield record
            if not ended:
                time.sleep(0.05)
    finally:
        _stop(workers)


def _started(job: SubprocessJob[Record], threads: int) -> _Worker[Record]:
    log = job.work / f"{job.stem}.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "selfguide.comparison.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=os.environ | _thread_limits(threads),
            start_new_session=True,  # Ctrl-C is for us; we tell them
        )
    worker = _Worker(process, log, job)
    worker.give(job)
    return worker


def _thread_limits(threads: int) -> dict[str, str]:
    """The job's share for every library. A user who holds one of them back means them all, so the smallest number counts."""
    given = [os.environ.get(name, "") for name in _THREADS]
    fewest = min([threads, *(int(number) for number in given if number.isdecimal() and int(number))])
    return dict.fromkeys(_THREADS, str(fewest))


def _record(worker: _Worker[Record]) -> Record:
    """What the job left: its file, or nothing, and then the log may tell."""
    found = worker.job.find_record()
    if found is not None:
        return found
    said = worker.log.read_bytes()[worker.said :].decode("utf-8", errors="replace")
    told = " ".join(said.split())[-300:]
    code = worker.process.poll()
    if code is None:
        reason = told or "its process left no result"
    elif code < 0:
        reason = f"its process was ended by signal {-code}" + (": is there too little memory?" if code == -9 else "")
    else:
        reason = f"its process ended with code {code}" + (f": {told}" if told else "")
    return worker.job.record_failure(reason)


def _stop(workers: Sequence[_Worker[Record]]) -> None:
    """End the processes: one that waits for a job ends with its standard input, one that has a job is told."""
    for worker in workers:
        if worker.done:
            _close(worker.process)
        else:
            worker.process.terminate()
    until = time.monotonic() + _GRACE
    for worker in workers:
        try:
            worker.process.wait(max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.process.kill()
            worker.process.wait()
        _close(worker.process)


def _close(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
