"""Clients of a server, each asking again as soon as it has its answer, and checking every answer against its vector.

    python -m experiments.serving.client PORT VECTORS.npz --clients 64 --seconds 10 --tolerance 1e-6

A process of its own, with plain sockets, so that it costs the servers as little as possible; what it does cost is in its answer.
``VECTORS.npz`` holds ``sentences`` and ``vectors``. ``--mixed`` sends, in turn, a sentence, one as base64, and lists of two and
three. Prints one JSON object.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from experiments.provenance import command_parser

_HEAD = (
    "POST /v1/embeddings HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
)


@dataclass
class Load:
    """What all clients share.

    Args:
        port: Port of the server on 127.0.0.1.
        sentences: What is sent.
        vectors: What must come back, (sentences, dimensions).
        tolerance: Largest difference of a vector's component that is allowed.
        mixed: Whether requests differ in form.
    """

    port: int
    sentences: list[str]
    vectors: Any
    tolerance: float
    mixed: bool
    latencies: list[float] = field(default_factory=list)
    errors: int = 0
    wrong: int = 0
    largest: float = 0.0
    next: int = 0

    def request(self) -> tuple[bytes, list[int], bool]:
        """Return the next request, the rows of its sentences, and whether the answer is base64."""
        form = self.next % 4 if self.mixed else 0
        count = (1, 1, 2, 3)[form]
        rows = [(self.next * 3 + place) % len(self.sentences) for place in range(count)]
        self.next += 1
        texts = [self.sentences[row] for row in rows]
        body: dict[str, Any] = {"input": texts if form > 1 else texts[0]}
        if form == 1:
            body["encoding_format"] = "base64"
        raw = json.dumps(body).encode()
        return (_HEAD % len(raw)).encode() + raw, rows, form == 1

    def check(self, status: int, raw: bytes, rows: list[int], packed: bool) -> None:
        """Compare an answer with the vectors of its sentences."""
        if status != 200:
            self.errors += 1
            return
        data = json.loads(raw)["data"]
        if len(data) != len(rows):
            self.wrong += 1
            return
        for row, item in zip(rows, data, strict=True):
            given = item["embedding"]
            vector = np.frombuffer(base64.b64decode(given), "<f4") if packed else np.array(given, dtype=np.float32)
            difference = float(np.abs(vector - self.vectors[row]).max())
            self.largest = max(self.largest, difference)
            self.wrong += difference > self.tolerance


async def client(load: Load, end: float, most: int | None) -> None:
    """Ask until the time or the number of requests is used up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", load.port)
    while time.monotonic() < end and (most is None or load.next < most):
        words, rows, packed = load.request()
        started = time.perf_counter()
        writer.write(words)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
            raw = await reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError, ValueError):
            load.errors += 1
            writer.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", load.port)
            continue
        load.latencies.append(time.perf_counter() - started)
        load.check(int(head[9:12]), raw, rows, packed)
    writer.close()


async def run(load: Load, clients: int, seconds: float, most: int | None) -> dict[str, Any]:
    """Run so many clients.

    Args:
        load: What they share.
        clients: Number of clients.
        seconds: Time after which none sends another request.
        most: Number of requests after which none does; ``None`` for no limit.

    Returns:
        Throughput, latencies in milliseconds, and what went wrong.
    """
    cpu, started = time.process_time(), time.monotonic()
    await asyncio.gather(*(client(load, started + seconds, most) for _ in range(clients)))
    wall = time.monotonic() - started
    sorted_ = np.sort(np.array(load.latencies)) * 1000
    return {
        "clients": clients,
        "requests": len(load.latencies),
        "seconds": wall,
        "requests_per_second": len(load.latencies) / wall,
        "p50_ms": float(np.percentile(sorted_, 50)),
        "p99_ms": float(np.percentile(sorted_, 99)),
        "errors": load.errors,
        "wrong": load.wrong,
        "largest_difference": load.largest,
        "client_cpu_share_of_a_core": (time.process_time() - cpu) / wall,
        "client_cpu_seconds": time.process_time(),
    }


def main() -> None:
    """Run the clients, and print what they found."""
    parser = command_parser(__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("vectors", type=Path)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--requests", type=int, default=None)
    parser.add_argument("--tolerance", type=float, default=1e-6)
    parser.add_argument("--mixed", action="store_true")
    arguments = parser.parse_args()
    with np.load(arguments.vectors) as found:
        sentences, vectors = found["sentences"].tolist(), found["vectors"]
    load = Load(arguments.port, sentences, vectors, arguments.tolerance, arguments.mixed)
    print(json.dumps(asyncio.run(run(load, arguments.clients, arguments.seconds, arguments.requests))))


if __name__ == "__main__":
    main()
