"""Notes, warnings and progress bars of a run, all on standard error.

Bars appear only on a terminal; elsewhere a line now and then says how far it is. Warnings always appear, and are kept for
``run.json`` and the model card.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Protocol, runtime_checkable

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text


def counted(count: int, name: str, verb: str = "", verbs: str = "") -> str:
    """Return a number with the name of what is counted: "1 cell", "1,200 sentences"; with verbs "1 row is", "3 rows are"."""
    words = (name, verb) if count == 1 else (f"{name}s", verbs or verb)
    return f"{count:,} {' '.join(words).rstrip()}"


@runtime_checkable
class Measured(Protocol):
    """A stream that knows how much of it has been read."""

    def share_read(self) -> float | None:
        """Return the share, from 0 to 1; ``None`` where it is not known."""


def share_of(stream: object) -> Callable[[], float | None] | None:
    """Return the function that gives the share of a stream that has been read; ``None`` where it is not known."""
    return stream.share_read if isinstance(stream, Measured) else None


class Reporter:
    """Shows and records what happens in a run.

    Args:
        quiet: Whether to leave out notes and bars.
        main_process: Whether this process reports; of a distributed run only one should.
    """

    def __init__(self, quiet: bool = False, main_process: bool = True) -> None:
        self.quiet = quiet
        self.main_process = main_process
        self.warnings: list[str] = []

    @cached_property
    def console(self) -> Console:
        """The console on standard error."""
        return Console(stderr=True, highlight=False, soft_wrap=True)

    @property
    def live(self) -> bool:
        """Whether bars are shown: on a terminal, unless quiet, in the main process."""
        return self.main_process and not self.quiet and self.console.is_terminal

    def note(self, text: str) -> None:
        """Show something worth knowing."""
        if self.main_process and not self.quiet:
            self.console.print(text, markup=False)

    def warn(self, text: str) -> None:
        """Show and record something that may spoil the result."""
        self.warnings.append(text)
        if self.main_process:
            self.console.print(f"[yellow]warning:[/yellow] {escape(text)}")

    @contextmanager
    def bar(
        self, description: str, total: int | None, unit: str, share: Callable[[], float | None] | None = None
    ) -> Iterator[Callable[[int, str], None]]:
        """Show a progress bar while the block runs; not on a terminal, a line every half minute.

        Args:
            description: What is in progress.
            total: Number of units, if known; then the bar shows the time left.
            unit: What is counted, in the plural.
            share: Tells how much is done, from 0 to 1, where the total is not known.

        Yields:
            A function ``advance(count, extra_text)``.
        """
        if not self.live:
            silent = self.quiet or not self.main_process
            yield _ignore if silent else _ProgressLines(self, description, total, unit, share).advance
            return
        rest = _Rest(total, share)
        with _progress(self.console, total is not None) as progress:
            task = progress.add_task(description, total=total, unit=unit, extra="")

            def advance(count: int, extra: str = "") -> None:
                left = rest.after(count) if total is None else None
                progress.update(task, advance=count, extra=extra if left is None else f"about {left} left {extra}")

            yield advance


def _ignore(count: int, extra: str = "") -> None:
    """Stand in for ``advance`` where no bar is shown."""


LINE_SECONDS = 30.0
"""Seconds between two lines of progress where there is no terminal."""


class _Rest:
    """How long the rest will take, by what has been done since the beginning."""

    def __init__(self, total: int | None, share: Callable[[], float | None] | None) -> None:
        self.began = time.monotonic()
        self.done = 0
        self._total, self._share = total, share
        self._first = (share() if share is not None else None) or 0.0  # a resumed text is not at its beginning

    def after(self, count: int) -> str | None:
        """Count, and return the time that is left; ``None`` where it is not known, or nothing is left."""
        self.done += count
        passed = time.monotonic() - self.began
        if self._total is not None:
            share: float | None = self.done / self._total if self._total else None
        else:
            share = self._share() if self._share is not None else None
        if share is None or not self._first < share < 1 or not passed > 0:
            return None
        return _duration(passed * (1 - share) / (share - self._first))


class _ProgressLines:
    """Progress for a log: how much is done, how fast, and how long the rest will take."""

    def __init__(
        self,
        reporter: Reporter,
        description: str,
        total: int | None,
        unit: str,
        share: Callable[[], float | None] | None,
    ) -> None:
        self._reporter, self._description, self._total, self._unit = reporter, description, total, unit
        self._rest = _Rest(total, share)
        self._told = self._rest.began

    def advance(self, count: int, extra: str = "") -> None:
        """Count, and write a line if the last one is long ago."""
        rest = self._rest.after(count)
        now = time.monotonic()
        if now - self._told < LINE_SECONDS:
            return
        self._told = now
        rate = self._rest.done / (now - self._rest.began)
        of = f" of {self._total:,}" if self._total is not None else ""
        left = f", about {rest} left" if rest is not None else ""
        speed = f"{rate:,.0f} {self._unit}/s" if rate >= 1 else f"{60 * rate:,.1f} {self._unit}/min"
        more = f" ({extra})" if extra else ""
        self._reporter.note(f"{self._description}: {self._rest.done:,}{of} {self._unit}, {speed}{left}{more}")


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f} {task.fields['unit']}/s" if speed else "", style="green")


def _progress(console: Console, bounded: bool) -> Progress:
    done: list[str | ProgressColumn] = [BarColumn(), "{task.percentage:>3.0f}%"] if bounded else ["{task.completed:,}"]
    left: list[str | ProgressColumn] = ["left", TimeRemainingColumn()] if bounded else []
    columns = ["{task.description}", *done, _Rate(), TimeElapsedColumn(), *left, "{task.fields[extra]}"]
    return Progress(*columns, console=console, transient=True, speed_estimate_period=60)


def is_main_process() -> bool:
    """Return whether this process reports and writes, as torchrun and accelerate number them."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def quiet_loggers(*names: str) -> Iterator[None]:
    """Let libraries log errors only while the block runs.

    Args:
        *names: The names of their loggers.

    Yields:
        Nothing; the levels are restored when the block ends.
    """
    before = {name: logging.getLogger(name).level for name in names}
    try:
        for name in names:
            logging.getLogger(name).setLevel(logging.ERROR)
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)


@contextmanager
def quiet_datasets() -> Iterator[None]:
    """Show no progress bar of the package datasets while the block runs.

    Yields:
        Nothing.
    """
    from datasets.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    shown = not are_progress_bars_disabled()
    disable_progress_bars()
    try:
        yield
    finally:
        if shown:
            enable_progress_bars()
