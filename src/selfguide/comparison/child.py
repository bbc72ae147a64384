"""``python -m selfguide.comparison.child JOB``: one job in a process of its own, the pickled job being in the file."""

from __future__ import annotations

import os
import pickle
import sys
import threading
from pathlib import Path
from typing import Protocol

from selfguide.errors import InterruptedRun, SelfguideError

STOPPED = 130


class _Record(Protocol):
    @property
    def error(self) -> str | None: ...


class _Job(Protocol):
    def run(self) -> _Record: ...


def main(file: Path) -> int:
    """Run the job of a file; the exit code says how it went."""
    # The process that started us holds our standard input open: when it goes, so do we.
    threading.Thread(target=_end_with_parent, daemon=True).start()
    job: _Job = pickle.loads(file.read_bytes())
    try:
        record = job.run()
    except (InterruptedRun, KeyboardInterrupt):
        return STOPPED
    except SelfguideError as error:  # the job's record could not be written
        print(error, file=sys.stderr)
        return 1
    return 0 if record.error is None else 1


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(STOPPED)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
