"""All cells, one after the other or side by side in processes of their own.

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
from selfguide.comparison.worker import Job, run_cell
from selfguide.errors import UsageError
from selfguide.reporting import Reporter

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")
_GRACE = 10.0  # seconds that a stopped process has to clean up after itself
Record = TypeVar("Record")
_Made = TypeVar("_Made", covariant=True)


class Apart(Protocol[_Made]):
    """A job that can run in a process of its own (:mod:`selfguide.comparison.child`) and leaves its record in a file."""

    @property
    def stem(self) -> str: ...
    @property
    def work(self) -> Path: ...
    def drop(self) -> None:
        """Take away what a former run left."""

    def run(self) -> _Made:
        """Do it in this process, and keep the record."""

    def find(self) -> _Made | None:
        """What the process left."""

    def lost(self, reason: str) -> _Made:
        """The record of a job whose process left nothing, kept as one that failed."""


def cores() -> int:
    """The processor's cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def processes(asked: int | None, device: str, cells: int) -> int:
    """How many cells run side by side: what was asked for, else one on a GPU, else half as many as there are cores."""
    if asked is not None and asked < 1:
        raise UsageError(f"--jobs must be at least 1, got {asked}.")
    if asked is None:
        import torch

        accelerated = device != "cpu" and (torch.cuda.is_available() or torch.backends.mps.is_available())
        asked = 1 if accelerated or cores() <= 2 else cores() // 2
    # More processes than cores would only wait for each other.
    return max(1, min(asked, cores(), cells))


def finished(jobs: Sequence[Job], again: bool, reporter: Reporter) -> tuple[list[CellRecord], list[Job]]:
    """The cells that need not be run, and the others; where there is a result that will not do, say why."""
    done: list[CellRecord] = []
    due: list[tuple[int, Job]] = []
    reasons: Counter[str] = Counter()
    places: Counter[str] = Counter()
    for job in jobs:
        former = CellFolder(job.output).find(job.cell)
        reason = former.differs(job.cell, job.setting) if former else None
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


def run_jobs(jobs: Sequence[Job], side_by_side: int) -> Generator[CellRecord, None, None]:
    """Each cell's record as it is done."""
    if side_by_side == 1:
        for job in jobs:
            yield run_cell(job)
        return
    yield from in_processes(jobs, side_by_side)


@dataclass(frozen=True)
class _Running(Generic[Record]):
    job: Apart[Record]
    process: subprocess.Popen[bytes]
    log: Path


def in_processes(jobs: Sequence[Apart[Record]], side_by_side: int) -> Iterator[Record]:
    """Each job's record as it is done, every job in a process of its own."""
    waiting, running = list(jobs), list[_Running[Record]]()
    try:
        while waiting or running:
            while waiting and len(running) < side_by_side:
                running.append(_started(waiting.pop(0), cores() // side_by_side))
            ended = [each for each in running if each.process.poll() is not None]
            for each in ended:
                running.remove(each)
                yield _record(each)
            if not ended:
                time.sleep(0.05)
    finally:
        _stop(running)


def _started(job: Apart[Record], threads: int) -> _Running[Record]:
    job.drop()  # so that what is there afterwards is this process's own
    file, log = (job.work / f"{job.stem}.{kind}" for kind in ("job", "log"))
    file.write_bytes(pickle.dumps(job))
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "selfguide.comparison.child", str(file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=os.environ | _thread_limits(threads),
            start_new_session=True,  # Ctrl-C is for us; we tell them
        )
    return _Running(job, process, log)


def _thread_limits(threads: int) -> dict[str, str]:
    """The job's share for every library. A user who holds one of them back means them all, so the smallest number counts."""
    given = [os.environ.get(name, "") for name in _THREADS]
    fewest = min([threads, *(int(number) for number in given if number.isdecimal() and int(number))])
    return dict.fromkeys(_THREADS, str(fewest))


def _record(ended: _Running[Record]) -> Record:
    """What the process left: its file, or nothing, and then the log may tell."""
    _close(ended.process)
    found = ended.job.find()
    if found is not None:
        return found
    code = ended.process.returncode
    told = " ".join(ended.log.read_text(encoding="utf-8", errors="replace").split())[-300:]
    if code < 0:
        reason = f"its process was ended by signal {-code}" + (": is there too little memory?" if code == -9 else "")
    else:
        reason = f"its process ended with code {code}" + (f": {told}" if told else "")
    return ended.job.lost(reason)


def _stop(running: Sequence[_Running[Record]]) -> None:
    for each in running:
        each.process.terminate()
    until = time.monotonic() + _GRACE
    for each in running:
        try:
            each.process.wait(max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            each.process.kill()
            each.process.wait()
        _close(each.process)


def _close(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
