"""``selfguide index``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from selfguide.cli import options as shared
from selfguide.cli.text_options import ReadingOptions
from selfguide.data import Sentences
from selfguide.errors import UsageError
from selfguide.progress import Reporter


@shared.spread
def index(
    text: Annotated[
        list[str] | None,
        typer.Argument(help="Files, folders, globs, - for standard input, or hf:owner/name.", show_default=False),
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(
            "--encoder",
            "-e",
            help="Folder, hub name or mini (default); with --add the index's own.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder of the index.", show_default=False)
    ] = None,
    add: Annotated[
        bool, typer.Option("--add", help="Add the rows that the index does not have; only they are encoded.")
    ] = False,
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove rows: those with the sentences of TEXT, those of --where, or both.")
    ] = False,
    where: Annotated[
        str | None,
        typer.Option(help='With --remove: a condition on the columns, such as "year < 2010".', show_default=False),
    ] = None,
    columns: Annotated[
        str, typer.Option(help="Which other columns or fields to keep: names separated by commas, all, or none.")
    ] = "all",
    words: Annotated[
        str,
        typer.Option(help="Language whose words are reduced to stems (english, german …), or any: words as they are."),
    ] = "english",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the index at --output.")] = False,
    device: shared.Device = "auto",
    quiet: shared.Quiet = False,
    *,
    reading: ReadingOptions,
) -> None:
    """Make an index of a text, for `selfguide search` and `selfguide serve --index`.

    The other columns of a table or fields of JSON lines are kept with their types, for conditions. An
    interrupted command is continued by the same command. Needs the extra selfguide[search].

    **Examples**

        selfguide index notes.csv --encoder notes-encoder --output notes.index

        selfguide index more.csv --output notes.index --add

        selfguide index --output notes.index --remove --where "year < 2010"
    """
    if output is None:
        raise UsageError("Name the index with --output: a folder, such as notes.index.")
    if where is not None and not remove:
        raise UsageError("--where is for --remove; an index has all rows of its text.")
    if add + remove + overwrite > 1:
        raise UsageError("--add, --remove and --overwrite are three different things: give one of them.")
    if not text and not (remove and where is not None):
        raise UsageError("No text was given: pass a file, a folder, a glob, - for standard input, or hf:owner/name.")
    from selfguide.search import build
    from selfguide.search.store import check_words, read_record, require_lancedb

    check_words(words)
    if add or remove:
        read_record(output)
    else:
        build.check_new(output, overwrite)
    require_lancedb()
    reporter = Reporter(quiet=quiet)
    sentences = Sentences(text, reading.text_options(keep_duplicates=True, long_lines="cut")) if text else None
    for note in sentences.sources_read() if sentences is not None else []:
        reporter.note(note)
    if remove:
        gone = build.remove_from_index(output, sentences, where=where, reporter=reporter)
        reporter.note(f"{_rows(gone)} removed from {output}.")
        return
    assert sentences is not None
    if add:
        added = build.add_to_index(
            output, sentences, encoder=encoder, columns=columns, device=device, reporter=reporter
        )
        reporter.note(f"{_rows(added)} added to {output}.")
        return
    made = build.build_index(
        sentences,
        encoder or "mini",
        output=output,
        columns=columns,
        words=words,
        overwrite=overwrite,
        device=device,
        reporter=reporter,
    )
    kept = ", ".join(f"{column.name} ({column.kind})" for column in made.record.columns)
    reporter.note(f"{_rows(len(made))} in {output}" + (f"; columns: {kept}." if kept else "."))


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"
