"""``selfguide compare``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from selfguide.cli import options as shared
from selfguide.cli.text_options import ReadingOptions
from selfguide.errors import UsageError
from selfguide.methods.registry import FIRST_COMPARISON

if TYPE_CHECKING:
    from selfguide.comparison.compare import Comparison
    from selfguide.progress import Reporter

_SCORING, _TEXT, _RUN = "Scoring", "Text", "Run"


def _option(help: str, panel: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, show_default=bool(more.pop("shown", False)), **more)


@shared.spread
def compare(
    text: Annotated[
        list[str] | None,
        typer.Argument(
            help="What `selfguide train` takes, or data:stsb (STS-B's sentences), data:TASK.", show_default=False
        ),
    ] = None,
    methods: Annotated[
        str, typer.Option("--methods", "-m", help="Specs with commas, such as mean,simcse:epochs=2,sg-opt+whitening.")
    ] = FIRST_COMPARISON,
    seeds: Annotated[str, typer.Option(help="How many seeds (1, 2, 3 …), or which, with commas.")] = "3",
    tasks: Annotated[str, typer.Option(help="Tasks and groups with commas, as for `selfguide eval`.")] = "",
    dev: Annotated[
        str | None,
        typer.Option(help="Graded pairs or a task (stsb-dev) to choose tuned checkpoints by.", show_default=False),
    ] = None,
    encoder: shared.Encoder = "mini",
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for cells and tables; what it holds is not run again.")
    ] = Path("comparison"),
    set_: Annotated[
        list[str] | None, _option("simcse.learning_rate=5e-5, or epochs=2 for all. May be repeated.", _RUN, "--set")
    ] = None,
    baseline: Annotated[str | None, _option("Row to test the others against; empty: the first.", _RUN)] = None,
    report: Annotated[bool, _option("Write report.html into OUTPUT.", _RUN, shown=True)] = True,
    jobs: Annotated[int | None, _option("Cells to run in parallel; empty: by cores, 1 on a GPU.", _RUN)] = None,
    again: Annotated[bool, _option("Run finished cells again.", _RUN, "--again")] = False,
    keep: Annotated[bool, _option("Keep the encoders, in OUTPUT/encoders.", _RUN, "--keep")] = False,
    from_: Annotated[
        Path | None, _option("Only make the tables again, from the cells of this folder.", _RUN, "--from")
    ] = None,
    device: Annotated[str, _option("cpu, cuda, mps, or auto.", _RUN, shown=True)] = "auto",
    quiet: shared.Quiet = False,
    pairs: Annotated[
        list[Path] | None, _option("A file of your own pairs to score on. May be repeated.", _SCORING)
    ] = None,
    data: Annotated[Path | None, _option("Data folder; empty: what SELFGUIDE_DATA says.", _SCORING)] = None,
    similarity: Annotated[str, _option("cosine, dot, euclidean or manhattan.", _SCORING, shown=True)] = "cosine",
    aggregation: Annotated[str, _option("A task's subsets: all, mean or wmean.", _SCORING, shown=True)] = "all",
    text_form: Annotated[
        str, _option("raw or senteval, as for `selfguide eval`.", _SCORING, "--text", shown=True)
    ] = "raw",
    bootstrap: Annotated[
        int, _option("Resamples for the intervals in the cells' files.", _SCORING, min=0, shown=True)
    ] = 1000,
    allow_partial: Annotated[bool, _option("Score files with rows missing.", _SCORING, "--allow-partial")] = False,
    offline: Annotated[bool, _option("Do not look for data on the hub.", _SCORING, "--offline")] = False,
    batch_size: Annotated[int, _option("Sentences per forward pass.", _SCORING, min=1, shown=True)] = 64,
    limit: Annotated[int | None, _option("Read at most this many sentences.", _TEXT)] = None,
    *,
    reading: ReadingOptions,
) -> None:
    """Train and score several methods, each with several seeds, and make the table.

    Each method and seed is a cell with a file of its own; a cell that is finished is not run again. Methods that draw
    nothing at random (poolings, whitening) are run once. `name=spec` gives a row another name.

    **Examples**

        selfguide compare notes.txt

        selfguide compare data:stsb --methods mean,whitening,simcse,sg-opt --tasks sts --dev stsb-dev --data data --jobs 2

        selfguide compare notes.txt --methods simcse,slow=simcse:learning_rate=1e-6,simcse+whitening --seeds 5

        selfguide compare --from comparison --baseline mean
    """
    from selfguide.progress import Reporter

    reporter = Reporter(quiet=quiet)
    if from_ is not None:
        _from_cells(from_, text, baseline, report, reporter)
        return
    if not text:
        raise UsageError(
            "There is no text to train on: name a file, a glob, hf:owner/name, data:stsb, or --from a finished comparison."
        )
    from selfguide.comparison.compare import compare as run
    from selfguide.comparison.specs import parse_specs
    from selfguide.comparison.texts import DatasetLocator, text_of_sources
    from selfguide.evaluation.protocol import Protocol

    protocol = Protocol(similarity, aggregation, text_form, bootstrap)  # type: ignore[arg-type]
    parse_specs(methods, set_ or (), device=device)  # a wrong name is reported before any text is read
    found = run(
        encoder,
        text_of_sources(
            text, DatasetLocator(data, protocol.text, allow_partial, not offline), reading.text_options(limit=limit)
        ),
        methods,
        seeds_named(seeds),
        tasks or ("" if pairs else "demo"),
        pairs=pairs or (),
        dev=dev,
        data=data,
        settings=set_ or (),
        baseline=baseline,
        output=output,
        report=report,
        jobs=jobs,
        again=again,
        keep=keep,
        protocol=protocol,
        allow_partial=allow_partial,
        download=not offline,
        device=device,
        batch_size=batch_size,
        command=shared.command_typed(sys.argv[1:]),
        quiet=quiet,
    )
    _show(found, output, report, reporter)
    if found.failed:
        raise typer.Exit(1)


def _from_cells(folder: Path, text: list[str] | None, baseline: str | None, report: bool, reporter: Reporter) -> None:
    from selfguide.comparison.compare import compare_from
    from selfguide.report.folders import write_report_or_warn

    if text:
        raise UsageError(f"--from makes tables of what is in {folder} and runs nothing: leave {' '.join(text)} out.")
    found, others = compare_from(folder, baseline)
    if others:
        names = ", ".join(dict.fromkeys(record.label for record in others))
        reporter.note(
            f"Left out, because made with another text, encoder, tasks or protocol than the newest cell: {names}."
        )
    found.write(folder)
    if report:
        write_report_or_warn(folder, reporter)
    _show(found, folder, report, reporter)


def _show(found: Comparison, output: Path, report: bool, reporter: Reporter) -> None:
    from rich.console import Console

    from selfguide.comparison.tables import notes, show

    show(found.summary, Console(highlight=False))
    for note in notes(found.summary):
        reporter.note(note)
    for row in found.summary.rows:
        for warning in row.warnings:
            reporter.note(f"warning of {row.label}: {warning}")
    page = f"; the page: {output / 'report.html'}" if report else ""
    reporter.note(f"Tables: {output / 'comparison.md'}, .tex, .csv and .json{page}")


def seeds_named(word: str) -> int | list[int]:
    """Parse ``--seeds``: ``3`` is a number of seeds, ``1,2,5`` are seeds.

    Args:
        word: The value of ``--seeds``.

    Returns:
        The number, or the list.

    Raises:
        UsageError: It is neither.
    """
    try:
        numbers = [int(piece) for piece in word.split(",") if piece.strip()]
    except ValueError:
        raise UsageError(f"--seeds takes a number of seeds, or seeds with commas, not {word!r}.") from None
    return numbers if "," in word or not numbers else numbers[0]
