"""``selfguide study``: every study at its smallest, results that resume, files whose numbers are the results file's."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import selfguide
from reported import Page
from selfguide.comparison import runner, worker
from selfguide.comparison.cells import CellRecord
from selfguide.comparison.specs import parse_specs
from selfguide.errors import InterruptedRun, SelfguideError, UsageError
from selfguide.report.drawing import draw
from selfguide.report.folders import write_report
from selfguide.report.plots import figure_from_dict
from selfguide.studies import registry
from selfguide.studies.base import Scale, Setup
from selfguide.studies.files import StudyResult
from selfguide.studies.measuring import function_of
from selfguide.studies.specs import settings_by_grid
from toys import Outcome

Command = Callable[..., Outcome]
StudyRun = Callable[..., StudyResult]
QUICK = ("max_steps=2", "dev_every=2")
SMALLEST: dict[str, tuple[str, ...]] = {
    "ablation": ("parts=loss,head,layers,layer-0,guide", "losses=opt2", "layers=upper", "head_size=8", "batch_size=4"),
    "temperature": ("temperatures=0.01,0.1", "methods=sg-opt,simcse", "head_size=8", "batch_size=4"),
    "batch-size": ("batch_sizes=2,4", "methods=simcse"),
    "low-resource": ("sentences=8,20,0", "methods=simcse,whitening", "batch_size=4"),
    "augmentations": ("augmentations=none,shuffle", "batch_size=4"),
}


@pytest.fixture
def studied(bert: Path, text_file: Path, dev_file: Path, tmp_path: Path) -> StudyRun:
    """A study on toy text with a tiny encoder, kept in one folder."""

    def call(name: str, *settings: str, **more: Any) -> StudyResult:
        given: dict[str, Any] = {
            "encoder": bert,
            "text": text_file,
            "limit": 40,
            "pairs": dev_file,
            "dev": "",
            "settings": (*QUICK, *(settings or SMALLEST[name])),
            "output": tmp_path / "study",
            "report": False,
            "jobs": 1,
        }
        return selfguide.study(name, **given | more)

    return call


# -- every study -------------------------------------------------------------------------------------------------------


def test_the_demonstrations_pairs_choose_nothing_on_a_text_of_ones_own(
    studied: StudyRun, text_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither with --text nor with the texts of a list, unless they are asked for."""
    small = ("methods=simcse", "batch_size=4", "temperatures=0.1")
    assert studied("temperature", *small, dev=None, quiet=False).results["setting"]["dev"] is None
    assert "the last weights of each run count" in " ".join(capsys.readouterr().err.split())
    asked = studied("temperature", *small, dev="demo-dev", output=None).results["setting"]["dev"]
    assert asked is not None
    assert studied("temperature", *small, dev=None, text=None, output=None).results["setting"]["dev"] == asked
    own = ("methods=simcse", "batch_size=4", f"texts={text_file}", "tests=none")
    assert studied("domains", *own, dev=None, text=None, output=None).results["setting"]["dev"] is None


@pytest.mark.usefixtures("drawn_figures")
@pytest.mark.parametrize("name", list(SMALLEST))
def test_a_study_runs_end_to_end(name: str, studied: StudyRun, tmp_path: Path) -> None:
    found = studied(name, report=True)
    folder = tmp_path / "study"
    results = json.loads((folder / "study.json").read_text(encoding="utf-8"))
    assert results == found.results
    assert not found.failed
    assert results["question"] == registry.info(name).question
    assert results["notes"][0].startswith("This is the small setting: a demonstration")
    assert results["setting"]["encoder_digest"]
    assert len(results["setting"]["text_digest"]) == 64
    assert results["versions"]["selfguide"] == selfguide.__version__
    for table in results["tables"]:
        assert table["rows"]
        with (folder / f"{table['key']}.csv").open(encoding="utf-8") as source:
            assert len(list(csv.reader(source))) == 1 + len(table["rows"])
        assert f"## {table['title']}" in (folder / "study.md").read_text(encoding="utf-8")
    drawn = sorted((folder / "figures").iterdir())
    assert {path.suffix for path in drawn} == {".png", ".svg"}
    assert all(path.stat().st_size > 1000 for path in drawn)
    for figure in results["figures"]:
        assert figure["alt"] in (folder / "study.md").read_text(encoding="utf-8").replace("\\", "")
        assert "<dc:description>" in (folder / "figures" / f"{figure['key']}.svg").read_text(encoding="utf-8")
        _figure_has_the_tables_numbers(figure, results)
    _page_has_the_files_numbers(Page(folder / "report.html"), results)
    if name == "temperature":
        _pictures_have_the_results_numbers(results["figures"][0])


def _figure_has_the_tables_numbers(figure: dict[str, Any], results: dict[str, Any]) -> None:
    """Every number of a figure is a score of a cell's table in the same file."""
    scores = [
        value["mean"]
        for grid in results["grids"].values()
        for row in grid["rows"].values()
        for value in row["values"].values()
    ]
    entries = [entry for table in results["tables"] for row in table["rows"] for entry in row.values()]
    shown = [entry["mean"] for entry in entries if isinstance(entry, dict)]
    numbers = _numbers(figure)
    assert numbers
    for number in numbers:
        assert number in scores
        assert number in shown


def _numbers(figure: dict[str, Any]) -> list[float]:
    if figure["kind"] == "lines":
        values = [value for series in figure["series"] for _, value in series["points"]]
    elif figure["kind"] == "dots":
        values = [value for _, value in figure["dots"]]
    else:
        values = [value for row in figure["values"] for value in row]
    return [value["mean"] for value in values if value] + list(figure.get("levels", {}).values())


def _page_has_the_files_numbers(page: Page, results: dict[str, Any]) -> None:
    assert results["question"] in page.words
    for table in results["tables"]:
        rows = page.tables[table["title"]][1:]
        for cells, row in zip(rows, table["rows"], strict=True):
            for (_, attributes), column in zip(cells, table["columns"], strict=True):
                entry = row.get(column["key"])
                number = entry["mean"] if isinstance(entry, dict) else entry
                if isinstance(number, str | None):
                    assert "data-value" not in attributes
                else:
                    assert float(str(attributes["data-value"])) == number
    drawn = sorted(float(str(mark["data-value"])) for mark in page.all("g") if "data-value" in mark)
    assert drawn == sorted(number for figure in results["figures"] for number in _numbers(figure))
    described = [attributes for attributes in page.all("svg") if attributes.get("role") == "img"]
    assert len(described) == len(results["figures"])


def _pictures_have_the_results_numbers(content: dict[str, Any]) -> None:
    axes = draw(figure_from_dict(content)).axes
    lines = {line.get_label(): line for line in axes.lines}
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [item["name"] for item in content["series"]]
    for series in content["series"]:
        line = lines[series["name"]]
        assert [float(x) for x in line.get_xdata()] == [x for x, _ in series["points"]]
        assert [float(y) for y in line.get_ydata()] == [value["mean"] for _, value in series["points"]]
    levels = {name: lines[name].get_ydata()[0] for name in content["levels"]}
    assert levels == content["levels"]


# -- what the rows are -------------------------------------------------------------------------------------------------


def test_the_ablation_changes_one_thing_at_a_time(studied: StudyRun) -> None:
    results = studied("ablation", "parts=temperature,layers,layer-0", "temperatures=0.01,0.2", "head_size=8").results
    rows = results["grids"]["ablation"]["rows"]
    # 0.01 is what SG-OPT has, so there is no row for it; the tiny encoder has three layers.
    assert list(rows) == ["sg-opt", "temperature 0.2", "layers last", "layers upper", "layer-0 False", "cls", "mean"]
    options = {
        label: row["stages"][0]["options"] for label, row in rows.items() if row["stages"][0]["method"] == "sg-opt"
    }
    for label, own in options.items():
        differing = {name for name in own if own[name] != options["sg-opt"][name]}
        assert len(differing) == (label != "sg-opt"), label
    assert options["layers upper"]["layers"] == "2-3"
    first = results["tables"][0]["rows"][1]
    assert (first["part"], first["setting"]) == ("temperature τ", "0.2 instead of 0.01")
    assert first["difference"] == rows["temperature 0.2"]["versus_baseline"]["difference"]


def test_a_batch_size_changes_the_steps_and_nothing_else(studied: StudyRun, tmp_path: Path) -> None:
    found = studied("batch-size", "batch_sizes=4,8", "methods=simcse", "max_steps=0")
    rows = {row["batch_size"]: row for row in found.table("scores")["rows"] if row["method"] == "simcse"}
    assert (rows[4]["steps"], rows[8]["steps"]) == (10, 5)
    assert (tmp_path / "study" / "study.md").is_file()
    assert not (tmp_path / "study" / "report.html").exists()  # not asked for


def test_small_draws_are_parts_of_large_ones_and_too_large_ones_left_out(studied: StudyRun) -> None:
    from selfguide.comparison.texts import DatasetLocator
    from selfguide.studies.texts import TextSampler

    texts = TextSampler(DatasetLocator())
    ten, thirty = (texts.sample("demo", count).sentences for count in (10, 30))
    assert (len(ten), thirty[:10]) == (10, ten)
    results = studied("low-resource", "sentences=8,500,0", "methods=whitening").results
    assert list(results["grids"]) == ["untuned", "sentences-8", "sentences-all"]
    assert [x for x, _ in results["figures"][0]["series"][0]["points"]] == [8, 40]
    assert results["grids"]["sentences-8"]["setting"]["text"] == ["8 of notes.txt, drawn at random"]


def test_each_pair_of_augmentations_is_run_once_and_stands_twice(studied: StudyRun, ran: list[str]) -> None:
    figure = studied("augmentations").results["figures"][0]
    assert ran == ["none and none, seed 1", "none and shuffle, seed 1", "shuffle and shuffle, seed 1", "cls", "mean"]
    assert figure["values"][0][1] == figure["values"][1][0]


# -- going on ----------------------------------------------------------------------------------------------------------


def test_a_study_that_was_killed_goes_on_where_it_was(
    studied: StudyRun, ran: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def killed(job: worker.CellJob) -> CellRecord:
        if len(ran) == 3:
            raise KeyboardInterrupt
        ran.append(job.cell.name)
        return worker.run_cell(job)

    with monkeypatch.context() as patch:
        patch.setattr(runner, "run_cell", killed)
        with pytest.raises(InterruptedRun, match="the same command continues"):
            studied("temperature")
    with pytest.raises(SelfguideError, match="is not finished"):
        write_report(tmp_path / "study")
    before = list(ran)
    del ran[:]
    whole = studied("temperature")
    assert len(before) == 3
    assert len(ran) == 3
    assert not set(before) & set(ran)
    del ran[:]
    assert studied("temperature").results == whole.results
    assert ran == []
    next((tmp_path / "study" / "grids" / "temperature" / "cells").glob("simcse-at-0.1-*.json")).unlink()
    studied("temperature")
    assert ran == ["simcse at 0.1, seed 1"]
    del ran[:]
    studied("temperature", *SMALLEST["temperature"], "max_steps=3")
    assert len(ran) == 4  # the untuned rows have no steps


def test_a_failing_cell_is_reported_and_the_others_stand(studied: StudyRun, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(job: worker.CellJob) -> CellRecord:
        return worker.failed_record(job, "too hot") if "0.1" in job.cell.name else worker.run_cell(job)

    monkeypatch.setattr(runner, "run_cell", failing)
    found = studied("temperature")
    assert found.failed[0] == "temperature: sg-opt at 0.1, seed 1 failed: too hot"
    points = {item["name"]: [x for x, _ in item["points"]] for item in found.results["figures"][0]["series"]}
    assert points == {"sg-opt": [0.01], "simcse": [0.01]}
    assert "| sg-opt | 0.1 | – |" in found.markdown()


# -- options -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("temprature", (), "Did you mean 'temperature'"),
        ("temperature", ("temperatures=warm",), "temperatures takes a number, not 'warm'"),
        ("temperature", ("temperatures=",), "names no value"),
        ("temperature", ("colour=1",), "none of the methods knows a setting or option 'colour'"),
        ("temperature", ("methods=nothing",), "There is no method 'nothing'"),
        ("ablation", ("parts=wheels",), "no part 'wheels'"),
    ],
)
def test_what_no_study_knows_is_refused(name: str, settings: tuple[str, ...], words: str, bert: Path) -> None:
    with pytest.raises(UsageError, match=words):
        selfguide.study(name, encoder=bert, settings=settings)


def test_set_changes_lists_of_the_study_and_settings_of_methods() -> None:
    scale = Scale(settings=("epochs=1",), values={"temperatures": (0.1,), "flags": (True,)})
    changed = scale.with_settings(("temperatures=1,2", "flags=false", "max_steps=3"))
    assert changed.values == {"temperatures": (1.0, 2.0), "flags": (False,)}
    assert (changed.settings, changed.user_settings) == (("epochs=1",), ("max_steps=3",))


@pytest.mark.parametrize("name", [info.name for info in registry.studies()])
def test_every_study_has_a_small_setting_of_its_own_data_and_a_full_one(name: str) -> None:
    study = registry.make(name)
    info = registry.info(name)
    for attribute in ("name", "title", "question", "reference", "needs"):  # read from the source, without importing it
        assert getattr(study, attribute) == getattr(info, attribute)
    assert "?" in study.question
    assert len(study.full.seeds) >= 3 or not study.full.seeds
    assert set(study.small.values) == set(study.full.values)
    for scale in (study.small, study.full):
        plan = study.plan(Setup(scale, scale is study.full, "some-encoder", 6, 3200))
        for key, settings in settings_by_grid(plan, scale, "auto").items():
            assert parse_specs(next(grid.specs for grid in plan.grids if grid.key == key), settings)


@pytest.mark.usefixtures("drawn_figures")
def test_the_command_lists_runs_and_reports(
    command: Command, bert: Path, text_file: Path, dev_file: Path, tmp_path: Path
) -> None:
    for listed in (command("study"), command("study", "--list")):
        assert listed.code == 0
        assert all(info.name in listed.out for info in registry.studies())
    assert "There is no study 'x'" in command("study", "x").err
    folder = tmp_path / "out"
    words: list[str | Path] = ["study", "batch-size", "--encoder", bert, "--text", text_file, "--pairs", dev_file]
    words += ["--dev", "", "--limit", "20", "--seeds", "1,2"]
    words += [word for setting in (*QUICK, *SMALLEST["batch-size"]) for word in ("--set", setting)]
    done = command(*words, "--output", folder)
    assert done.code == 0, done.err
    assert "±" in done.out
    assert f"the page: {folder / 'report.html'}" in done.err
    assert [path.name for path in sorted((folder / "figures").iterdir())] == ["batch_size.png", "batch_size.svg"]
    results = json.loads((folder / "study.json").read_text(encoding="utf-8"))
    assert "--output" not in results["commands"][0]
    assert results["setting"]["seeds"] == [1, 2]
    page = (folder / "report.html").read_bytes()
    # The results file alone makes the page, with neither model nor cells at hand.
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "study.json").write_bytes((folder / "study.json").read_bytes())
    assert command("report", alone).code == 0
    assert (alone / "report.html").read_bytes() == page


def test_the_help_of_study_needs_no_torch() -> None:
    import subprocess
    import sys

    script = (
        "import sys; sys.argv = ['selfguide', 'study', '--list']\n"
        "from selfguide.cli.main import run\n"
        "run(); assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize(
    "address",
    [
        "layers:probed",
        "geometry:shape",
        "frequent_tokens:thinned",
        "efficiency:training_cost",
        "efficiency:inference_cost",
        "domains:tuned_on",
        "domains:untuned_on_pairs",
        "finetune:finetuned",
        "multilingual:vocabulary",
        "multilingual:tuned_in_english",
    ],
)
def test_measurements_made_before_are_recognised_by_their_function(address: str) -> None:
    # The address is part of a record's identity: a function that moves makes every study folder measure again.
    assert callable(function_of(f"selfguide.studies.{address}"))
