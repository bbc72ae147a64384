"""The page and the pictures of a study, every kind of figure, from made-up results: no encoder is needed."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from browser import BROWSER, FLAGS
from reported import NASTY, Page
from selfguide.errors import SelfguideError
from selfguide.report.folders import write_report
from selfguide.report.plots import Dots, Histogram, Lines, Matrix, Scatter, Series
from selfguide.report.study_table import study_table
from selfguide.report.table import to_csv
from selfguide.studies.files import as_markdown, write_figures
from selfguide.studies.outcome import Column, Table, plain
from selfguide.studies.values import over_seeds

ONE, TWO, LONE = over_seeds({1: 50.25, 2: 51.5}), over_seeds({1: 48.125, 2: 49.0}), over_seeds({None: 47.0})
FIGURES = (
    Lines("lines", "Lines", "How to read it.", "τ", "score",
          (Series("sg-opt", ((0.01, ONE), (0.1, TWO))), Series(NASTY, ((0.1, LONE),))), {"mean": 46.5}, log=True),
    Lines("words", "Words", "Words across.", "part", "score", (Series("a", (("first", ONE), ("second", TWO))),)),
    Dots("dots", "Dots", "A dot each.", "score", (("one", ONE), (NASTY, LONE)), {"one": ONE.mean}),
    Matrix("matrix", "Matrix", "Fields.", "across", "down", ("x", "token-cutoff"), ("y", "z"),
           ((ONE, TWO), (None, LONE))),
    Scatter("scatter", "Scatter", "Points.", "gold", "cosine", {"before": ((0.0, 1.0),), "after": ((2.0, 3.0),)}, alt="Two."),
    Histogram("histogram", "Histogram", "Outlines.", "cosine", (0.0, 0.5, 1.0), {"a": (1, 2), "b": (0, 3)}, alt="Bins."),
)  # fmt: skip
TABLE = Table(
    "scores",
    "Scores",
    (Column("name", "name"), Column("value", "value", better="high"), Column("cost", "cost", better="low"),
     Column("rate", "rate", decimals=None), Column("gap", "gap", sign=True)),
    (
        {"name": "sg-opt", "value": ONE, "cost": 1200, "rate": 0.0005, "gap": -1.5},
        {"name": NASTY, "value": LONE, "cost": 30, "rate": 0.1, "gap": None},
        {"name": "failed", "value": None, "cost": None, "rate": None, "gap": None},
    ),
    ("A note | with a bar.",),
)  # fmt: skip


@pytest.fixture
def results(tmp_path: Path) -> dict[str, Any]:
    """A study's results file in the test's folder, and what it holds."""
    found = plain(
        {
            "study": "toy",
            "title": "A toy",
            "question": "Does it work?",
            "reference": "",
            "full": False,
            "commands": ["selfguide study toy"],
            "date": "2026-01-02",
            "versions": {"selfguide": "0.1.0"},
            "devices": ["cpu, threads: 1"],
            "seconds": 61.0,
            "setting": {
                "encoder": "mini", "encoder_digest": "aa", "text": NASTY, "text_digest": "bb" * 32, "sentences": 40,
                "dev": None, "dev_digest": None, "tasks": {"demo": "cc"}, "protocol": {"similarity": "cosine"},
                "seeds": [1, 2], "settings": ["max_steps=2"], "values": {"temperatures": [0.01, 0.1]},
            },
            "tables": [TABLE],
            "figures": FIGURES,
            "notes": ["A demonstration."],
            "warnings": ["sg-opt: few steps"],
            "failed": ["toy: failed failed: too hot"],
            "plan": {"toy": {"specs": ["sg-opt"], "title": ""}},
            "grids": {},
            "measurements": {},
        }
    )  # fmt: skip
    (tmp_path / "study.json").write_text(json.dumps(found, allow_nan=False), encoding="utf-8")
    return found


def test_the_page_shows_the_files_numbers_and_no_more(results: dict[str, Any], tmp_path: Path) -> None:
    page = Page(write_report(tmp_path))
    assert NASTY.split()[0] not in page.source.replace("</script>\n</body>", "")
    rows = page.tables["Scores"]
    assert [cell[0] for cell in rows[1]] == ["sg-opt", "50.88 ± 0.88", "1,200", "0.0005", "−1.50"]
    assert [cell[0] for cell in rows[3]] == ["failed", "–", "–", "–", "–"]
    marks = [mark for mark in page.all("g") if "data-value" in mark]
    values = [ONE, TWO, LONE, ONE, TWO, ONE, LONE, ONE, TWO, LONE]
    assert sorted(float(str(mark["data-value"])) for mark in marks) == sorted(
        [*(value.mean for value in values), 46.5, ONE.mean]
    )
    described = [item for item in page.all("svg") if item.get("role") == "img"]
    assert len(described) == len(FIGURES)
    for words in ("Does it work?", "too hot", "few steps", "selfguide study toy", "A demonstration", "Bins."):
        assert words in page.words


def test_the_tables_say_the_same_in_every_form(results: dict[str, Any]) -> None:
    table = study_table(results["tables"][0])
    assert table.best == [None, "50.88", "30", None, None]
    markdown = as_markdown(results)
    assert "| sg-opt | **50.88** ± 0.88 | 1,200 | 0.0005 | −1.50 |" in markdown
    assert "![one 50.88; " in markdown
    heading, first, *_ = to_csv(table).splitlines()
    assert heading == "name,value,value sd,cost,rate,gap"
    assert first == f"sg-opt,{ONE.mean},{ONE.deviation},1200,0.0005,-1.5"


def test_every_kind_of_figure_is_drawn_the_same_way_each_time(results: dict[str, Any], tmp_path: Path) -> None:
    paths = write_figures(results, tmp_path)
    assert len(paths) == 2 * len(FIGURES)
    before = [path.read_bytes() for path in paths]
    assert [path.read_bytes() for path in write_figures(results, tmp_path)] == before
    assert not [path for path in (tmp_path / "figures").iterdir() if path.name.startswith(".")]


def test_a_file_of_another_kind_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text("{}", encoding="utf-8")
    with pytest.raises(SelfguideError, match="not what this version of selfguide writes"):
        write_report(tmp_path)


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
def test_a_browser_has_nothing_to_say_about_the_page(results: dict[str, Any], tmp_path: Path) -> None:
    page = write_report(tmp_path)
    words = [str(BROWSER), *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", page.as_uri()]
    done = subprocess.run(words, capture_output=True, timeout=120, check=True)
    console = [line for line in done.stderr.decode("utf-8", "replace").splitlines() if "CONSOLE" in line]
    assert console == []
    dom = done.stdout.decode("utf-8")
    assert len(re.findall('<svg class="chart"', dom)) == len(FIGURES)
    assert len(re.findall("<button", dom)) == len(TABLE.columns)
