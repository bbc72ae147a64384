"""All cells of a comparison, one after the other or in several processes.

A cell that fails does not stop the others. Ctrl-C stops the cells that are running; those that are finished have their files.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from selfguide.comparison.cells import CellRecord
from selfguide.comparison.child import DONE
from selfguide.comparison.worker import CellJob, run_cell
from selfguide.options import AtLeast, check
from selfguide.progress import Reporter
from selfguide.system import cores

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")
_GRACE_S = 10.0  # for a stopped process to clean up
Record = TypeVar("Record")
_Made = TypeVar("_Made", covariant=True)


class SubprocessJob(Protocol[_Made]):
    """A job that another process can run (:mod:`selfguide.comparison.child`) and that leaves its record in a file."""

    @property
    def stem(self) -> str:
        """The name of its files."""

    @property
    def work(self) -> Path:
        """The folder of its temporary files."""

    def remove_record(self) -> None:
        """Remove the record that a former run left."""

    def run(self) -> _Made:
        """Run the job in this process, and write its record.

        Returns:
            The record.
        """

    def find_record(self) -> _Made | None:
        """Return the record that the job wrote, or None."""

    def record_failure(self, reason: str) -> _Made:
        """Write and return the record of a job whose process left none.

        Args:
            reason: What is known about the end of the process.

        Returns:
            The record.
        """


def check_jobs(asked: int | None) -> None:
    """Refuse fewer than one job at a time.

    Raises:
        UsageError: Fewer than one was asked for.
    """
    if asked is not None:
        check("--jobs", asked, AtLeast(1))


def process_count(asked: int | None, device: str, cells: int) -> int:
    """Return how many cells run at a time.

    Args:
        asked: The user's choice; None for one on a GPU, else half as many as there are cores.
        device: Where cells are computed.
        cells: The number of cells.

    Returns:
        At most one for each core and one for each cell.

    Raises:
        UsageError: Fewer than one was asked for.
    """
    check_jobs(asked)
    if asked is None:
        import torch

        accelerated = device != "cpu" and (torch.cuda.is_available() or torch.backends.mps.is_available())
        asked = 1 if accelerated or cores() <= 2 else cores() // 2
    return max(1, min(asked, cores(), cells))


def split_finished(jobs: Sequence[CellJob], again: bool, reporter: Reporter) -> tuple[list[CellRecord], list[CellJob]]:
    """Split cells into those that are finished and those that have to be run.

    Args:
        jobs: All cells.
        again: Run finished cells all the same.
        reporter: Where it is noted why a cell with a record has to be run again.

    Returns:
        The records of the finished cells; and the others, seed by seed, so that an interrupted comparison has something of
        every row.
    """
    done: list[CellRecord] = []
    due: list[tuple[int, CellJob]] = []
    reasons: Counter[str] = Counter()
    per_row: Counter[str] = Counter()
    for job in jobs:
        former = job.find_record()
        reason = former.rerun_reason(job.cell, job.setting) if former else None
        if former and not reason and job.keep and not job.kept_encoder.is_dir():
            reason = "their encoders were not kept"
        if former and not reason and not again:
            done.append(former)
            continue
        due.append((per_row[job.cell.spec.label], job))
        per_row[job.cell.spec.label] += 1
        if reason:
            reasons[reason] += 1
    for reason, count in reasons.items():
        reporter.note(f"{count} of the cells in the folder will be run again: {reason}.")
    return done, [job for _, job in sorted(due, key=lambda pair: pair[0])]


def run_jobs(jobs: Iterable[CellJob], processes: int) -> Generator[CellRecord, None, None]:
    """Run cells, in this process if it is the only one, and yield each record as the cell ends.

    Args:
        jobs: One for each cell.
        processes: How many at a time.

    Yields:
        The record of each cell, in the order in which they end.
    """
    if processes == 1:
        for job in jobs:
            yield run_cell(job)
        return
    yield from run_in_processes(jobs, processes)


@dataclass
class _Worker(Generic[Record]):
    """A process (:mod:`selfguide.comparison.child`) and its current job."""

    process: subprocess.Popen[bytes]
    log: Path
    job: SubprocessJob[Record]
    log_start: int = 0
    """The length of the log when the job began."""

    @property
    def file(self) -> Path:
        """The file with the pickled job."""
        return self.job.work / f"{self.job.stem}.job"

    @property
    def done(self) -> bool:
        """Whether the job has ended; the process then waits for another."""
        return self.file.with_suffix(DONE).exists()

    def give(self, job: SubprocessJob[Record]) -> None:
        """Hand over a job."""
        self.job, self.log_start = job, self.log.stat().st_size
        job.remove_record()  # so that a record found afterwards comes from this process
        self.file.with_suffix(DONE).unlink(missing_ok=True)
        self.file.write_bytes(pickle.dumps(job))
        assert self.process.stdin is not None
        with suppress(OSError):  # a process that has ended is noticed by its exit code
            self.process.stdin.write(f"{self.file}\n".encode())
            self.process.stdin.flush()


def run_in_processes(jobs: Iterable[SubprocessJob[Record]], processes: int, *, fresh: bool = False) -> Iterator[Record]:
    """Run jobs in several processes, and yield each record as its job ends.

    Written by hand because the pools of the standard library give up all jobs when one of their processes dies, and a cell that
    runs out of memory is killed by the system. Here a dead process costs its own job alone, which becomes a failed record.

    Args:
        jobs: The jobs; the next one is asked for when a process is free for it.
        processes: How many run at a time.
        fresh: Run each job in a new process, instead of one job after another in the same.

    Yields:
        A record for each job, in the order in which they end.
    """
    waiting, workers = iter(jobs), list[_Worker[Record]]()
    try:
        while True:
            while len(workers) < processes and (job := next(waiting, None)) is not None:
                workers.append(_started(job, cores() // processes))
            if not workers:
                return
            ended = [worker for worker in workers if worker.done or worker.process.poll() is not None]
            for worker in ended:
                record = _record(worker)
                idle = not fresh and worker.process.poll() is None
                if idle and (job := next(waiting, None)) is not None:
                    worker.give(job)
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
            start_new_session=True,  # Ctrl-C reaches this process alone, which then stops the others
        )
    worker = _Worker(process, log, job)
    worker.give(job)
    return worker


def _thread_limits(threads: int) -> dict[str, str]:
    """Return the thread limit of every library: the job's share, or a smaller one that the user set for any of them."""
    given = [os.environ.get(name, "") for name in _THREADS]
    fewest = min([threads, *(int(number) for number in given if number.isdecimal() and int(number))])
    return dict.fromkeys(_THREADS, str(fewest))


def _record(worker: _Worker[Record]) -> Record:
    """Return the record of an ended job; where it left none, a failure with what the log says."""
    found = worker.job.find_record()
    if found is not None:
        return found
    log = worker.log.read_bytes()[worker.log_start :].decode("utf-8", errors="replace")
    message = " ".join(log.split())[-300:]
    code = worker.process.poll()
    if code is None:
        reason = message or "its process left no result"
    elif code < 0:
        reason = f"its process was ended by signal {-code}" + (": is there too little memory?" if code == -9 else "")
    else:
        reason = f"its process ended with code {code}" + (f": {message}" if message else "")
    return worker.job.record_failure(reason)


def _stop(workers: Sequence[_Worker[Record]]) -> None:
    """End processes: an idle one by closing its standard input, a busy one by a signal."""
    for worker in workers:
        if worker.done:
            _close(worker.process)
        else:
            worker.process.terminate()
    until = time.monotonic() + _GRACE_S
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
