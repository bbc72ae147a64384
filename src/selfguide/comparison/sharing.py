"""Sharing a comparison's cells with other processes that work on the same folder.

A process claims a cell before it runs it, with a lock that ends with the process. A cell that another process is running is
left for later: its record is read once it is finished, and the cell is free again if that process died.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from selfguide.comparison.cells import CellFolder, CellRecord
from selfguide.comparison.worker import CellJob
from selfguide.files import remove_leftovers
from selfguide.locks import Claim, claim, holders
from selfguide.progress import Reporter, counted

_POLL_S = 0.3


class SharedCells:
    """The cells that are due, of which each process takes one at a time."""

    def __init__(self, due: Sequence[CellJob], reporter: Reporter) -> None:
        self._left = list(due)
        self._before = {job.stem: _state(job) for job in due}
        self._claims: dict[str, Claim] = {}
        self._elsewhere: list[CellRecord] = []
        self._reporter = reporter
        self._noted = False

    @property
    def left(self) -> int:
        """The number of cells not known to be finished."""
        return len(self._left)

    @contextmanager
    def claims(self) -> Iterator[None]:
        """Yield, and release all remaining claims when the block ends, however it ends."""
        try:
            yield
        finally:
            for mine in self._claims.values():
                mine.release()

    def available(self) -> Iterator[CellJob]:
        """Claim cells one after the other.

        Yields:
            The cells that no other process is running or has finished.
        """
        for job in list(self._left):
            mine = claim(_lock(job))
            if mine is None:
                continue
            self._left.remove(job)
            record = self._made_meanwhile(job)
            if record is not None:
                mine.release()
                self._elsewhere.append(record)
                continue
            remove_leftovers(CellFolder(job.output).path(job.cell))
            self._claims[job.stem] = mine
            yield job

    def finished(self, record: CellRecord) -> None:
        """Give up the claim to a cell that this process has finished."""
        for stem, mine in list(self._claims.items()):
            if stem == record.stem:
                mine.release()
                del self._claims[stem]

    def finished_elsewhere(self) -> list[CellRecord]:
        """Return the records that other processes have made since the last call."""
        found, self._elsewhere = self._elsewhere, []
        return found

    def wait(self) -> None:
        """Wait a moment for the cells that other processes are running."""
        if not self._noted:
            others = {holder.describe() for job in self._left for holder in holders(_lock(job))}
            if others:
                self._reporter.note(
                    f"Waiting for {counted(len(self._left), 'cell')}: {' and '.join(sorted(others))} at work."
                )
            self._noted = True
        time.sleep(_POLL_S)

    def _made_meanwhile(self, job: CellJob) -> CellRecord | None:
        """Return the record (also of a failure) that another process has written since this one looked."""
        if _state(job) == self._before[job.stem]:
            return None
        record = job.find_record()
        return record if record is not None and record.fits(job.cell, job.setting) else None


def _lock(job: CellJob) -> Path:
    folder = CellFolder(job.output).folder
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f".{job.stem}.lock"


def _state(job: CellJob) -> tuple[int, int] | None:
    try:
        status = CellFolder(job.output).path(job.cell).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino
