"""The report: the numbers are the file's, whatever a sentence contains is shown as text, and the page needs nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import selfguide
from reported import COMMAND, NASTY, Page, comparison, evidence, finished_run, score
from selfguide.errors import SelfguideError, UsageError
from selfguide.evaluation.embedder import EncoderInfo
from selfguide.evaluation.results import ScoreFolder
from selfguide.evaluation.tasks import GROUPS
from selfguide.progress import Reporter
from selfguide.report.evidence import read_evidence
from selfguide.report.folders import write_report, write_report_or_warn
from toys import Outcome, toy_sentences

# -- comparisons --------------------------------------------------------------------------------------------------------


def test_the_numbers_of_the_comparison_are_those_of_its_file(tmp_path: Path) -> None:
    found = comparison(tmp_path)
    page = Page(write_report(tmp_path))
    headline, *_ = (rows for caption, rows in page.tables.items() if caption.startswith("Mean ±"))
    assert [cell[0] for cell in headline[0]][:4] == ["method", "sts avg", "dev", "vs mean"]
    assert len(headline) == 1 + len(found["rows"])
    for cells, row in zip(headline[1:], found["rows"].values(), strict=True):
        assert cells[0][0] == row["label"] + ("†" if row["below_floor"] else "")
        _same(cells[1], row["values"]["sts avg"])
        _same(cells[2], row["dev"])
        if row["versus_baseline"]:
            assert float(cells[3][1]["data-value"]) == row["versus_baseline"]["difference"]
    by_task = page.tables["Each task: mean ± deviation over seeds"]
    for cells, row in zip(by_task[1:], found["rows"].values(), strict=True):
        for cell, task in zip(cells[1:], GROUPS["sts"], strict=True):
            _same(cell, row["values"][task])
    drawn = {str(group["data-label"]): group for group in page.all("g") if "data-label" in group}
    assert set(drawn) == set(found["rows"])
    for label, group in drawn.items():
        value = found["rows"][label]["values"]["sts avg"]
        assert float(str(group["data-value"])) == value["mean"]
        assert (float(str(group["data-deviation"])) if "data-deviation" in group else None) == value["deviation"]
    assert "† below the bag of words" in page.words
    assert COMMAND in page.words
    assert "simcse, seed 2 failed: It broke:" in page.words


def _same(cell: tuple[str, dict[str, str | None]], value: dict[str, Any]) -> None:
    text, attributes = cell
    spread = "" if value["deviation"] is None else f" ± {value['deviation']:.2f}"
    assert text == f"{value['mean']:.2f}{spread}"
    assert float(str(attributes["data-value"])) == value["mean"]


def test_the_dots_lie_where_the_numbers_say(tmp_path: Path) -> None:
    found = comparison(tmp_path)
    source = write_report(tmp_path).read_text(encoding="utf-8")
    means = {label: row["values"]["sts avg"]["mean"] for label, row in found["rows"].items()}
    width = float(re.findall(r'viewBox="0 0 ([\d.]+) ', source)[0])
    groups = re.findall(r'<g data-label="([^"]+)".*?<use x="([\d.]+)"', source)
    places = {label: 100 * float(place) / width for label, place in groups}
    slope = (places["sg-opt"] - places["cls"]) / (means["sg-opt"] - means["cls"])
    for label, mean in means.items():
        assert places[label] == pytest.approx(places["cls"] + slope * (mean - means["cls"]), abs=0.01)
    assert all(0 < place < 100 for place in places.values())


def test_the_best_are_bold_and_tested_differences_marked(tmp_path: Path) -> None:
    comparison(tmp_path, failing=False)
    source = write_report(tmp_path).read_text(encoding="utf-8")
    assert len(re.findall("<strong>", source)) == 1 + len(GROUPS["sts"])
    assert re.search(r"<strong>[\d.]+</strong> <span class=\"note\">±", source)
    assert "*** p &lt; 0.001" in source
    assert "Failed" not in source


def test_a_comparison_in_which_everything_failed_has_a_page(tmp_path: Path) -> None:
    found = comparison(tmp_path)
    for row in found["rows"].values():
        row |= {"values": {}, "dev": None, "errors": {"1": "no"}, "versus_baseline": None, "versus_best": None}
    found |= {"best": None, "floor": None}
    (tmp_path / "comparison.json").write_text(json.dumps(found), encoding="utf-8")
    page = Page(write_report(tmp_path))
    assert not page.all("svg")
    assert page.words.count("failed") >= 5


# -- runs ---------------------------------------------------------------------------------------------------------------


def test_a_run_shows_its_scores_and_curve(tmp_path: Path) -> None:
    page = Page(write_report(finished_run(tmp_path)))
    rows = page.tables["Dev scores before and after"]
    assert [cell[0] for row in rows[1:] for cell in row] == [
        "before (cls)", "41.00", "before (mean)", "52.00", "after", "61.35",
    ]  # fmt: skip
    marks = [mark for mark in page.all("g") if "data-x" in mark]
    points = [(int(str(mark["data-x"])), float(str(mark["data-value"]))) for mark in marks]
    assert points == [(50, 55.00000000000001), (100, 61.3456), (150, 60.0)]
    assert [mark.get("data-kept") for mark in marks] == [None, "yes", None]
    levels = {mark["data-level"]: float(str(mark["data-value"])) for mark in page.all("g") if "data-level" in mark}
    assert levels == {"before (cls)": 41.0, "before (mean)": 52.0}
    assert "fewer than three tokens <b>" in page.words
    assert "selfguide train --config run.json" in page.words
    assert not [item for item in page.elements if item[1].get("id") == "explorer"]


def test_the_page_carries_the_evidence_and_a_second_report_keeps_it(tmp_path: Path) -> None:
    folder = finished_run(tmp_path / "run")
    shown = evidence()
    write_report_or_warn(folder, Reporter(quiet=True), shown)
    first = (folder / "report.html").read_bytes()
    assert read_evidence(folder / "report.html") == shown
    assert write_report(folder) == folder / "report.html"
    assert (folder / "report.html").read_bytes() == first
    page = Page(folder / "report.html")
    examples = next(rows for caption, rows in page.tables.items() if caption.startswith("The first 8"))
    assert [cell[0] for cell in examples[1]] == [
        NASTY, shown.sentences[1], "0.90", shown.sentences[2], "0.90",
    ]  # fmt: skip
    geometry = page.tables["Embeddings before and after"]
    assert [cell[0] for cell in geometry[1]][:3] == ["mean cosine", "0.500", "0.250"]


def test_whatever_a_sentence_contains_is_text(tmp_path: Path) -> None:
    folder = finished_run(tmp_path)
    write_report_or_warn(folder, Reporter(quiet=True), evidence())
    page = Page(folder / "report.html")
    assert [item.get("id") for item in page.all("script")] == ["evidence", None]
    assert not page.all("img")
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]


def test_a_full_page_is_small(tmp_path: Path) -> None:
    long = tuple(("語" * 199 + "…",) * 200)
    whole = evidence(200)
    folder = finished_run(tmp_path)
    write_report_or_warn(folder, Reporter(quiet=True), replace(whole, sentences=long))
    assert (folder / "report.html").stat().st_size < 300_000


def test_a_run_without_dev_pairs_says_so(tmp_path: Path) -> None:
    page = Page(
        write_report(finished_run(tmp_path, scores={}, dev_curve=[], warnings=[], loss_curve=[[1, 3.0], [2, 2.0]]))
    )
    assert "no graded pairs" in page.words
    assert [item.get("id") for item in page.all("title")] == [None, "loss-title", None, None]


# -- scores -------------------------------------------------------------------------------------------------------------


def test_scores_have_a_page(tmp_path: Path) -> None:
    kept = ScoreFolder(tmp_path)
    for name in GROUPS["sts"]:
        kept.add(score(name, 40.123456))
        kept.add(replace(score(name, 50.5), encoder=EncoderInfo("other", "99", 32)))
    page = Page(write_report(tmp_path, tmp_path / "deep" / "page.html"))
    rows = page.tables["Scores, the best of each column in bold"]
    assert [cell[0] for cell in rows[1]] == ["mini", *["40.12"] * 8]
    assert {
        str(group["data-label"]): float(str(group["data-value"])) for group in page.all("g") if "data-label" in group
    } == {
        "mini": pytest.approx(40.123456),
        "other": 50.5,
    }


# -- all pages ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def pages(tmp_path: Path) -> list[Page]:
    comparison(tmp_path / "comparison")
    write_report_or_warn(finished_run(tmp_path / "run"), Reporter(quiet=True), evidence())
    ScoreFolder(tmp_path / "scores").add(score("demo", 51.5))
    written = [write_report(tmp_path / name) for name in ("comparison", "run", "scores")]
    again = [path.read_bytes() for path in written]
    assert [write_report(path.parent).read_bytes() for path in written] == again
    return [Page(path) for path in written]


def test_pages_are_one_file_each_and_well_formed(pages: list[Page]) -> None:
    for page in pages:
        assert not page.all("link")
        for _, attributes in page.elements:
            assert "src" not in attributes
            assert "style" not in attributes  # the policy would refuse it
            assert (attributes.get("href") or "#").startswith("#")
        assert not re.search(r"https?://|url\(|@import", page.source)
        identifiers = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
        assert len(identifiers) == len(set(identifiers))
        links = {str(link["href"])[1:] for link in page.all("a")}
        assert links <= set(identifiers)


def test_pages_can_be_read_without_seeing_them(pages: list[Page]) -> None:
    for page in pages:
        assert [tag for tag, _ in page.elements].count("h1") == 1
        assert page.all("html") == [{"lang": "en"}]
        assert len(page.tables) == len(page.all("table"))
        identifiers = {attributes.get("id") for _, attributes in page.elements}
        for drawing in (item for item in page.all("svg") if item.get("class") == "chart"):
            assert drawing["role"] == "img"
            assert set(str(drawing["aria-labelledby"]).split()) <= identifiers
        assert all(heading.get("scope") in ("col", "row") for heading in page.all("th"))


def test_letters_stand_out_in_light_and_dark() -> None:
    style = (resources.files("selfguide.report") / "style.css").read_text(encoding="utf-8")
    for block in re.findall(r":root \{(.*?)\}", style, re.DOTALL):
        colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{3,6})\b", block))
        for letters in ("ink", "quiet", "accent"):
            for ground in ("paper", "sheet", "soft"):
                assert _contrast(colours[letters], colours[ground]) >= 4.5, (letters, ground)


def _contrast(one: str, two: str) -> float:
    def luminance(colour: str) -> float:
        digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
        parts = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(two)))
    return (high + 0.05) / (low + 0.05)


# -- measuring ----------------------------------------------------------------------------------------------------------


def test_geometry_and_neighbours_of_known_vectors() -> None:
    from selfguide.runs.evidence import geometry, nearest

    units = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    found = geometry(units)
    assert found.mean_cosine == pytest.approx(-1 / 3, abs=1e-6)
    assert found.uniformity == pytest.approx(np.log((2 * np.exp(-4) + np.exp(-8)) / 3), abs=1e-6)
    assert (sum(found.histogram), found.histogram[0], found.histogram[20]) == (3, 1, 2)
    assert nearest(units) == (((1, 0.0), (2, -1.0)), ((0, 0.0), (2, 0.0)), ((1, 0.0), (0, -1.0)))


def test_a_sample_is_drawn_once_and_for_all() -> None:
    from selfguide.runs.evidence import sample

    text = [{"sentence": sentence} for sentence in [*toy_sentences(90), *toy_sentences(90)]]
    drawn = sample(text, 50, seed=3)
    assert len(set(drawn)) == len(drawn) == 50
    assert sample(text, 50, seed=3) == drawn != sample(text, 50, seed=4)
    assert sorted(sample(text, 300)) == sorted(toy_sentences(90))


def test_measuring_changes_nothing_in_a_run(
    bert: Path, text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from selfguide.runs import run as runs
    from selfguide.runs.evidence import collect_after, collect_before, sample

    def train(name: str) -> Path:
        options = {"max_steps": 2, "batch_size": 4, "head_size": 16}
        selfguide.train(bert, text_file, output=tmp_path / name, quiet=True, **options)
        return tmp_path / name

    def check_and_measure(text: Any, encoder: Any, reporter: Any) -> None:
        measured.append(collect_before(encoder, sample(text, 30, seed=1), reporter))

    measured: list[Any] = []
    without = train("without")
    monkeypatch.setattr(runs, "check_text", check_and_measure)
    with_ = train("with")
    for name in ("model.safetensors", "tokenizer.json"):
        assert (without / name).read_bytes() == (with_ / name).read_bytes()
    found = collect_after(measured[0], selfguide.load(with_), Reporter(quiet=True))
    assert found is not None
    assert found.before.geometry != found.after.geometry
    assert len(found.before.nearest) == len(found.sentences) == found.measured == 30
    assert all(place != row for row, near in enumerate(found.after.nearest) for place, _ in near)


def test_trouble_with_the_report_is_a_warning_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from selfguide.runs import evidence as collect

    monkeypatch.delenv("SELFGUIDE_DEBUG", raising=False)
    reporter = Reporter(quiet=True, main_process=False)
    assert collect.collect_before(None, ["a", "b"], reporter) is None  # type: ignore[arg-type]
    assert collect.collect_after(None, None, reporter) is None  # type: ignore[arg-type]
    write_report_or_warn(tmp_path, reporter)
    assert len(reporter.warnings) == 2
    assert "no report.html" in reporter.warnings[1]


# -- the command --------------------------------------------------------------------------------------------------------


def test_the_command_writes_the_page_and_says_where(tmp_path: Path, command: Callable[..., Outcome]) -> None:
    finished_run(tmp_path / "run")
    outcome = command("report", tmp_path / "run", "--output", tmp_path / "page.html")
    assert (outcome.code, outcome.out) == (0, f"Report: {tmp_path / 'page.html'}\n")
    assert (tmp_path / "page.html").is_file()


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "nothing to report on"),
        ({"cells/a.json": "{}"}, "compare --from"),
        ({"scores.json": "[]"}, "no scores yet"),
        ({"comparison.json": "{}"}, "of another version"),
        ({"run.json": "[1]"}, "of another version"),
        ({"run.json": "{"}, "of another version"),
    ],
)
def test_what_cannot_be_reported_on_is_said(files: dict[str, str], words: str, tmp_path: Path) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    with pytest.raises(SelfguideError, match=words):
        write_report(tmp_path)


def test_places_that_are_none_are_said(tmp_path: Path) -> None:
    with pytest.raises(SelfguideError, match="There is no folder"):
        write_report(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="is a folder"):
        write_report(finished_run(tmp_path / "run"), tmp_path)
