"""Batches by tokens, from the requests that wait in a worker.

Requests take turns: a batch gets one sentence of each, then a second of each, and so on. A request of two thousand sentences
therefore does not keep a single sentence waiting, and has all of the encoder when it is alone. Within a request the longest
sentences go first, so that those of similar length meet.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

# A batch is not divided among idle threads into smaller parts than this: each pass has a cost of its own.
_SMALLEST_SHARE = 64


@dataclass
class Request:
    """The sentences of one request, and their vectors computed so far."""

    number: int
    inputs: Any
    """What the encoder's runner takes, one entry a sentence."""
    lengths: NDArray[np.int64]
    vectors: NDArray[np.float32]
    missing: int = field(init=False)
    started: bool = False
    _order: deque[int] = field(init=False)

    def __post_init__(self) -> None:
        """Order the sentences, the longest first."""
        self.missing = len(self.lengths)
        self._order = deque(np.argsort(-self.lengths, kind="stable").tolist())

    @property
    def waiting(self) -> bool:
        """Whether it has sentences that are in no batch yet."""
        return bool(self._order)

    @property
    def next_length(self) -> int:
        """Number of tokens of its next sentence."""
        return int(self.lengths[self._order[0]])

    def take(self) -> int:
        """Return the row of its next sentence, and remove it from the queue."""
        return self._order.popleft()


@dataclass(frozen=True)
class Batch:
    """Sentences that are computed together: each a request and a row in it."""

    items: list[tuple[Request, int]]
    started: list[int]
    """Numbers of the requests whose first sentence is in this batch."""
    tokens: int


class BatchQueue:
    """The queue of waiting requests; threads take batches from it.

    Args:
        budget: Tokens in a batch; a longer sentence is a batch of its own.
        threads: Number of threads that take batches.
    """

    def __init__(self, budget: int, threads: int) -> None:
        self.budget = budget
        self._idle = threads
        self._requests: deque[Request] = deque()
        self._known: dict[int, Request] = {}
        self._tokens = 0
        self._changed = threading.Condition()

    def put(self, request: Request) -> None:
        """Add a request to the queue."""
        with self._changed:
            self._requests.append(request)
            self._known[request.number] = request
            self._tokens += int(request.lengths.sum())
            self._changed.notify(max(1, self._idle))

    def cancel(self, number: int) -> None:
        """Drop a request; vectors that are still being computed for it are discarded."""
        with self._changed:
            request = self._known.pop(number, None)
            if request is None:
                return
            if request.waiting:
                self._tokens -= sum(int(request.lengths[row]) for row in request._order)
                self._requests.remove(request)

    def take(self) -> Batch:
        """Wait for sentences, and return a batch of them.

        Returns:
            The batch. Idle threads share the waiting sentences.
        """
        with self._changed:
            while not self._requests:
                self._changed.wait()
            share = -(-self._tokens // max(1, self._idle))
            batch = self._fill(min(self.budget, max(share, _SMALLEST_SHARE)))
            self._idle -= 1
            return batch

    def give(self, batch: Batch, vectors: NDArray[np.float32]) -> list[Request]:
        """Accept the vectors of a batch; its thread is idle again.

        Args:
            batch: The batch.
            vectors: (sentences, dimensions), in its order.

        Returns:
            The requests that this batch completes, without cancelled ones.
        """
        complete = []
        with self._changed:
            self._idle += 1
            for (request, row), vector in zip(batch.items, vectors, strict=True):
                request.vectors[row] = vector
                request.missing -= 1
                if request.missing == 0 and self._known.pop(request.number, None) is not None:
                    complete.append(request)
        return complete

    def fail(self, batch: Batch) -> list[int]:
        """Drop the requests of a batch that could not be computed.

        Args:
            batch: The batch.

        Returns:
            Their numbers, without those that were cancelled.
        """
        with self._changed:
            self._idle += 1
            numbers = {request.number for request, _ in batch.items if request.number in self._known}
        for number in numbers:
            self.cancel(number)
        return sorted(numbers)

    def _fill(self, budget: int) -> Batch:
        items: list[tuple[Request, int]] = []
        started: list[int] = []
        tokens = 0
        while self._requests:
            request = self._requests[0]
            length = request.next_length
            if items and tokens + length > budget:
                break
            items.append((request, request.take()))
            tokens += length
            if not request.started:
                request.started = True
                started.append(request.number)
            self._requests.popleft()
            if request.waiting:
                self._requests.append(request)
        self._tokens -= tokens
        return Batch(items, started, tokens)
