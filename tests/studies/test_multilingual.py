"""The study ``multilingual``: refuses an English vocabulary in a sentence, and runs on one that knows the languages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import selfguide
from selfguide.errors import UsageError
from selfguide.report.folders import write_report
from selfguide.studies.files import StudyResult, write_figures
from selfguide.studies.multilingual import kind_of
from toys import Outcome, save_tokenizer, tiny_config, toy_sentences

QUICK = ("max_steps=2", "batch_size=4", "methods=sg-opt")
TASKS = "sts17-en-en,sts17-es-es,sts17-ar-en"
# Every letter of the toy sentences becomes one of another script, so that words and lengths stay.
ARABIC = {letter: chr(0x0627 + place) for place, letter in enumerate("abcdefghijklmnopqrstuvwxyz")}
SPANISH = {"the": "el", "a": "un", "an": "un", "old": "viejo", "man": "hombre", "dog": "perro", "small": "pequeño"}


def _arabic(sentence: str) -> str:
    return "".join(ARABIC.get(letter, letter) for letter in sentence)


def _spanish(sentence: str) -> str:
    return " ".join(SPANISH.get(word, word + "ño") for word in sentence.split())


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three tracks of STS17 in toy languages."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "multilingual").mkdir()
    sentences = toy_sentences(500)
    for track, one, two in (("en-en", str, str), ("es-es", _spanish, _spanish), ("ar-en", str, _arabic)):
        rows = [
            f"{number % 6}\t{one(sentences[number])}\t{two(sentences[(7 * number) % 500])}\n" for number in range(250)
        ]
        (folder / "multilingual" / f"sts17-{track}.tsv").write_text("".join(rows), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def polyglot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random BERT whose vocabulary has the words of all three toy languages."""
    import torch
    from transformers import AutoModel

    folder = tmp_path_factory.mktemp("encoders") / "polyglot"
    english = toy_sentences(512)
    vocabulary = save_tokenizer(folder, [*english, *map(_arabic, english), *map(_spanish, english)])
    torch.manual_seed(7)
    AutoModel.from_config(tiny_config("bert", vocabulary)).save_pretrained(folder)
    return folder


def _study(encoder: Path, data: Path, text: Path, *settings: str, **more: Any) -> StudyResult:
    given: dict[str, Any] = {
        "encoder": encoder,
        "text": text,
        "limit": 40,
        "tasks": TASKS,
        "dev": "",
        "data": data,
        "settings": (*QUICK, *settings),
        "jobs": 1,
    }
    return selfguide.study("multilingual", **given | more)


def test_a_multilingual_encoder_is_tuned_and_scored(
    polyglot: Path, data: Path, text_file: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "study"
    found = _study(polyglot, data, text_file, output=folder)
    assert not found.failed
    rows = found.table("scores")["rows"]
    assert [row["method"] for row in rows] == ["cls, untuned", "mean, untuned", "sg-opt"]
    tests = TASKS.split(",")
    for row in rows:
        assert [row[kind]["mean"] for kind in ("en", "one", "two")] == [row[test]["mean"] for test in tests]
    scores, gains = found.results["figures"]
    assert scores["values"] == [[row[test] for test in tests] for row in rows]
    assert gains["rows"] == ["sg-opt"]
    for gain, test in zip(gains["values"][0], tests, strict=True):
        assert gain["mean"] == pytest.approx(rows[2][test]["mean"] - rows[0][test]["mean"])
    assert {row["foreign"] for row in found.table("vocabulary")["rows"]} == {"known"}
    assert json.loads((folder / "study.json").read_text(encoding="utf-8")) == found.results
    assert "What tuning on English gives" in write_report(folder).read_text(encoding="utf-8")
    assert all(path.stat().st_size for path in write_figures(found.results, folder))
    kept = folder / "grids" / "tuned" / "cells" / "sg-opt.seed1.json"
    before = kept.stat().st_mtime_ns
    (folder / "measurements" / "tuned.json").unlink()
    assert _study(polyglot, data, text_file, output=folder).results["tables"] == found.results["tables"]
    assert kept.stat().st_mtime_ns == before  # the cell was not run again


def test_an_english_vocabulary_is_refused_before_anything_is_tuned(
    bert: Path, data: Path, text_file: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "study"
    with pytest.raises(UsageError) as refused:
        _study(bert, data, text_file, output=folder)
    message = str(refused.value)
    assert message.startswith("This encoder's vocabulary does not know the languages of STS17 es-es (")
    assert "Name a multilingual encoder" in message
    assert message.endswith("--set force=true runs this one all the same.")
    assert not (folder / "grids" / "tuned").exists()
    assert not (folder / "study.json").exists()
    found = _study(bert, data, text_file, "force=true", output=folder)
    assert {row["foreign"] for row in found.table("vocabulary")["rows"]} == {"foreign"}
    assert any("does not know the languages of STS17 es-es, STS17 ar-en" in note for note in found.results["notes"])


def test_mini_is_refused_on_the_command_line(data: Path, command: Any, tmp_path: Path) -> None:
    done: Outcome = command("study", "multilingual", "--data", data, "--tasks", TASKS, "--output", tmp_path / "study")
    assert done.code != 0
    assert "The encoder mini knows English only" in " ".join(done.err.split())


def test_test_sets_in_english_alone_are_refused(polyglot: Path, data: Path, text_file: Path) -> None:
    with pytest.raises(UsageError, match="All test sets of 'sts17-en-en' are in English; name others"):
        _study(polyglot, data, text_file, tasks="sts17-en-en")


def test_kinds_of_languages() -> None:
    languages = ("en", "en-en", "ko", "ar-ar", "ar-en", "unknown")
    assert [kind_of(language) for language in languages] == ["en", "en", "one", "one", "two", ""]
