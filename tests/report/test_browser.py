"""The report in a real browser: no errors, tables that sort, an explorer that answers, nothing wider than a phone."""

from __future__ import annotations

import html
import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from browser import BROWSER, FLAGS
from reported import NASTY, comparison, evidence, finished_run
from selfguide.progress import Reporter
from selfguide.report.folders import write_report, write_report_or_warn
from tongues import sentences

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium here")

# Written last into the page, and to the console too: a check that finds no errors there must be able to find something.
REPORT = """<script>
addEventListener("load", async () => {
  const told = {};
  %s
  document.body.append(Object.assign(document.createElement("pre"), {id: "told", textContent: JSON.stringify(told)}));
  console.log("checked");
});
</script>"""


class Opened(NamedTuple):
    """What a browser made of a page."""

    dom: str
    console: list[str]

    @property
    def told(self) -> dict[str, Any]:
        found = re.search(r'<pre id="told">(.*?)</pre>', self.dom, re.DOTALL)
        assert found, self.console
        return json.loads(html.unescape(found.group(1)))


@pytest.fixture
def opened(tmp_path: Path) -> Callable[[Path], Opened]:
    def open_(page: Path, hash: str = "") -> Opened:
        words = [str(BROWSER), *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", page.as_uri() + hash]
        done = subprocess.run(words, capture_output=True, timeout=120, check=True)
        lines = done.stderr.decode("utf-8", "replace").splitlines()
        return Opened(done.stdout.decode("utf-8"), [line for line in lines if "CONSOLE" in line])

    return open_


def driven(page: Path, script: str) -> Path:
    """A copy that clicks by itself; its policy is taken out, or it would refuse to."""
    content = re.sub(r"<meta http-equiv=[^>]*>", "", page.read_text(encoding="utf-8"))
    copy = page.with_name("driven.html")
    copy.write_text(content.replace("</body>", REPORT % script + "</body>"), encoding="utf-8")
    return copy


@pytest.fixture
def run_report(tmp_path: Path) -> Path:
    write_report_or_warn(finished_run(tmp_path / "run"), Reporter(quiet=True), evidence())
    return tmp_path / "run" / "report.html"


@pytest.fixture
def comparison_report(tmp_path: Path) -> Path:
    comparison(tmp_path / "comparison")
    return write_report(tmp_path / "comparison")


def test_pages_open_without_a_word_on_the_console(
    run_report: Path, comparison_report: Path, opened: Callable[..., Opened]
) -> None:
    for page in (run_report, comparison_report):
        seen = opened(page)
        assert seen.console == []
        assert '<thead><tr><th scope="col"><button' in seen.dom  # the policy let the script run


def test_tables_sort_by_number_by_name_and_back(comparison_report: Path, opened: Callable[..., Opened]) -> None:
    script = """
    const table = document.querySelector("table");
    const names = () => [...table.tBodies[0].rows].map((row) => row.cells[0].textContent);
    const button = (place) => table.tHead.rows[0].cells[place].querySelector("button");
    told.first = names();
    button(1).click(); told.best = names(); told.order = button(1).parentNode.getAttribute("aria-sort");
    button(1).click(); told.worst = names();
    button(1).click(); told.again = names();
    button(0).focus(); button(0).click(); told.named = names();
    button(3).click(); told.difference = names();
    told.focused = document.activeElement === button(0);
    """
    seen = opened(driven(comparison_report, script))
    told = seen.told
    assert told["first"] == told["again"] == ["bow", "cls†", "mean", "simcse", "sg-opt"]
    assert told["best"] == told["worst"][::-1] == ["sg-opt", "simcse", "mean", "bow", "cls†"]
    assert told["order"] == "descending"
    assert told["named"] == ["bow", "cls†", "mean", "sg-opt", "simcse"]
    assert told["difference"] == ["sg-opt", "simcse", "bow", "cls†", "mean"]  # the baseline has none: at the end
    assert told["focused"]
    assert [line for line in seen.console if "checked" not in line] == []
    assert len(seen.console) == 1


def test_the_explorer_answers(run_report: Path, opened: Callable[..., Opened]) -> None:
    script = """
    const pick = document.getElementById("pick"), search = document.getElementById("search");
    const text = (id) => [...document.getElementById(id).children].map((item) => item.textContent);
    const state = () => ({picked: document.getElementById("picked").textContent, count: pick.options.length,
      before: text("nearest-before"), after: text("nearest-after")});
    told.shown = !document.getElementById("explorer").hidden;
    told.first = state();
    pick.value = "3"; pick.dispatchEvent(new Event("input")); told.fourth = state();
    search.value = "TEACHER watches"; search.dispatchEvent(new Event("input")); told.searched = state();
    search.value = "nothing like it"; search.dispatchEvent(new Event("input")); told.none = state();
    location.hash = "#sentence-5"; await new Promise((done) => setTimeout(done, 100)); told.linked = state();
    """
    seen = opened(driven(run_report, script))
    told, sentences = seen.told, evidence().sentences
    assert told["shown"]
    assert (told["first"]["picked"], told["first"]["count"]) == (NASTY, 12)
    assert told["fourth"]["picked"] == sentences[3]
    cosines = ["0.90", "0.80", "0.70", "0.60", "0.50"]
    assert told["fourth"]["before"] == [cosines[step] + sentences[4 + step] for step in range(5)]
    expected = [cosines[step] + sentences[5 + step] for step in range(5)]
    assert told["fourth"]["after"] == [*expected[:4], expected[4] + "new"]
    fitting = [sentence for sentence in sentences if "teacher" in sentence and "watches" in sentence]
    assert told["searched"]["count"] == len(fitting)
    assert told["none"]["count"] == 0
    assert told["linked"]["picked"] == sentences[5]
    assert [line for line in seen.console if "checked" not in line] == []


def test_nothing_is_wider_than_a_phone(
    run_report: Path, comparison_report: Path, tmp_path: Path, opened: Callable[..., Opened]
) -> None:
    for page in (run_report, comparison_report):
        inside = html.escape(page.read_text(encoding="utf-8"))
        frame = tmp_path / "frame.html"
        script = """
        const root = document.querySelector("iframe").contentDocument.documentElement;
        told.over = root.scrollWidth - root.clientWidth;
        told.boxes = [...root.querySelectorAll("section > *, header > *")].filter(
          (part) => part.getBoundingClientRect().right > 390.5).map((part) => part.outerHTML.slice(0, 80));
        """
        body = f'<!DOCTYPE html><body><iframe width="390" height="800" srcdoc="{inside}"></iframe>'
        frame.write_text(f"{body}{REPORT % script}</body>", encoding="utf-8")
        told = opened(frame).told
        assert told == {"over": 0, "boxes": []}


def test_right_to_left_sentences_begin_at_the_right(tmp_path: Path, opened: Callable[..., Opened]) -> None:
    known = evidence()
    arabic = replace(known, sentences=[*sentences("ar", 20)[8:], *sentences("ar", 40)[39:]][: len(known.sentences)])
    write_report_or_warn(finished_run(tmp_path / "run"), Reporter(quiet=True), arabic)
    script = """
    const look = (element) => getComputedStyle(element);
    const quote = document.getElementById("picked"), item = document.querySelector("#nearest-before li");
    told.quote = [look(quote).direction, parseFloat(look(quote).paddingRight) > 5, parseFloat(look(quote).paddingLeft)];
    told.select = look(document.getElementById("pick")).direction;
    const ends = (element, inside) => Math.abs(element.getBoundingClientRect().right - inside.getBoundingClientRect().right) < 2;
    told.neighbour = [look(item.children[1]).direction, look(item.children[1]).textAlign, ends(item.children[1], item)];
    const cell = document.querySelector("td.sentence");
    told.cell = [look(cell).direction, look(cell).textAlign];
    const search = document.getElementById("search");
    told.page = look(document.body).direction;
    search.value = "خبزا"; search.dispatchEvent(new Event("input"));
    told.search = [look(search).direction, document.getElementById("pick").options.length];
    """
    told = opened(driven(tmp_path / "run" / "report.html", script)).told
    assert told["page"] == "ltr"  # the page itself is in English
    assert told["quote"] == ["rtl", True, 0]
    assert told["select"] == "rtl"
    assert told["neighbour"] == ["rtl", "start", True]
    assert told["cell"] == ["rtl", "start"]
    assert told["search"] == ["rtl", sum("خبزًا" in sentence for sentence in arabic.sentences)]
    assert told["search"][1] > 0  # found although the vowel mark was not typed
