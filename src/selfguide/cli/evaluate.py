"""``selfguide eval``."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from selfguide.cli import options as shared
from selfguide.errors import UsageError

if TYPE_CHECKING:
    from selfguide.evaluation.embedder import Embedder
    from selfguide.evaluation.protocol import Protocol
    from selfguide.evaluation.results import Evaluation, TaskScore
    from selfguide.evaluation.rows import TaskData
    from selfguide.progress import Reporter


def evaluate(
    encoders: Annotated[
        list[str],
        typer.Argument(
            help="mini, folders, hub names, or package.module:function of a Python function.", show_default=False
        ),
    ],
    tasks: Annotated[
        str,
        typer.Option(
            help="Tasks and groups: sts, transfer, retrieval, multilingual, stsb, banking77, demo … with commas."
        ),
    ] = "",
    pairs: Annotated[
        list[Path] | None,
        typer.Option(help="A file of your own: grade, sentence, sentence. May be given again.", show_default=False),
    ] = None,
    data: shared.Data = None,
    pooling: Annotated[
        str, typer.Option(help="cls, mean, max, last2, first-last, or several with commas; empty: the encoder's own.")
    ] = "",
    layer: Annotated[
        int | None, typer.Option(help="Take this layer (0: embedding layer, -1: last).", show_default=False)
    ] = None,
    similarity: Annotated[str, typer.Option(help="cosine, dot, euclidean or manhattan.")] = "cosine",
    aggregation: Annotated[
        str, typer.Option(help="A task's subsets: all (as one list, as in the papers), mean or wmean.")
    ] = "all",
    text: Annotated[str, typer.Option(help="raw: text as released; senteval: as SentEval tokenises it.")] = "raw",
    bootstrap: Annotated[int, typer.Option(help="Resamples for the 95 % intervals; 0: none.", min=0)] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of the resamples and the folds.", min=0)] = 1,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for scores.json and scores.csv, read before it is written.")
    ] = Path("selfguide-scores"),
    again: Annotated[bool, typer.Option("--again", help="Repeat tasks that have a score there already.")] = False,
    significance: Annotated[
        bool, typer.Option("--significance", help="Test each encoder against the first, pair by pair.")
    ] = False,
    allow_partial: Annotated[
        bool, typer.Option("--allow-partial", help="Score files with rows missing, and say so.")
    ] = False,
    offline: Annotated[bool, typer.Option("--offline", help="Do not look for data on the Hugging Face hub.")] = False,
    mteb: Annotated[
        str, typer.Option(help="Tasks of mteb, with commas, run through mteb itself (extra: selfguide[mteb]).")
    ] = "",
    device: shared.Device = "auto",
    batch_size: Annotated[int, typer.Option(help="Sentences per forward pass.", min=1)] = 64,
    quiet: shared.Quiet = False,
) -> None:
    """Score encoders on STS, transfer, retrieval and multilingual tasks, or on pairs and retrieval sets of your own.

    Tasks that have a score in the output folder already, for the same weights, rows and protocol, are not run again.

    **Examples**

        selfguide eval mini --pooling cls,mean

        selfguide eval mini notes-encoder --tasks sts,transfer --data data --significance

        selfguide eval notes-encoder --pairs mydomain.tsv

        selfguide eval notes-encoder mini --tasks retrieval --data beir

        selfguide eval my_models:universal_encoder --tasks stsb --data data
    """
    from selfguide.evaluation.evaluate import load_tasks, score_all, warn_of_languages
    from selfguide.evaluation.protocol import Protocol
    from selfguide.progress import Reporter

    reporter = Reporter(quiet=quiet)
    protocol = Protocol(similarity, aggregation, text, bootstrap, seed=seed)  # type: ignore[arg-type]
    chosen = tasks or ("" if pairs or mteb else "demo")
    if not (tasks or pairs or mteb):
        reporter.note(
            "No task was named, so the embedded demo pairs are scored; --tasks sts scores the papers' seven sets."
        )
    rows = []
    if chosen or pairs:  # before any encoder is loaded, so that missing data is reported at once
        rows = load_tasks(
            chosen,
            pairs or (),
            data,
            protocol,
            allow_partial=allow_partial,
            download=not offline,
            reporter=reporter,
        )
    embedders = _embedders(encoders, pooling, layer, device, batch_size, reporter)
    if rows:
        for item in embedders:
            warn_of_languages(item.tokenizer, item.info.name, rows, reporter)
        command = shared.command_typed(sys.argv[1:])
        evaluations = [
            score_all(item, rows, protocol, reporter, output=output, again=again, command=command) for item in embedders
        ]
        _show(evaluations)
        if significance:
            _show_significance(embedders, rows, protocol)
        for note in dict.fromkeys(note for evaluation in evaluations for note in evaluation.notes()):
            reporter.note(f"note: {note}")
        reporter.note(f"Scores with protocol, hashes and versions: {output / 'scores.json'} and scores.csv")
    if mteb:
        _through_mteb(encoders, mteb, output, batch_size, reporter)


def _embedders(
    encoders: list[str], pooling: str, layer: int | None, device: str, batch_size: int, reporter: Reporter
) -> list[Embedder]:
    from selfguide.evaluation.embedder import embedder, pooled_embedders

    poolings = [word.strip() for word in pooling.split(",") if word.strip()]
    made: list[Embedder] = []
    for encoder in encoders:
        if len(poolings) > 1:  # one pass over the text serves them all
            if layer is not None:
                raise UsageError("Several poolings at once use the last layers; with --layer, name a single pooling.")
            made += pooled_embedders(encoder, poolings, device=device, batch_size=batch_size, reporter=reporter)
            continue
        way = poolings[0] if len(poolings) == 1 else None
        made.append(
            embedder(encoder, pooling=way, layer=layer, device=device, batch_size=batch_size, reporter=reporter)
        )
    names = [item.info.name for item in made]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"Two encoders would both be called {name!r} in the table; rename one of the folders.")
    return made


def _show(evaluations: list[Evaluation]) -> None:
    """Print a line for each task of one encoder, or a line for each of several encoders with the best scores in bold.

    Both name the metric and, where the terminal has room, the 95 % interval.
    """
    from rich.console import Console

    from selfguide.evaluation.results import table
    from selfguide.report.table import Cell, Heading, Table, print_table

    if len(evaluations) == 1:
        headings = [Heading(name) for name in ("task", "metric", "score", "95 % interval", "rows")]
        lines = []
        for score in evaluations[0].scores:
            interval = f"{score.interval[0]:.2f} – {score.interval[1]:.2f}" if score.interval else ""
            lines.append((score.title, score.metric, _number(score.value), interval, f"{score.data.rows:,}"))
        for group, average in evaluations[0].averages().items():
            lines.append((f"{group} average", "", _number(average), "", ""))
        rows = [[Cell(text) for text in line] for line in lines]
        shown = Table(headings, rows, caption=evaluations[0].encoder.name)
    else:
        titles, values = table(evaluations)
        scores = {(item.encoder.name, score.title): score for item in evaluations for score in item.scores}
        metrics = {title: score.metric for (_, title), score in scores.items()}
        headings = [
            Heading("encoder"),
            *(
                Heading(
                    f"{title} ({metrics[title]})" if title in metrics else title, better="high", optional_notes=True
                )
                for title in titles
            ),
        ]
        rows = []
        for evaluation, row in zip(evaluations, values, strict=True):
            name = evaluation.encoder.name
            found = [scores.get((name, title)) for title in titles]
            cells = [
                Cell(_number(value), note=_interval(score), value=_finite(value))
                for value, score in zip(row, found, strict=True)
            ]
            rows.append([Cell(name), *cells])
        shown = Table(headings, rows)
    print_table(shown, Console(highlight=False))


def _show_significance(embedders: list[Embedder], rows: list[TaskData], protocol: Protocol) -> None:
    from rich.console import Console

    from selfguide.evaluation.evaluate import paired
    from selfguide.report.table import Cell, Heading, Table, print_table

    if len(embedders) < 2:
        raise UsageError("--significance compares encoders with the first one: name two or more, or several poolings.")
    first = embedders[0]
    titles = {item.task.name: item.task.title for item in rows}
    headings = [Heading(name) for name in ("task", "difference", "95 % interval", "p")]
    for other in embedders[1:]:
        lines = []
        for task, found in paired(first, other, rows, protocol).items():
            low, high = found.interval or (math.nan, math.nan)
            numbers = (f"{found.difference:+.2f}", f"{low:+.2f} – {high:+.2f}", f"{found.p_value:.4f}")
            lines.append([Cell(text) for text in (titles[task], *numbers)])
        caption = f"{other.info.name} minus {first.info.name}"
        print_table(Table(headings, lines, caption=caption), Console(highlight=False))


def _through_mteb(encoders: list[str], names: str, output: Path, batch_size: int, reporter: Reporter) -> None:
    from rich.console import Console

    from selfguide.evaluation.mteb_bridge import evaluate_mteb
    from selfguide.report.table import Cell, Heading, Table, print_table

    rows = []
    for encoder in encoders:
        for row in evaluate_mteb(encoder, names, output=output / "mteb", batch_size=batch_size, reporter=reporter):
            rows.append([Cell(text) for text in (Path(encoder).name, row.task, row.metric, _number(row.main_score))])
            for note in row.notes:
                reporter.note(f"note: {row.task}: {note}")
    headings = [Heading(name) for name in ("encoder", "mteb task", "metric", "score")]
    print_table(Table(headings, rows), Console(highlight=False))


def _interval(score: TaskScore | None) -> str:
    return f"({score.interval[0]:.1f}–{score.interval[1]:.1f})" if score is not None and score.interval else ""


def _finite(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value


def _number(value: float | None) -> str:
    return "" if value is None else "none" if math.isnan(value) else f"{value:.2f}"
