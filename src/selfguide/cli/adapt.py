"""``selfguide adapt``."""

from __future__ import annotations

from typing import Annotated

import typer

from selfguide.cli import options as shared
from selfguide.cli import training_run as options
from selfguide.cli.text_options import ReadingOptions
from selfguide.errors import UsageError


@shared.spread
def adapt(
    context: typer.Context,
    text: options.Text = None,
    encoder: Annotated[
        str, typer.Option("--encoder", "-e", help="The sentence encoder: a folder or a hub name.", show_default=False)
    ] = "",
    *,
    run: options.RunOptions,
    reading: ReadingOptions,
) -> None:
    """Adapt a sentence encoder to your sentences, without labels; it comes back unchanged where they give no reason to change it.

    The encoder keeps its modules, pooling, prompts, length and size. It is for encoders that are good already, such as
    all-MiniLM-L6-v2; a raw language model is tuned with `selfguide train`. `selfguide methods adapt` lists further options.

    **Examples**

        selfguide adapt notes.txt --encoder sentence-transformers/all-MiniLM-L6-v2 --output notes-minilm

        selfguide adapt tickets.csv --column body --encoder my-encoder --dev graded.tsv

        selfguide adapt --output notes-minilm --resume
    """
    from selfguide.methods.registry import default_method

    if not encoder and run.config is None and not run.resume:
        raise UsageError("--encoder is missing: name the sentence encoder to adapt, a folder or a hub name.")
    options.run_command(context, default_method("sentence encoder"))
