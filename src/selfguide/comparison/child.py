"""``python -m selfguide.comparison.child``: a process that runs jobs, one after another, for the one that started it.

Each line of its standard input names a file with a pickled job. When the job is done, a file beside it (``.done``) says so
and the next line is awaited: importing the libraries takes longer than many a job, so it is done once.
"""

from __future__ import annotations

import gc
import os
import pickle
import queue
import sys
import threading
from pathlib import Path
from typing import Protocol

from selfguide.errors import InterruptedRun, SelfguideError

STOPPED = 130
DONE = ".done"


class _Job(Protocol):
    def run(self) -> object: ...


def main() -> int:
    """Run the jobs that standard input names; returns only when the user stops one.

    Returns:
        The exit code.
    """
    files: queue.SimpleQueue[Path] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(files,), daemon=True).start()
    while True:
        try:
            run_job(files.get())
        except (InterruptedRun, KeyboardInterrupt):
            return STOPPED


def run_job(file: Path) -> None:
    """Run the job of a file, and mark it as done.

    The job writes a record of its outcome; an error that keeps it from writing one goes to standard error.

    Args:
        file: The pickled job.

    Raises:
        InterruptedRun: The user stopped the job, which is then not marked.
    """
    job: _Job = pickle.loads(file.read_bytes())
    try:
        job.run()
    except InterruptedRun:
        raise
    except SelfguideError as error:
        print(error, file=sys.stderr, flush=True)
    # Release the job's memory so that other processes on the same GPU can use it.
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    file.with_suffix(DONE).touch()


def _listen(files: queue.SimpleQueue[Path]) -> None:
    for line in sys.stdin:
        files.put(Path(line.rstrip("\n")))
    # The parent holds our standard input open; this process exits when the parent closes it or ends.
    os._exit(STOPPED)


if __name__ == "__main__":
    sys.exit(main())
