"""Progress of a comparison: a bar on a terminal, a line for each finished cell, and an estimate of the time left."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import mean

from selfguide.comparison.cells import Cell, CellRecord
from selfguide.progress import Reporter


class CellProgress:
    """Counts cells and estimates the time left from those that are finished, of this run and of former ones (``known``)."""

    def __init__(
        self, cells: Sequence[Cell], known: Sequence[CellRecord], sentences: int, processes: int, reporter: Reporter
    ) -> None:
        self.left = list(cells)
        self.total = len(cells)
        self.known = [record for record in known if record.error is None]
        self.sentences, self.processes, self.reporter = sentences, processes, reporter
        self._advance: Callable[[int, str], None] = lambda count, extra: None

    @contextmanager
    def bar(self) -> Iterator[None]:
        """Show a bar over the cells, where there is a terminal.

        Yields:
            Nothing; the bar is closed when the block ends.
        """
        with self.reporter.bar("cells", self.total, "cells") as self._advance:
            yield

    def done(self, record: CellRecord) -> None:
        """Report a cell that has ended."""
        self.left = [cell for cell in self.left if (cell.spec.label, cell.seed) != (record.label, record.seed)]
        if record.error is None:
            self.known.append(record)
        seconds = seconds_left(self.left, self.known, self.sentences, self.processes) if self.left else None
        left = "" if seconds is None else f"; about {duration(seconds)} left"
        self.reporter.note(f"[{self.total - len(self.left)} of {self.total}] {record.name}: {_outcome(record)}{left}")
        self._advance(1, "")


def seconds_left(cells: Sequence[Cell], known: Sequence[CellRecord], sentences: int, processes: int) -> float | None:
    """Estimate the time of cells from finished ones: the time of the same row, else steps × the time of a step + scoring.

    Args:
        cells: The cells that are left.
        known: Records of finished cells.
        sentences: Sentences of the text.
        processes: How many cells run at a time.

    Returns:
        Seconds, or None while no finished cell allows an estimate: a cell without training is no guide to one with it.
    """
    if not known:
        return None
    each: list[float] = []
    scoring = mean(record.seconds["evaluate"] for record in known)
    with_steps = [record for record in known if record.steps]
    per_step = mean(record.seconds["train"] / record.steps for record in with_steps) if with_steps else None
    for cell in cells:
        same_row = [sum(record.seconds.values()) for record in known if record.label == cell.spec.label]
        steps = cell.steps(sentences)
        if same_row:
            each.append(mean(same_row))
        elif steps and per_step is None:
            return None
        else:
            each.append(steps * (per_step or 0.0) + scoring)
    return max(sum(each) / processes, max(each, default=0.0))


def duration(seconds: float) -> str:
    """Return a duration in a readable unit."""
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
