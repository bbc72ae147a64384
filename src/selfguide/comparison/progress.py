"""What a person sees while cells run: a bar on a terminal, a line for each finished cell, and how long it may still take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import mean
from typing import TYPE_CHECKING

from selfguide.comparison.cells import Cell, CellRecord
from selfguide.progress import Reporter

if TYPE_CHECKING:
    from rich.progress import Progress


class CellProgress:
    """Counts cells and estimates the time left from those that are finished, of this run and of former ones."""

    def __init__(
        self, cells: Sequence[Cell], known: Sequence[CellRecord], sentences: int, side_by_side: int, reporter: Reporter
    ) -> None:
        self.left = list(cells)
        self.total = len(cells)
        self.known = [record for record in known if record.error is None]
        self.sentences, self.side_by_side, self.reporter = sentences, side_by_side, reporter
        self._progress: Progress | None = None

    @contextmanager
    def bar(self) -> Iterator[None]:
        """A bar over the cells, where there is a terminal."""
        if not self.reporter.live:
            yield
            return
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("cells"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(
            *columns, TextColumn("{task.fields[left]}"), console=self.reporter.console, transient=True
        )
        with self._progress:
            self._progress.add_task("cells", total=self.total, left=self._time_left())
            yield

    def done(self, record: CellRecord) -> None:
        """Tell of a cell that has ended."""
        self.left = [cell for cell in self.left if (cell.spec.label, cell.seed) != (record.label, record.seed)]
        if record.error is None:
            self.known.append(record)
        name = record.label if record.seed is None else f"{record.label}, seed {record.seed}"
        place = f"{self.total - len(self.left)} of {self.total}"
        left = self._time_left() if self.left else ""
        self.reporter.note(f"[{place}] {name}: {_outcome(record)}" + (f"; {left}" if left else ""))
        if self._progress is not None:
            self._progress.update(self._progress.task_ids[0], advance=1, left=left)

    def _time_left(self) -> str:
        seconds = seconds_left(self.left, self.known, self.sentences, self.side_by_side)
        return "" if seconds is None else f"about {duration(seconds)} left"


def seconds_left(cells: Sequence[Cell], known: Sequence[CellRecord], sentences: int, side_by_side: int) -> float | None:
    """A rough estimate: the time of finished cells of the same row, else steps × the time of a step, and the scoring.

    None while nothing is finished that could tell: a cell without training says nothing about one with it.
    """
    if not known:
        return None
    each: list[float] = []
    scoring = mean(record.seconds["evaluate"] for record in known)
    with_steps = [record for record in known if record.steps]
    per_step = mean(record.seconds["train"] / record.steps for record in with_steps) if with_steps else None
    for cell in cells:
        alike = [sum(record.seconds.values()) for record in known if record.label == cell.spec.label]
        steps = cell.steps(sentences)
        if alike:
            each.append(mean(alike))
        elif steps and per_step is None:
            return None
        else:
            each.append(steps * (per_step or 0.0) + scoring)
    return max(sum(each) / side_by_side, max(each, default=0.0))


def duration(seconds: float) -> str:
    """For people."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


def _outcome(record: CellRecord) -> str:
    if record.error is not None:
        return f"failed: {record.error}"
    values = [score.value for score in record.scores]
    took = duration(sum(record.seconds.values()))
    what = "mean of the tasks" if len(values) > 1 else record.scores[0].title
    return f"{what} {mean(values):.2f}, {took}" if values else took
