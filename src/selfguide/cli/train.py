"""``selfguide train``."""

from __future__ import annotations

from typing import Annotated

import typer

from selfguide.cli import options as shared
from selfguide.cli import training_run as options


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
    output: options.Output = None,
    dev: options.Dev = None,
    config: options.Config = None,
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
    report: options.Report = True,
    quiet: shared.Quiet = False,
    epochs: options.Epochs = None,
    max_steps: options.MaxSteps = None,
    batch_size: options.BatchSize = None,
    gradient_accumulation: options.GradientAccumulation = None,
    learning_rate: options.LearningRate = None,
    warmup: options.Warmup = None,
    schedule: options.Schedule = None,
    beta2: options.Beta2 = None,
    weight_decay: options.WeightDecay = None,
    gradient_clip: options.GradientClip = None,
    max_length: options.MaxLength = None,
    seed: options.Seed = None,
    share_negatives: options.ShareNegatives = None,
    precision: options.Precision = None,
    device: options.Device = None,
    dev_every: options.DevEvery = None,
    patience: options.Patience = None,
    checkpoint_minutes: options.CheckpointMinutes = None,
    track: options.Track = None,
    column: options.Column = None,
    field: options.Field = None,
    header: options.Header = None,
    delimiter: options.Delimiter = None,
    encoding: options.Encoding = None,
    skip_bad_rows: options.SkipBadRows = None,
    split_sentences: options.SplitSentences = False,
    language: options.Language = None,
    keep_duplicates: options.KeepDuplicates = False,
    replace_bad_utf8: options.ReplaceBadUtf8 = False,
    max_chars: options.MaxChars = None,
    limit: options.Limit = None,
) -> None:
    """Tune an encoder on unlabelled sentences; a plain sentence-transformers folder comes out.

    Without `--method`, a raw language model is tuned with `sg-opt`, and a sentence encoder is adapted as `selfguide adapt` does.
    The method's own options can be given too, such as `--temperature 0.05 --stay-close 0`; `selfguide methods sg-opt`
    lists them.

    **Examples**

        selfguide train notes.txt

        selfguide train tickets.csv --column body --epochs 2 --output tickets-encoder

        selfguide train 'corpus/*.txt.gz' --encoder roberta-base --dev stsb-dev.tsv --temperature 0.05

        selfguide train --output notes-sg-opt --resume

        torchrun --nproc-per-node 4 -m selfguide train notes.txt
    """
    options.run_command(context)
