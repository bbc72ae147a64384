"""``selfguide serve``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from selfguide.cli import options as shared
from selfguide.progress import Reporter
from selfguide.system import require_packages

_LIMITS = "Limits"


def serve(
    encoders: Annotated[
        list[str],
        typer.Argument(
            help="Folder of an encoder, hub name, or mini; NAME=FOLDER to call it NAME in requests. Several are served side by "
            "side.",
            show_default=False,
        ),
    ],
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all of this machine.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 for any that is free.")] = 8000,
    map: Annotated[
        Path | None, typer.Option(help="Page that `selfguide map` wrote, to show on the page at /.", show_default=False)
    ] = None,
    index: Annotated[
        Path | None,
        typer.Option(
            help="Index that `selfguide index` made with one of the encoders: adds /search, and a map of it.",
            show_default=False,
        ),
    ] = None,
    normalise: Annotated[bool, typer.Option("--normalise", help="Scale each vector to length 1.")] = False,
    backend: Annotated[str, typer.Option(help="torch, bf16, onnx or int8, as for encode.")] = "torch",
    device: shared.Device = "auto",
    api_key_file: Annotated[
        Path | None,
        typer.Option(
            help="File with a key a line, one of which requests must carry; or one key in SELFGUIDE_API_KEY.",
            show_default=False,
        ),
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            help="Further name that requests may be sent to, such as a proxy's, when listening on 127.0.0.1. May be repeated.",
            show_default=False,
        ),
    ] = None,
    max_batch_tokens: Annotated[
        int | None,
        typer.Option(
            help="Tokens that are computed together; default: by device.", show_default=False, rich_help_panel=_LIMITS
        ),
    ] = None,
    max_waiting: Annotated[
        int, typer.Option(help="Inputs under way at a time; beyond it, requests get 429.", rich_help_panel=_LIMITS)
    ] = 4096,
    max_inputs: Annotated[int, typer.Option(help="Inputs in one request.", rich_help_panel=_LIMITS)] = 2048,
    max_length: Annotated[
        int | None,
        typer.Option(
            help="Tokens of one input; default: the encoder's own.", show_default=False, rich_help_panel=_LIMITS
        ),
    ] = None,
    too_long: Annotated[
        str,
        typer.Option(
            help="refuse longer inputs, or truncate them; a request may say so itself.", rich_help_panel=_LIMITS
        ),
    ] = "refuse",
    max_body_mb: Annotated[float, typer.Option(help="Size of a request's body in MB.", rich_help_panel=_LIMITS)] = 8.0,
    request_timeout: Annotated[
        float, typer.Option(help="Seconds after which a request is given up.", rich_help_panel=_LIMITS)
    ] = 60.0,
    queue_timeout: Annotated[
        float,
        typer.Option(
            help="Seconds after which a request is given up whose turn has not come.", rich_help_panel=_LIMITS
        ),
    ] = 30.0,
    grace: Annotated[
        float,
        typer.Option(help="Seconds that requests under way have when the server is stopped.", rich_help_panel=_LIMITS),
    ] = 30.0,
    quiet: shared.Quiet = False,
) -> None:
    """Serve an encoder over HTTP: vectors in OpenAI's format, cosines, search, and a page to try them.

    Requests that come at the same time are computed together, and their vectors are those of `selfguide encode`. SIGTERM or
    Ctrl-C finishes what is under way. Needs the extra selfguide[serve].

    **Examples**

        selfguide serve notes-encoder

        selfguide serve notes-encoder --index notes.index

        selfguide serve notes-encoder --map map.html

        SELFGUIDE_API_KEY=... selfguide serve notes=notes-encoder mini --host 0.0.0.0 --port 80
    """
    require_packages("`selfguide serve` needs", "serve", "fastapi", "uvicorn", "prometheus_client")
    from selfguide.serving.settings import KEY_VARIABLE, ServeOptions, ServeSettings, named_encoders, read_keys

    settings = ServeSettings(
        named_encoders(encoders),
        ServeOptions(
            host=host,
            port=port,
            backend=backend,
            device=device,
            normalise=normalise,
            max_length=max_length,
            too_long=too_long,
            max_inputs=max_inputs,
            max_batch_tokens=max_batch_tokens,
            max_waiting=max_waiting,
            max_body_mb=max_body_mb,
            request_timeout=request_timeout,
            queue_timeout=queue_timeout,
            grace=grace,
        ),
        read_keys(api_key_file, os.environ.get(KEY_VARIABLE)),
        tuple(allowed_host or ()),
        map,
        index,
    )
    from selfguide.serving.server import run

    run(settings, Reporter(quiet=quiet))
