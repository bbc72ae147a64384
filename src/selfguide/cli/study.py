"""``selfguide study``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from selfguide.cli import options as shared
from selfguide.cli.compare import seeds_named

if TYPE_CHECKING:
    from selfguide.progress import Reporter
    from selfguide.studies.files import StudyResult


def study(
    name: Annotated[str | None, typer.Argument(help="The study to run; --list shows them.", show_default=False)] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the studies.")] = False,
    full: Annotated[
        bool, typer.Option("--full", help="The papers' protocol, for a GPU and SELFGUIDE_DATA, not the demonstration.")
    ] = False,
    encoder: shared.Encoder = "mini",
    text: Annotated[str | None, typer.Option(help="Text of your own: a file, data:stsb.", show_default=False)] = None,
    limit: Annotated[
        int | None, typer.Option(help="Number of sentences to sample from it.", show_default=False)
    ] = None,
    tasks: Annotated[
        str | None, typer.Option(help="Tasks to score, as for `selfguide eval`.", show_default=False)
    ] = None,
    pairs: Annotated[
        list[Path] | None,
        typer.Option(help="A file of your own pairs to score on. May be repeated.", show_default=False),
    ] = None,
    dev: Annotated[
        str | None,
        typer.Option(
            help="Graded pairs or a task to choose checkpoints by; without it, on a text of your own, the last weights count.",
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="How many seeds (1, 2, 3 …), or which, with commas.", show_default=False)
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="A list of the study's (temperatures=0.01,0.1) or a setting of methods (max_steps=100)."
        ),
    ] = None,
    data: shared.Data = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder of the study; empty: study-NAME.", show_default=False),
    ] = None,
    report: Annotated[bool, typer.Option(help="Write report.html into the folder.")] = True,
    jobs: Annotated[
        int | None, typer.Option(help="Cells in parallel; empty: by cores, 1 on a GPU.", show_default=False)
    ] = None,
    device: shared.Device = "auto",
    again: Annotated[bool, typer.Option("--again", help="Run finished cells again.")] = False,
    quiet: shared.Quiet = False,
) -> None:
    """Answer one question about the methods, with tables, figures and a page; without a name, list the questions.

    The small setting is a demonstration of minutes on the package's own data; `--full` needs a GPU and the STS sets. What
    has finished in the folder is not run again, so the same command continues a study that was stopped.

    **Examples**

        selfguide study --list

        selfguide study temperature

        selfguide study temperature --text notes.txt --set temperatures=0.01,0.05 --set max_steps=200 --seeds 3

        selfguide study ablation --full --data data
    """
    if name is None or list_:
        _list()
        return
    from selfguide.studies import registry

    registry.info(name)  # a wrong name is refused before torch is imported
    from selfguide.progress import Reporter
    from selfguide.studies.run import study as run

    reporter = Reporter(quiet=quiet)
    folder = output or Path(f"study-{name}")
    found = run(
        name,
        encoder=encoder,
        full=full,
        text=text,
        limit=limit,
        tasks=tasks,
        pairs=pairs or (),
        dev=dev,
        seeds=None if seeds is None else seeds_named(seeds),
        data=data,
        settings=set_ or (),
        output=folder,
        report=report,
        jobs=jobs,
        again=again,
        device=device,
        command=shared.command_typed(sys.argv[1:]),
        quiet=quiet,
    )
    _show(found, folder, report, reporter)
    if found.failed:
        raise typer.Exit(1)


def _list() -> None:
    from rich.console import Console
    from rich.table import Table

    from selfguide.studies.registry import studies

    table = Table("study", "question", "after", box=None, padding=(0, 2, 0, 0))
    for item in studies():
        needs = f" Needs {item.needs}." if item.needs else ""
        table.add_row(item.name, item.question + needs, item.reference)
    Console(highlight=False).print(table)


def _show(found: StudyResult, folder: Path, report: bool, reporter: Reporter) -> None:
    from rich.console import Console

    from selfguide.studies.files import show

    show(found.results, Console(highlight=False))
    for note in (*found.results["notes"], *found.failed):
        reporter.note(note)
    for warning in found.results["warnings"]:
        reporter.note(f"warning of {warning}")
    page = f"; the page: {folder / 'report.html'}" if report else ""
    reporter.note(f"Numbers: {folder / 'study.json'}; tables: {folder / 'study.md'}{page}")
