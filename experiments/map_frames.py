"""Frames per second of a map's page in headless Chromium, while it is panned, zoomed, hovered over and switched.

    python -m experiments.map_frames

Pages of several sizes are made of the demonstration's sentences, over and over, at seeded places in forty heaps: how fast a page
is drawn depends on the number of points and not on what they mean. A script in the page then sends one event a frame (a pointer
that drags the map, a wheel that turns), so that every frame has to draw all of it, and records the time between frames. Chromium
runs without a GPU, so the figures are those of the processor: the slowest case.
"""

from __future__ import annotations

import re
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from experiments.origins import NONE
from experiments.provenance import RESULTS, command_parser, provenance, text_facts, write
from selfguide.data.resources import demo_sentences
from selfguide.report.map_page import MapCluster, MapSide, map_page
from tests.support.webdriver import Page, browser

SEED = 1
COUNTS = (3_200, 10_000, 50_000)
SCREENS = {"wide, 1400 x 900": (1400, 900, 1.0, False), "phone, 390 x 844 at 3 x": (390, 844, 3.0, True)}
FRAMES = 150
_RECORD = """
const [kind, frames] = given, canvas = document.getElementById("map"), box = canvas.getBoundingClientRect();
const send = (Kind, name, x, y, more) => canvas.dispatchEvent(new Kind(name, {bubbles: true, cancelable: true, pointerId: 1,
  clientX: box.left + x, clientY: box.top + y, ...more}));
const middle = [box.width / 2, box.height / 2], times = [];
if (kind === "switch") document.querySelector("input[value='0']").click();
await new Promise((done) => {
  const step = (now) => {
    times.push(now);
    const turn = times.length;
    if (turn > frames) return done();
    if (kind === "pan") send(PointerEvent, "pointermove", middle[0] + 60 * Math.sin(turn / 12), middle[1] + turn % 50);
    if (kind === "zoom") send(WheelEvent, "wheel", ...middle, {deltaY: turn % 75 < 38 ? -40 : 40});
    if (kind === "hover") send(PointerEvent, "pointermove", (turn * 37) % box.width, (turn * 23) % box.height);
    requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
});
return times;
"""
_MIDDLE = """
const box = document.getElementById("map").getBoundingClientRect();
return [box.left + box.width / 2, box.top + box.height / 2];
"""


def main() -> None:
    """Measure, and write the results file."""
    parser = command_parser(__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS / "map-frames.json")
    arguments = parser.parse_args()
    content: dict[str, Any] = {
        **provenance(None, text=text_facts("the demonstration's sentences", demo_sentences()), seeds=[SEED]),
        "encoder": NONE,
        "frames_a_measurement": FRAMES,
        "rows": [],
    }
    for count in COUNTS:
        html = page(count)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "map.html"
            file.write_text(html, encoding="utf-8")
            for screen in SCREENS:
                content["rows"].append(measured(file, count, screen, Path(folder)) | {"megabytes": len(html) / 1e6})
                print(content["rows"][-1], flush=True)
                write(arguments.out, content)


def page(count: int) -> str:
    """Return a map's page with so many points."""
    draw = np.random.default_rng(SEED)
    demo = list(demo_sentences())
    sentences = [demo[row % len(demo)] for row in range(count)]
    labels = draw.integers(-1, 40, count)
    sides = []
    for name in ("before", "after"):
        middles = draw.random((41, 2)) * 0.8 + 0.1
        places = middles[labels] + draw.normal(scale=0.03, size=(count, 2))
        places[labels < 0] = draw.random((int((labels < 0).sum()), 2))
        near = (np.arange(count)[:, None] + np.arange(1, 9)) % count
        cosines = np.full((count, 8), 0.5, dtype=np.float32)
        sides.append(MapSide(name, places.clip(0, 1).astype(np.float32), near, cosines))
    words = re.findall(r"[a-z]{5,}", " ".join(demo[:400]))
    clusters = [
        MapCluster((words[2 * number], words[2 * number + 1]), int((labels == number).sum()), number)
        for number in range(40)
    ]
    return map_page(f"{count:,} points", sentences, sides, labels, clusters, count)


def measured(file: Path, count: int, screen: str, scratch: Path) -> dict[str, Any]:
    """Open a page on a screen, and measure what a reader does.

    Args:
        file: The page.
        count: Its points.
        screen: A key of :data:`SCREENS`.
        scratch: A folder for the browser.

    Returns:
        Seconds until it is drawn, and by movement the frames per second and the slowest twentieth of the frames in ms.
    """
    with browser(scratch / f"profile-{count}-{len(screen)}") as window:
        window.resize(*SCREENS[screen])
        started = time.monotonic()
        window.open(file.as_uri())
        window.run("await new Promise(requestAnimationFrame); await new Promise(requestAnimationFrame);")
        found: dict[str, Any] = {"points": count, "screen": screen, "seconds_to_open": time.monotonic() - started}
        idle = _rate(window, "nothing")
        for kind in ("pan", "zoom", "hover", "switch"):
            if kind == "pan":
                x, y = window.run(_MIDDLE)
                place = {"type": "pointerMove", "x": round(x), "y": round(y), "duration": 0}
                window.act(place, {"type": "pointerDown", "button": 0})
            found[kind] = _rate(window, kind)
            if kind == "pan":
                window.act({"type": "pointerUp", "button": 0})
        assert (complaints := window.complaints()) == [], complaints
        return found | {"nothing": idle}


def _rate(window: Page, kind: str) -> dict[str, float]:
    times = window.run(_RECORD, kind, 42 if kind == "switch" else FRAMES)
    gaps = np.diff(times)
    return {
        "frames_per_second": round(1000 / float(gaps.mean()), 1),
        "slowest_twentieth_ms": round(float(np.percentile(gaps, 95)), 1),
    }


if __name__ == "__main__":
    main()
