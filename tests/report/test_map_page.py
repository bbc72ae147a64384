"""The map's page in a real browser: nothing goes wrong, the search finds, the switch switches, groups and points answer."""

from __future__ import annotations

import html
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from browser import BROWSER, FLAGS
from selfguide.report.map_page import MapCluster, MapSide, group_colours, map_page

NASTY = "</script><img src=x onerror=alert(1)> Café & “quotes”"
DRIVER = """<script>addEventListener("load", async () => {
const told = {}, $ = (id) => document.getElementById(id), wait = (ms) => new Promise((done) => setTimeout(done, ms));
const context = $("dots").getContext("2d");
const inked = () => context.getImageData(0, 0, $("dots").width, $("dots").height).data.reduce((sum, value) => sum + value, 0);
await wait(100);
const first = inked();
told.drawn = first > 0;
$("search").value = "CAFE quotes"; $("search").dispatchEvent(new Event("input")); await wait(300);
told.found = $("found").textContent; told.listed = [...document.querySelectorAll("#list span")].map((one) => one.textContent);
const marks = $("map").getContext("2d").getImageData(0, 0, $("map").width, $("map").height).data;
told.marked = marks.some((value, at) => at % 4 === 3 && value === 255);  // the groups' names are faint meanwhile
document.querySelector("#list button").click(); await wait(60);
told.picked = $("sentence").textContent; told.near = document.querySelectorAll("#neighbours li").length;
told.sides = [...document.querySelectorAll("#neighbours h3")].map((one) => one.textContent);
$("close").click(); $("search").value = ""; $("search").dispatchEvent(new Event("input")); await wait(60);
told.closed = $("picked").hidden && $("results").hidden;
const last = inked();
document.querySelector("input[value='0']").click(); await wait(1200);
told.switched = inked() !== last;
document.querySelector("[data-group='0']").click(); await wait(60); told.zoomed = inked() !== last;
told.members = [...document.querySelectorAll("#members span")].map((one) => one.textContent);
told.pressed = [...document.querySelectorAll("[data-group]")].map((one) => one.getAttribute("aria-pressed"));
document.querySelector("[data-group='1']").click(); await wait(60);
told.other = document.querySelectorAll("#members span")[0].textContent;
$("all").click();
told.left = document.querySelectorAll("#members, [aria-pressed=true]").length;
told.overflow = document.documentElement.scrollWidth - innerWidth;
document.body.append(Object.assign(document.createElement("pre"), {id: "told", textContent: JSON.stringify(told)}));
console.log("checked");
});</script>"""


def _page(count: int) -> str:
    generator = np.random.default_rng(0)
    sentences = [NASTY, *(f"Sentence number {number}." for number in range(1, count))]
    labels = np.arange(count) % 3 - 1
    near = (np.arange(count)[:, None] + np.arange(1, 11)) % count
    cosines = np.linspace(0.9, -0.2, 10, dtype=np.float32) * np.ones((count, 1), np.float32)
    sides = [
        MapSide(name, generator.random((count, 2)).astype(np.float32), near, cosines) for name in ("mini", "<tuned>")
    ]
    clusters = [MapCluster(("rain", "snow"), count // 3, 1), MapCluster((), count // 3, 2)]
    return map_page("A <map>", sentences, sides, labels, clusters, count)


def _opened(page: str, tmp_path: Path, *flags: str) -> tuple[dict[str, Any], list[str]]:
    # The policy is taken out for the driver alone; the page itself is opened with it first, below.
    path = tmp_path / "driven.html"
    path.write_text(
        re.sub(r"<meta http-equiv=[^>]*>", "", page).replace("</body>", DRIVER + "</body>"), encoding="utf-8"
    )
    words = [str(BROWSER), *FLAGS, *flags, f"--user-data-dir={tmp_path / 'profile'}", path.as_uri()]
    done = subprocess.run(words, capture_output=True, timeout=120, check=True)
    # The driver reads the canvas back, of which Chromium remarks that it is slow.
    lines = done.stderr.decode("utf-8", "replace").splitlines()
    console = [line for line in lines if "CONSOLE" in line and "readback" not in line]
    found = re.search(r'<pre id="told">(.*?)</pre>', done.stdout.decode("utf-8"), re.DOTALL)
    assert found, console
    return json.loads(html.unescape(found.group(1))), console


def test_groups_of_one_colour_are_far_apart() -> None:
    places = np.random.default_rng(3).random((30, 2)).astype(np.float32)
    colours = group_colours(places, np.arange(30) % 15, 15)
    assert colours[:12] == list(range(12))
    middles = [np.median(places[np.arange(30) % 15 == group], axis=0) for group in range(15)]
    for group in range(12, 15):
        away = [np.linalg.norm(middles[group] - middles[other]) for other in range(group)]
        nearest = {colour: min(a for a, c in zip(away, colours, strict=False) if c == colour) for colour in range(12)}
        assert nearest[colours[group]] == max(nearest.values())
    assert group_colours(places, np.full(30, -1), 0) == []


def test_the_page_names_its_script_and_style_in_its_policy() -> None:
    page = _page(30)
    assert page.count("'sha256-") == 2
    assert "<img" not in page
    assert "A &lt;map&gt;" in page
    assert "http" not in re.sub(r"http-equiv", "", page)
    assert "30 sentences;" in page


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
def test_it_answers_on_a_narrow_screen_too(tmp_path: Path) -> None:
    told, console = _opened(_page(90), tmp_path, "--window-size=500,900", "--virtual-time-budget=6000")
    assert told["drawn"]
    assert told["found"] == "1 of 90 sentences"
    assert told["listed"] == [NASTY]
    assert told["picked"] == NASTY
    assert told["sides"] == ["<tuned>", "mini"]  # the encoder whose map is shown first
    assert told["near"] == 16
    assert told["closed"]
    assert told["switched"]
    assert told["zoomed"]
    assert told["marked"]
    assert len(told["members"]) == 30
    assert {int(re.sub(r"\D", "", sentence)) % 3 for sentence in told["members"]} == {1}  # those of the first group
    assert told["pressed"] == ["true", "false"]
    assert int(re.sub(r"\D", "", told["other"])) % 3 == 2
    assert told["left"] == 0
    assert told["overflow"] <= 0
    assert len(console) == 1
    assert "checked" in console[0]


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
def test_fifty_thousand_points(tmp_path: Path) -> None:
    told, console = _opened(_page(50_000), tmp_path, "--virtual-time-budget=20000")
    assert told["found"] == "1 of 50,000 sentences"
    assert told["switched"]
    assert len(console) == 1
