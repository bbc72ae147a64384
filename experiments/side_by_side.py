"""Jobs that leave a file each, done by several processes that take the next one in turn. What is there is not done again.

A script starts itself anew with ``--worker``; each worker goes through the same list of jobs and claims what nobody has. So
libraries are loaded once for many jobs, and a job that fails costs no other.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

WORKER = "--worker"
Job = Callable[[], str]
"""Does the work, writes the file, and returns a line to print."""


def start(module: str, work: Path, count: int, threads: int = 1) -> None:
    """Run so many workers and wait for them; they are told when they began."""
    work.mkdir(parents=True, exist_ok=True)
    for path in (*work.glob("*.claimed"), *work.glob("*.failed")):
        path.unlink()
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}
    words = [sys.executable, "-m", module, *sys.argv[1:], WORKER, str(time.time())]
    workers = [subprocess.Popen(words, env=environment) for _ in range(count)]
    for worker in workers:
        worker.wait()


def take_turns(jobs: Mapping[Path, Job], began: float, minutes: float = 0) -> None:
    """What a worker does: one job after another until none is left; after so many minutes none is begun."""
    for place, do in jobs.items():
        if place.is_file():
            continue
        if minutes and time.time() - began > 60 * minutes:
            return
        try:
            place.with_suffix(".claimed").touch(exist_ok=False)
        except FileExistsError:  # another process has it
            continue
        try:
            print(do(), flush=True)
        except Exception as error:
            place.with_suffix(".failed").write_text(f"{type(error).__name__}: {error}"[:400], encoding="utf-8")


def lacking(places: Iterable[Path]) -> dict[str, str]:
    """Of jobs that left no file: why, by the file's name. Printed too."""
    found = {}
    for place in places:
        if not place.is_file():
            said = place.with_suffix(".failed")
            found[place.stem] = said.read_text(encoding="utf-8") if said.is_file() else "there was no time for it"
            print(f"FAILED {place.stem}: {found[place.stem]}", flush=True)
    return found
