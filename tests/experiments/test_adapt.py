"""The experiments about adapting an encoder: their arithmetic, and one cell at toy size."""

from __future__ import annotations

import argparse
import math
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cosine_similarity

import selfguide
from experiments.adapt import centring, choice, run, summary, teachers, views
from experiments.adapt.cell import Remembering, averaged, one_run
from experiments.adapt.judges import Judge, correlation
from experiments.adapt.loss import relational
from experiments.adapt.matching import rarity
from experiments.adapt.recipes import recipe
from experiments.adapt.scores import Probe, reciprocal_ranks
from experiments.adapt.texts import DEVELOPMENT, REPORT, distinct, judged_text, some_sentences
from experiments.adapt.unhelpful import unhelpful_text
from selfguide.calibration import spread
from selfguide.errors import UsageError
from selfguide.files import read_json
from selfguide.models.encoders import load_encoder
from toys import toy_sentences


@pytest.mark.parametrize(
    ("count", "temperature", "guide_temperature"), [(3, 0.05, 0.05), (7, 1.0, 0.1), (2, 0.05, 0.05)]
)
def test_the_relational_term_is_the_mean_divergence_of_two_distributions(
    count: int, temperature: float, guide_temperature: float
) -> None:
    torch.manual_seed(count)
    first, second, guide = (torch.randn(count, 5, dtype=torch.float64) for _ in range(3))

    def distribution(one: Any, other: Any, row: int, scale: float) -> list[float]:
        terms = [math.exp(float(cosine_similarity(one[row], x, dim=0)) / scale) for x in other]
        del terms[row]
        return [term / sum(terms) for term in terms]

    naive = 0.0
    for row in range(count):
        wanted = distribution(guide, guide, row, guide_temperature)
        given = distribution(first, second, row, temperature)
        naive += sum(p * math.log(p / q) for p, q in zip(wanted, given, strict=True)) / count
    similarities = cosine_similarity(guide[:, None], guide[None, :], dim=-1)
    found = relational(first, second, similarities, temperature, guide_temperature)
    assert float(found) == pytest.approx(naive, abs=1e-9)


def test_an_average_of_weights_lies_on_the_line_between_them() -> None:
    start = {"w": torch.tensor([1.0, 2.0]), "ids": torch.tensor([1])}
    end = {"w": torch.tensor([3.0, 0.0]), "ids": torch.tensor([2]), "new": torch.tensor([5.0])}
    half = averaged(start, end, 0.5)
    assert half["w"].tolist() == [2.0, 1.0]
    assert half["ids"].tolist() == [2]
    assert half["new"].tolist() == [5.0]


def test_equal_cosines_count_half_of_those_that_are_better() -> None:
    queries = np.eye(3, dtype=np.float32)
    candidates = np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0]], dtype=np.float32)
    assert reciprocal_ranks(queries, candidates).tolist() == pytest.approx([1 / 1.5, 1 / 2.5, 1 / 2])


def test_a_recipe_is_a_method_with_options_and_training_settings() -> None:
    found = recipe("contrast:stay=0.5:learning_rate=2e-5:epochs=2")
    assert found.method.describe_options()["stay"] == 0.5
    assert found.settings == {"learning_rate": 2e-5, "epochs": 2}
    assert recipe("tsdae:pooling=mean").method.describe_options()["pooling"] == "mean"
    with pytest.raises(UsageError, match="no option 'stayy'"):
        recipe("contrast:stayy=1")


def test_the_two_lists_share_no_file() -> None:
    files = [{file for found in texts.values() for file in found} for texts in (DEVELOPMENT, REPORT)]
    assert not files[0] & files[1]
    assert not any("stsb" in file or "sickr" in file for file in files[0] | files[1])


def _row(word: str, own: dict[str, float], change: float = 0.0, text: str = "a") -> dict[str, Any]:
    free = {name: {"value": 0.0, "change": change, "error": 0.01} for name in choice.SCORES} | {"overlap": 0.9}
    shares = {share: {"own": value, "elsewhere": 80.0, "free": free} for share, value in own.items()}
    plain = {"encoder": "e", "text": text, "seed": 1, "size": 0, "instead": ""}
    return {**plain, "word": word, "shares": shares}


def test_a_choice_that_asks_for_evidence_refuses_the_loss_and_keeps_the_gain() -> None:
    rows = [
        _row("as-is", {"0": 70.0}),
        _row("good", {"1": 72.0}, change=0.05),
        _row("bad", {"1": 60.0}, change=-0.05),
        _row("as-is", {"0": 50.0}, text="b"),
        _row("good", {"1": 51.0}, change=0.005, text="b"),
    ]
    by_recipe = summary.by_recipe(rows)
    assert by_recipe["e, good, share 1"]["mean"] == pytest.approx(1.5)
    assert by_recipe["e, bad, share 1"]["worst"] == pytest.approx(-10.0)
    found = choice.validated(rows)
    assert (found["always"]["worst"], found["always"]["below"]) == (-10.0, 1)
    asked = found["rules"]["found, margin 2, overlap 0"]
    assert asked["worst"] == 0.0
    assert asked["mean"] == pytest.approx(2 / 3)
    assert asked["kept"] == pytest.approx(2 / 3)


def test_a_rule_that_is_judged_on_a_text_was_selected_without_it() -> None:
    """On text a every score is right, on b wrong: no rule is safe on b, and any looks safe on a."""
    rows = [
        *(_row("as-is", {"0": 70.0}, text=text) for text in "ab"),
        _row("good", {"1": 72.0}, change=0.05),
        _row("bad", {"1": 60.0}, change=0.05, text="b"),
    ]
    found = choice.validated(rows)
    assert found["held out"]["worst"] == pytest.approx(-10.0)
    assert found["held out"]["mean"] == pytest.approx(-5.0)
    assert found["held out"]["selected"]["a"] == "none"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    rows = toy_sentences(90)
    for file in (DEVELOPMENT["forums"][0], "sts/stsb/dev.tsv"):
        (folder / file).parent.mkdir(parents=True)
        pairs = zip(range(30), rows, rows[45:], strict=False)
        (folder / file).write_text("".join(f"{number % 6}\t{a}\t{b}\n" for number, a, b in pairs))
    return folder


def test_a_cell_scores_every_share_of_the_way(bert: Path, data: Path) -> None:
    word = "contrast:stay=1:anchor=0.5:learning_rate=1e-2"
    before, after = (
        one_run(str(bert), "forums", kind, 1, str(data), shares=(0.0, 1.0), max_steps=2) for kind in ("as-is", word)
    )
    assert after["sentences"] == 60
    original, start, end = before["shares"]["0"], after["shares"]["0"], after["shares"]["1"]
    assert start["own"] == pytest.approx(original["own"], abs=1e-6)
    assert start["free"]["overlap"] == 1.0
    assert start["free"]["found"]["change"] == 0.0
    assert end["own"] != original["own"]
    assert end["free"]["order"] < 1.0


def test_measured_cells_outlive_their_files(
    bert: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (data / "domain").mkdir(exist_ok=True)
    words = [
        "--encoder",
        f"toy={bert}",
        "--texts",
        "forums",
        "--recipes",
        "contrast",
        "--no-scores",
        "--max-steps",
        "1",
    ]
    words += ["--data", str(data), "--work", str(tmp_path / "work"), "--out", str(tmp_path / "found.json")]

    def found(*more: str) -> dict[str, Any]:
        monkeypatch.setattr(sys, "argv", ["run", *words, *more])
        run.main()
        return dict(read_json(tmp_path / "found.json"))

    first = found("--seeds", "1")
    assert len(first["cells"]) == 2
    shutil.rmtree(tmp_path / "work")
    both = found("--seeds", "1", "2", "--jobs", "0")
    assert [{**row, "date": first["date"]} for row in first["cells"]] == both["cells"]
    assert list(both["failed"]) == ["toy.forums.contrast.seed2"]
    assert found("--seeds", "1", "--jobs", "0", "--precision", "bf16")["cells"] == []


def test_unhelpful_texts_and_probes_are_the_same_for_one_seed(data: Path) -> None:
    judged = judged_text("forums", data)
    assert judged.sentences == distinct(judged.pairs)
    assert len(some_sentences(judged.sentences, 7)) == 7
    shuffled = unhelpful_text("shuffled", judged.sentences, data, 1)
    assert shuffled == unhelpful_text("shuffled", judged.sentences, data, 1)
    assert sorted(" ".join(shuffled).split()) == sorted(" ".join(judged.sentences).split())
    assert len(set(unhelpful_text("template", judged.sentences, data, 1))) > 1000
    probe = Probe.of(judged.sentences, copies=5)
    assert probe == Probe.of(judged.sentences, copies=5)
    for (first, second), sentence in zip(probe.thinned, probe.sentences, strict=False):
        assert sorted(f"{first} {second}".split()) == sorted(sentence.split())


def test_a_centred_cell_is_what_adapt_saves(bert: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spread, "MOST_COMMON", 1.0)
    monkeypatch.setattr(centring, "MOST_COMMON", 1.0)
    encoder = load_encoder(bert, pooling="mean", device="cpu").eval()
    judge = Judge("forums", data, 0, "none")
    arguments = argparse.Namespace(data=str(data), seeds=[1, 2], sizes=[20], instead=["template"], also="none")
    found = centring.cell(Remembering(encoder), judge, arguments)
    centred = selfguide.adapt(encoder, list(judge.sentences), pooling="mean", tune="never", seed=1, quiet=True)
    assert judge.pairs is not None
    after = correlation(Remembering(centred), judge.pairs)
    assert found["seeds"]["1"]["shares"]["0.5"] == pytest.approx(after - found["own"], abs=1e-3)
    found |= {"encoder": "e", "text": "forums", "general": 0.5}
    assert centring.gain_of_rule({**found, "general": 0.1}) == 0.0
    found["rule"] = centring.gain_of_rule(found)
    assert found["rule"] == pytest.approx(sum(seed["shares"]["0.5"] for seed in found["seeds"].values()) / 2)
    assert set(found["sizes"]["20"]) == {"1", "2"}
    fate = centring.summary([found])
    assert fate["rule"]["mean"] == pytest.approx(found["rule"])
    assert fate["held out"]["cells"] == 1


def test_a_share_is_selected_without_the_text_it_is_applied_to() -> None:
    rows = [
        {
            "rule": gain,
            "whitening": {f"{exponent:g}": 0.0 for exponent in centring.WHITENING},
            "seeds": {"1": {"shares": {f"{share:g}": share * gain for share in centring.SHARES}}},
            "sizes": {},
            "instead": {},
            "common": 0.1,
            "cosine": 0.3,
            "general": 0.3,
        }
        for gain in (1.0, 1.0, -2.0)
    ]
    found = centring.summary(rows)["held out"]
    assert found["selected"] == [
        "0.25",
        "0.25",
        "1",
    ]  # only a quarter is safe on the third text, and all of it on the others
    assert found["worst"] == -2.0


def test_a_weighted_view_is_the_cosine_of_the_joined_embedding(bert: Path, data: Path) -> None:
    folder, judge = load_encoder(bert, pooling="mean", device="cpu").eval(), Judge("forums", data, 0, "none")
    found = views.views(folder, list(judge.sentences))
    assert set(found) == {
        *(f"layer {number}" for number in range(3)),
        *(f"layer {number}, centred" for number in range(4)),
        "layer 0, frequency-weighted and whitened",
    }
    own = folder.encode(list(judge.sentences), show_progress_bar=False)
    unit = [part / np.linalg.norm(part, axis=1, keepdims=True) for part in (own, found["layer 1, centred"])]
    joined = dict(zip(judge.sentences, np.hstack([unit[0], math.sqrt(0.2) * unit[1]]), strict=True))
    assert judge.pairs is not None
    after = correlation(lambda texts: np.stack([joined[text] for text in texts]), judge.pairs)
    cell = views.cell(folder, judge)
    assert after - cell["own"] == pytest.approx(cell["gains"]["layer 1, centred"]["0.2"], abs=0.05)


def test_a_view_is_selected_without_the_text_it_is_applied_to() -> None:
    rows = [{"gains": {"a": {"1": first}, "b": {"1": second}}} for first, second in ((1, 0.2), (1, 0.2), (-2, 0.2))]
    found = views.summary(rows)
    assert found["a"]["1"]["worst"] == -2
    # Without the third text the first view looks best; without another one it loses too much.
    assert found["held out"] == {"mean": pytest.approx((0.2 + 0.2 - 2) / 3), "worst": -2}


def test_signals_of_a_pair_follow_their_definitions(bert: Path, data: Path) -> None:
    """Neighbours, rare words and token matches of every pair, against naive loops over sentences and tokens."""
    encoder, judge = load_encoder(bert, pooling="mean", device="cpu").eval(), Judge("forums", data, 0, "none")
    sentences = list(judge.sentences)
    vectors = encoder.encode(sentences, normalize_embeddings=True, show_progress_bar=False)
    pairs = np.array([(0, 1), (2, 3), (1, 1)])
    found = dict(teachers.signals(encoder, sentences, vectors, pairs))
    assert set(found) == {"density", "smoothed", "local", "words", "match, layer 0", "match, layer 3", "match"}

    def neighbours(row: int) -> list[int]:
        others = [other for other in range(len(sentences)) if other != row]
        return sorted(others, key=lambda other: -float(vectors[row] @ vectors[other]))[: teachers.NEIGHBOURS]

    idf = rarity(encoder, sentences)
    for number, (one, two) in enumerate(pairs.tolist()):
        closeness = [float(np.mean([vectors[row] @ vectors[other] for other in neighbours(row)])) for row in (one, two)]
        assert found["density"][number] == pytest.approx(-sum(closeness) / 2, abs=1e-5)
        smooth = [vectors[row] + vectors[neighbours(row)].mean(axis=0) for row in (one, two)]
        cosine = smooth[0] @ smooth[1] / np.linalg.norm(smooth[0]) / np.linalg.norm(smooth[1])
        assert found["smoothed"][number] == pytest.approx(float(cosine), abs=1e-5)
        ids = [set(encoder.tokenizer(sentences[row], add_special_tokens=False)["input_ids"]) for row in (one, two)]
        shared, weights = (sum(float(idf[token]) for token in part) for part in (ids[0] & ids[1], [*ids[0], *ids[1]]))
        assert found["words"][number] == pytest.approx(2 * shared / weights, abs=1e-5)
        assert found["match"][number] == pytest.approx(_match(encoder, sentences[one], sentences[two], idf), abs=1e-4)
    assert found["match"][2] == pytest.approx(1.0, abs=1e-4)


def _match(encoder: Any, one: str, two: str, idf: torch.Tensor) -> float:
    """BERTScore's F with weights, token by token."""
    sides = []
    for text in (one, two):
        batch = encoder.preprocess([text])
        with torch.no_grad():
            states = encoder[0].auto_model(**{name: batch[name] for name in ("input_ids", "attention_mask")})[0][0]
        ids = batch["input_ids"][0].tolist()
        sides.append([(states[place], float(idf[token])) for place, token in enumerate(ids) if idf[token] > 0])
    means = []
    for mine, others in (sides, reversed(sides)):
        others = list(others)
        best = [max(float(cosine_similarity(state, other, dim=0)) for other, _ in others) for state, _ in mine]
        weights = [weight for _, weight in mine]
        means.append(sum(b * w for b, w in zip(best, weights, strict=True)) / sum(weights))
    return 2 * means[0] * means[1] / (means[0] + means[1])


def test_grades_choose_the_best_signal_of_each_text() -> None:
    rows = [
        {"text": "a", "gains": {"x": {"1": 1.0, "2": 3.0}, "y": {"1": -1.0}}},
        {"text": "b", "gains": {"x": {"1": -2.0, "2": -3.0}, "y": {"1": -1.0}}},
    ]
    assert teachers.by_labels(rows) == {"a": 3.0, "b": 0.0, "mean": 1.5}
