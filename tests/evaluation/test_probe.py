"""The probe: every layer and pooling in one pass, equal to a slow and plain computation; its table, files and picture."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr

from selfguide.errors import SelfguideError, UsageError
from selfguide.evaluation import probe as module
from selfguide.evaluation.probe import PROBE_POOLINGS, ProbeResult, layer_vectors, probe
from selfguide.evaluation.rows import Rows, TaskData
from selfguide.evaluation.tasks import Part, Task
from selfguide.models.encoders import backbone, load_encoder
from selfguide.progress import Reporter
from toys import FAMILIES, Outcome, toy_sentences

Command = Callable[..., Outcome]
QUIET = Reporter(quiet=True)


def toy_data() -> TaskData:
    """Two parts with sentences of very different lengths, some of them in several pairs."""
    sentences = toy_sentences(200)
    texts = [" and ".join(sentences[i : i + 1 + (i * 7) % 4]) for i in range(30)]
    first, second = texts, [texts[(i * 11 + 4) % 30] for i in range(30)]
    grades = [float(len(set(a.split()) & set(b.split()))) for a, b in zip(first, second, strict=True)]
    parts = (
        Rows("one", first[:20], second[:20], grades=grades[:20]),
        Rows("two", first[20:], second[20:], grades=grades[20:]),
    )
    task = Task("toy", "Toy pairs", "graded-pairs", (Part("one", 20), Part("two", 10)), "")
    return TaskData(task, parts, "memory", "0123", notes=("Made for a test.",))


def naive(folder: Path, sentences: list[str]) -> NDArray[Any]:
    """(poolings, layers, sentences, dim), one sentence at a time and without padding, by transformers alone."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    rows = []
    for sentence in sentences:
        tokens = tokenizer(sentence, return_tensors="pt", truncation=True, max_length=64)
        tokens.pop("token_type_ids", None)
        with torch.no_grad():
            layers = torch.stack(model(**tokens, output_hidden_states=True).hidden_states)[:, 0]
        rows.append(torch.stack([layers[:, 0], layers.mean(dim=1), layers.amax(dim=1)]))
    return torch.stack(rows, dim=2).numpy()


@pytest.fixture
def lively(tiny: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A tiny encoder with larger weights: those of a fresh one make all sentences alike, and ranks a matter of rounding."""
    from transformers import AutoModel

    def build(family: str) -> Path:
        folder = tmp_path_factory.mktemp("lively") / family
        shutil.copytree(tiny(family), folder)
        model = AutoModel.from_pretrained(folder)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() == 2:
                    parameter.mul_(8)
        model.save_pretrained(folder)
        return folder

    return build


@pytest.fixture
def result(bert: Path) -> ProbeResult:
    return probe(bert, toy_data())


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_equals_one_sentence_at_a_time(lively: Callable[[str], Path], family: str) -> None:
    folder = lively(family)
    data = toy_data()
    sentences = list(dict.fromkeys(data.sentences()))
    plain = naive(folder, sentences)
    plain /= np.linalg.norm(plain, axis=-1, keepdims=True)
    vectors = layer_vectors(load_encoder(folder), sentences, PROBE_POOLINGS, 7, QUIET)
    np.testing.assert_allclose(vectors, plain, atol=1e-4)

    found = probe(folder, data, batch_size=7)
    rows = {text: number for number, text in enumerate(sentences)}
    pairs = [(rows[a], rows[b]) for part in data.parts for a, b in zip(part.first, part.second or [], strict=True)]
    grades = [grade for part in data.parts for grade in part.grades or []]
    left, right = zip(*pairs, strict=True)
    for way, scores in enumerate(found.scores):
        for layer, score in enumerate(scores):
            if way == 0 and layer == 0:
                assert math.isnan(score)  # [CLS] before the first layer has seen nothing of the sentence
                continue
            cosines = (plain[way, layer, left] * plain[way, layer, right]).sum(axis=-1)
            assert score == pytest.approx(100 * spearmanr(cosines, grades).statistic, abs=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family(lively: Callable[[str], Path], family: str) -> None:
    found = probe(lively(family), toy_data(), poolings=("mean", "cls"))
    assert (found.encoder, found.layers, found.poolings) == (family, (0, 1, 2, 3), ("mean", "cls"))
    assert all(-100 <= cell.score <= 100 for cell in found.cells())
    assert len(found.cells()) == 7  # all but [CLS] of layer 0


def test_each_distinct_sentence_goes_through_the_encoder_once(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = load_encoder(bert)
    model = backbone(encoder).train()  # dropout would change the scores: the probe switches it off
    plain, seen = model.forward, []

    def count(*args: Any, **options: Any) -> Any:
        seen.extend(row[row != 1].tolist() for row in options["input_ids"])  # 1: padding
        return plain(*args, **options)

    monkeypatch.setattr(model, "forward", count)
    data = toy_data()
    found = probe(encoder, data, batch_size=8)
    assert len(seen) == found.sentences == len(set(data.sentences())) < 2 * found.rows
    assert len({tuple(row) for row in seen}) == len(seen)
    assert found.scores[1:] == probe(bert, data, batch_size=8).scores[1:]


def test_many_vectors_are_kept_in_a_file(
    bert: Path, result: ProbeResult, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "MEMORY_LIMIT", 1000)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    vectors = layer_vectors(load_encoder(bert), toy_sentences(20), PROBE_POOLINGS, 8, QUIET)
    assert isinstance(vectors, np.memmap)
    assert probe(bert, toy_data()).scores[1:] == result.scores[1:]
    assert not list(tmp_path.iterdir())

    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    with pytest.raises(SelfguideError, match=r"more than is free in .* TMPDIR"):
        probe(bert, toy_data())


def test_what_a_result_says(result: ProbeResult) -> None:
    assert (result.task, result.rows, result.digest, result.encoder) == ("Toy pairs", 30, "0123", "bert")
    scores = [score for row in result.scores for score in row if not math.isnan(score)]
    assert (result.best.score, result.worst.score) == (max(scores), min(scores))
    assert result.scores[result.poolings.index(result.best.pooling)][result.best.layer] == result.best.score
    heading, *rows = result.table()
    assert heading == ("layer", "cls", "mean", "max")
    assert [row[0] for row in rows] == ["0", "1", "2", "3"]
    assert rows[0][1] == "–"
    assert rows[3][2] == f"{result.scores[1][3]:.2f}"
    stored = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert stored["scores"][0][0] is None
    assert stored["best"] == result.best._asdict()
    assert {"selfguide", "torch", "transformers"} <= set(stored["versions"])
    assert stored["notes"] == ["Made for a test."]


def test_refusals(bert: Path) -> None:
    data = toy_data()
    with pytest.raises(UsageError, match="no pooling 'median' to probe; choose among cls, mean, max"):
        probe(bert, data, poolings=("mean", "median"))
    with pytest.raises(UsageError, match="none twice"):
        probe(bert, data, poolings=("mean", "mean"))
    with pytest.raises(UsageError, match="batch_size must be at least 1"):
        probe(bert, data, batch_size=0)
    labelled = replace(data, parts=(Rows("all", ["a", "b"], labels=["x", "y"]),))
    with pytest.raises(UsageError, match="Toy pairs has no graded pairs"):
        probe(bert, labelled)
    constant = replace(data, parts=(Rows("all", ["a", "b"], ["c", "d"], grades=[1.0, 1.0]),))
    with pytest.raises(SelfguideError, match="2 pairs with 1 different grades"):
        probe(bert, constant)
    alike = replace(data, parts=(Rows("all", ["a", "b"], ["b", "a"], grades=[1.0, 2.0]),))
    with pytest.raises(SelfguideError, match="all pairs have the same cosine"):
        probe(bert, alike, poolings=("cls",))


def test_encoders_without_layers_are_refused(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    words = load_encoder(bert).tokenizer.backend_tokenizer
    with pytest.raises(SelfguideError, match="starts with StaticEmbedding, not with a Transformer"):
        probe(SentenceTransformer(modules=[StaticEmbedding(words, embedding_dim=8)]), toy_data())

    encoder = load_encoder(bert)
    model = backbone(encoder)
    plain = model.forward

    def secretive(*args: Any, **options: Any) -> Any:
        return plain(*args, **(options | {"output_hidden_states": False}))

    monkeypatch.setattr(model, "forward", secretive)
    with pytest.raises(SelfguideError, match="BertModel gives no hidden states"):
        probe(encoder, toy_data())


def test_command(command: Command, bert: Path, dev_file: Path, tmp_path: Path) -> None:
    plot, scores = tmp_path / "layers.svg", tmp_path / "layers.json"
    outcome = command("probe", bert, "--pairs", dev_file, "--plot", plot, "--json", scores)
    assert outcome.code == 0, outcome.err
    stored = json.loads(scores.read_text(encoding="utf-8"))
    assert (stored["encoder"], stored["task"], stored["rows"]) == ("bert", "dev", 40)
    best = stored["best"]
    assert outcome.out.splitlines()[-1].startswith(f"Best: {best['pooling']} of layer {best['layer']} with ")
    assert "nothing to rank" in outcome.out
    assert f"Scores written to {scores}" in outcome.err
    assert f"Heat map written to {plot}" in outcome.err
    assert sorted(item.name for item in tmp_path.iterdir()) == ["dev.tsv", "layers.json", "layers.svg"]


def test_command_takes_the_embedded_pairs_by_default(
    command: Command, bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SELFGUIDE_DATA", raising=False)
    outcome = command("probe", bert, "--poolings", "mean")
    assert outcome.code == 0, outcome.err
    assert "bert on demo pairs, 440 pairs" in outcome.out
    assert "Task: demo" in outcome.err
    assert command("probe", bert, "--poolings", "mean", "--quiet").err == ""


def test_command_takes_stsb_where_there_is_a_data_folder(command: Command, bert: Path, tmp_path: Path) -> None:
    outcome = command("probe", bert, "--data", tmp_path)
    assert outcome.code == 1
    assert "Task: stsb" in outcome.err
    assert "STS-B" in outcome.err  # the folder is empty: the task is named in the refusal


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--poolings", "median"), "There is no pooling 'median' to probe"),
        (("--plot", "layers.pdf"), "layers.pdf ends in .pdf"),
        (("--json", "nowhere/scores.json"), "there is no folder nowhere"),
        (("--task", "stsc"), "There is no task 'stsc'. Did you mean"),
        (("--pairs", "x.tsv", "--task", "demo"), "--pairs brings its own data"),
    ],
)
def test_command_refusals(command: Command, bert: Path, words: tuple[str, ...], sentence: str) -> None:
    outcome = command("probe", bert, *words)
    assert (outcome.code, outcome.out) == (2, "")
    assert sentence in outcome.err


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['selfguide', 'probe', '--help']\n"
        "from selfguide.cli.main import run\n"
        "run()\n"
        "assert not {'torch', 'matplotlib', 'mteb', 'numpy'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--poolings" in done.stdout
