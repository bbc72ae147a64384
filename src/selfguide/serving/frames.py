"""Frames between the front and a worker: a length, a kind, the number of a request, and bytes.

Vectors travel as raw float32, everything else as JSON; nothing is unpickled.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_HEAD = struct.Struct("<IBQ")  # length of the payload, kind, request
_RESULT = struct.Struct("<III")  # sentences, dimensions, tokens
HEAD_SIZE = _HEAD.size


class Kind(IntEnum):
    """The kinds of frames."""

    SETTINGS = 1
    """To the worker: which encoder to load, and how."""
    ENCODE = 2
    """To the worker: the inputs of a request."""
    CANCEL = 3
    """To the worker: the request was cancelled."""
    READY = 4
    """From the worker: the encoder is loaded; its properties."""
    FAILED = 5
    """From the worker: the encoder cannot be loaded, and why."""
    STARTED = 6
    """From the worker: the numbers of requests whose first sentence is being computed; and how large the batch is."""
    RESULT = 7
    """From the worker: the vectors of a request."""
    REFUSED = 8
    """From the worker: the inputs cannot be encoded, and why."""
    BROKE = 9
    """From the worker: computing failed."""


class Frame(NamedTuple):
    """One message."""

    kind: Kind
    request: int
    payload: bytes

    def json(self) -> Any:
        """Return the payload of any kind but ``RESULT``."""
        return json.loads(self.payload)

    def result(self) -> tuple[NDArray[np.float32], int]:
        """Return the vectors, (sentences, dimensions), and the number of tokens of a ``RESULT``."""
        count, width, tokens = _RESULT.unpack_from(self.payload)
        vectors = np.frombuffer(self.payload, dtype="<f4", offset=_RESULT.size)
        return vectors.reshape(count, width), tokens


def frame(kind: Kind, request: int = 0, content: Any = None) -> bytes:
    """Return the bytes of a frame with JSON content."""
    payload = b"" if content is None else json.dumps(content).encode("ascii")
    return _HEAD.pack(len(payload), kind, request) + payload


def result_frame(request: int, vectors: NDArray[np.float32], tokens: int) -> bytes:
    """Return the bytes of a ``RESULT``.

    Args:
        request: The number of the request.
        vectors: (sentences, dimensions).
        tokens: Number of tokens of all its sentences.

    Returns:
        The bytes.
    """
    body = np.ascontiguousarray(vectors, dtype="<f4").tobytes()
    head = _RESULT.pack(*vectors.shape, tokens)
    return _HEAD.pack(len(head) + len(body), Kind.RESULT, request) + head + body


class FrameReader:
    """Splits a stream of bytes into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Take bytes as they arrive.

        Args:
            data: The bytes.

        Yields:
            Each frame that is complete.
        """
        self._buffer += data
        start = 0
        while len(self._buffer) - start >= HEAD_SIZE:
            length, kind, request = _HEAD.unpack_from(self._buffer, start)
            end = start + HEAD_SIZE + length
            if len(self._buffer) < end:
                break
            found = Frame(Kind(kind), request, bytes(self._buffer[start + HEAD_SIZE : end]))
            start = end
            yield found
        del self._buffer[:start]
