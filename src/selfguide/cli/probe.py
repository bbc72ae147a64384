"""``selfguide probe``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from selfguide.cli import options as shared
from selfguide.errors import SelfguideError, UsageError

if TYPE_CHECKING:
    from selfguide.evaluation.probe import ProbeResult
    from selfguide.evaluation.rows import TaskData
    from selfguide.progress import Reporter


def probe(
    encoder: Annotated[
        str, typer.Argument(help="mini (inside the package), a folder, or a hub name.", show_default=False)
    ],
    task: Annotated[
        str | None,
        typer.Option(
            help="A task of graded pairs; empty: stsb where there is a data folder, else demo.", show_default=False
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Data folder; empty: what SELFGUIDE_DATA says.", show_default=False)
    ] = None,
    pairs: Annotated[
        Path | None,
        typer.Option(help="Pairs of your own instead of a task: score, sentence, sentence.", show_default=False),
    ] = None,
    poolings: Annotated[str, typer.Option(help="Some of cls, mean and max.")] = "cls,mean,max",
    plot: Annotated[Path | None, typer.Option(help="Draw a heat map: a .png or .svg file.", show_default=False)] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the scores to this JSON file.", show_default=False)
    ] = None,
    device: shared.Device = "auto",
    batch_size: Annotated[int, typer.Option(help="Sentences a forward pass.", min=1)] = 64,
    quiet: shared.Quiet = False,
) -> None:
    """Score every layer and pooling of an encoder on graded pairs: which of its vectors know most about meaning?

    **Examples**

        selfguide probe mini --plot layers.png

        selfguide probe bert-base-uncased --data data --task stsb --json layers.json

        selfguide probe notes-encoder --pairs pairs.tsv --poolings cls,mean
    """
    from selfguide.progress import Reporter

    reporter = Reporter(quiet=quiet)
    # What cannot be written is said before minutes are spent on computing it.
    _check_outputs(plot, json_file)
    rows = _data(task, data, pairs, reporter)

    from selfguide.evaluation.probe import check_poolings
    from selfguide.evaluation.probe import probe as run_probe
    from selfguide.models.encoders import load_encoder

    ways = check_poolings([word.strip() for word in poolings.split(",") if word.strip()])
    model = load_encoder(encoder, device=device)
    result = run_probe(model, rows, poolings=ways, batch_size=batch_size, reporter=reporter, name=encoder)
    _show(result)
    if json_file is not None:
        _write_json(result, json_file)
        reporter.note(f"Scores written to {json_file}")
    if plot is not None:
        from selfguide.evaluation.heatmap import draw

        draw(result, plot)
        reporter.note(f"Heat map written to {plot}")


def _check_outputs(plot: Path | None, json_file: Path | None) -> None:
    if plot is not None:
        from selfguide.evaluation.heatmap import check

        check(plot)
    if json_file is not None and (json_file.is_dir() or not json_file.parent.is_dir()):
        reason = "it is a folder" if json_file.is_dir() else f"there is no folder {json_file.parent}"
        raise UsageError(f"The scores cannot be written to {json_file}: {reason}.")


def _data(task: str | None, folder: Path | None, pairs: Path | None, reporter: Reporter) -> TaskData:
    from selfguide.evaluation.data import data_folder, find_data, own_pairs
    from selfguide.evaluation.tasks import task_named

    if pairs is not None:
        if task is not None or folder is not None:
            raise UsageError("--pairs brings its own data: leave --task and --data out.")
        return own_pairs(pairs)
    place = data_folder(folder)
    if task is None and place is None:
        reporter.note(
            "Task: demo, the pairs inside the package; a demonstration, not a benchmark (--data FOLDER for STS-B)."
        )
        return find_data(task_named("demo"), folder=None)
    if task is None:
        reporter.note("Task: stsb (--task chooses another).")
    return find_data(task_named(task or "stsb"), folder=place)


def _show(result: ProbeResult) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    console.print(f"{result.encoder} on {result.task}, {result.rows:,} pairs: Spearman × 100", markup=False)
    table = Table()
    heading, *rows = result.table()
    for name in heading:
        table.add_column(name, justify="right")
    best = result.best
    for layer, row in zip(result.layers, rows, strict=True):
        top = [layer == best.layer and pooling == best.pooling for pooling in result.poolings]
        cells = [f"[bold]{cell}[/bold]" if here else cell for cell, here in zip(row[1:], top, strict=True)]
        table.add_row(row[0], *cells)
    console.print(table)
    for note in result.notes:
        console.print(note, markup=False)
    if len(result.cells()) < len(result.layers) * len(result.poolings):
        console.print("–: all pairs have the same cosine there, so there is nothing to rank.")
    console.print(result.summary())


def _write_json(result: ProbeResult, path: Path) -> None:
    import json

    fresh = path.with_name(path.name + ".tmp")
    try:
        fresh.write_text(json.dumps(result.to_dict(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        fresh.replace(path)
    except OSError as error:
        raise SelfguideError(f"{path} cannot be written: {error.strerror or error}.") from None
