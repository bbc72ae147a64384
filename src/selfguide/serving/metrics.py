"""Metrics of the server, for Prometheus. No label holds client input."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.process_collector import ProcessCollector

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class Metrics:
    """Counters of one server.

    Args:
        waiting: Returns the number of inputs under way.
    """

    def __init__(self, waiting: Callable[[], float]) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.requests = Counter(
            "selfguide_requests", "Requests by path and status.", ("path", "status"), registry=registry
        )
        self.seconds = Histogram(
            "selfguide_request_seconds",
            "Time from a request to its answer.",
            ("path",),
            buckets=_SECONDS,
            registry=registry,
        )
        self.inputs = Counter("selfguide_inputs", "Inputs that were encoded.", ("encoder",), registry=registry)
        self.tokens = Counter("selfguide_tokens", "Tokens that were encoded.", ("encoder",), registry=registry)
        self.waited = Histogram(
            "selfguide_queue_seconds", "Time until a request's computation began.", ("encoder",), buckets=_SECONDS,
            registry=registry,
        )  # fmt: skip
        self.batches = Histogram(
            "selfguide_batch_inputs",
            "Inputs that were computed together.",
            ("encoder",),
            buckets=_SIZES,
            registry=registry,
        )
        self.batch_tokens = Counter(
            "selfguide_batch_tokens", "Tokens of the batches whose sizes are counted.", ("encoder",), registry=registry
        )
        self.restarts = Counter(
            "selfguide_worker_restarts", "Times that an encoder's process ended and was started again.", ("encoder",),
            registry=registry,
        )  # fmt: skip
        under_way = Gauge("selfguide_inputs_under_way", "Inputs that wait or are being computed.", registry=registry)
        under_way.set_function(waiting)

    def count_batch(self, encoder: str, inputs: int, tokens: int) -> None:
        """Count a batch whose computation begins."""
        self.batches.labels(encoder).observe(inputs)
        self.batch_tokens.labels(encoder).inc(tokens)

    def page(self) -> tuple[bytes, str]:
        """Return the metrics in Prometheus' format, and its media type."""
        return generate_latest(self.registry), CONTENT_TYPE_LATEST
