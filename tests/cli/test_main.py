"""The command line as a whole: help, versions, listings, similarity, and what becomes of errors nobody foresaw."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

import selfguide
from selfguide.cli.choices import RECOMMENDED
from selfguide.methods import registry
from selfguide.training.settings import TrainingSettings
from toys import Outcome, toy_sentences

Command = Callable[..., Outcome]

COMMANDS = ("train", "encode", "similarity", "methods", "demo")
PAIRS = list(zip(toy_sentences(60)[:20], toy_sentences(60)[40:], strict=True))


def cosines(encoder: Path, pairs: list[tuple[str, str]]) -> list[float]:
    first, second = (selfguide.encode(encoder, [pair[side] for pair in pairs], normalise=True) for side in (0, 1))
    return [float(value) for value in np.sum(first * second, axis=1)]


def test_version(command: Command) -> None:
    assert command("--version") == Outcome(0, f"selfguide {selfguide.__version__}\n", "")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_shows_examples(command: Command, name: str) -> None:
    code, out, err = command(name, "--help")
    assert (code, err) == (0, "")
    assert "Examples" in out
    assert f"selfguide {name}" in out.split("Examples")[1]


@pytest.mark.parametrize("name", COMMANDS)
def test_no_option_is_cut_off_where_the_terminal_is_narrow(
    command: Command, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = command(name, "--help").out.splitlines()
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines if line.startswith("│") and "…" in line[:60]]


@pytest.mark.parametrize(("words", "code"), [(("--help",), 0), ((), 2)])
def test_the_overview_names_every_command(command: Command, words: tuple[str, ...], code: int) -> None:
    outcome = command(*words)
    assert (outcome.code, outcome.err) == (code, "")
    assert "Examples" in outcome.out
    for name in COMMANDS:
        assert f"│ {name} " in outcome.out


@pytest.mark.parametrize("words", [(), ("methods",)])
def test_a_newcomer_is_led_first(command: Command, words: tuple[str, ...]) -> None:
    out = command(*words).out
    assert out.startswith("What do you have")
    for what, line in RECOMMENDED:
        assert what in out
        assert line in out
    assert out.index("--dev pairs.tsv") < out.index("bow" if words else "Options")


def test_the_recommended_commands_are_understood(command: Command) -> None:
    for _, line in RECOMMENDED:
        words = line.replace("notes.txt", "nowhere.txt").split()[1:]
        words[words.index("--encoder") + 1] = "mini"
        # Everything else on the line is known: what is wrong is the text, or mini where a sentence encoder is wanted.
        wrong = "mini is a raw language model" if words[0] == "adapt" else "nowhere.txt does not exist"
        assert wrong in command(*words).err


@pytest.mark.parametrize("words", [(), ("train",), ("adapt",), ("eval",), ("similarity",)])
def test_h_is_help(command: Command, words: tuple[str, ...]) -> None:
    assert command(*words, "-h") == command(*words, "--help")
    assert command(*words, "-h").code == 0


def test_help_listings_and_the_import_do_without_torch() -> None:
    """Seconds of imports before the help appears would drive people away from it."""
    script = """
import sys
import selfguide
from selfguide.cli.main import run
for words in (["--help"], ["train", "--help"], ["--version"], ["methods"], ["train", "notes.txt", "--method", "no"]):
    sys.argv = ["selfguide", *words]
    try:
        run()
    except SystemExit:
        pass
heavy = {"torch", "transformers", "sentence_transformers", "datasets", "pyarrow", "scipy"} & set(sys.modules)
assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_reader_that_went_away_is_met_in_silence() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "selfguide", "methods"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()  # long before anything is written
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_methods_are_listed(command: Command) -> None:
    code, out, err = command("methods")
    assert (code, err) == (0, "")
    listed = [line.split()[0] for line in out.splitlines() if line[:1].islower()]
    assert sorted(listed) == sorted(entry.name for entry in registry.builtin_methods())
    last = out.rindex("labelled pairs\n")
    for entry in registry.builtin_methods():
        assert (out.index(f"\n{entry.name} ") > last) == entry.needs_labels


@pytest.mark.parametrize("name", [entry.name for entry in registry.builtin_methods()])
def test_a_method_is_explained_with_its_defaults(command: Command, name: str) -> None:
    code, out, err = command("methods", name)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith(f"{name}: ")
    shown = {line.split()[0]: line for line in lines if line.startswith("--")}
    defaults = registry.make(name).describe_options()
    defaults |= {
        field.name: getattr(registry.method_class(name).defaults, field.name) for field in fields(TrainingSettings)
    }
    assert set(shown) == {"--" + option.replace("_", "-") for option in defaults}
    for option, default in defaults.items():
        _, value, meaning = shown["--" + option.replace("_", "-")].split(maxsplit=2)
        assert value == (str(default) or "(none)")
        assert meaning


def test_the_help_of_train_shows_the_methods_own_defaults(command: Command) -> None:
    def shown(*words: str) -> str:
        code, out, _ = command(*words)
        assert code == 0
        return " ".join(re.sub(r"[│╭╮─]", " ", out).split())

    text = shown("train", "--help")
    assert "Training (defaults of sg-opt; `--method NAME --help` shows another's)" in text
    assert "Highest learning rate. [default: 5e-05]" in text
    assert "[default: 0.9]" in text  # β₂ is this method's own
    text = shown("train", "notes.txt", "-m", "simcse", "-h")
    assert "defaults of simcse" in text
    assert "Highest learning rate. [default: 3e-05]" in text
    text = shown("adapt", "--help")
    assert "Training (defaults of adapt)" in text
    assert "Highest learning rate. [default: by the encoder]" in text
    assert "Passes over the text. [default: by the size of the text]" in text
    assert "Did you mean 'simcse'?" in command("train", "--method", "simces", "--help").err


def test_similarity_of_two_sentences(command: Command, bert: Path) -> None:
    expected = cosines(bert, PAIRS[:1])[0]
    outcome = command("similarity", *PAIRS[0], "--encoder", bert)
    assert outcome == Outcome(0, f"{expected:.4f}\n", "")
    assert command("similarity", *PAIRS[0], "--encoder", bert, "--pooling", "cls").out != outcome.out


def test_nothing_is_similar_to_an_empty_sentence(command: Command) -> None:
    for pair in (("", "a late train"), ("a late train", "  ")):
        assert command("similarity", *pair) == Outcome(2, "", "selfguide: One of the two sentences is empty.\n")


def test_similarity_of_pairs(command: Command, bert: Path, tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{first}\t{second}\n" for first, second in PAIRS))
    code, out, err = command("similarity", "--pairs", path, "--encoder", bert)
    assert (code, err) == (0, "")
    rows = [line.split("\t") for line in out.splitlines()]
    assert [(first, second) for _, first, second in rows] == PAIRS
    np.testing.assert_allclose([float(value) for value, _, _ in rows], cosines(bert, PAIRS), atol=6e-5)


def test_similarity_of_graded_pairs_ends_with_spearman(command: Command, bert: Path, tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    scores = [number * 7 % 20 / 4 for number in range(20)]
    path.write_text("".join(f"{score}\t{a}\t{b}\n" for score, (a, b) in zip(scores, PAIRS, strict=True)))
    code, out, err = command("similarity", "--pairs", path, "--encoder", bert)
    assert code == 0
    assert len(out.splitlines()) == 20
    expected = 100 * spearmanr(cosines(bert, PAIRS), scores).statistic
    assert err == f"Spearman of cosine and score over 20 pairs: {expected:.2f}\n"

    path.write_text("".join(f"3\t{a}\t{b}\n" for a, b in PAIRS))
    constant = command("similarity", "--pairs", path, "--encoder", bert)
    assert (constant.code, constant.out) == (0, out)
    assert constant.err == "No Spearman correlation: the scores, or the cosines, are all the same.\n"


def test_an_unforeseen_error_is_one_sentence_too(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise RuntimeError("the first line\n  and a second.\n")

    monkeypatch.setattr("selfguide.models.encoders.load_encoder", fail)
    code, out, err = command("similarity", "a", "b")
    assert (code, out) == (70, "")
    assert err == (
        "selfguide: Unexpected error, which is a bug in selfguide: RuntimeError: the first line and a second. "
        "Set SELFGUIDE_DEBUG=1 to see where, and please report it.\n"
    )
    monkeypatch.setenv("SELFGUIDE_DEBUG", "1")
    with pytest.raises(RuntimeError, match="a second"):
        command("similarity", "a", "b")


def test_an_error_of_the_system_names_the_file(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise OSError(28, os.strerror(28), "some/file")

    monkeypatch.setattr("selfguide.models.encoders.load_encoder", fail)
    assert command("similarity", "a", "b") == Outcome(1, "", "selfguide: No space left on device (some/file).\n")


def test_ctrl_c_outside_training_is_one_word(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("selfguide.models.encoders.load_encoder", interrupt)
    assert command("similarity", "a", "b") == Outcome(130, "", "selfguide: Interrupted.\n")
