"""``selfguide adapt``: from text on the command line to a folder that everyone can load."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize

from selfguide.models.encoders import load_encoder
from toys import Outcome

Command = Callable[..., Outcome]

QUICK = ("--batch-size", "8", "--max-steps", "2", "--device", "cpu")


@pytest.fixture(scope="module")
def encoder(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sentence") / "encoder"
    made = SentenceTransformer(modules=[*load_encoder(bert, pooling="mean", device="cpu"), Normalize()], device="cpu")
    made.save(str(folder), create_model_card=False)
    return folder


def test_end_to_end(command: Command, encoder: Path, text_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "adapted"
    outcome = command("adapt", text_file, "--encoder", encoder, "--output", out, "--temperature", "0.1", *QUICK)
    assert outcome.code == 0, outcome.err
    record = json.loads((out / "run.json").read_text())
    assert record["config"]["method"] == "adapt"
    assert record["config"]["options"]["temperature"] == 0.1
    assert [type(module).__name__ for module in SentenceTransformer(str(out))] == [
        "Transformer",
        "Pooling",
        "Normalize",
    ]
    sentence = record["choice"]["sentence"]
    # The summary names what it shows: a choice between encoders, not a checkpoint.
    assert any(line.split(maxsplit=1) == ["choice", sentence] for line in outcome.out.splitlines())
    assert not any(line.startswith("checkpoint") for line in outcome.out.splitlines())
    assert sentence in " ".join(outcome.err.split())
    card = (out / "README.md").read_text()
    assert sentence in card
    assert "| kind of start | sentence encoder: its folder has a modules.json" in card


def test_what_is_missing_or_does_not_fit_is_one_sentence(
    command: Command, encoder: Path, bert: Path, text_file: Path, tmp_path: Path
) -> None:
    few = tmp_path / "few.txt"
    few.write_text("\n".join(f"this is sentence {number}" for number in range(9)))
    for words, said in (
        ((text_file,), "--encoder is missing: name the sentence encoder to adapt"),
        ((text_file, "--encoder", bert), "is a raw language model"),
        ((few, "--encoder", encoder), "9 usable sentences are too few to adapt to"),
        ((text_file, "--encoder", encoder, "--method", "simcse"), "There is no option --method"),
        (("--encoder", encoder), "There is no text to train on"),
    ):
        outcome = command("adapt", *words, "--output", tmp_path / "out", *QUICK)
        assert outcome.code != 0
        assert said in " ".join(outcome.err.split())
        assert "Traceback" not in outcome.err
    assert not (tmp_path / "out").exists()


def test_the_folder_is_named_after_text_and_method(
    command: Command, encoder: Path, text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = command("train", text_file, "--encoder", encoder, "--no-choose", "--no-report", *QUICK)
    assert outcome.code == 0, outcome.err
    assert "The method is adapt, the default for such encoders." in " ".join(outcome.err.split())
    assert (tmp_path / "notes-adapt" / "run.json").is_file()
