"""The ``selfguide`` command: its commands, and what becomes of an error."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from selfguide import __version__
from selfguide.cli.demo import demo
from selfguide.cli.encode import encode
from selfguide.cli.methods import methods
from selfguide.cli.similarity import similarity
from selfguide.cli.train import train
from selfguide.errors import SelfguideError

app = typer.Typer(
    name="selfguide",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="""Turn raw sentences and a pre-trained Transformer into a sentence encoder: no labels, no pairs.

**Examples**

    selfguide demo                                     see it work, in about three minutes

    selfguide train notes.txt                          tune the embedded encoder on your sentences

    selfguide train notes.txt --encoder bert-base-uncased --dev pairs.tsv --output notes-encoder

    selfguide encode notes.txt --encoder notes-encoder --output notes.npy

    selfguide similarity "a late train" "the train has a delay" --encoder notes-encoder
""",
)

_TRAIN_CONTEXT = {"allow_extra_args": True, "ignore_unknown_options": True}

app.command(context_settings=_TRAIN_CONTEXT)(train)
app.command()(encode)
app.command()(similarity)
app.command()(methods)
app.command()(demo)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"selfguide {__version__}")
        raise typer.Exit()


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def run() -> None:
    """Entry point: errors become one sentence on standard error and a non-zero exit. SELFGUIDE_DEBUG=1 shows tracebacks."""
    debug = os.environ.get("SELFGUIDE_DEBUG") == "1"
    try:
        app()
    except SelfguideError as error:
        if debug:
            raise
        _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        _fail("Interrupted.", 130)
    except BrokenPipeError:
        # The reader of our output went away (`| head`): nothing to say, and nobody to say it to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        if debug:
            raise
        place = f" ({error.filename})" if error.filename else ""
        _fail(f"{error.strerror or error}{place}.", 1)
    except Exception as error:
        if debug:
            raise
        _fail(
            f"Something went wrong that selfguide did not foresee: {type(error).__name__}: {error}. "
            "Set SELFGUIDE_DEBUG=1 to see where, and please report it.",
            70,
        )


def _fail(message: str, code: int) -> None:
    print(f"selfguide: {message}", file=sys.stderr)
    sys.exit(code)
