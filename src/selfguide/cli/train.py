"""``selfguide train``."""

from __future__ import annotations

import shlex
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from selfguide.cli import options as shared
from selfguide.errors import UsageError
from selfguide.methods.registry import DEFAULT
from selfguide.training.settings import TrainingSettings

if TYPE_CHECKING:
    from selfguide.training.configuration import RunConfig, RunRecord

_TEXT, _TRAINING, _RUN = "Text", "Training (empty: the method's default)", "Run"


def _setting(help: str, panel: str = _TRAINING, **kwargs: Any) -> Any:
    return typer.Option(help=help, rich_help_panel=panel, show_default=False, **kwargs)


def train(
    context: typer.Context,
    text: Annotated[
        list[str] | None,
        typer.Argument(
            help="Files (.txt .csv .tsv .jsonl .parquet, also .gz .xz .zst), globs, - or hf:owner/name.",
            show_default=False,
        ),
    ] = None,
    encoder: shared.Encoder = "mini",
    method: Annotated[
        str, typer.Option("--method", "-m", help="A name that `selfguide methods` lists, or package.module:Class.")
    ] = DEFAULT,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Folder to make; by default the text's name and the method's.", show_default=False
        ),
    ] = None,
    dev: Annotated[
        Path | None, _setting("Graded pairs (score TAB sentence TAB sentence) that choose the best checkpoint.", _RUN)
    ] = None,
    config: Annotated[Path | None, _setting("Repeat the run of this run.json; other options change it.", _RUN)] = None,
    resume: Annotated[bool, _setting("Go on with an interrupted run at --output.", _RUN)] = False,
    overwrite: Annotated[bool, _setting("Replace what is at --output.", _RUN)] = False,
    report: Annotated[bool, _setting("Write report.html, which shows up to 200 of the sentences.", _RUN)] = True,
    quiet: shared.Quiet = False,
    epochs: Annotated[float | None, _setting("Passes over the text.")] = None,
    max_steps: Annotated[int | None, _setting("Stop after so many steps.")] = None,
    batch_size: Annotated[int | None, _setting("Sentences a step; the others are the negatives.")] = None,
    gradient_accumulation: Annotated[int | None, _setting("Batches added up before the weights move.")] = None,
    learning_rate: Annotated[float | None, _setting("Highest learning rate.")] = None,
    warmup: Annotated[float | None, _setting("Share of the steps over which the rate climbs.")] = None,
    beta2: Annotated[float | None, _setting("AdamW's decay rate of the second moment.")] = None,
    weight_decay: Annotated[float | None, _setting("AdamW's weight decay.")] = None,
    gradient_clip: Annotated[float | None, _setting("Largest gradient norm; 0: none.")] = None,
    max_length: Annotated[int | None, _setting("Tokens that training sees; 0: enough for 99 % of the text.")] = None,
    seed: Annotated[int | None, _setting("Everything random comes from it.")] = None,
    share_negatives: Annotated[
        bool | None,
        _setting("Of a distributed run: take negatives from the batches of all processes."),
    ] = None,
    precision: Annotated[str | None, _setting("auto, fp32, bf16 or fp16.")] = None,
    device: Annotated[str | None, _setting("auto, cpu, cuda or mps.")] = None,
    dev_every: Annotated[int | None, _setting("Steps between two dev checks.")] = None,
    patience: Annotated[int | None, _setting("Dev checks without a new best before stopping; 0: never.")] = None,
    checkpoint_minutes: Annotated[float | None, _setting("Minutes between two checkpoints to resume from.")] = None,
    track: Annotated[str | None, _setting("tensorboard, wandb or none.")] = None,
    column: Annotated[
        str | None, _setting("Column of a csv, tsv or parquet file: a name or a number from 0.", _TEXT)
    ] = None,
    field: Annotated[str | None, _setting("Field of a jsonl file; dots lead into nested objects.", _TEXT)] = None,
    keep_duplicates: Annotated[bool, _setting("Keep repeated sentences (they become false negatives).", _TEXT)] = False,
    replace_bad_utf8: Annotated[
        bool, _setting("Put U+FFFD where the text is not UTF-8 instead of stopping.", _TEXT)
    ] = False,
    max_chars: Annotated[int | None, _setting("Drop lines longer than this.", _TEXT)] = None,
    limit: Annotated[int | None, _setting("Stop after so many sentences.", _TEXT)] = None,
) -> None:
    """Tune an encoder on unlabelled sentences; a plain sentence-transformers folder comes out.

    The method's own options can be given too, such as `--temperature 0.05 --stay-close 0`; `selfguide methods sg-opt`
    lists them.

    **Examples**

        selfguide train notes.txt

        selfguide train tickets.csv --column body --epochs 2 --output tickets-encoder

        selfguide train 'corpus/*.txt.gz' --encoder roberta-base --dev stsb-dev.tsv --temperature 0.05

        selfguide train --output notes-sg-opt --resume

        torchrun --nproc-per-node 4 -m selfguide train notes.txt
    """
    given = context.params
    training_names = [item.name for item in fields(TrainingSettings)]
    training = {name: given[name] for name in training_names if given[name] is not None}
    cleaning = {
        name: value
        for name, value in {
            "column": column,
            "field": field,
            "max_chars": max_chars,
            "limit": limit,
            "keep_duplicates": keep_duplicates or None,
            "on_bad_utf8": "replace" if replace_bad_utf8 else None,
        }.items()
        if value is not None
    }
    from selfguide.methods import registry

    registry.info(method)

    from selfguide.progress import Reporter, is_main_process
    from selfguide.runs.folder import stored_config
    from selfguide.runs.run import run
    from selfguide.training.configuration import RunConfig

    base = RunConfig(text=(), method=DEFAULT)
    if config is not None:
        base = RunConfig.from_file(config)
    elif resume and output is not None:
        base = stored_config(output)
    base = replace(base, method=base.method or DEFAULT)
    # typer leaves the options that it does not know among the texts; which of them take a value, the method knows.
    flags = [flag for parameter in context.command.params for flag in parameter.opts]
    sources, options = shared.method_options(
        [*(text or []), *context.args], method if _said(context, "method") else base.method, flags
    )
    wanted = _from_command_line(context, base, sources, encoder, method, dev)
    if not wanted.text:
        raise UsageError(
            "--resume needs --output, the folder the interrupted run was to make."
            if resume
            else "There is no text to train on: name a file, a glob, - for standard input, or hf:owner/name."
        )
    wanted = replace(
        wanted,
        options={**wanted.options, **options},
        training={**wanted.training, **training},
        text_options={**wanted.text_options, **cleaning},
    )
    target = output if output is not None else _default_output(wanted)
    reporter = Reporter(quiet=quiet, main_process=is_main_process())
    wish = report if _said(context, "report") else None  # a resumed run keeps what it was begun with
    _, record = run(wanted, target, reporter, overwrite=overwrite, resume=resume, report=wish)
    if is_main_process() and not quiet:
        _summary(record, target)


def _from_command_line(
    context: typer.Context, base: RunConfig, sources: list[str], encoder: str, method: str, dev: Path | None
) -> RunConfig:
    """The configuration with what was really said on the command line; defaults do not override a --config."""
    changes: dict[str, Any] = {}
    if sources:
        changes["text"] = tuple(sources)
    if _said(context, "encoder"):
        changes["encoder"] = encoder
    if _said(context, "method") and method != base.method:
        # Another method does not take this one's options, and has its own defaults.
        changes |= {"method": method, "options": {}}
    if dev is not None:
        changes["dev"] = str(dev)
    return replace(base, **changes)


def _said(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _default_output(config: RunConfig) -> Path:
    first = config.text[0]
    stem = "stdin" if first == "-" else Path(first.removeprefix("hf:").replace("*", "all")).name.split(".")[0]
    # A method given as package.module:Class goes by its class.
    return Path(f"{stem or 'text'}-{config.method.rpartition(':')[2]}")


def _summary(record: RunRecord, target: Path) -> None:
    rows = {
        "sentences": f"{record.text.get('kept', 0):,}",
        **({"steps": f"{record.steps:,} ({record.sentences_per_second:,.0f} sentences/s)"} if record.steps else {}),
        "time": f"{record.seconds.get('total', 0.0):.0f} s",
    }
    if record.final_loss is not None:
        rows["last loss"] = f"{record.final_loss:.3f}"
    rows |= {f"dev Spearman {name}": f"{100 * score:.2f}" for name, score in record.scores.items()}
    rows |= {"checkpoint": record.checkpoint, "encoder": str(target)}
    if (target / "report.html").is_file():
        rows["report"] = str(target / "report.html")
    width = max(map(len, rows))
    for name, value in rows.items():  # not a rich table, which would fold or cut a long path
        typer.echo(f"{name:<{width}}  {value}")
    typer.echo(f'Use it: selfguide similarity "a sentence" "another one" --encoder {shlex.quote(str(target))}')
