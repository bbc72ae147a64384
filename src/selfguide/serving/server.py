"""Run a server: bind, start the workers, answer until stopped."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import uvicorn

from selfguide.engine.similarity_scale import SAMPLED, SimilarityScale, measure_scale, read_scale
from selfguide.errors import SelfguideError, UsageError
from selfguide.files import private_folder
from selfguide.progress import Reporter
from selfguide.search.index import Index, open_index
from selfguide.serving.app import make_app
from selfguide.serving.encoder_process import EncoderProcess
from selfguide.serving.map_source import MapSource, sampled
from selfguide.serving.settings import LOOPBACK, ServeOptions, ServeSettings, named_encoders
from selfguide.serving.state import State, finish


def serve(
    encoders: str | Path | Mapping[str, str | Path],
    *,
    map: str | Path | None = None,
    index: str | Path | None = None,
    keys: Sequence[str] = (),
    allowed_hosts: Sequence[str] = (),
    quiet: bool = False,
    **options: Any,
) -> None:
    """Serve encoders over HTTP until SIGTERM or Ctrl-C, as the command ``selfguide serve`` does.

    Args:
        encoders: A folder, a hub name or ``"mini"``; or several by the names that requests call them.
        map: A page that ``selfguide map`` wrote.
        index: An index that ``selfguide index`` made with one of the encoders; without ``map``, a map is drawn from it.
        keys: API keys, one of which requests must carry; none are needed if there are none.
        allowed_hosts: Further names under which a server on a loopback address may be reached.
        quiet: Leave out notes.
        **options: Fields of :class:`~selfguide.serving.settings.ServeOptions`: ``host``, ``port``, ``max_length`` …

    Raises:
        SelfguideError: The address cannot be used, or an encoder cannot be loaded.
        UsageError: An option is not allowed.

    Example::

        selfguide.serve("notes-encoder", port=8000, normalise=True)
    """
    unknown = set(options) - {item.name for item in fields(ServeOptions)}
    if unknown:
        raise UsageError(
            f"serve has no option {min(unknown)}; it takes {', '.join(item.name for item in fields(ServeOptions))}."
        )
    named = (
        {name: str(place) for name, place in encoders.items()}
        if isinstance(encoders, Mapping)
        else named_encoders([str(encoders)])
    )
    settings = ServeSettings(
        named,
        ServeOptions(**options),
        tuple(keys),
        tuple(allowed_hosts),
        None if map is None else Path(map),
        None if index is None else Path(index),
    )
    run(settings, Reporter(quiet=quiet))


def run(settings: ServeSettings, reporter: Reporter) -> None:
    """Serve until SIGTERM or Ctrl-C; requests in progress are finished first.

    Args:
        settings: What to serve, and how.
        reporter: Says what happens.

    Raises:
        SelfguideError: The address cannot be used, an encoder cannot be loaded, or none of them made the index.
    """
    options = settings.options
    searcher = None if settings.index is None else open_index(settings.index)
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(bound(options.host, options.port))
        port = listening.getsockname()[1]
        host = f"[{options.host}]" if ":" in options.host else options.host
        state = State(settings, searcher, _map(settings, stack), scales=_scales(settings, reporter))
        asyncio.run(_run(state, listening, f"http://{host}:{port}", reporter))


def _map(settings: ServeSettings, stack: contextlib.ExitStack) -> MapSource | None:
    """Return the map that is given, or the one that will be drawn from the index; its process ends with the stack."""
    if settings.map is not None:
        return MapSource(settings.map)
    if settings.index is None or find_spec("umap") is None:
        return None
    found = MapSource(stack.enter_context(private_folder("selfguide-map-")) / "map.html", settings.index.resolve())
    stack.callback(found.end)
    return found


def _scales(settings: ServeSettings, reporter: Reporter) -> dict[str, SimilarityScale]:
    """Return what a cosine means, for the encoders whose folder says it."""
    found = {}
    for name, place in settings.encoders.items():
        try:
            scale = read_scale(Path(place)) if Path(place).is_dir() else None
        except SelfguideError as error:
            reporter.warn(f"Similarities of {name} come without percentiles: {error}")
            continue
        if scale is not None:
            found[name] = scale
    return found


def bound(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to an address.

    Args:
        host: Name or number.
        port: 0 for any that is free.

    Returns:
        The socket.

    Raises:
        SelfguideError: The address is not one of this machine, is taken, or is not allowed.
    """
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # With the protocol named: only then asyncio sets TCP_NODELAY, without which each answer waits 40 ms for the client's ACK.
        found = socket.socket(family, kind, socket.IPPROTO_TCP)
    except OSError:
        raise SelfguideError(f"The host {host} is not known: --host takes an address of this machine.") from None
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(1024)  # at once, so that another server that is started now learns it
    except OSError as error:
        found.close()
        reason = " ".join((error.strerror or str(error)).split())
        way = {
            "Address already in use": "another program listens there, choose another --port, or 0 for any that is free",
            "Permission denied": "ports below 1024 need rights of the administrator, choose another --port",
            "Cannot assign requested address": "it is not an address of this machine, choose another --host",
        }.get(reason, "choose another --host or --port")
        raise SelfguideError(f"Cannot listen on {host}, port {port} ({reason}): {way}.") from None
    return found


async def _run(state: State, listening: socket.socket, url: str, reporter: Reporter) -> None:
    options = state.options
    config = uvicorn.Config(
        make_app(state), log_config=None, log_level="critical", access_log=False, lifespan="off", server_header=False,
        timeout_graceful_shutdown=max(1, round(options.grace)),
    )  # fmt: skip
    server = _Server(config)
    tasks = [asyncio.create_task(encoder.keep()) for encoder in state.encoders.values()]
    watching = asyncio.create_task(_loaded(state, server, url, reporter))
    try:
        await server.serve(sockets=[listening])
    finally:
        for encoder in state.encoders.values():
            encoder.stop()
        for task in (*tasks, watching):
            await finish(task)
    for encoder in state.encoders.values():
        if encoder.failure is not None:
            raise encoder.failure
    reporter.note("Stopped.")


async def _loaded(state: State, server: _Server, url: str, reporter: Reporter) -> None:
    names = ", ".join(state.encoders)
    reporter.note(f"Loading {names} ...")
    for encoder in state.encoders.values():
        await encoder.loaded.wait()
        if encoder.failure is not None:
            server.should_exit = True
            return
    if state.searcher is not None:
        try:
            await asyncio.to_thread(_add_scale, state, _check_index(state))
        except SelfguideError:
            server.should_exit = True
            raise  # to who waits for this task, once the server has ended
        reporter.note(f"Index {state.settings.index}: {state.searcher.describe()['rows']:,} rows")
    if state.map is not None:
        state.map.begin()
    for encoder in state.encoders.values():
        reporter.note(_described(encoder))
    if state.options.host not in LOOPBACK and not state.settings.keys:
        reporter.warn(
            f"Everyone who can reach {state.options.host} can use this server: give keys with --api-key-file or "
            "SELFGUIDE_API_KEY."
        )
    reporter.note(f"Serving {names} at {url} (a page to try it, /docs for programs). Ctrl-C stops.")


def _add_scale(state: State, name: str) -> None:
    """Let the index say what a cosine means, if the encoder's own folder does not."""
    assert isinstance(state.searcher, Index)
    if name not in state.scales and len(state.searcher) > 1:
        sentences, vectors = sampled(state.searcher, SAMPLED)
        state.scales[name] = measure_scale(vectors, sentences, len(state.searcher), 1)
        state.scaled_by_index.add(name)


def _check_index(state: State) -> str:
    """Refuse an index that none of the encoders made; return the name of the one that did."""
    assert state.searcher is not None
    problems = []
    for name, encoder in state.encoders.items():
        try:
            state.searcher.check_digest(encoder.known.digest if encoder.known else "", name)
        except SelfguideError as error:
            problems.append(error)
        else:
            return name
    raise problems[0]


def _described(encoder: EncoderProcess) -> str:
    about = encoder.about
    if about is None:
        return f"{encoder.name}: ended, and is being started again"
    longest = f"inputs of up to {about.max_length} tokens" if about.max_length else "inputs of any length"
    return (
        f"{encoder.name}: {about.width} dimensions, {longest}, batches of up to {about.max_batch_tokens} tokens, "
        f"on {about.device}"
    )


class _Server(uvicorn.Server):
    """uvicorn's server, which a signal ends without an error: the process then exits with 0."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    def _stop(self) -> None:
        self.force_exit: bool = bool(self.should_exit)  # asked a second time
        self.should_exit: bool = True
