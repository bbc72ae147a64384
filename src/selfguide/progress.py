"""What a person sees while something runs: notes, warnings and progress bars, all on standard error.

Bars appear only on a terminal; warnings always, and they are remembered so that they reach ``run.json`` and the model card.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress


class Reporter:
    """Notes, warnings and bars of one run."""

    def __init__(self, quiet: bool = False, main_process: bool = True) -> None:
        self.quiet = quiet
        self.main_process = main_process
        self.warnings: list[str] = []
        self._console: Console | None = None

    @property
    def console(self) -> Console:
        if self._console is None:
            from rich.console import Console

            self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        return self._console

    @property
    def live(self) -> bool:
        """Whether bars are shown: a terminal, not told to be quiet, and the process that speaks."""
        return self.main_process and not self.quiet and self.console.is_terminal

    def note(self, text: str) -> None:
        """Something worth knowing."""
        if self.main_process and not self.quiet:
            self.console.print(text, markup=False)

    def warn(self, text: str) -> None:
        """Something that may spoil the result; kept for the run's record."""
        self.warnings.append(text)
        if self.main_process:
            self.console.print(f"[yellow]warning:[/yellow] {_escape(text)}")

    @contextmanager
    def bar(self, description: str, total: int | None, unit: str) -> Iterator[Callable[[int, str], None]]:
        """A progress bar; yields ``advance(count, extra_text)``. Shows rate and time left where the total is known."""
        if not self.live:
            yield _ignore
            return
        progress = _progress(self.console, total is not None)
        with progress:
            task = progress.add_task(description, total=total, unit=unit, extra="")

            def advance(count: int, extra: str = "") -> None:
                progress.update(task, advance=count, extra=extra)

            yield advance


def _ignore(count: int, extra: str = "") -> None:
    """The bar of those who see none."""


def _progress(console: Console, bounded: bool) -> Progress:
    from rich.progress import (
        BarColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text(f"{speed:,.0f} {task.fields['unit']}/s" if speed else "", style="green")

    columns: list[ProgressColumn] = [TextColumn("{task.description}")]
    if bounded:
        columns += [BarColumn(), TextColumn("{task.percentage:>3.0f}%")]
    else:
        columns += [TextColumn("{task.completed:,}")]
    columns += [Rate(), TimeElapsedColumn()]
    if bounded:
        columns += [TextColumn("left"), TimeRemainingColumn()]
    columns += [TextColumn("{task.fields[extra]}")]
    return Progress(*columns, console=console, transient=True, speed_estimate_period=60)


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def is_main_process() -> bool:
    """Whether this process speaks and writes, as torchrun and accelerate number them."""
    import os

    return os.environ.get("RANK", "0") == "0"
