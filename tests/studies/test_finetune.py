"""The study ``finetune``: starts × numbers of graded pairs, the same pairs for every start, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import selfguide
from selfguide.errors import SelfguideError, UsageError
from selfguide.report.folders import write_report
from selfguide.studies import finetune, measuring
from selfguide.studies.context import GradedPairs, MeasurementContext
from selfguide.studies.files import StudyResult, write_figures
from selfguide.studies.measuring import MeasurementJob, MeasurementRecord

QUICK = ("max_steps=2", "batch_size=4", "finetune_epochs=1", "finetune_batch_size=4", "finetune_learning_rate=0.01")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The measurements that are made in this process."""
    names: list[str] = []
    measure = measuring.measure

    def counted(job: MeasurementJob) -> MeasurementRecord:
        names.append(job.stem)
        return measure(job)

    monkeypatch.setattr(measuring, "measure", counted)
    return names


def _study(encoder: Path, text: Path, pairs: Path, *settings: str, **more: Any) -> StudyResult:
    given: dict[str, Any] = {
        "encoder": encoder,
        "text": text,
        "limit": 20,
        "pairs": pairs,
        "settings": (*QUICK, f"pairs_from={pairs}", *settings),
        "jobs": 1,
        "report": False,
    }
    return selfguide.study("finetune", **given | more)


def test_starts_by_numbers_of_pairs(
    bert: Path, text_file: Path, dev_file: Path, tmp_path: Path, made: list[str]
) -> None:
    folder = tmp_path / "study"
    settings = ("methods=cls,sg-opt", "pairs=8,all")
    found = _study(bert, text_file, dev_file, *settings, output=folder, seeds=2)
    assert not found.failed
    assert len(made) == 8
    rows = found.table("scores")["rows"]
    expected = [(start, pairs) for start in ("cls", "sg-opt") for pairs in ("0", "8", "all 40")]
    assert [(row["start"], row["pairs"]) for row in rows] == expected
    assert all(row["dev"]["mean"] is not None for row in rows)
    # Before fine-tuning, the untuned start has one score; after it, one for every seed.
    assert [list(row["dev"]["by_seed"]) for row in rows[:2]] == [["once"], ["1", "2"]]
    assert rows[0]["dev"]["mean"] != rows[1]["dev"]["mean"]
    (lines,) = found.results["figures"]
    assert [series["name"] for series in lines["series"]] == ["cls", "sg-opt"]
    assert [point for series in lines["series"] for point in series["points"]] == [
        [row["pairs"], row["dev"]] for row in rows
    ]
    differences = found.table("differences")["rows"]
    for number, row in enumerate(differences):
        assert row["sg-opt"]["mean"] == pytest.approx(rows[3 + number]["dev"]["mean"] - rows[number]["dev"]["mean"])
    assert any(note.startswith("sg-opt less cls, by graded pairs:") for note in found.results["notes"])
    assert json.loads((folder / "study.json").read_text(encoding="utf-8")) == found.results
    assert "after fine-tuning" in write_report(folder).read_text(encoding="utf-8")
    assert all(path.stat().st_size for path in write_figures(found.results, folder))

    made.clear()
    (folder / "measurements" / "sg-opt-8-seed2.json").unlink()
    again = _study(bert, text_file, dev_file, *settings, output=folder, seeds=2)
    assert made == ["sg-opt-8-seed2"]
    assert again.results["tables"] == found.results["tables"]  # the same seed gives the same encoder


def test_the_other_loss_and_more_pairs_than_there_are(bert: Path, text_file: Path, dev_file: Path) -> None:
    found = _study(bert, text_file, dev_file, "methods=cls,simcse", "pairs=8,41", "loss=cosent")
    assert found.failed == [
        f"{start}-41-seed1 failed: There are 40 graded pairs, and 41 are asked for." for start in ("cls", "simcse")
    ]
    rows = found.table("scores")["rows"]
    assert rows[1]["dev"]["mean"] is not None
    assert rows[2]["dev"] is None
    assert "cosent loss" in found.results["notes"][-1]


def test_small_draws_are_parts_of_large_ones() -> None:
    names = [str(number) for number in range(30)]
    pairs = GradedPairs(names, names, [number / 30 for number in range(30)])
    few, more, every = (finetune.draw_pairs(pairs, size, 1) for size in ("5", "20", "all"))
    assert more.first[:5] == few.first
    assert sorted(every.first) == sorted(names)
    assert few.grades == [int(name) / 30 for name in few.first]
    assert finetune.draw_pairs(pairs, "5", 2).first != few.first


def test_grades_are_brought_between_0_and_1(tmp_path: Path) -> None:
    context = MeasurementContext("mini", "cpu", None, tmp_path / "text.txt", tmp_path, None, "demo")
    grades = finetune.read_graded(context, "demo-dev").grades
    assert (min(grades), max(grades), len(grades)) == (0.0, 1.0, 220)
    stsb = tmp_path / "data" / "sts" / "stsb" / "train.tsv"
    stsb.parent.mkdir(parents=True)
    stsb.write_text(
        "".join(f"{number % 6}\tone {number}\tother {number}\n" for number in range(5749)), encoding="utf-8"
    )
    context = MeasurementContext("mini", "cpu", str(tmp_path / "data"), tmp_path / "text.txt", tmp_path, None, "demo")
    assert len(finetune.read_graded(context, "stsb-train").first) == 5749
    labels = tmp_path / "labels.tsv"
    labels.write_text("0\ta b\tc d\n1\ta b\ta b\n", encoding="utf-8")
    with pytest.raises(SelfguideError, match=r"labels.tsv has no grades to learn from"):
        finetune.read_graded(context, str(labels))


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("loss=hinge", "loss must be one of cosine, cosent, got 'hinge'."),
        ("pairs=few", "--set pairs= takes numbers of at least 2 and the word all, not 'few'."),
        ("finetune_epochs=1,2", "--set finetune_epochs= takes one value here, not 2."),
        ("finetune_learning_rate=0", "finetune_learning_rate must be above 0, got 0.0."),
    ],
)
def test_what_cannot_be_is_refused(setting: str, sentence: str, bert: Path, text_file: Path, dev_file: Path) -> None:
    with pytest.raises(UsageError, match=sentence):
        _study(bert, text_file, dev_file, setting)
