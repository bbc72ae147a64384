"""The ``selfguide`` command: its subcommands and its error handling."""

from __future__ import annotations

import difflib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand

from selfguide import __version__
from selfguide.cli.adapt import adapt
from selfguide.cli.cache import cache
from selfguide.cli.calibrate import calibrate
from selfguide.cli.choices import newcomer_lines
from selfguide.cli.compare import compare
from selfguide.cli.demo import demo
from selfguide.cli.encode import encode
from selfguide.cli.evaluate import evaluate
from selfguide.cli.export import export
from selfguide.cli.help_pages import HelpfulCommand
from selfguide.cli.index import index
from selfguide.cli.map import map_command
from selfguide.cli.methods import methods
from selfguide.cli.probe import probe
from selfguide.cli.report import report
from selfguide.cli.search import search
from selfguide.cli.serve import serve
from selfguide.cli.similarity import similarity
from selfguide.cli.study import study
from selfguide.cli.train import train
from selfguide.cli.training_run import AdaptCommand, RunCommand
from selfguide.errors import SelfguideError, one_line
from selfguide.files import system_error
from selfguide.system import debugging

app = typer.Typer(
    name="selfguide",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Turn raw sentences and a pre-trained Transformer into a sentence encoder: no labels, no pairs.

**Examples**

    selfguide demo                                         see it work

    selfguide train notes.txt                              tune mini, built in

    selfguide adapt notes.txt --encoder all-MiniLM-L6-v2   adapt a good encoder

    selfguide train notes.txt --encoder bert-base-uncased --dev pairs.tsv

    selfguide encode notes.txt --encoder notes-encoder --output notes.npy

    selfguide eval mini notes-encoder --tasks sts --data data

    selfguide similarity "a late train" "a delayed train" --encoder notes-encoder
""",
)

_TRAIN_CONTEXT = {"allow_extra_args": True, "ignore_unknown_options": True}

_MAKE, _USE, _JUDGE, _MORE = "Make an encoder", "Put it to work", "Judge it", "More"
app.command(cls=RunCommand, context_settings=_TRAIN_CONTEXT, rich_help_panel=_MAKE)(train)
app.command(cls=AdaptCommand, context_settings=_TRAIN_CONTEXT, rich_help_panel=_MAKE)(adapt)
app.command(rich_help_panel=_MAKE)(calibrate)
app.command(rich_help_panel=_USE)(encode)
app.command(rich_help_panel=_USE)(similarity)
app.command(rich_help_panel=_USE)(index)
app.command(rich_help_panel=_USE)(search)
app.command(rich_help_panel=_USE)(serve)
app.command(rich_help_panel=_USE)(export)
app.command("map", rich_help_panel=_USE)(map_command)
app.command("eval", rich_help_panel=_JUDGE)(evaluate)
app.command(rich_help_panel=_JUDGE)(compare)
app.command(rich_help_panel=_JUDGE)(study)
app.command(rich_help_panel=_JUDGE)(probe)
app.command(rich_help_panel=_JUDGE)(report)
app.command(rich_help_panel=_MORE)(demo)
app.command(rich_help_panel=_MORE)(methods)
app.command(rich_help_panel=_MORE)(cache)
for _info in app.registered_commands:
    if _info.cls is TyperCommand:
        _info.cls = HelpfulCommand


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"selfguide {__version__}")
        raise typer.Exit()


@app.callback(invoke_without_command=True)
def _main(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo("\n".join(newcomer_lines()))
        typer.echo(context.get_help())
        raise typer.Exit(2)


# Depending on its version, typer raises click's errors or those of its own copy of click. In both, the parent of the class
# that it exports covers mistakes on the command line.
_CommandLineError: type[Any] = typer.BadParameter.__mro__[1]


def run() -> None:
    """Entry point: errors become one sentence on standard error and a non-zero exit. SELFGUIDE_DEBUG=1 shows tracebacks."""
    debug = debugging()
    try:
        with _ending_in_order():
            # Not standalone: typer would print errors in boxes of its own, and exit silently on Ctrl-C.
            code = app(standalone_mode=False, prog_name="selfguide")
            sys.stdout.flush()  # here, where a closed pipe can still be ignored
    except _CommandLineError as error:
        _fail(f"{_mistake(error)} `{_command_of(error)} --help` explains the options.", error.exit_code)
    except SelfguideError as error:
        if debug:
            raise
        _fail(str(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort) as error:
        if isinstance(error.__cause__ or error.__context__, EOFError):  # typer turns it into Abort, as it does Ctrl-C
            _fail_unforeseen(error.__cause__ or error.__context__)
        _fail("Interrupted.", 130)
    except BrokenPipeError:
        # The reader of the output closed the pipe (`| head`): exit silently, as typer does.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        if debug:
            raise
        known = system_error(error)
        if known is None:
            _fail_unforeseen(error)
        place = f" ({known.filename})" if known.filename else ""
        _fail(f"{known.strerror if known is error and known.strerror else _clause(error)}{place}.", 1)
    else:
        if code == 130:  # what typer makes of Ctrl-C
            _fail("Interrupted.", 130)
        if code:
            sys.exit(code)


def _mistake(error: Any) -> str:
    """Return a mistake on the command line as a sentence; of typer's guesses at an unknown option, those that are near."""
    if type(error).__name__ != "NoSuchOption":
        return _sentence(error.format_message())
    option = error.option_name
    near = difflib.get_close_matches(option, error.possibilities or (), 1, 0.7)
    return f"There is no option {option}." + (f" Did you mean {near[0]}?" if near else "")


def _command_of(error: Any) -> str:
    """Return the command that a mistake was made with; typer does not always say."""
    if error.ctx is not None:
        return str(error.ctx.command_path)
    names = {info.name or getattr(info.callback, "__name__", "") for info in app.registered_commands}
    return f"selfguide {sys.argv[1]}" if len(sys.argv) > 1 and sys.argv[1] in names else "selfguide"


@contextmanager
def _ending_in_order() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C at any moment, so that unfinished work is kept or removed as documented."""

    def interrupt(number: int, frame: object) -> NoReturn:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second one ends at once
        raise KeyboardInterrupt

    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if ours:
        signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _fail_unforeseen(error: BaseException | None) -> NoReturn:
    _fail(
        f"Unexpected error, which is a bug in selfguide: {type(error).__name__}: {_clause(error)}. "
        "Set SELFGUIDE_DEBUG=1 to see where, and please report it.",
        70,
    )


def _clause(message: object) -> str:
    """Another library's message, which may have several lines, as the beginning of a sentence."""
    return one_line(message).rstrip(".")


def _sentence(message: object) -> str:
    """Other people's messages as a sentence of ours."""
    text = _clause(message)
    return text if text.endswith(("?", "!")) else f"{text}."


def _fail(message: str, code: int) -> NoReturn:
    print(f"selfguide: {message}", file=sys.stderr)
    sys.exit(code)
