"""``selfguide adapt``."""

from __future__ import annotations

from typing import Annotated

import typer

from selfguide.cli import options as shared
from selfguide.cli import training_run as options
from selfguide.errors import UsageError


def adapt(
    context: typer.Context,
    text: options.Text = None,
    encoder: Annotated[
        str, typer.Option("--encoder", "-e", help="The sentence encoder: a folder or a hub name.", show_default=False)
    ] = "",
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
    """Adapt a sentence encoder to your sentences, without labels; it comes back unchanged where they give no reason to change it.

    The encoder keeps its modules, pooling, prompts, length and size. It is for encoders that are good already, such as
    all-MiniLM-L6-v2; a raw language model is tuned with `selfguide train`. `selfguide methods adapt` lists further options.

    **Examples**

        selfguide adapt notes.txt --encoder sentence-transformers/all-MiniLM-L6-v2 --output notes-minilm

        selfguide adapt tickets.csv --column body --encoder my-encoder --dev graded.tsv

        selfguide adapt --output notes-minilm --resume
    """
    from selfguide.methods.registry import default_method

    if not encoder and config is None and not resume:
        raise UsageError("--encoder is missing: name the sentence encoder to adapt, a folder or a hub name.")
    options.run_command(context, default_method("sentence encoder"))
