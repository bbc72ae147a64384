"""``python -m selfguide.comparison.child``: a process that does jobs, one after another, for the one that started it.

Each line of its standard input names a file with a pickled job. When the job is done, a file beside it (``.done``) says so
and the next line is waited for: loading the libraries takes longer than many a job, so it is done once.
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
    """Do the jobs that are named; returns only when the user stops one."""
    named: queue.SimpleQueue[Path] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(named,), daemon=True).start()
    while True:
        file = named.get()
        try:
            do(file)
        except (InterruptedRun, KeyboardInterrupt):
            return STOPPED


def do(file: Path) -> None:
    """Run the job of a file. Its record says how it went; what keeps it from writing one goes to standard error."""
    job: _Job = pickle.loads(file.read_bytes())
    try:
        job.run()
    except SelfguideError as error:
        if isinstance(error, InterruptedRun):
            raise
        print(error, file=sys.stderr, flush=True)
    _free_memory()
    file.with_suffix(DONE).touch()


def _free_memory() -> None:
    """What the job held goes back, on a GPU too, where other processes wait for it."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def _listen(named: queue.SimpleQueue[Path]) -> None:
    for line in sys.stdin:
        named.put(Path(line.rstrip("\n")))
    # The process that started us holds our standard input open: when it goes, or needs us no more, we end.
    os._exit(STOPPED)


if __name__ == "__main__":
    sys.exit(main())
