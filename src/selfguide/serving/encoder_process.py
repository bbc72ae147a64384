"""The front's side of a worker: start it, send it requests, restart it when it dies."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from selfguide.errors import SelfguideError, UsageError
from selfguide.serving.frames import Frame, FrameReader, Kind, frame
from selfguide.serving.refusals import Refusal
from selfguide.system import debugging

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from selfguide.serving.reading import Inputs
    from selfguide.serving.settings import ServeOptions

# Seconds before a worker that died is started again, doubled each time it dies without having answered anything.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 30.0
# How often time-outs are looked for.
_TICK = 0.1


class Encoded(NamedTuple):
    """The answer to a request."""

    vectors: NDArray[np.float32]
    tokens: int


class About(NamedTuple):
    """What a worker reports of its encoder."""

    width: int
    max_length: int | None
    max_batch_tokens: int
    digest: str
    device: str


@dataclass
class Job:
    """A request that was sent to a worker."""

    number: int
    future: asyncio.Future[Encoded]
    arrived: float
    started: float | None = None
    watch: Callable[[], None] | None = None
    """Called once it has been in progress for a moment: starts checking whether the client is still connected."""
    watcher: asyncio.Task[None] | None = None


@dataclass
class Events:
    """Callbacks for the events that metrics count."""

    batch: Callable[[str, int, int], None] = lambda encoder, sentences, tokens: None
    waited: Callable[[str, float], None] = lambda encoder, seconds: None
    restarted: Callable[[str], None] = lambda encoder: None


@dataclass
class EncoderProcess:
    """One encoder in a process of its own.

    Args:
        name: What requests call it.
        source: The folder or hub name.
        options: The server's options.
        events: What is counted.
    """

    name: str
    source: str
    options: ServeOptions
    events: Events = field(default_factory=Events)
    about: About | None = field(default=None, init=False)
    """Known once the encoder has been loaded; ``None`` while it is not there."""
    known: About | None = field(default=None, init=False)
    """The same, kept while the worker is started again."""
    failure: SelfguideError | None = field(default=None, init=False)
    """Why the encoder could not be loaded at all."""
    loaded: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    """Set when the first start has succeeded or failed."""

    def __post_init__(self) -> None:
        """Start without a process."""
        self._jobs: dict[int, Job] = {}
        self._numbers = count(1)
        self._process: subprocess.Popen[bytes] | None = None
        self._transport: asyncio.Transport | None = None
        self._heard = time.monotonic()
        self._answered = False
        self._stopping = False

    @property
    def waiting(self) -> int:
        """Number of requests that the worker has."""
        return len(self._jobs)

    async def keep(self) -> None:
        """Keep a worker running until the task is cancelled."""
        pause = _FIRST_PAUSE
        while not self._stopping:
            gone = await self._start()
            while not gone.is_set():
                self._tend()
                try:
                    await asyncio.wait_for(gone.wait(), _TICK)
                except asyncio.TimeoutError:
                    continue
            if self._stopping or not self._died():
                return
            pause = _FIRST_PAUSE if self._answered else min(2 * pause, _LONGEST_PAUSE)
            self._answered = False
            await asyncio.sleep(pause)

    def stop(self) -> None:
        """Stop the worker; its requests are abandoned."""
        self._stopping = True
        if self._transport is not None:
            self._transport.abort()
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def submit(self, inputs: Inputs, truncate: bool) -> Job:
        """Send a request to the worker.

        Args:
            inputs: Sentences or token ids.
            truncate: Truncate inputs beyond the limit instead of refusing them.

        Returns:
            The job, whose future gets the vectors.

        Raises:
            Refusal: The worker is not running.
        """
        if self.about is None or self._transport is None:
            raise self._absent()
        job = Job(next(self._numbers), asyncio.get_running_loop().create_future(), time.monotonic())
        if not self._jobs:
            self._heard = job.arrived
        self._jobs[job.number] = job
        self._transport.write(frame(Kind.ENCODE, job.number, {"inputs": inputs, "truncate": truncate}))
        return job

    def cancel(self, job: Job) -> None:
        """Discard a job that is not finished."""
        if self._jobs.pop(job.number, None) is not None and self._transport is not None:
            self._transport.write(frame(Kind.CANCEL, job.number))

    # -- the life of the process -------------------------------------------------------------------------------------------

    async def _start(self) -> asyncio.Event:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        words = [sys.executable, "-m", "selfguide.serving.worker", str(theirs.fileno())]
        # Its output holds only notes of libraries; everything that matters comes over the socket.
        quiet = None if debugging() else subprocess.DEVNULL
        self._process = subprocess.Popen(
            words, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=quiet, stderr=quiet
        )
        theirs.close()
        gone = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_connection(lambda: _Connection(self._hear, gone), sock=ours)
        settings = {
            "encoder": self.source,
            "backend": self.options.backend,
            "device": self.options.device,
            "max_length": self.options.max_length,
            "max_batch_tokens": self.options.max_batch_tokens,
        }
        self._transport.write(frame(Kind.SETTINGS, content=settings))
        return gone

    def _died(self) -> bool:
        """Clear up after a worker; return whether to start another."""
        self.about = None
        if self._transport is not None:
            self._transport.abort()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        for job in self._jobs.values():
            if not job.future.done():
                job.future.set_exception(self._absent())
        self._jobs.clear()
        if self.known is None and self.failure is None:
            self.failure = SelfguideError(f"The process of the encoder {self.name} ended before it was loaded.")
        if self.known is None:
            self.loaded.set()
            return False
        self.events.restarted(self.name)
        return True

    def _absent(self) -> Refusal:
        return Refusal(
            503,
            f"The process of the encoder {self.name} ended and is being started again: try again in a few seconds."
            if self.known is not None
            else f"The encoder {self.name} is still being loaded: try again in a few seconds.",
            code="encoder_unavailable",
            retry_after=3,
        )

    def _hear(self, found: Frame) -> None:
        self._heard = time.monotonic()
        if found.kind is Kind.RESULT:
            job = self._jobs.pop(found.request, None)
            self._answered = True
            if job is not None and not job.future.done():
                job.future.set_result(Encoded(*found.result()))
        elif found.kind is Kind.STARTED:
            self._note_started(found.json())
        elif found.kind in (Kind.REFUSED, Kind.BROKE):
            self._fail(found)
        elif found.kind is Kind.READY:
            self.about = self.known = About(**found.json())
            self.loaded.set()
        elif found.kind is Kind.FAILED:
            content = found.json()
            kind = UsageError if content["exit_code"] == UsageError.exit_code else SelfguideError
            self.failure = kind(content["message"])

    def _note_started(self, content: dict[str, Any]) -> None:
        self.events.batch(self.name, content["sentences"], content["tokens"])
        for number in content["requests"]:
            job = self._jobs.get(number)
            if job is not None:
                job.started = self._heard
                self.events.waited(self.name, self._heard - job.arrived)

    def _fail(self, found: Frame) -> None:
        job = self._jobs.pop(found.request, None)
        if job is None or job.future.done():
            return
        content = found.json()
        if found.kind is Kind.REFUSED:
            job.future.set_exception(Refusal(400, content["message"], code=content["code"], parameter="input"))
            return
        message = (
            f"The encoder could not compute this request ({content['error']}): try again with fewer or shorter inputs."
        )
        job.future.set_exception(Refusal(503, message, code="encoder_failed", retry_after=3))

    def _tend(self) -> None:
        """Give up requests that have waited too long, and check on the clients of the others."""
        now = time.monotonic()
        limits = self.options
        for job in list(self._jobs.values()):
            if job.watch is not None and now - job.arrived > _TICK:
                job.watch()
                job.watch = None
            late = now - job.arrived > limits.request_timeout
            stuck = job.started is None and now - job.arrived > limits.queue_timeout
            if not (late or stuck):
                continue
            self.cancel(job)
            if not job.future.done():
                job.future.set_exception(_too_slow(late, limits))
        # No batch takes as long as a request may: a worker that says nothing meanwhile hangs.
        if self._jobs and self.about is not None and now - self._heard > limits.request_timeout and self._process:
            self._process.kill()


def _too_slow(late: bool, limits: ServeOptions) -> Refusal:
    if late:
        message = (
            f"The request was not finished within {limits.request_timeout:g} seconds: send fewer inputs at a time."
        )
        return Refusal(503, message, code="request_timeout", retry_after=10)
    message = (
        f"The request waited {limits.queue_timeout:g} seconds without its turn coming: the server is busy, try later."
    )
    return Refusal(503, message, code="queue_timeout", retry_after=10)


class _Connection(asyncio.Protocol):
    """Splits a worker's byte stream into frames."""

    def __init__(self, hear: Callable[[Frame], None], gone: asyncio.Event) -> None:
        self._hear, self._gone, self._frames = hear, gone, FrameReader()

    def data_received(self, data: bytes) -> None:
        for found in self._frames.feed(data):
            self._hear(found)

    def connection_lost(self, error: Exception | None) -> None:
        self._gone.set()
