"""``selfguide.evaluate`` and ``selfguide eval``: whole evaluations, resumed ones, and encoders that misbehave."""

from __future__ import annotations

import csv
import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import selfguide
from selfguide.engine.digest import model_digest
from selfguide.errors import SelfguideError, UsageError
from selfguide.evaluation.embedder import embedder, pooled_embedders
from selfguide.evaluation.evaluate import load_tasks, paired, score_all
from selfguide.evaluation.protocol import Protocol
from selfguide.evaluation.results import Evaluation, ScoreFolder, TaskScore, table
from selfguide.models.encoders import POOLINGS, load_encoder, with_pooling
from selfguide.progress import Reporter
from toys import toy_sentences


def hashed(sentences: list[str]) -> np.ndarray:
    """A bag of words with fixed random vectors: an encoder without any library."""
    rows = []
    for sentence in sentences:
        words = sentence.lower().split() or ["nothing"]
        draws = [np.random.default_rng(sum(word.encode()) * 7919 + len(word)).normal(size=24) for word in words]
        rows.append(np.mean(draws, axis=0))
    return np.stack(rows)


@pytest.fixture
def pairs_file(tmp_path: Path) -> Path:
    sentences = toy_sentences(60)
    draw = np.random.default_rng(3)
    lines = [
        f"{draw.integers(0, 11) / 2}\t{sentences[i]}\t{sentences[j]}" for i, j in draw.integers(0, 60, size=(40, 2))
    ]
    path = tmp_path / "mine.tsv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_the_score_is_the_one_that_scipy_gives(bert: Path, pairs_file: Path) -> None:
    from scipy.stats import pearsonr, spearmanr

    found = selfguide.evaluate(bert, "", pairs=pairs_file, bootstrap=50)
    rows = [line.split("\t") for line in pairs_file.read_text(encoding="utf-8").splitlines()]
    left, right = (load_encoder(bert).encode([row[column] for row in rows]) for column in (1, 2))
    cosines = (left * right).sum(1) / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1)
    grades = [float(row[0]) for row in rows]
    score = found["mine"]
    assert score.value == pytest.approx(100 * spearmanr(cosines, grades).statistic, abs=1e-4)
    assert score.details["pearson"]["cosine"]["all"] == pytest.approx(
        100 * pearsonr(cosines, grades).statistic, abs=1e-3
    )
    assert score.interval is not None
    assert score.interval[0] <= score.value <= score.interval[1]


def test_a_score_says_whose_it_is_and_how_it_was_made(bert: Path, pairs_file: Path) -> None:
    score = selfguide.evaluate(bert, "demo", pairs=pairs_file, bootstrap=0, name="tiny").scores[1]
    assert (score.encoder.name, score.encoder.dimension) == ("tiny", 32)
    assert len(score.encoder.digest) == len(score.data.digest) == 16
    assert score.protocol == {"similarity": "cosine", "aggregation": "all", "text": "raw", "bootstrap": 0, "seed": 1}
    assert score.data.rows == 40
    assert {"selfguide", "torch", "scipy", "sentence-transformers"} <= set(score.versions)
    assert score.date.count("-") == 2


def test_each_distinct_sentence_is_encoded_once_over_all_tasks(pairs_file: Path) -> None:
    seen: list[str] = []

    def counting(sentences: list[str]) -> np.ndarray:
        seen.extend(sentences)
        return hashed(sentences)

    vectors = embedder(counting)
    seen.clear()
    rows = load_tasks("demo,demo-dev", pairs_file, None, Protocol(bootstrap=0))
    score_all(vectors, rows, Protocol(bootstrap=0), Reporter(quiet=True))
    distinct = {sentence for item in rows for sentence in item.sentences()}
    # Three more: the check that rows come back in order asks for a few sentences alone.
    assert len(seen) - 3 <= len(distinct) <= len(seen)
    assert set(seen) == distinct


def test_finished_tasks_are_not_run_again_unless_asked(pairs_file: Path, tmp_path: Path) -> None:
    calls: list[int] = []

    def counting(sentences: list[str]) -> np.ndarray:
        calls.append(len(sentences))
        return hashed(sentences)

    def run(**more: Any) -> Evaluation:
        calls.clear()
        return selfguide.evaluate(counting, "", pairs=pairs_file, bootstrap=0, output=tmp_path / "scores", **more)

    first = run()
    assert sum(calls) > 40
    second = run()
    assert sum(calls) < 12  # only the four sentences that tell one encoder from another
    assert second.scores == first.scores
    run(again=True)
    assert sum(calls) > 40
    run(similarity="dot")  # another protocol is another score
    assert sum(calls) > 40
    kept = json.loads((tmp_path / "scores" / "scores.json").read_text(encoding="utf-8"))
    assert [row["protocol"]["similarity"] for row in kept] == ["cosine", "dot"]
    assert (tmp_path / "scores" / "scores.csv").read_text(encoding="utf-8").count("\n") == 3


def test_an_interrupted_evaluation_keeps_its_finished_tasks(pairs_file: Path, tmp_path: Path) -> None:
    class Stops:
        calls = 0

        def encode(self, sentences: list[str]) -> np.ndarray:
            self.calls += len(sentences) > 300  # the demo pairs
            if self.calls:
                raise KeyboardInterrupt
            return hashed(sentences)

    rows = load_tasks("demo", pairs_file, None, Protocol(bootstrap=0))[::-1]
    vectors = embedder(Stops())
    store = tmp_path / "scores"
    # One at a time, as tasks of different kinds are.
    score_all(vectors, rows[:1], Protocol(bootstrap=0), Reporter(quiet=True), output=store)
    with pytest.raises(KeyboardInterrupt):
        score_all(vectors, rows, Protocol(bootstrap=0), Reporter(quiet=True), output=store)
    assert [score.task for score in ScoreFolder(store).scores] == ["mine"]
    assert [path.name for path in sorted(store.iterdir())] == ["scores.csv", "scores.json"]


def test_scores_come_back_from_json_as_they_were(pairs_file: Path) -> None:
    score = selfguide.evaluate(hashed, "", pairs=pairs_file, bootstrap=20)["mine"]
    again = TaskScore.from_dict(json.loads(json.dumps(score.to_dict())))
    assert again.to_dict() == score.to_dict()
    assert again.interval == score.interval


def test_a_score_that_is_none_survives_too(pairs_file: Path, tmp_path: Path) -> None:
    found = selfguide.evaluate(
        lambda sentences: np.ones((len(sentences), 4)), "", pairs=pairs_file, output=tmp_path / "s"
    )
    assert math.isnan(found["mine"].value)
    assert any("same" in note or "constant" in note for note in found["mine"].notes), found["mine"].notes
    assert math.isnan(ScoreFolder(tmp_path / "s").scores[0].value)


def test_groups_have_averages_only_when_they_are_whole(pairs_file: Path) -> None:
    score = selfguide.evaluate(hashed, "", pairs=pairs_file, bootstrap=0)["mine"]
    from dataclasses import replace

    seven = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
    scores = tuple(replace(score, task=name, title=name, value=float(n)) for n, name in enumerate(seven))
    assert Evaluation(score.encoder, scores).averages() == {"sts": 3.0}
    assert Evaluation(score.encoder, scores[1:]).averages() == {}
    headings, rows = table([Evaluation(score.encoder, scores), Evaluation(score.encoder, scores[:2])])
    assert headings == [*seven, "sts avg"]
    assert rows[0][-1] == 3.0
    assert rows[1][2:] == [None] * 6


def test_the_digest_tells_weights_poolings_and_lengths_apart(tiny: Callable[[str], Path]) -> None:
    folder = tiny("bert")
    first, second = load_encoder(folder), load_encoder(folder)
    assert model_digest(first) == model_digest(second)
    others = [with_pooling(first, "cls"), with_pooling(first, "mean", layer=1), load_encoder(folder, max_length=8)]
    second[0].model.embeddings.word_embeddings.weight.data[5, 0] += 1
    digests = {model_digest(model) for model in (first, second, *others)}
    assert len(digests) == 5


def test_paired_differences_have_the_sign_of_the_scores(bert: Path, pairs_file: Path) -> None:
    protocol = Protocol(bootstrap=0)
    rows = load_tasks("", pairs_file, None, protocol)
    one, two = embedder(bert, pooling="cls"), embedder(hashed)
    scores = [score_all(item, rows, protocol, Reporter(quiet=True))["mine"].value for item in (one, two)]
    found = paired(one, two, rows, protocol, resamples=200)["mine"]
    assert found.difference == pytest.approx(scores[1] - scores[0], abs=1e-6)
    assert 0 < found.p_value <= 1


@pytest.mark.parametrize("family", ["bert", "distilbert", "modernbert"])
def test_poolings_from_one_pass_are_those_of_stock_modules(tiny: Callable[[str], Path], family: str) -> None:
    model = load_encoder(tiny(family))
    sentences = [" ".join(toy_sentences(1 + number % 4)) for number in range(30)]
    passes: list[int] = []
    model[0].model.register_forward_hook(lambda module, inputs, output: passes.append(1))
    shared = pooled_embedders(model, POOLINGS)
    passes.clear()
    found = [item(sentences) for item in shared]
    once = len(passes)
    for item, pooling, vectors in zip(shared, POOLINGS, found, strict=True):
        plain = embedder(tiny(family), pooling=pooling)
        assert np.allclose(vectors, plain(sentences), atol=1e-5), pooling
        assert item.info.digest == plain.info.digest
    assert once <= len(set(sentences))


BAD: dict[str, tuple[Callable[[list[str]], Any], str]] = {
    "drops a row": (lambda sentences: hashed(sentences)[1:], "one vector for each sentence"),
    "one number": (lambda sentences: 3.0, "single number"),
    "not numbers": (lambda sentences: ["a"] * len(sentences), "does not return an array of numbers"),
    "nan": (lambda sentences: hashed(sentences) * np.nan, "not finite"),
    "no width": (lambda sentences: np.zeros((len(sentences), 0)), "vectors of dimension 0"),
    "fails": (lambda sentences: [][1], "IndexError"),
}


@pytest.mark.parametrize("what", BAD)
def test_an_encoder_that_returns_nonsense_is_refused(what: str, pairs_file: Path) -> None:
    function, words = BAD[what]
    with pytest.raises(SelfguideError, match=words):
        selfguide.evaluate(function, "", pairs=pairs_file)


def test_an_encoder_that_reorders_rows_is_refused(pairs_file: Path) -> None:
    def sorts(sentences: list[str]) -> np.ndarray:
        return hashed(sorted(sentences))

    with pytest.raises(SelfguideError, match="another order"):
        selfguide.evaluate(sorts, "", pairs=pairs_file)


def test_an_encoder_that_changes_its_width_is_refused(pairs_file: Path) -> None:
    def widens(sentences: list[str]) -> np.ndarray:
        return hashed(sentences)[:, : 24 if len(sentences) == 4 else 20]

    with pytest.raises(SelfguideError, match="dimension 20 where it gave 24"):
        selfguide.evaluate(widens, "", pairs=pairs_file)


def test_nan_for_one_sentence_names_the_sentence(pairs_file: Path) -> None:
    bad = pairs_file.read_text(encoding="utf-8").split("\t")[1]

    def sometimes(sentences: list[str]) -> np.ndarray:
        vectors = hashed(sentences)
        vectors[[sentence == bad for sentence in sentences]] = np.inf
        return vectors

    with pytest.raises(SelfguideError, match=bad[:20]):
        selfguide.evaluate(sometimes, "", pairs=pairs_file)


def test_what_is_no_encoder_is_refused_in_words() -> None:
    with pytest.raises(UsageError, match="neither a function"):
        selfguide.evaluate(7)
    with pytest.raises(UsageError, match="cannot be imported"):
        selfguide.evaluate("no_such_module:encode")
    with pytest.raises(UsageError, match=r"cannot be imported: .*no attribute 'nowhere'"):
        selfguide.evaluate("json:nowhere")
    with pytest.raises(UsageError, match="Transformer encoders only"):
        selfguide.evaluate(hashed, pooling="cls")


def test_a_damaged_scores_file_is_named(pairs_file: Path, tmp_path: Path) -> None:
    (tmp_path / "scores.json").write_text("[{]", encoding="utf-8")
    with pytest.raises(SelfguideError, match=r"scores\.json is not a file of scores"):
        selfguide.evaluate(hashed, "", pairs=pairs_file, output=tmp_path)


def test_the_command_shows_a_table_and_writes_both_files(
    command: Callable[..., Any], tiny: Callable[[str], Path], pairs_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "scores"
    done = command(
        "eval", str(tiny("bert")), "--pooling", "cls,mean", "--pairs", str(pairs_file), "--bootstrap", "20",
        "--significance", "--output", str(out),
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "(cls)" in done.out
    assert "(mean)" in done.out
    assert "minus" in done.out
    assert "(spearman" in done.out  # the metric in the heading, and an interval beside each score
    assert len(re.findall(r"-?\d+\.\d\d \(-?\d+\.\d–-?\d+\.\d\)", done.out)) == 2, done.out
    kept = json.loads((out / "scores.json").read_text(encoding="utf-8"))
    assert len(kept) == 2
    for row in kept:
        assert row["command"].startswith(f"selfguide eval {tiny('bert')} --pooling cls,mean")
        assert str(out) not in row["command"]
        assert row["device"] == str(selfguide.load_encoder(tiny("bert")).device)
    again = command(
        "eval", str(tiny("bert")), "--pooling", "cls,mean", "--pairs", str(pairs_file), "--bootstrap", "20",
        "--output", str(out),
    )  # fmt: skip
    assert "1 of 1 task scored before" in again.err


def test_an_encoder_with_the_weights_of_another_keeps_its_row(
    command: Callable[..., Any], tiny: Callable[[str], Path], pairs_file: Path, tmp_path: Path
) -> None:
    shutil.copytree(tiny("bert"), tmp_path / "copy")
    words = ("eval", str(tiny("bert")), str(tmp_path / "copy"), "--pairs", str(pairs_file), "--bootstrap", "0")
    for _ in range(2):
        done = command(*words, "--output", str(tmp_path / "scores"))
        assert done.code == 0, done.err
        for name in ("bert", "copy"):
            assert name in done.out
        with (tmp_path / "scores" / "scores.csv").open(newline="", encoding="utf-8") as file:
            assert [row["encoder"] for row in csv.DictReader(file)] == ["bert", "copy"]


def test_a_function_beside_the_user_is_found(
    command: Callable[..., Any], pairs_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "beside_me.py").write_text(
        "import numpy as np\ndef encode(s):\n    return np.array([[len(x), x.count('a'), 1.0] for x in s])\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    done = command("eval", "beside_me:encode", "--pairs", str(pairs_file), "--bootstrap", "0")
    assert done.code == 0, done.err
    assert "beside_me:encode" in done.out


def test_mistakes_on_the_command_line_are_sentences(
    command: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SELFGUIDE_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    cases = {
        ("eval", "mini", "--tasks", "sts99"): "There is no task 'sts99'",
        ("eval", "mini", "--aggregation", "median"): "aggregation must be one of all, mean, wmean, got 'median'",
        ("eval", "mini", "--tasks", "stsb", "--data", str(tmp_path / "none")): "does not exist",
        ("eval", "mini", "--tasks", "stsb", "--offline"): "STS-B",
        ("eval", "mini", "--pairs", str(tmp_path / "none.tsv")): "none.tsv",
        ("eval", "mini", "mini"): "both be called",
    }
    for words, message in cases.items():
        done = command(*words)
        assert done.code != 0
        assert message in done.err, (words, done.err)
        assert "Traceback" not in done.err
