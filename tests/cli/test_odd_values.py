"""Values at the edge of what makes sense: words, or a sound result; never a traceback."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from reading import read
from refusals import the_refusal
from selfguide.data.pairs import read_pairs
from toys import Outcome, toy_sentences

Command = Callable[..., Outcome]


@pytest.mark.parametrize(
    "words",
    [
        ("train", "notes.txt", "--encoder", "mini", "--output", "out"),
        ("eval", "mini", "--output", "out"),
        ("compare", "notes.txt", "--methods", "mean,bow", "--output", "out"),
        ("demo", "--output", "out"),
    ],
)
def test_a_seed_that_numpy_does_not_take(
    command: Command, text_file: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(text_file.parent)
    option = ("--seeds", "5000000000,1") if words[0] == "compare" else ("--seed", "5000000000")
    outcome = command(*words, *option)
    assert outcome.code == 2
    assert "4294967295" in outcome.err.splitlines()[-1]
    assert not Path("out").exists()


def test_an_infinite_temperature(command: Command, text_file: Path) -> None:
    outcome = command("train", text_file, "--temperature", "inf")
    assert the_refusal(outcome) == "temperature must be above 0 and finite, got inf."


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [("text_options", "keep_duplicates", "false"), ("options", "freeze_layer_0", "no"), ("training", "seed", True)],
)
def test_other_types_in_a_configuration(
    command: Command, text_file: Path, tmp_path: Path, part: str, name: str, value: object
) -> None:
    config = {"text": [str(text_file)], "encoder": "mini", "method": "sg-opt", part: {name: value}}
    (tmp_path / "run.json").write_text(json.dumps(config))
    outcome = command("train", "--config", tmp_path / "run.json", "--output", tmp_path / "out")
    assert outcome.code == 2
    assert the_refusal(outcome).startswith(f"{name} must be ")


def test_a_configuration_that_is_nested_without_end(command: Command, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("[" * 100_000)
    outcome = command("train", "--config", tmp_path / "run.json", "--output", tmp_path / "out")
    assert outcome.code == 1
    assert "nested too deeply" in the_refusal(outcome)


def test_lines_that_end_in_carriage_returns(tmp_path: Path) -> None:
    sentences = toy_sentences(30)
    (tmp_path / "mac.txt").write_bytes("\r".join(sentences).encode() + b"\r")
    assert read(tmp_path / "mac.txt") == sentences
    (tmp_path / "dos.txt").write_bytes("\r\n".join(sentences).encode())
    assert read(tmp_path / "dos.txt") == sentences


def test_a_dev_sentence_of_megabytes(tmp_path: Path) -> None:
    path = tmp_path / "dev.tsv"
    path.write_text("1\ta\tb\n2\t" + "word " * 1_200_000 + "\tc\n")
    assert len(read_pairs(path).first) == 2


@pytest.mark.parametrize("words", [("encode", "notes.txt", "--output", "v.npy"), ("similarity", "my sister", "a dog")])
def test_weights_that_are_not_finite(
    command: Command, bert: Path, text_file: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    monkeypatch.chdir(text_file.parent)
    shutil.copytree(bert, "broken")
    weights = load_file("broken/model.safetensors")
    weights["encoder.layer.1.output.dense.weight"][0, 0] = torch.nan
    save_file(weights, "broken/model.safetensors", metadata={"format": "pt"})
    outcome = command(*words, "--encoder", "broken")
    assert outcome.code == 1
    assert "is not finite (NaN or infinite)" in the_refusal(outcome)
    assert not Path("v.npy").exists()
    assert not Path("v.npy.partial").exists()
