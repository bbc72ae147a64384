"""``selfguide train``."""

from __future__ import annotations

from typing import Annotated

import typer

from selfguide.cli import options as shared
from selfguide.cli import training_run as options
from selfguide.cli.text_options import ReadingOptions


@shared.spread
def train(
    context: typer.Context,
    text: options.Text = None,
    encoder: shared.Encoder = "mini",
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            "-m",
            help="A name that `selfguide methods` lists, or package.module:Class; by default the one that suits the encoder.",
            show_default=False,
        ),
    ] = None,
    *,
    run: options.RunOptions,
    reading: ReadingOptions,
) -> None:
    """Tune an encoder on unlabelled sentences; a plain sentence-transformers folder comes out.

    Without `--method`, a raw language model is tuned with the method whose defaults are shown below, and a sentence encoder is
    adapted as `selfguide adapt` does. The method's own options can be given too, such as `--temperature 0.05 --stay-close 0`;
    `selfguide methods NAME` lists them.

    **Examples**

        selfguide train notes.txt

        selfguide train tickets.csv --column body --epochs 2 --output tickets-encoder

        selfguide train 'corpus/*.txt.gz' --encoder roberta-base --dev stsb-dev.tsv --temperature 0.05

        selfguide train --output notes-sg-opt --resume

        torchrun --nproc-per-node 4 -m selfguide train notes.txt
    """
    options.run_command(context)
