"""What ``selfguide train`` and ``selfguide adapt`` share: the options of a run, and running it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from selfguide.cli import options as shared
from selfguide.cli.help_pages import HelpfulCommand
from selfguide.cli.text_options import ReadingOptions
from selfguide.errors import UsageError
from selfguide.models.starting_points import RAW, SENTENCE_ENCODER, Kind
from selfguide.training.settings import BY_METHOD, TrainingSettings

if TYPE_CHECKING:
    from selfguide.training.configuration import RunConfig, RunRecord

_TEXT, _TRAINING, _RUN = "Text", "Training", "Run"
_CLEANING = ("keep_duplicates", "max_chars", "limit")
_WORDS = "selfguide.words"


def _setting(help: str, panel: str = _TRAINING, **kwargs: Any) -> Any:
    return typer.Option(help=help, rich_help_panel=panel, show_default=False, **kwargs)


Text = Annotated[
    list[str] | None,
    typer.Argument(
        help="Files (.txt .csv .tsv .jsonl .parquet, also .gz .xz .zst), folders, globs, - or hf:owner/name.",
        show_default=False,
    ),
]


@dataclass(frozen=True)
class RunOptions:
    """Options of a run besides its text, encoder and method; ``None``: the default, or the value in ``--config``."""

    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Folder to make; by default the text's name and the method's.", show_default=False
        ),
    ] = None
    dev: Annotated[
        Path | None, _setting("Graded pairs (score TAB sentence TAB sentence) that choose the best weights.", _RUN)
    ] = None
    config: Annotated[
        Path | None, _setting("Repeat the run of this run.json; other options override its values.", _RUN)
    ] = None
    resume: Annotated[bool, _setting("Resume the interrupted run at --output.", _RUN)] = False
    overwrite: Annotated[bool, _setting("Replace what is at --output.", _RUN)] = False
    report: Annotated[bool, _setting("Write report.html, which shows up to 200 of the sentences.", _RUN)] = True
    quiet: shared.Quiet = False
    epochs: Annotated[float | None, _setting("Passes over the text.")] = None
    max_steps: Annotated[int | None, _setting("Maximum number of training steps.")] = None
    batch_size: Annotated[int | None, _setting("Sentences per step; the others are the negatives.")] = None
    gradient_accumulation: Annotated[int | None, _setting("Batches whose gradients are summed before an update.")] = (
        None
    )
    learning_rate: Annotated[float | None, _setting("Highest learning rate.")] = None
    warmup: Annotated[float | None, _setting("Fraction of the steps over which the learning rate rises.")] = None
    schedule: Annotated[str | None, _setting("linear (the rate decays) or constant, after the warm-up.")] = None
    beta2: Annotated[float | None, _setting("AdamW's decay rate of the second moment.")] = None
    weight_decay: Annotated[float | None, _setting("AdamW's weight decay.")] = None
    gradient_clip: Annotated[float | None, _setting("Largest gradient norm; 0: none.")] = None
    max_length: Annotated[int | None, _setting("Tokens that training sees; 0: enough for 99 % of the text.")] = None
    seed: Annotated[int | None, _setting("Random seed.")] = None
    share_negatives: Annotated[
        bool | None, _setting("Of a distributed run: take negatives from the batches of all processes.")
    ] = None
    precision: Annotated[str | None, _setting("auto, fp32, bf16 or fp16.")] = None
    device: Annotated[str | None, _setting("auto, cpu, cuda or mps.")] = None
    dev_every: Annotated[int | None, _setting("Steps between two dev checks.")] = None
    patience: Annotated[int | None, _setting("Dev checks without a new best before stopping; 0: never.")] = None
    checkpoint_minutes: Annotated[float | None, _setting("Minutes between two checkpoints to resume from.")] = None
    track: Annotated[str | None, _setting("tensorboard, wandb or none.")] = None
    keep_duplicates: Annotated[bool, _setting("Keep repeated sentences (they become false negatives).", _TEXT)] = False
    max_chars: Annotated[int | None, _setting("Drop lines longer than this.", _TEXT)] = None
    limit: Annotated[int | None, _setting("Read at most this many sentences.", _TEXT)] = None


class RunCommand(HelpfulCommand):
    """A command whose help shows the defaults of the method that the command line names."""

    starts_from: Kind | None = None
    """What the command starts from if it has no ``--method``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep the arguments, so that ``--help`` can show the defaults of a method named among them.

        Args:
            ctx: The command's context.
            args: The arguments.

        Returns:
            The arguments that are left.
        """
        ctx.meta[_WORDS] = list(args)
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, with the defaults of the method."""
        from selfguide.methods import registry

        named = "" if self.starts_from else _named_method(ctx.meta.get(_WORDS, []))
        name = named or registry.default_method(self.starts_from or RAW)
        defaults = TrainingSettings(**registry.info(name).training)
        others = "" if self.starts_from else "; `--method NAME --help` shows another's"
        shared_help = {parameter.name: vars(parameter).copy() for parameter in self.params}
        for parameter in self.params:
            own: Any = parameter
            if own.name in {item.name for item in fields(TrainingSettings)}:
                own.rich_help_panel = f"Training (defaults of {name}{others})"
                own.help = f"{own.help} [default: {_shown(own.name, getattr(defaults, own.name))}]"
        try:
            super().format_help(ctx, formatter)
        finally:
            for parameter in self.params:
                vars(parameter).update(shared_help[parameter.name])


class AdaptCommand(RunCommand):
    """``selfguide adapt``."""

    starts_from = SENTENCE_ENCODER


def _named_method(words: Sequence[str]) -> str:
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word in ("--method", "-m"):
            return following
        if word.startswith("--method="):
            return word.partition("=")[2]
    return ""


def _shown(name: str, value: object) -> str:
    if name in ("epochs", "learning_rate") and value == BY_METHOD:
        return "by the size of the text" if name == "epochs" else "by the encoder"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def run_command(context: typer.Context, fixed_method: str | None = None) -> None:
    """Run what the command line asks for, and print a summary.

    Args:
        context: The command's parameters, and the words that it did not know.
        fixed_method: The method, for a command that has no ``--method``.

    Raises:
        UsageError: There is no text, or a word or an option is wrong.
    """
    given = context.params
    method: str | None = given.get("method") or fixed_method
    training = {item.name: given[item.name] for item in fields(TrainingSettings) if given[item.name] is not None}
    from selfguide.methods import registry

    if method:
        registry.info(method)

    from selfguide.progress import Reporter, is_main_process
    from selfguide.runs.folder import stored_config
    from selfguide.runs.run import run
    from selfguide.training.configuration import RunConfig

    output: Path | None = given["output"]
    base = RunConfig(text=())
    if given["config"] is not None:
        base = RunConfig.from_file(given["config"])
    elif given["resume"] and output is not None:
        base = stored_config(output)
    wanted = _from_command_line(context, base, method)
    # typer leaves unknown options among the texts; the method declares which of them take a value.
    flags = [flag for parameter in context.command.params for flag in parameter.opts]
    words = [*(given["text"] or []), *context.args]
    sources, options = shared.method_options(words, wanted.method or _default_method(wanted.encoder), flags)
    if sources:
        wanted = replace(wanted, text=tuple(sources))
    if not wanted.text:
        raise UsageError(
            "--resume needs --output, the folder the interrupted run was to make."
            if given["resume"]
            else "There is no text to train on: name a file, a folder, a glob, - for standard input, or hf:owner/name."
        )
    wanted = replace(
        wanted,
        options={**wanted.options, **options},
        training={**wanted.training, **training},
        text_options={**wanted.text_options, **_text_options(context)},
    )
    target = Path(output) if output is not None else _default_output(wanted)  # a string in newer versions of typer
    reporter = Reporter(quiet=given["quiet"], main_process=is_main_process())
    wish = given["report"] if _said(context, "report") else None  # a resumed run keeps its original options
    _, record = run(wanted, target, reporter, overwrite=given["overwrite"], resume=given["resume"], report=wish)
    if is_main_process() and not given["quiet"]:
        _summary(record, target)


def _default_method(encoder: str) -> str:
    from selfguide.methods.registry import default_method
    from selfguide.models.starting_points import starting_point

    return default_method(starting_point(encoder).kind)


def _from_command_line(context: typer.Context, base: RunConfig, method: str | None) -> RunConfig:
    """The configuration with the values given on the command line; defaults do not override those of --config."""
    changes: dict[str, Any] = {}
    if _said(context, "encoder"):
        changes["encoder"] = context.params["encoder"]
    if method and method != base.method:
        # Another method does not take this one's options, and has its own defaults.
        changes |= {"method": method, "options": {}}
    if context.params["dev"] is not None:
        changes["dev"] = str(context.params["dev"])
    return replace(base, **changes)


def _text_options(context: typer.Context) -> dict[str, Any]:
    """The text options of the command line; the others come from --config, or are the defaults."""
    names = [item.name for item in fields(ReadingOptions)]
    said = {name: context.params[name] for name in (*names, *_CLEANING) if _said(context, name)}
    if "replace_bad_utf8" in said:
        said["on_bad_utf8"] = "replace" if said.pop("replace_bad_utf8") else "error"
    return said


def _said(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _default_output(config: RunConfig) -> Path:
    first = config.text[0]
    stem = "stdin" if first == "-" else Path(first.removeprefix("hf:").replace("*", "all")).name.split(".")[0]
    # A method given as package.module:Class goes by its class.
    method = config.method or _default_method(config.encoder)
    return Path(f"{stem or 'text'}-{method.rpartition(':')[2]}")


def _summary(record: RunRecord, target: Path) -> None:
    rows = {
        "sentences": f"{record.text.get('kept', 0):,}",
        **({"steps": f"{record.steps:,} ({record.sentences_per_second:,.0f} sentences/s)"} if record.steps else {}),
        "time": f"{record.seconds.get('total', 0.0):.0f} s",
    }
    if record.final_loss is not None:
        rows["last loss"] = f"{record.final_loss:.3f}"
    rows |= {f"dev Spearman {name}": f"{100 * score:.2f}" for name, score in record.scores.items()}
    rows |= {"choice" if record.choice else "checkpoint": record.checkpoint, "encoder": str(target)}
    if (target / "report.html").is_file():
        rows["report"] = str(target / "report.html")
    width = max(map(len, rows))
    for name, value in rows.items():  # not a rich table, which would fold or cut a long path
        typer.echo(f"{name:<{width}}  {value}")
    typer.echo(f'Use it: selfguide similarity "a sentence" "another one" --encoder {shlex.quote(str(target))}')
