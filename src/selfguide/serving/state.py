"""What the routes of one server share: its encoders, capacity, metrics and index, and the way from a request to vectors."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from starlette.requests import ClientDisconnect, Request

from selfguide.engine.similarity_scale import SimilarityScale
from selfguide.engine.vector_form import VectorForm
from selfguide.serving.admission import Capacity, Reservation
from selfguide.serving.encoder_process import EncoderProcess, Events, Job
from selfguide.serving.map_source import MapSource
from selfguide.serving.metrics import Metrics
from selfguide.serving.refusals import Refusal
from selfguide.serving.settings import ServeSettings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from selfguide.serving.reading import Inputs

CLIENT_GONE = 499
"""Status that is counted for a request whose client disconnected; no client receives it."""


class Vectors(NamedTuple):
    """The vectors of a request, and where they come from."""

    values: NDArray[np.float32]
    tokens: int
    encoder: str


class Searcher(Protocol):
    """An index, as the server uses it; :class:`selfguide.search.index.Index` is one."""

    def refresh(self) -> None:
        """Reload what has changed on disk."""

    def check_digest(self, digest: str, name: str) -> None:
        """Refuse an encoder that did not make the index."""

    def describe(self) -> dict[str, Any]:
        """Return what the index holds: rows, columns and their types, and what tells its encoder from others."""

    def query(self, text: str, limit: int, filter: str | None, mode: str, vector: NDArray[np.float32] | None) -> Any:
        """Return rows found by the words of a text and by its vector."""


@dataclass
class State:
    """One server.

    Args:
        settings: Its settings.
        searcher: An index to search.
    """

    settings: ServeSettings
    searcher: Searcher | None = None
    map: MapSource | None = None
    """The map that the page shows."""
    scales: dict[str, SimilarityScale] = field(default_factory=dict)
    """What a cosine means, for the encoders whose folder or index says it."""
    scaled_by_index: set[str] = field(default_factory=set)
    """Those of which the index says it."""
    began: int = field(default_factory=lambda: int(time.time()))

    def __post_init__(self) -> None:
        """Make the encoders, which are not started yet."""
        options = self.settings.options
        self.options = options
        self.capacity = Capacity(options.max_waiting, options.max_body)
        self.metrics = metrics = Metrics(lambda: self.capacity.taken)
        events = Events(
            batch=metrics.count_batch,
            waited=lambda name, seconds: metrics.waited.labels(name).observe(seconds),
            restarted=lambda name: metrics.restarts.labels(name).inc(),
        )
        self.encoders = {
            name: EncoderProcess(name, source, options, events) for name, source in self.settings.encoders.items()
        }

    def encoder(self, name: str | None) -> EncoderProcess:
        """Return the encoder that a request names.

        Args:
            name: Its name; ``None`` for the first.

        Returns:
            The encoder.

        Raises:
            Refusal: There is none of this name.
        """
        if name is None:
            return next(iter(self.encoders.values()))
        if name not in self.encoders:
            served = ", ".join(self.encoders)
            message = f"There is no such model here; this server has {served}."
            raise Refusal(404, message, code="model_not_found", parameter="model")
        return self.encoders[name]

    def index_encoder(self) -> EncoderProcess:
        """Return the encoder that made the index, which may have been made anew since the server started.

        Returns:
            The encoder.

        Raises:
            Refusal: None of the server's encoders made it, or that is not known yet.
        """
        assert self.searcher is not None
        digest = self.searcher.describe()["digest"]
        for encoder in self.encoders.values():
            if encoder.known is not None and encoder.known.digest == digest:
                return encoder
        if any(encoder.known is None for encoder in self.encoders.values()):
            raise Refusal(503, "The encoder is being loaded.", code="not_ready", retry_after=1)
        message = (
            "The index was made anew with an encoder that this server does not have: search by words alone (mode text)."
        )
        raise Refusal(503, message, code="other_encoder")

    async def encode(
        self,
        request: Request,
        reservation: Reservation,
        encoder: EncoderProcess,
        inputs: Inputs,
        truncate: bool | None,
        dimensions: int | None = None,
    ) -> Vectors:
        """Encode the inputs of a request.

        Args:
            request: The request, whose client may hang up.
            reservation: Its reservation, which grows to the number of inputs.
            encoder: The encoder.
            inputs: Sentences or token ids.
            truncate: As in the request.
            dimensions: As in the request.

        Returns:
            The vectors.

        Raises:
            Refusal: There is no room, the inputs are refused, or it takes too long.
        """
        if encoder.known is not None and dimensions is not None and dimensions > encoder.known.width:
            message = (
                f"The encoder {encoder.name} has {encoder.known.width} dimensions, which is less than {dimensions}."
            )
            raise Refusal(400, message, code="invalid_value", parameter="dimensions")
        reservation.hold(len(inputs))
        if truncate is None:
            truncate = self.options.too_long == "truncate"
        job = encoder.submit(inputs, truncate)
        job.watch = lambda: _watch(request, encoder, job)
        try:
            found = await job.future
        finally:
            encoder.cancel(job)
            if job.watcher is not None:
                job.watcher.cancel()
        self.metrics.inputs.labels(encoder.name).inc(len(inputs))
        self.metrics.tokens.labels(encoder.name).inc(found.tokens)
        values = VectorForm(self.options.normalise, dimensions).apply(found.vectors)
        return Vectors(values, found.tokens, encoder.name)


def _watch(request: Request, encoder: EncoderProcess, job: Job) -> None:
    """Cancel a job when its client disconnects."""

    async def wait() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        encoder.cancel(job)
        if not job.future.done():
            job.future.set_exception(Refusal(CLIENT_GONE, "The client hung up.", code="client_gone"))

    job.watcher = asyncio.get_running_loop().create_task(wait())


async def read_body(request: Request, reservation: Reservation, state: State) -> bytes:
    """Read the body of a request, which must be JSON and of limited size.

    Args:
        request: The request.
        reservation: Its reservation, which counts the bytes.
        state: The server.

    Returns:
        The bytes.

    Raises:
        Refusal: It has another type, is too large, or does not arrive in time.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refusal(
            415, "The body must be JSON: send the header Content-Type: application/json.", code="unsupported_media_type"
        )
    limit = state.options.max_body
    declared = request.headers.get("content-length")
    if declared is not None and declared.isdigit() and int(declared) > limit:
        raise _too_large(state)

    async def read() -> bytes:
        parts: list[bytes] = []
        size = 0
        async for part in request.stream():
            size += len(part)
            if size > limit:
                raise _too_large(state)
            reservation.keep(len(part))
            parts.append(part)
        return b"".join(parts)

    try:
        return await asyncio.wait_for(read(), state.options.request_timeout)
    except asyncio.TimeoutError:
        message = f"The body did not arrive within {state.options.request_timeout:g} seconds."
        raise Refusal(408, message, code="request_timeout") from None
    except ClientDisconnect:
        raise Refusal(CLIENT_GONE, "The client hung up.", code="client_gone") from None


def _too_large(state: State) -> Refusal:
    message = f"The body is larger than {state.options.max_body_mb:g} MB, which is the most that this server takes."
    return Refusal(413, message, code="body_too_large")


async def finish(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait for its end."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
