"""The page at ``/`` in a real browser: it compares, searches, shows the map and marks on it what was found."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import selfguide
from selfguide.report.map_page import MapCluster, MapSide, map_page
from served import Served
from toys import toy_sentences
from webdriver import CHROMIUM, DRIVER, Page, browser

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason="no Chromium or no chromedriver here"),
]
TEXTS = toy_sentences(60)
KEY = "correct-horse"
# A script in the frame of the map; the frame has the page's origin, so the page can reach into it.
INSIDE = "const frame = document.getElementById('map').contentWindow, inside = frame.document;"
INK = (
    INSIDE + "const dots = inside.getElementById('dots'), data = dots.getContext('2d').getImageData(0, 0, dots.width, "
    "dots.height).data; let sum = 0; for (let at = 3; at < data.length; at += 4) sum += data[at]; return sum;"
)


@pytest.fixture(scope="module")
def folder(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder that knows what a cosine means in its text."""
    from selfguide.engine.encode import encode
    from selfguide.engine.similarity_scale import measure_scale

    made = tmp_path_factory.mktemp("page") / "encoder"
    selfguide.load_encoder(bert).save_pretrained(str(made))
    measure_scale(encode(str(made), TEXTS, show_progress=False), TEXTS, len(TEXTS), 1).write(made)
    assert json.loads((made / "similarity.json").read_text())["sentences"] == len(TEXTS)
    return made


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("browser")) as page:
        page.resize(1200, 900)
        yield page


def _complaints(window: Page) -> list[str]:
    """What the console says; but for Chromium's remark that the test reads the canvas back, which is slow."""
    return [line for line in window.complaints() if "willReadFrequently" not in line]


def _map(path: Path) -> Path:
    draw = np.random.default_rng(0)
    near = (np.arange(60)[:, None] + np.arange(1, 9)) % 60
    sides = [
        MapSide(name, draw.random((60, 2)).astype(np.float32), near, np.full((60, 8), 0.5, np.float32))
        for name in ("raw", "tuned")
    ]
    clusters = [MapCluster(("man", "bread"), 30, 0), MapCluster(("city",), 30, 1)]
    path.write_text(map_page("Toys", TEXTS, sides, np.arange(60) % 2, clusters, 60), encoding="utf-8")
    return path


def test_it_compares_shows_the_map_and_switches_it(folder: Path, window: Page, tmp_path: Path) -> None:
    server = Served(f"tiny={folder}", "--map", _map(tmp_path / "map.html"), log=tmp_path / "log")
    try:
        expected = server.post("/similarity", first=TEXTS[0], second=TEXTS[1]).json()
        window.open(server.url)
        window.write("#first", TEXTS[0])
        window.write("#second", TEXTS[1])
        window.click("#pair button")
        shown = f"{expected['cosine']:.3f}".replace("-", "−")
        window.until(f"return document.getElementById('value').textContent === '{shown}'")
        assert "random pair" in window.run("return document.getElementById('percentile').textContent")
        window.write("#first", "a " * 300)
        window.click("#pair button")
        window.until("return document.getElementById('pair-failure').textContent.includes('has 302 tokens')")
        window.until(f"{INSIDE} return inside.getElementById('dots')?.width > 300")
        before = window.until(INK)
        window.run(f"{INSIDE} inside.querySelector(\"input[value='0']\").click();")
        window.until(f"{INSIDE} return frame.performance.now() > 0 && !inside.getElementById('tip').textContent")
        window.run("await new Promise((done) => setTimeout(done, 1200));")
        window.run(
            f"{INSIDE} const box = inside.getElementById('search'); box.value = given[0]; "
            "box.dispatchEvent(new frame.Event('input'));",
            TEXTS[3],
        )
        window.until(f"{INSIDE} return inside.getElementById('found').textContent.endsWith('of 60 sentences')")
        assert window.run(INK) != before
        assert server.url in window.run("return document.getElementById('programs').textContent")
        wide = window.run("return document.documentElement.scrollWidth - innerWidth")
        window.resize(390, 844, 2, mobile=True)
        assert wide <= 0
        assert window.run("return document.documentElement.scrollWidth - innerWidth") <= 0
        window.resize(1200, 900)
        complaints = _complaints(window)
        assert len(complaints) == 1, complaints  # the refusal of the sentence that is too long
        assert "400" in complaints[0]
        window.open(server.url + "/docs")
        assert "encoding_format" in window.run("return document.body.textContent")
        assert _complaints(window) == []
    finally:
        server.stop()


def test_with_a_key_the_map_is_shown_when_it_has_been_given(folder: Path, window: Page, tmp_path: Path) -> None:
    words = (f"tiny={folder}", "--map", _map(tmp_path / "map.html"))
    server = Served(*words, log=tmp_path / "log", key=KEY, SELFGUIDE_API_KEY=KEY)
    try:
        window.open(server.url)
        assert window.run("return document.getElementById('map').hidden")
        window.write("#key", KEY)
        window.run("document.getElementById('key').blur();")
        window.until("return !document.getElementById('map').hidden")
        window.until(f"{INSIDE} return inside.getElementById('dots')?.width > 300")
        assert window.until(INK) > 0
        assert _complaints(window) == []
    finally:
        server.stop()


def test_it_searches_an_index_and_marks_what_it_found_on_the_map(folder: Path, window: Page, tmp_path: Path) -> None:
    pytest.importorskip("lancedb")
    pytest.importorskip("umap")
    selfguide.build_index(TEXTS, str(folder), output=tmp_path / "toys.index")
    (folder / "similarity.json").unlink()  # the index says what a cosine means
    server = Served(f"tiny={folder}", "--index", tmp_path / "toys.index", log=tmp_path / "log")
    try:
        window.open(server.url)
        window.until("return document.getElementById('percentile').textContent.includes('of the indexed text')")
        window.until("return document.getElementById('search-note').textContent.startsWith('60 sentences')")
        shown = window.run("return document.getElementById('percentile').textContent")
        bar = window.run("return document.getElementById('bar').style.width")  # of the share that stands below it
        assert "than any" in shown or shown.split(" %")[0].split()[-1] == f"{float(bar.rstrip('%')):.1f}"
        window.write("#query", TEXTS[7])
        window.until("return document.querySelectorAll('#hits li').length > 0")
        assert TEXTS[7] in window.run("return document.querySelector('#hits li').textContent")
        window.until("return !document.getElementById('map').hidden", 120)
        window.until(f"{INSIDE} return inside.getElementById('dots')?.width > 300")
        window.click("#hits button")
        window.until(f"{INSIDE} return inside.getElementById('sentence').textContent === {json.dumps(TEXTS[7])}")
        window.run(f"{INSIDE} inside.getElementById('close').click()")
        assert window.run("return document.getElementById('marked-note').textContent") == ""  # all hits are on it
        window.run("await new Promise((done) => setTimeout(done, 300));")
        marked = window.run(INK)
        window.write("#query", "zebra")  # other hits, other marks
        window.until(f"return !document.querySelector('#hits li')?.textContent.includes({json.dumps(TEXTS[7])})")
        window.run(
            "const box = document.getElementById('query'); box.value = ''; box.dispatchEvent(new Event('input'));"
        )
        window.until("return document.querySelectorAll('#hits li').length === 0")
        window.run("await new Promise((done) => setTimeout(done, 300));")
        assert window.run(INK) != marked
        assert _complaints(window) == []
    finally:
        server.stop()
