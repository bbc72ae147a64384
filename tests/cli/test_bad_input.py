"""What ``selfguide train`` says about things that cannot work: one sentence, a way out, and nothing left behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from refusals import the_refusal
from toys import Outcome, toy_sentences

Command = Callable[..., Outcome]
Refuse = Callable[..., str]

QUICK = ("--head-size", "16", "--batch-size", "8", "--max-steps", "2", "--no-report")


@pytest.fixture
def refuse(command: Command, bert: Path, tmp_path: Path, text_file: Path, monkeypatch: pytest.MonkeyPatch) -> Refuse:
    """Run a training that cannot work, in a folder with notes.txt in it; returns the sentence that it ends with.

    The folder must be as it was before: nothing half-written, and no work folder that the next attempt would trip over.
    """
    monkeypatch.chdir(tmp_path)

    def call(*words: str | Path, code: int = 1, output: str = "tuned", encoder: str | Path = bert) -> str:
        before = sorted(tmp_path.rglob("*"))
        outcome = command("train", "--encoder", encoder, "--output", output, *QUICK, *words)
        assert outcome.code == code, outcome.err
        assert sorted(tmp_path.rglob("*")) == before
        return the_refusal(outcome)

    return call


def in_order(sentence: str, *mentions: str) -> bool:
    """Whether the sentence holds all of these, one after the other."""
    place = 0
    for mention in mentions:
        place = sentence.find(mention, place)
        if place < 0:
            return False
    return True


@pytest.mark.parametrize(
    ("name", "content", "mentions"),
    [
        ("missing.txt", None, ("missing.txt does not exist", "check the path")),
        ("empty.txt", b"", ("empty.txt is empty", "sentences")),
        ("blank.txt", b"\n\n \n", ("too little", "blank.txt", "3 blank", "at least two different sentences")),
        ("binary.txt", bytes(range(256)), ("binary.txt is a binary file", "UTF-8")),
        ("photo.txt", b"\x89PNG\r\n\x1a\n", ("photo.txt is not text but an image", "pass a file of text")),
        ("one.txt", b"a single sentence\n", ("too little", "one.txt", "1 kept", "at least two different sentences")),
        ("same.txt", b"a sentence\n" * 50, ("too little", "same.txt", "49 repeats", "at least two different")),
        ("header.csv", b"id,text\n", ("too little", "header.csv", "at least two different sentences")),
        ("*.nothing", None, ("*.nothing matches no file", "check the pattern")),
    ],
)
def test_text_that_is_none(
    refuse: Refuse, tmp_path: Path, name: str, content: bytes | None, mentions: tuple[str, ...]
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    sentence = refuse(name)
    assert in_order(sentence, *mentions), sentence


def test_a_folder_is_no_text(refuse: Refuse, tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    assert in_order(refuse("corpus"), "corpus is a folder without a file of text", "corpus/*.log")


def test_no_text_at_all(refuse: Refuse) -> None:
    assert in_order(refuse(code=2), "no text", "name a file, a folder, a glob, -")


def test_a_table_without_the_column(refuse: Refuse, tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("id,body\n1,a\n2,b\n")
    assert in_order(refuse("table.csv", "--column", "text"), "table.csv", "no column 'text'", "column", "id, body")
    assert in_order(refuse("table.csv"), "table.csv has 2 columns (id, body)", "column")
    assert in_order(refuse("table.csv", "--column", "2"), "table.csv has no column 2", "id, body")
    assert in_order(refuse("notes.txt", "--column", "body", code=2), "column=body", "notes.txt", "leave it out")


def test_bad_utf8(refuse: Refuse, command: Command, tmp_path: Path, bert: Path) -> None:
    path = tmp_path / "latin1.txt"
    path.write_bytes("\n".join([*toy_sentences(20), "a café"]).encode("latin-1"))
    sentence = refuse("latin1.txt")
    assert in_order(sentence, "latin1.txt, line 21", "0xe9", "iconv", "--replace-bad-utf8"), sentence
    words = ("train", path, "--encoder", bert, *QUICK, "--output", "tuned", "--replace-bad-utf8")
    outcome = command(*words)
    assert outcome.code == 0
    assert "1 with bad UTF-8 replaced" in outcome.err
    assert json.loads((tmp_path / "tuned" / "run.json").read_text())["text"]["replaced"] == 1


def test_methods_there_are_not(refuse: Refuse, command: Command) -> None:
    sentence = refuse("notes.txt", "--method", "sg-pot", code=2)
    assert in_order(sentence, "no method 'sg-pot'", "Did you mean 'sg-opt'?", "`selfguide methods`"), sentence
    assert "no method 'sg-pot'" in the_refusal(command("methods", "sg-pot"))


def test_encoders_there_are_not(refuse: Refuse, tmp_path: Path) -> None:
    assert in_order(refuse("notes.txt", encoder="nobody/nothing"), "'nobody/nothing'", "offline", "pass its folder")
    assert in_order(refuse("notes.txt", encoder="notes.txt"), "notes.txt is a file", "an encoder is a folder")
    (tmp_path / "hollow").mkdir()
    assert in_order(refuse("notes.txt", encoder="hollow"), "hollow holds no encoder", "config.json")
    (tmp_path / "hollow" / "config.json").write_text("{}")
    assert in_order(refuse("notes.txt", encoder="hollow"), "hollow could not be loaded")


@pytest.mark.parametrize(
    ("words", "mentions"),
    [
        (("--layers", "40"), ("no layer 40", "0 to 3")),
        (("--layers", "one"), ("'one'", "4-8")),
        (("--layers",), ("--layers needs a value",)),
        (("--layers", "--stay-close", "0"), ("--layers needs a value",)),
        (("--pooling", "median"), ("pooling must be one of cls, mean, max", "'median'")),
        (("--view-pooling", "median"), ("view_pooling must be one of max, mean, cls", "'median'")),
        (("--temprature", "0.1"), ("no option --temprature", "Did you mean --temperature?", "--help")),
        (("--batch-sise", "4"), ("no option --batch-sise", "Did you mean --batch-size?", "--help")),
        (("-t", "4"), ("no option -t", "--temperature", "--help")),
        (("--no-temperature",), ("no option --no-temperature", "--temperature")),
        (("--objective", "sg"), ("no option --objective", "--help")),  # the method's name says it
        (("--temperature", "abc"), ("--temperature takes a number", "'abc'")),
        (("--temperature", "0"), ("temperature must be above 0",)),
        (("--temperature", "nan"), ("temperature must be above 0",)),
        (("--head-size", "1.5"), ("--head-size takes a whole number", "'1.5'")),
        (("--head-size", "-1"), ("head_size must be at least 0",)),
        (("--freeze-layer-0=maybe",), ("--freeze-layer-0 takes true or false", "'maybe'")),
        (("--batch-size", "1"), ("batch_size must be at least 2",)),
        (("--batch-size", "many"), ("--batch-size", "integer", "`selfguide train --help`")),
        (("--learning-rate", "-1"), ("learning_rate must be above 0",)),
        (("--epochs", "0"), ("epochs must be above 0",)),
        (("--warmup", "1"), ("warmup must be at least 0 and below 1",)),
        (("--precision", "fp17"), ("precision must be one of auto, fp32", "'fp17'")),
        (("--track", "abacus"), ("tensorboard", "abacus")),
        (("--device", "abacus"), ("no device 'abacus'", "cpu")),
        (("--limit", "0"), ("limit must be", "at least 1")),
    ],
)
def test_options_that_cannot_be(refuse: Refuse, words: tuple[str, ...], mentions: tuple[str, ...]) -> None:
    sentence = refuse("notes.txt", *words, code=2)
    assert in_order(sentence, *mentions), sentence


@pytest.mark.skipif(find_spec("tensorboard") is not None, reason="tensorboard is there")
def test_a_tracker_that_is_not_installed(refuse: Refuse) -> None:
    assert "pip install 'selfguide[tensorboard]'" in refuse("notes.txt", "--track", "tensorboard")


def test_mistakes_that_typer_finds_are_one_sentence_too(command: Command) -> None:
    sentence = the_refusal(command("trian", "notes.txt"))
    assert in_order(sentence, "'trian'", "Did you mean 'train'?", "`selfguide --help`"), sentence
    assert in_order(the_refusal(command("encode")), "text", "`selfguide encode --help`")
    assert in_order(the_refusal(command("similarity", "--paris", "a")), "--paris", "`selfguide similarity --help`")
    assert in_order(the_refusal(command("similarity", "a")), "two sentences", "--pairs")
    assert in_order(the_refusal(command("similarity", "a", "--pairs", "b")), "two sentences", "--pairs")


def test_a_diverging_run_stops_in_words(refuse: Refuse) -> None:
    sentence = refuse("notes.txt", "--learning-rate", "1e30", "--max-steps", "8")
    assert in_order(sentence, "not finite", "--learning-rate"), sentence


def test_an_output_that_exists(refuse: Refuse, command: Command, bert: Path, tmp_path: Path) -> None:
    output = tmp_path / "tuned"
    output.mkdir()
    (output / "run.json").write_text("{}")  # a run has been there
    assert in_order(refuse("notes.txt", code=2), "tuned exists already", "--output", "--overwrite")
    # A run that fails costs nothing: the former one is replaced only by a finished one.
    refuse("notes.txt", "--overwrite", "--layers", "40", code=2)
    assert (output / "run.json").read_text() == "{}"
    assert command("train", "notes.txt", "--encoder", bert, *QUICK, "--output", "tuned", "--overwrite").code == 0
    assert json.loads((output / "run.json").read_text())["text"]["kept"] == 120
    assert not (tmp_path / "tuned.partial").exists()


def test_overwrite_is_for_what_a_run_has_made(refuse: Refuse, tmp_path: Path) -> None:
    """--output ~ --overwrite must not be the end of a home, nor --output notes.txt --overwrite that of the text."""
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.txt").write_text("years of work")
    assert in_order(refuse("notes.txt", "--overwrite", output="precious", code=2), "precious", "--output")
    assert in_order(refuse("notes.txt", "--overwrite", output="notes.txt", code=2), "notes.txt", "--output")


@pytest.mark.parametrize("output", ["notes.txt/tuned", "/proc/nope/tuned"])
def test_an_output_that_cannot_be_made(refuse: Refuse, output: str) -> None:
    assert in_order(refuse("notes.txt", output=output), f"{output} cannot be made")


@pytest.mark.parametrize("output", [".", "/"])
def test_an_output_without_a_name(refuse: Refuse, output: str) -> None:
    assert "--output" in refuse("notes.txt", output=output, code=2)


@pytest.mark.parametrize(
    ("content", "mention"),
    [
        (None, "no configuration file"),
        ("not JSON", "is not a configuration that can be read"),
        ("[]", "is not a run's configuration"),
        ('{"hidden_size": 32}', "is not a run's configuration"),
        ('{"config": {"encoder": "mini"}}', "is not a run's configuration"),
        ('{"text": "notes.txt"}', "is not a run's configuration"),
        ('{"text": 5}', "is not a run's configuration"),
        ('{"text": ["notes.txt"], "options": []}', "is not a run's configuration"),
    ],
)
def test_configurations_that_are_none(refuse: Refuse, tmp_path: Path, content: str | None, mention: str) -> None:
    path = tmp_path / "run.json"
    if content is not None:
        path.write_text(content)
    sentence = refuse("--config", "run.json")
    assert "run.json" in sentence
    assert mention in sentence


@pytest.mark.parametrize(
    ("part", "mentions"),
    [
        ({"training": {"speed": 3}}, ("no training setting 'speed'", "epochs")),
        ({"training": {"epochs": "three"}}, ("epochs", "'three'")),
        ({"options": {"warmth": 3}}, ("no option 'warmth'", "temperature")),
        ({"options": {"temperature": "three"}}, ("temperature", "'three'")),
        ({"text_options": {"colour": "red"}}, ("colour",)),
        ({"method": "sg-pot"}, ("no method 'sg-pot'", "sg-opt")),
    ],
)
def test_configurations_with_a_mistake(
    refuse: Refuse, tmp_path: Path, part: dict[str, object], mentions: tuple[str, ...]
) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"config": {"text": ["notes.txt"], **part}}))
    sentence = refuse("--config", "run.json", code=2)
    assert in_order(sentence, *mentions), sentence


@pytest.mark.parametrize(
    ("content", "mentions"),
    [
        (None, ("dev.tsv does not exist",)),
        ("a\tb\nc\td\n", ("dev.tsv, line 1", "2 tab-separated columns", "score<TAB>sentence<TAB>sentence")),
        ("score\ta\tb\n1\tc\td\n", ("dev.tsv, line 1", "'score'", "header")),
        ("1\ta\tb\n", ("dev.tsv", "at least two")),
        ("1\ta\tb\n1\tc\td\n", ("dev.tsv", "same score")),
    ],
)
def test_dev_pairs_that_are_none(
    refuse: Refuse, tmp_path: Path, content: str | None, mentions: tuple[str, ...]
) -> None:
    if content is not None:
        (tmp_path / "dev.tsv").write_text(content)
    sentence = refuse("notes.txt", "--dev", "dev.tsv")
    assert in_order(sentence, *mentions), sentence
