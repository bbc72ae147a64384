"""The study ``domains``: texts × test sets, own texts marked, test sets with labels, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import selfguide
from selfguide.comparison import runner, worker
from selfguide.comparison.cells import CellRecord
from selfguide.comparison.summary import Value
from selfguide.data.resources import demo_sentences
from selfguide.errors import SelfguideError, UsageError
from selfguide.evaluation.data import own_pairs
from selfguide.report.folders import write_report
from selfguide.studies import domain_data, values
from selfguide.studies.context import MeasurementContext
from selfguide.studies.files import StudyResult, write_figures
from toys import toy_sentences

QUICK = ("max_steps=2", "batch_size=4", "methods=sg-opt")


def _study(encoder: Path, *settings: str, **more: Any) -> StudyResult:
    given: dict[str, Any] = {"encoder": encoder, "limit": 12, "dev": "", "settings": (*QUICK, *settings), "jobs": 1}
    given["report"] = False
    return selfguide.study("domains", **given | more)


def _context(tmp_path: Path, data: Path | None) -> MeasurementContext:
    folder = None if data is None else str(data)
    return MeasurementContext("mini", "cpu", folder, tmp_path / "text.txt", tmp_path, None, "demo")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder with a little of everything."""
    folder = tmp_path / "data"
    sentences = toy_sentences(160)
    rows = list(zip(sentences[::2], sentences[1::2], strict=True))

    def put(name: str, labels: list[str]) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [f"{labels[number % len(labels)]}\t{one}\t{two}\n" for number, (one, two) in enumerate(rows)]
        path.write_text("".join(lines), encoding="utf-8")

    for name in domain_data.DOMAINS["nli"].sources:
        put(name, ["entailment", "-"])
    put("domain/mqp.tsv", ["0", "1"])
    put("domain/twitter-url-test.tsv", ["0", "3", "4", "6", "2"])
    wiki = folder / "text" / "wiki1m_for_simcse.head.txt"
    wiki.parent.mkdir()
    wiki.write_text("\n".join(sentences[:30]) + "\n", encoding="utf-8")
    return folder


def test_the_small_setting_is_halves_by_length(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def counted(job: worker.CellJob) -> CellRecord:
        ran.append(job.cell.name)
        return worker.run_cell(job)

    monkeypatch.setattr(runner, "run_cell", counted)
    found = _study(bert, output=tmp_path / "study")
    assert not found.failed
    assert len(ran) == 6  # sg-opt on two texts; mean and bow on the task, and on the halves of its pairs
    rows = found.table("scores")["rows"]
    assert [(row["method"], row["text"]) for row in rows] == [
        ("sg-opt", "short"),
        ("sg-opt", "long"),
        ("mean", "none"),
        ("bow", "none"),
    ]
    assert all(row[test]["mean"] is not None for row in rows for test in ("demo", "short", "long"))
    (matrix,) = found.results["figures"]
    assert matrix["columns"] == ["demo pairs", "short ①", "long ②"]
    assert matrix["rows"] == ["short ①", "long ②", "no text: mean", "no text: bow"]
    assert matrix["values"] == [[row[test] for test in ("demo", "short", "long")] for row in rows]
    own = found.table("own")["rows"]
    assert [row["text"] for row in own] == ["short", "long"]
    assert own[0]["difference"]["mean"] == pytest.approx(rows[0]["short"]["mean"] - rows[1]["short"]["mean"])
    assert json.loads((tmp_path / "study" / "study.json").read_text(encoding="utf-8")) == found.results
    assert "sg-opt: text" in write_report(tmp_path / "study").read_text(encoding="utf-8")
    assert all(path.stat().st_size for path in write_figures(found.results, tmp_path / "study"))

    ran.clear()
    assert _study(bert, output=tmp_path / "study").results["tables"] == found.results["tables"]
    assert not ran

    (tmp_path / "study" / "measurements" / "text-long.json").unlink()
    (tmp_path / "study" / "grids" / "text-long" / "cells" / "sg-opt.seed1.json").unlink()
    assert _study(bert, output=tmp_path / "study").results["tables"] == found.results["tables"]
    assert len(ran) == 1


def test_texts_and_labelled_pairs_of_a_data_folder(bert: Path, data: Path, dev_file: Path, text_file: Path) -> None:
    texts = "texts=medical,tweets"
    found = _study(bert, texts, "tests=mqp,twitter-url", data=data, pairs=dev_file, text=text_file)
    assert not found.failed
    assert [row["text"] for row in found.table("scores")["rows"]] == ["medical", "tweets", "notes.txt", "none", "none"]
    (matrix,) = found.results["figures"]
    assert matrix["columns"] == ["dev", "mqp ①", "twitter-url ②"]
    assert any("average precision" in note for note in found.results["notes"])
    assert found.results["measurements"]["text-medical"]["result"]["sentences"] == 12


def test_halves_share_nothing_and_leave_nothing_out(tmp_path: Path) -> None:
    context = _context(tmp_path, None)
    short, long = (domain_data.sample_text(name, None, context, tmp_path).sentences for name in domain_data.HALVES)
    assert sorted([*short, *long]) == sorted(demo_sentences())
    assert max(len(sentence.split()) for sentence in short) <= min(len(sentence.split()) for sentence in long)
    pairs = [own_pairs(domain_data.pairs_file(name, context, tmp_path)) for name in domain_data.HALVES]
    assert [sum(len(part) for part in rows.parts) for rows in pairs] == [220, 220]
    assert [rows.task.kind for rows in pairs] == ["graded-pairs"] * 2


def test_every_named_text_is_read(data: Path, tmp_path: Path) -> None:
    context = _context(tmp_path, data)
    nli = domain_data.sample_text("nli", None, context, tmp_path)
    assert sorted(nli.sentences) == sorted(toy_sentences(160))  # both columns of every file, repeats dropped
    assert nli.name == "nli sentences"
    assert len(domain_data.sample_text("wiki", None, context, tmp_path).sentences) == 30
    assert domain_data.sample_text("medical", 5, context, tmp_path).name == "5 of medical sentences, drawn at random"


def test_tweets_are_labelled_as_their_corpus_does(data: Path, tmp_path: Path) -> None:
    rows = own_pairs(domain_data.pairs_file("twitter-url", _context(tmp_path, data), tmp_path))
    assert rows.task.kind == "binary-pairs"
    assert rows.parts[0].grades == [0.0, 1.0, 1.0, 0.0] * 16  # of 0, 3, 4, 6, 2 the 3 is left out


def test_what_is_missing_is_said_in_a_sentence(
    data: Path, tmp_path: Path, bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SELFGUIDE_DATA", raising=False)
    with pytest.raises(UsageError, match="'medical' is in a data folder: name one with --data"):
        domain_data.sample_text("medical", None, _context(tmp_path, None), tmp_path)
    with pytest.raises(SelfguideError, match=r"has no text/commonvoice_en_sentences\.txt, which 'everyday' needs"):
        domain_data.sample_text("everyday", None, _context(tmp_path, data), tmp_path)
    found = _study(bert, "texts=medical", "tests=none")  # a text that fails leaves the other rows
    assert found.table("scores")["rows"][0].get("demo") is None
    assert "text-medical failed" in found.failed[0]


def test_differences_are_paired_by_seed() -> None:
    seeded, once = Value(2.0, None, {1: 1.0, 2: 3.0}), Value(0.5, None, {None: 0.5})
    found = values.difference(seeded, once)
    assert found is not None
    assert found.by_seed == {1: 0.5, 2: 2.5}
    assert values.difference(once, once) == Value(0.0, None, {None: 0.0})
    assert values.difference(seeded, Value(1.0, None, {3: 1.0})) is None
    assert values.difference(None, once) is None
