"""The worker: a process that holds one encoder and computes vectors.

    python -m selfguide.serving.worker DESCRIPTOR

``DESCRIPTOR`` is the worker's end of a socket pair. Three kinds of threads: the main one takes frames and tokenises what is
short; one more tokenises what is long, so that it does not hold up the others; and on a CPU one thread a core computes batches,
each without parallelism inside its operations (:mod:`selfguide.engine.workers` says why). The process ends when the front does.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from selfguide.errors import SelfguideError, one_line
from selfguide.serving.batching import BatchQueue, Request
from selfguide.serving.frames import Frame, FrameReader, Kind, frame, result_frame
from selfguide.serving.reading import TooLong

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

# Bytes of a request that the main thread tokenises itself, in a few milliseconds.
_SHORT = 32_768
# With more computing threads than this the interpreter's lock would be what they wait for; each gets several cores instead.
_MOST_THREADS = 8
_CHUNK = 1 << 20


class Worker:
    """Takes requests from a socket, and answers on it.

    Args:
        connection: The worker's end of the socket pair.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._frames = FrameReader()
        self._long = ThreadPoolExecutor(1)
        self._cancelled: set[int] = set()

    def run(self) -> None:
        """Load the encoder that the first frame names, and serve until the front hangs up."""
        settings: dict[str, Any] | None = None
        while data := self._receive():
            for found in self._frames.feed(data):
                if settings is None:
                    settings = found.json()
                    if not self._load(settings):
                        return
                else:
                    self._handle(found)

    def _load(self, settings: dict[str, Any]) -> bool:
        try:
            self._prepare(settings)
        except SelfguideError as error:
            self._send(frame(Kind.FAILED, content={"message": str(error), "exit_code": error.exit_code}))
            return False
        except Exception as error:
            reason = one_line(error)[:300]
            message = f"The encoder could not be loaded: {type(error).__name__}: {reason}"
            self._send(frame(Kind.FAILED, content={"message": message, "exit_code": 1}))
            return False
        return True

    def _prepare(self, settings: dict[str, Any]) -> None:
        import torch

        from selfguide.engine.digest import model_digest
        from selfguide.engine.tokens import tokens_per_pass
        from selfguide.models.encoders import allowed_length, load_encoder
        from selfguide.serving.passes import known_limit, reader_and_runner

        model = load_encoder(settings["encoder"], device=settings["device"])
        digest = model_digest(model)  # of the encoder as it is in its folder, which an index of it knows
        if settings["max_length"] is not None:
            model.max_seq_length = allowed_length(model, settings["max_length"])
        self._reader, self._runner = reader_and_runner(model, settings["backend"])
        self._width = int(model.get_embedding_dimension() or 0)
        cores = torch.get_num_threads() if model.device.type == "cpu" else 1
        threads = min(cores, _MOST_THREADS)
        self._queue = BatchQueue(settings["max_batch_tokens"] or tokens_per_pass(model), threads)
        for _ in range(threads):
            threading.Thread(target=self._compute, args=(max(1, cores // threads),), daemon=True).start()
        self._warm(model)
        about = {
            "width": self._width,
            "max_length": known_limit(model),
            "max_batch_tokens": self._queue.budget,
            "digest": digest,
            "device": str(model.device),
        }
        self._send(frame(Kind.READY, content=about))

    def _warm(self, model: SentenceTransformer) -> None:
        """Encode a sentence, so that the first request does not wait for what is made at first use."""
        read = self._reader.read(["The first pass takes longer."], True)
        vectors = self._runner.start(self._reader.joined(read.items), None)()
        if vectors.shape != (1, self._width) or not np.isfinite(vectors).all():
            raise SelfguideError(
                f"The encoder gives no vectors of {self._width} finite numbers: it cannot be served. Is its folder damaged?"
            )

    # -- the main thread ---------------------------------------------------------------------------------------------------

    def _handle(self, found: Frame) -> None:
        if found.kind is Kind.CANCEL:
            self._cancelled.add(found.request)  # it may not have been read yet
            self._queue.cancel(found.request)
            self._long.submit(self._cancelled.discard, found.request)
        elif len(found.payload) <= _SHORT:
            self._read(found)
        else:
            self._long.submit(self._read, found)

    def _read(self, found: Frame) -> None:
        try:
            if found.request in self._cancelled:
                return
            content = found.json()
            read = self._reader.read(content["inputs"], content["truncate"])
        except SelfguideError as error:
            code = "context_length_exceeded" if isinstance(error, TooLong) else "invalid_input"
            self._send(frame(Kind.REFUSED, found.request, {"message": str(error), "code": code}))
            return
        except Exception as error:
            self._broke([found.request], error)
            return
        vectors = np.zeros((len(read.lengths), self._width), dtype=np.float32)
        self._queue.put(Request(found.request, read.items, read.lengths, vectors))
        if found.request in self._cancelled:  # in the meantime
            self._queue.cancel(found.request)

    def _receive(self) -> bytes:
        try:
            return self._connection.recv(_CHUNK)
        except OSError:
            return b""

    def _send(self, data: bytes) -> None:
        with self._sending:
            self._connection.sendall(data)

    # -- the computing threads ---------------------------------------------------------------------------------------------

    def _compute(self, cores: int) -> None:
        import torch

        torch.set_num_threads(cores)
        while True:
            batch = self._queue.take()
            try:
                if batch.started:
                    size = {"requests": batch.started, "sentences": len(batch.items), "tokens": batch.tokens}
                    self._send(frame(Kind.STARTED, content=size))
                items = [request.inputs[row] for request, row in batch.items]
                vectors = self._runner.start(self._reader.joined(items), None)()
                if not np.isfinite(vectors).all():
                    raise FloatingPointError  # JSON has no numbers for them
                for request in self._queue.give(batch, vectors):
                    self._send(result_frame(request.number, request.vectors, int(request.lengths.sum())))
            except OSError:  # the front is gone, and so is this process in a moment
                return
            except Exception as error:
                self._broke(self._queue.fail(batch), error)

    def _broke(self, requests: list[int], error: Exception) -> None:
        """Report a failure by its type alone: the message might quote a sentence."""
        for number in requests:
            self._send(frame(Kind.BROKE, number, {"error": type(error).__name__}))


def main() -> None:
    """Serve the front at the other end of the socket."""
    # Ctrl-C reaches the whole group of processes, but the worker is to finish what the front has taken.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    connection = socket.socket(fileno=int(sys.argv[1]))
    Worker(connection).run()
    os._exit(0)  # without waiting for threads whose results are not needed


if __name__ == "__main__":
    main()
