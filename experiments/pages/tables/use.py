"""Tables of encoders in use: the server under load, and the frames of a map's page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from experiments.pages.sources import lookup
from experiments.pages.tables.markdown import table

OURS, PLAIN = "selfguide serve", "plain FastAPI"


def load() -> str:
    """Throughput and latency of both servers by encoder and number of clients."""
    rows = []
    encoders: list[dict[str, Any]] = lookup("load:encoders")
    for encoder in encoders:
        for ours, plain in zip(encoder["servers"][OURS], encoder["servers"][PLAIN], strict=True):
            ratio = encoder["ratios"][PLAIN][str(ours["clients"])]
            name = encoder["name"]
            rows.append(
                [
                    f"`{name}`" if name == "mini" else name,
                    str(ours["clients"]),
                    *(f"{one['requests_per_second']:,.0f}" for one in (ours, plain)),
                    f"{ratio['throughput']:.1f} ×",
                    *(f"{one['p50_ms']:,.0f} / {one['p99_ms']:,.0f}" for one in (ours, plain)),
                ]
            )
    head = "encoder | clients | requests a second | plain server | ratio | p50 / p99 in ms | plain server"
    return table(head, rows)


def frames() -> str:
    """Frames per second of the map's page by number of points and screen."""
    rows = []
    found: list[dict[str, Any]] = lookup("map-frames:rows")
    for row in found:
        cells = [
            f"{row[kind]['frames_per_second']:.0f} ({row[kind]['slowest_twentieth_ms']:.0f})"
            for kind in ("nothing", "pan", "zoom", "hover", "switch")
        ]
        rows.append([f"{row['points']:,}", row["screen"], f"{row['seconds_to_open']:.1f} s", *cells])
    return table("points | screen | until it is drawn | at rest | dragged | zoomed | hovered over | switched", rows)


TABLES: dict[str, Callable[[], str]] = {"serving-load": load, "map-frames": frames}
