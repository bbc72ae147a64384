"""``selfguide search``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from selfguide.cli import options as shared
from selfguide.errors import UsageError
from selfguide.progress import Reporter, counted

if TYPE_CHECKING:
    from selfguide.search.index import Answer, Hit


def search(
    index: Annotated[Path, typer.Argument(help="Folder that `selfguide index` made.", show_default=False)],
    query: Annotated[
        list[str] | None, typer.Argument(help="What to look for; several are several queries.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option(help="Maximum number of hits.")] = 10,
    where: Annotated[
        str | None,
        typer.Option(
            help="A condition on the columns, such as \"year >= 2020 and source = 'forum'\".", show_default=False
        ),
    ] = None,
    mode: Annotated[
        str, typer.Option(help="hybrid: by meaning and by words; vector: by meaning; text: by words.")
    ] = "hybrid",
    exact: Annotated[
        bool, typer.Option("--exact", help="Compare with every row, even where a vector index would be faster.")
    ] = False,
    near_duplicates: Annotated[
        float | None,
        typer.Option(
            metavar="PERCENTILE",
            help="Instead of a query: all pairs of rows whose cosine is above this percentile of random pairs, such as 99.99.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="With --near-duplicates: all pairs as .csv or .jsonl.", show_default=False),
    ] = None,
    cleaned: Annotated[
        Path | None,
        typer.Option(
            help="With --near-duplicates: the sentences, one a line, with one of each group of near-duplicates.",
            show_default=False,
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is at --output and --cleaned.")] = False,
    seed: Annotated[
        int, typer.Option(help="With --near-duplicates: seed of the sample that defines the percentile.")
    ] = 1,
    json_lines: Annotated[bool, typer.Option("--json", help="One JSON object a hit, with all columns.")] = False,
    encoder: Annotated[
        str | None,
        typer.Option(
            "--encoder", "-e", help="The encoder of the index, if it is not where it was then.", show_default=False
        ),
    ] = None,
    device: shared.Device = "auto",
    quiet: shared.Quiet = False,
) -> None:
    """Search an index by meaning, by words, or by both.

    Each hit is printed with its cosine to the query, and its columns. Needs the extra selfguide[search].

    **Examples**

        selfguide search notes.index "a late train"

        selfguide search notes.index "a late train" --where "year >= 2020 and not resolved" --limit 3

        selfguide search notes.index "timetable" --mode text --json

        selfguide search notes.index --near-duplicates 99.99 --cleaned cleaned.txt
    """
    if near_duplicates is not None:
        if query or where is not None:
            raise UsageError("--near-duplicates compares all rows with one another: leave the query and --where out.")
        for path in (output, cleaned):
            if path is not None and path.exists() and not overwrite:
                raise UsageError(f"{path} exists already; choose another file, or say --overwrite to replace it.")
        _compare(index, near_duplicates, output, cleaned, limit, seed, Reporter(quiet=quiet))
        return
    if output is not None or cleaned is not None or overwrite:
        raise UsageError("--output, --cleaned and --overwrite are for --near-duplicates; hits go to standard output.")
    if not query:
        raise UsageError('Say what to look for: `selfguide search notes.index "a late train"`.')
    from selfguide.search.index import open_index

    opened = open_index(index, encoder=encoder, device=device)
    for number, words in enumerate(query):
        answer = opened.search(words, limit=limit, where=where, mode=mode, exact=exact)
        if json_lines:
            for hit in answer.hits:
                typer.echo(json.dumps({"query": words, **vars(hit)}, ensure_ascii=False))
            continue
        if len(query) > 1:
            typer.echo(("\n" if number else "") + words)
        _show(answer)


def _compare(
    index: Path,
    percentile: float,
    output: Path | None,
    cleaned: Path | None,
    limit: int,
    seed: int,
    reporter: Reporter,
) -> None:
    from selfguide.search.duplicates import near_duplicates
    from selfguide.search.index import open_index

    found = near_duplicates(open_index(index), percentile, seed=seed, reporter=reporter)
    reporter.note(
        f"Percentile {percentile:g} of {found.sampled:,} random pairs is a cosine of {found.threshold:.3f}; about "
        f"{counted(found.expected, 'pair', 'is', 'are')} above."
    )
    done = found.write(output, cleaned, closest=limit)
    for pair in done.closest:
        typer.echo(f"{pair.cosine:6.3f}  {pair.first_text}\n        {pair.second_text}")
    written = f" in {output}" if output else ""
    near = "row is near to one before it" if done.dropped == 1 else "rows are near to one before them"
    reporter.note(f"{counted(done.pairs, 'pair')}{written}; {done.dropped:,} {near}.")
    if cleaned is not None:
        reporter.note(f"{counted(len(found.index) - done.dropped, 'sentence')} in {cleaned}")


def _show(answer: Answer) -> None:
    for hit in answer.hits:
        number = f"{hit.score:6.2f}" if hit.cosine is None else f"{hit.cosine:6.3f}"
        typer.echo(f"{number}  {_described(hit)}")
    if not answer.hits:
        Reporter().note("Nothing was found.")


def _described(hit: Hit) -> str:
    columns = "  ".join(f"{name}={value}" for name, value in hit.columns.items() if value is not None)
    return f"{hit.text}  [{columns}]" if columns else hit.text
