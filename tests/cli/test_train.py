"""``selfguide train``: from text on the command line to a folder that everyone can load."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer

import selfguide
from selfguide.data.pairs import read_pairs
from selfguide.runs.evidence import PRINTED, sample
from selfguide.runs.run import _evaluator
from selfguide.training.settings import TrainingSettings
from toys import Outcome, toy_sentences

Command = Callable[..., Outcome]

WITH_REPORT = ("--head-size", "16", "--batch-size", "8", "--max-steps", "2", "--learning-rate", "1e-3")
QUICK = (*WITH_REPORT, "--no-report")
EMBEDDING = "embeddings.word_embeddings.weight"


@pytest.fixture
def train(
    command: Command, bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[Outcome, Any]]:
    """Run a short training in an empty folder; returns what was said, and the run.json of the one folder that it made."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def call(*words: str | Path, quick: tuple[str, ...] = QUICK, stdin: str = "") -> tuple[Outcome, Any]:
        before = set(folder.iterdir())
        outcome = command("train", *words, "--encoder", bert, *quick, stdin=stdin)
        assert outcome.code == 0, outcome.err
        (made,) = set(folder.iterdir()) - before
        return outcome, json.loads((made / "run.json").read_text())

    return call


def weights(folder: str | Path) -> dict[str, torch.Tensor]:
    return load_file(Path(folder) / "model.safetensors")


def test_end_to_end(train: Callable[..., tuple[Outcome, Any]], text_file: Path, bert: Path) -> None:
    outcome, record = train(text_file, "--output", "tuned", "--seed", "5", quick=WITH_REPORT)
    folder = Path("tuned")
    stock = SentenceTransformer(str(folder))
    vectors = stock.encode(toy_sentences(3))
    assert vectors.shape == (3, 32)
    np.testing.assert_allclose(selfguide.encode(folder, toy_sentences(3)), vectors, atol=1e-6)
    assert not np.allclose(selfguide.encode(selfguide.load_encoder(bert, "cls"), toy_sentences(3)), vectors, atol=1e-4)

    assert [path.name for path in folder.rglob("*.safetensors")] == ["model.safetensors"]
    assert {path.suffix for path in folder.rglob("*") if path.is_file()} == {".safetensors", ".json", ".md", ".html"}
    assert {"README.md", "run.json", "modules.json"} <= {path.name for path in folder.iterdir()}

    assert record["config"]["text"] == [str(text_file)]
    assert record["config"]["encoder"] == str(bert)
    assert record["config"]["method"] == "sg-opt"
    assert record["config"]["options"]["head_size"] == 16
    assert record["config"]["training"]["seed"] == 5
    assert record["versions"]["selfguide"] == selfguide.__version__
    assert {"python", "torch", "transformers", "sentence-transformers"} <= set(record["versions"])
    assert record["text"]["kept"] == 120
    assert len(record["text"]["fingerprint"]) == 64
    assert 0 < record["seconds"]["training"] <= record["seconds"]["total"]
    assert record["steps"] == 2
    assert record["text"]["fingerprint"] in (folder / "README.md").read_text()

    rows = dict(line.split("  ", 1) for line in outcome.out.splitlines()[:-1])
    assert rows["sentences"].strip() == "120"
    assert rows["encoder"].strip() == "tuned"
    assert outcome.out.splitlines()[-1].endswith("--encoder tuned")


def test_a_run_ends_with_a_look_at_five_sentences(
    train: Callable[..., tuple[Outcome, Any]], text_file: Path, bert: Path
) -> None:
    outcome, _ = train(text_file, "--output", "tuned", quick=WITH_REPORT)
    lines = outcome.err.partition("drawn from the text, and the nearest of 119 others before and after:\n")[
        2
    ].splitlines()
    looked = [line.strip() for line in lines if re.match(r"  \S", line)][:PRINTED]
    assert looked == sample([{"sentence": sentence} for sentence in toy_sentences(120)])[:PRINTED]
    after = [line.rpartition("  ")[2].strip() for line in lines if re.match(r"    (after|before and after)  ", line)]
    sentences = toy_sentences(120)
    vectors = selfguide.encode("tuned", sentences, normalise=True)
    for sentence, nearest in zip(looked, after, strict=True):
        cosines = vectors @ vectors[sentences.index(sentence)]
        cosines[sentences.index(sentence)] = -1
        assert cosines[sentences.index(nearest)] == pytest.approx(cosines.max(), abs=2e-4)


def test_nothing_but_plain_lines_when_nobody_watches(
    train: Callable[..., tuple[Outcome, Any]], text_file: Path, dev_file: Path
) -> None:
    """With dev checks and checkpoints, so that everything that could draw a bar has been at work."""
    words = (text_file, "--dev", dev_file, "--dev-every", "1", "--checkpoint-minutes", "0", "--output")
    outcome, _ = train(*words, 90 * "x", quick=WITH_REPORT)
    for sign in ("\r", "\x1b", "%|", "it/s", "shards", "Warning", "━"):
        assert sign not in outcome.out + outcome.err
    assert outcome.err.splitlines()[0] == "120 lines read from notes.txt: 120 kept"
    assert outcome.out.splitlines()[-1].endswith("--encoder " + 90 * "x")  # in one piece, to be copied
    quiet = train(*words, "quiet", "--quiet")[0]
    assert quiet.out == ""
    assert all(line.startswith("warning: ") for line in quiet.err.splitlines())


OPTIONS = ("--temperature", "0.05", "--no-freeze-layer-0", "--layers", "1-2", "--stay-close=0")


@pytest.mark.parametrize("place", [0, 1, 2])
def test_method_options_before_between_and_after_the_texts(
    train: Callable[..., tuple[Outcome, Any]], tmp_path: Path, bert: Path, place: int
) -> None:
    texts: list[str | Path] = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for number, path in enumerate(texts):
        Path(path).write_text("\n".join(toy_sentences(20)[10 * number : 10 * number + 10]))
    record = train(*texts[:place], *OPTIONS, *texts[place:], "--output", "tuned")[1]
    assert record["config"]["text"] == [str(path) for path in texts]
    options = record["config"]["options"]
    assert options["temperature"] == 0.05
    assert options["freeze_layer_0"] is False
    assert options["layers"] == "1-2"
    assert options["stay_close"] == 0
    assert options["head_size"] == 16
    assert not torch.equal(weights("tuned")[EMBEDDING], weights(bert)[EMBEDDING])


def test_the_embedding_layer_stays_by_default(
    train: Callable[..., tuple[Outcome, Any]], text_file: Path, bert: Path
) -> None:
    assert train(text_file, "--layers", "-1", "--output", "tuned")[1]["config"]["options"]["layers"] == "-1"
    tuned, raw = weights("tuned"), weights(bert)
    assert torch.equal(tuned[EMBEDDING], raw[EMBEDDING])
    changed = [name for name, tensor in tuned.items() if not torch.equal(tensor, raw[name])]
    assert any("layer.2" in name for name in changed)


def test_a_run_repeats_to_the_bit(train: Callable[..., tuple[Outcome, Any]], command: Command, text_file: Path) -> None:
    first = train(text_file, *OPTIONS, "--method", "sg", "--seed", "7", "--output", "first")[1]
    assert command("train", "--config", "first/run.json", "--output", "second").code == 0
    second = json.loads(Path("second/run.json").read_text())
    assert second["config"] == first["config"]
    assert second["text"] == first["text"]
    assert Path("first/model.safetensors").read_bytes() == Path("second/model.safetensors").read_bytes()

    words = ("--config", "first/run.json", "--seed", "8", "--temperature", "0.2", "--output", "third")
    assert command("train", *words).code == 0
    third = json.loads(Path("third/run.json").read_text())["config"]
    assert third["training"] == first["config"]["training"] | {"seed": 8}
    assert third["options"] == first["config"]["options"] | {"temperature": 0.2}
    assert {name: third[name] for name in ("method", "encoder", "text")} == {
        name: first["config"][name] for name in ("method", "encoder", "text")
    }
    assert Path("first/model.safetensors").read_bytes() != Path("third/model.safetensors").read_bytes()


def test_another_method_starts_from_its_own_options(
    train: Callable[..., tuple[Outcome, Any]], command: Command, text_file: Path, tmp_path: Path
) -> None:
    train(text_file, "--temperature", "0.2", "--output", "first")
    other = tmp_path / "other.txt"
    other.write_text("\n".join(toy_sentences(200)[150:]))
    words = (other, "--config", "first/run.json", "--method", "sg", "--head-size", "8", "--output", "second")
    assert command("train", *words).code == 0
    config = json.loads(Path("second/run.json").read_text())["config"]
    assert (config["method"], config["text"]) == ("sg", [str(other)])
    assert (config["options"]["temperature"], config["options"]["head_size"]) == (0.01, 8)


@pytest.mark.parametrize(
    ("text", "words", "expected"),
    [
        ("{tmp}/notes.txt", (), "notes-sg-opt"),
        ("{tmp}/*.txt", ("--method", "sg"), "all-sg"),
        ("-", (), "stdin-sg-opt"),
    ],
)
def test_the_folder_is_named_for_text_and_method(
    train: Callable[..., tuple[Outcome, Any]], text_file: Path, text: str, words: tuple[str, ...], expected: str
) -> None:
    sentences = text_file.read_text()
    train(text.format(tmp=text_file.parent), *words, stdin=sentences)
    assert [path.name for path in Path.cwd().iterdir()] == [expected]


def test_dev_pairs_choose_the_checkpoint(
    train: Callable[..., tuple[Outcome, Any]], text_file: Path, dev_file: Path, command: Command
) -> None:
    quick = ("--head-size", "16", "--batch-size", "8", "--max-steps", "6", "--learning-rate", "0.004")
    words = (text_file, "--dev", dev_file, "--dev-every", "2", "--output", "tuned")
    outcome, record = train(*words, quick=quick)
    curve = [(step, score) for step, score in record["dev_curve"]]
    assert [step for step, _ in curve] == [0, 2, 4, 6]
    best_step, best = max(curve, key=lambda row: row[1])
    assert record["scores"]["after"] == best
    assert set(record["scores"]) == {"before (cls)", "before (mean)", "after"}
    assert record["checkpoint"] == f"step {best_step}, best on the dev pairs"
    for name, score in record["scores"].items():
        line = next(line for line in outcome.out.splitlines() if line.startswith(f"dev Spearman {name}"))
        assert line.split()[-1] == f"{100 * score:.2f}"
    # The folder holds the weights that had this score: no other step had it, and the last one was not the best.
    assert all(abs(score - best) > 0.005 for step, score in curve if step != best_step), curve
    assert best_step < 6
    pairs, stock = read_pairs(dev_file), SentenceTransformer("tuned")
    evaluator = _evaluator(pairs, TrainingSettings(**record["config"]["training"]))
    assert evaluator(stock)["dev_spearman_cosine"] == pytest.approx(best, abs=1e-9)
    # The cosines are all close to 1: only in double precision do they have an order that every reader finds again.
    first, second = (stock.encode(side).astype(np.float64) for side in (pairs.first, pairs.second))
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    expected = 100 * spearmanr((first * second).sum(axis=1) / lengths, pairs.scores).statistic
    said = float(command("similarity", "--pairs", dev_file, "--encoder", "tuned").err.split()[-1])
    assert said == pytest.approx(expected, abs=0.01)


def test_limit(train: Callable[..., tuple[Outcome, Any]], text_file: Path) -> None:
    assert train(text_file, "--limit", "30")[1]["text"]["kept"] == 30


@pytest.mark.parametrize("column", ["body", "1"])
def test_a_column_of_a_table(train: Callable[..., tuple[Outcome, Any]], tmp_path: Path, column: str) -> None:
    path = tmp_path / "tickets.csv"
    path.write_text("id,body\n" + "".join(f'{number},"{text}, yes"\n' for number, text in enumerate(toy_sentences(30))))
    record = train(path, "--column", column)[1]
    assert record["config"]["text_options"]["column"] == column
    assert record["text"]["kept"] == 30  # the first row looks like a header, whatever the column is called by


def test_several_files_a_glob_and_standard_input(train: Callable[..., tuple[Outcome, Any]], tmp_path: Path) -> None:
    """The same sentences in the same order are the same text, wherever they come from."""
    sentences = toy_sentences(60)
    folder = tmp_path / "parts"
    folder.mkdir()
    parts = [folder / f"{number}.txt" for number in range(3)]
    for number, path in enumerate(parts):
        path.write_text("\n".join(sentences[20 * number : 20 * number + 20]))
    whole = "\n".join(sentences)
    records = [
        train(*parts, "--output", "files")[1],
        train(folder / "*.txt", "--output", "glob")[1],
        train("-", "--output", "piped", stdin=whole)[1],
        train(parts[0], "-", "--output", "both", stdin="\n".join(sentences[20:]))[1],
    ]
    assert [record["text"]["kept"] for record in records] == [60] * 4
    assert len({record["text"]["fingerprint"] for record in records}) == 1
    assert len({Path(name, "model.safetensors").read_bytes() for name in ("files", "glob", "piped", "both")}) == 1


def test_text_as_people_have_it(command: Callable[..., Outcome], bert: Path, tmp_path: Path) -> None:
    folder = tmp_path / "exports"
    folder.mkdir()
    rows = "".join(f"{n};{s.capitalize()}. {t.capitalize()}.\r\n" for n, (s, t) in enumerate(_couples(20)))
    (folder / "export.csv").write_bytes(f"id;body\r\n{rows}bad row\r\n99;Un café. Übung.\r\n".encode("cp1252"))
    words = ("train", folder, "--encoder", bert, "--method", "mean", "--output", tmp_path / "run")
    refused = command(*words, "--skip-bad-rows", "1")
    assert (refused.code, refused.out) == (1, "")
    assert "line 23: byte 0xe9 is not valid UTF-8" in refused.err
    assert "--encoding latin1" in refused.err
    outcome = command(*words, "--encoding", "cp1252", "--split-sentences", "--skip-bad-rows", "2")
    assert outcome.code == 0, outcome.err
    said = " ".join(outcome.err.split())
    assert (
        "column 1 'body' of 2 (from 0), the only one with sentences; the first row is a header; separator: semicolon"
        in said
    )
    assert "split into 43 sentences, read from export.csv: 42 kept, 1 bad row left out" in said
    assert "It begins: “The old man repairs a broken clock.” and “My sister" in said
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["text"]["paragraphs"] == 22
    assert record["config"]["text_options"]["encoding"] == "cp1252"
    assert command("train", "--config", tmp_path / "run" / "run.json", "--output", tmp_path / "again").code == 0


def _couples(count: int) -> list[tuple[str, str]]:
    sentences = toy_sentences(2 * count)
    return list(zip(sentences[::2], sentences[1::2], strict=True))
