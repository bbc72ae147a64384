"""``selfguide map``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from selfguide.cli import options as shared
from selfguide.cli.text_options import ReadingOptions
from selfguide.data import Sentences
from selfguide.data.kept_inputs import refuse_to_replace
from selfguide.errors import SelfguideError, UsageError
from selfguide.progress import Reporter


@shared.spread
def map_command(
    text: Annotated[
        list[str],
        typer.Argument(help="Files, folders, globs, - for standard input, or hf:owner/name.", show_default=False),
    ],
    encoder: shared.Encoder = "mini",
    before: Annotated[
        str | None,
        typer.Option(
            help="Another encoder; a switch on the page goes from its map to that of --encoder.", show_default=False
        ),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The page; a .csv is written beside it.")] = Path(
        "map.html"
    ),
    title: Annotated[
        str | None, typer.Option(help="Title of the page; default: the text's name.", show_default=False)
    ] = None,
    limit: Annotated[
        int, typer.Option(help="Maximum number of sentences; a larger text is sampled at random.", min=20)
    ] = 50_000,
    seed: Annotated[int, typer.Option(help="Seed of the sample and the layout.", min=0)] = 1,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is at --output.")] = False,
    device: shared.Device = "auto",
    quiet: shared.Quiet = False,
    *,
    reading: ReadingOptions,
) -> None:
    """Draw a map of a text: every sentence a point, similar ones together, groups named by their characteristic words.

    The page is one file without any other: pan, zoom, hover, search, see the nearest sentences of each. It carries the sentences.
    Needs the extra selfguide[map].

    **Examples**

        selfguide map notes.txt --encoder notes-encoder

        selfguide map notes.txt --encoder notes-encoder --before mini --output notes-map.html
    """
    table = output.with_suffix(".csv")
    if output.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"--output {output} must end in .html.")
    if not output.parent.is_dir():
        raise SelfguideError(f"There is no folder {output.parent} to write the map to.")
    if not os.access(output.parent, os.W_OK):
        raise SelfguideError(f"The map cannot be written to {output.parent}: Permission denied.")
    for path in (output, table):
        refuse_to_replace(path, text)
        if path.exists() and not overwrite:
            raise UsageError(f"{path} exists already; choose another --output, or use --overwrite to replace it.")
    sentences = Sentences(text, reading.text_options())
    for path in (output, table):
        refuse_to_replace(path, sentences.files())

    # Imported only now, so that help and errors in the text do not wait for torch.
    from selfguide.mapping.text_map import sentence_map

    reporter = Reporter(quiet=quiet)
    found = sentence_map(sentences, encoder, before=before, limit=limit, seed=seed, device=device, reporter=reporter)
    first = "Standard input" if text[0] == "-" else Path(text[0].removeprefix("hf:")).name
    found.write(output, title or first)
    groups = "1 group" if len(found.clusters) == 1 else f"{len(found.clusters)} groups"
    reporter.note(f"{len(found.sentences):,} sentences in {groups}: {output}, and as a table {table}")
