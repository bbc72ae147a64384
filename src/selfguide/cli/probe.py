"""``selfguide probe``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from selfguide.cli import options as shared
from selfguide.data.kept_inputs import refuse_to_replace
from selfguide.errors import SelfguideError, UsageError
from selfguide.files import write_text

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
    data: shared.Data = None,
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
    batch_size: Annotated[int, typer.Option(help="Sentences per forward pass.", min=1)] = 64,
    quiet: shared.Quiet = False,
) -> None:
    """Score every layer and pooling of an encoder on graded pairs, to see which represents meaning best.

    **Examples**

        selfguide probe mini --plot layers.png

        selfguide probe bert-base-uncased --data data --task stsb --json layers.json

        selfguide probe notes-encoder --pairs pairs.tsv --poolings cls,mean
    """
    from selfguide.progress import Reporter

    reporter = Reporter(quiet=quiet)
    # A file that cannot be written is reported before minutes are spent on computing its content.
    _check_outputs(plot, json_file)
    if json_file is not None and pairs is not None:
        refuse_to_replace(json_file, [pairs], "--json")
    rows = _data(task, data, pairs, reporter)

    from selfguide.evaluation.probe import check_poolings
    from selfguide.evaluation.probe import probe as run_probe
    from selfguide.models.encoders import load_encoder

    chosen = check_poolings([word.strip() for word in poolings.split(",") if word.strip()])
    model = load_encoder(encoder, device=device)
    result = run_probe(model, rows, poolings=chosen, batch_size=batch_size, reporter=reporter, name=encoder)
    _show(result)
    if json_file is not None:
        _write_json(result, json_file)
        reporter.note(f"Scores written to {json_file}")
    if plot is not None:
        from selfguide.report.heatmap import write_heatmap

        write_heatmap(result, plot)
        reporter.note(f"Heat map written to {plot}")


def _check_outputs(plot: Path | None, json_file: Path | None) -> None:
    if plot is not None:
        from selfguide.report.heatmap import check_plot_path

        check_plot_path(plot)
    if json_file is not None and json_file.suffix.lower() != ".json":  # it is replaced without a question
        raise UsageError(f"--json {json_file} must end in .json.")
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
    found = data_folder(folder)
    if task is None and found is None:
        reporter.note(
            "Task: demo, the pairs inside the package; a demonstration, not a benchmark (--data FOLDER for STS-B)."
        )
        return find_data(task_named("demo"), folder=None)
    if task is None:
        reporter.note("Task: stsb (--task chooses another).")
    return find_data(task_named(task or "stsb"), folder=found)


def _show(result: ProbeResult) -> None:
    from rich.console import Console

    from selfguide.report.table import Cell, Heading, Table, print_table

    best = result.best
    (_, *poolings), *lines = result.table()
    rows = []
    for layer, (name, *scores) in zip(result.layers, lines, strict=True):
        cells = [
            Cell(score, value=best.score if (pooling, layer) == best[:2] else None)
            for pooling, score in zip(poolings, scores, strict=True)
        ]
        rows.append([Cell(name), *cells])
    notes = list(result.notes)
    if len(result.cells()) < len(result.layers) * len(result.poolings):
        notes.append("–: all pairs have the same cosine there, so there is nothing to rank.")
    headings = [Heading("layer"), *(Heading(pooling, better="high") for pooling in poolings)]
    console = Console(highlight=False)
    console.print(f"{result.encoder} on {result.task}, {result.rows:,} pairs: Spearman × 100", markup=False)
    print_table(Table(headings, rows, notes=(*notes, result.summary())), console)


def _write_json(result: ProbeResult, path: Path) -> None:
    import json

    try:
        write_text(path, json.dumps(result.to_dict(), indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        raise SelfguideError(f"{path} cannot be written: {error.strerror or error}.") from None
