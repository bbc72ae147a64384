"""The fused vector against a naive computation of its two views, and the statistics it is fitted by."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sklearn.covariance import ledoit_wolf_shrinkage

import selfguide
from selfguide.calibration import frequencies
from selfguide.calibration.frequencies import Vocabulary, sif_weights
from selfguide.calibration.linear_maps import joined_map
from selfguide.calibration.text_statistics import STATISTICS_FILE, Statistics, TextStatistics
from selfguide.calibration.two_views import CalibratedEncoder
from selfguide.data import TextOptions
from selfguide.errors import InterruptedRun, SelfguideError, UsageError
from selfguide.methods import registry
from selfguide.methods.fused import Fused
from selfguide.models.encoders import backbone, layer_zero_parameters, load_encoder
from selfguide.models.layers import hidden_states
from toys import FAMILIES, toy_sentences

TABLE = frequencies.english_table()
CHAIN = ["Transformer", "Pooling", "Dense", "WeightedLayerPooling", "WordWeights", "Pooling", "Dense"]


def _sentences(count: int, seed: int = 3) -> list[str]:
    """Words at random: more varied than the toy sentences, so that no direction is without variance."""
    words = sorted({word for sentence in toy_sentences(512) for word in sentence.split()})
    draw = random.Random(seed)
    return list(dict.fromkeys(" ".join(draw.choices(words, k=draw.randint(3, 9))) for _ in range(count)))


SENTENCES = _sentences(400)  # more than ten for each of the tiny encoders' 32 numbers


@pytest.fixture(autouse=True)
def _small_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """The most frequent words alone: splitting all of them takes a second each time."""
    words, total = TABLE
    top = dict(list(words.items())[:600])
    monkeypatch.setattr(frequencies, "english_table", lambda: (top, total))


def _fused(encoder: Path | SentenceTransformer, text: Any = SENTENCES, **options: Any) -> CalibratedEncoder:
    settings = {"tune": "none", "frequencies": "text", "device": "cpu", "quiet": True} | options
    made = selfguide.train(encoder, text, "fused", **settings)
    assert isinstance(made, CalibratedEncoder)
    return made


POOLED = {
    "cls": lambda states: states[-1][0],
    "mean": lambda states: states[-1].mean(axis=0),
    "last2": lambda states: ((states[-1] + states[-2]) / 2).mean(axis=0),
}


def _naive(encoder: SentenceTransformer, layer: int, pooling: str, piece_weight: float) -> list[NDArray[np.float64]]:
    """The sentence vector and the soft bag of words of SENTENCES, one sentence and one token at a time; parts not scaled."""
    vocabulary = Vocabulary.of_encoder(encoder)
    weights = sif_weights(vocabulary, Dataset.from_dict({"sentence": SENTENCES}), "text", 1e-3)
    model = backbone(encoder).eval()
    first, read = [], []
    for sentence in SENTENCES:
        features = encoder.preprocess([sentence])
        inputs = {name: features[name] for name in ("input_ids", "attention_mask")}
        with torch.no_grad():
            states = [state[0].double().numpy() for state in hidden_states(model, inputs)]
        first.append(POOLED[pooling](states))
        ids = features["input_ids"][0].tolist()
        read.append(
            [(token, row) for token, row in zip(ids, states[layer], strict=True) if token not in vocabulary.special]
        )
    tokens = np.array([row for pairs in read for _, row in pairs])
    values, directions = np.linalg.eigh(np.cov(tokens.T, bias=True))
    alive = values > 1e-8 * (tokens**2).sum(1).mean()
    white = (directions[:, alive] / np.sqrt(values[alive])).T
    same: dict[int, list[Any]] = {}
    for token, row in (pair for pairs in read for pair in pairs):
        same.setdefault(token, []).append(row)
    lengths = {token: np.linalg.norm(white @ (np.mean(rows, axis=0) - tokens.mean(0))) for token, rows in same.items()}
    second = []
    for pairs in read:
        weight = np.array(
            [
                weights[token] * (piece_weight if _goes_on(vocabulary.tokens, token) else 1.0) / lengths[token]
                for token, _ in pairs
            ]
        )
        second.append(white @ (weight @ np.array([row for _, row in pairs]) / weight.sum()))
    return [np.array(first), np.array(second)]


def _goes_on(tokens: list[str], number: int) -> bool:
    """By the mark of each of the toy tokenizers."""
    text = "".join(tokens)
    if "##" in text:
        return tokens[number].startswith("##")
    mark = "▁" if "▁" in text else "Ġ"
    return mark in text and not tokens[number].startswith(mark)


def _unit(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Centred, and scaled so that the mean squared length is 1."""
    centred = vectors - vectors.mean(0)
    return np.asarray(centred / np.sqrt((centred**2).sum(1).mean()))


def _white(vectors: NDArray[np.float64], exponent: float = 0.5) -> NDArray[np.float64]:
    """Whitened by itself, or in part, and scaled so that the mean squared length is 1."""
    centred = vectors - vectors.mean(0)
    values, directions = np.linalg.eigh(np.cov(centred.T, bias=True))
    alive = values > 1e-8 * (vectors**2).sum(1).mean()
    white = centred @ directions[:, alive] / values[alive] ** exponent
    return np.asarray(white / np.sqrt((white**2).sum(1).mean()))


def _cosines(vectors: NDArray[Any]) -> NDArray[np.float64]:
    exact = vectors.astype(np.float64)
    units = exact / np.linalg.norm(exact, axis=1, keepdims=True)
    return np.asarray(units @ units.T)


@pytest.mark.parametrize(
    ("family", "layer", "pooling", "exponent"),
    [
        *((family, 0, "cls", 0.0) for family in FAMILIES),
        ("bert", 2, "cls", 0.5),
        ("roberta", -1, "mean", 0.25),
        ("deberta-v2", 1, "last2", 0.0),
        ("bert", 0, "last2", 0.5),
    ],
)
def test_the_stock_chain_is_the_naive_two_steps(
    tiny: Callable[[str], Path], tmp_path: Path, family: str, layer: int, pooling: str, exponent: float
) -> None:
    output = tmp_path / "out"
    encoder = load_encoder(tiny(family), pooling=pooling, device="cpu")
    made = _fused(encoder, output=output, view_layer=layer, weight=0.7, tuned_exponent=exponent, piece_weight=0.4)
    first, second = _naive(load_encoder(tiny(family), device="cpu"), layer, pooling, 0.4)
    expected = np.concatenate([np.sqrt(0.7) * _white(first, exponent), np.sqrt(0.3) * _unit(second)], axis=1)
    loaded = SentenceTransformer(str(output), device="cpu")
    assert type(loaded) is SentenceTransformer
    two_layers = ["WeightedLayerPooling"] if pooling == "last2" else []
    assert [type(module).__name__ for module in loaded] == [CHAIN[0], *two_layers, *CHAIN[1:]]
    vectors = loaded.encode(SENTENCES)
    np.testing.assert_allclose(vectors, made.encode(SENTENCES), atol=1e-5)
    np.testing.assert_allclose(_cosines(vectors), _cosines(expected), atol=1e-4)


def test_a_vector_that_is_not_pooled_from_layers_is_refused(bert: Path) -> None:
    white = selfguide.train(bert, SENTENCES, "whitening", quiet=True, device="cpu")
    with pytest.raises(SelfguideError, match="made by Transformer, Pooling, Dense"):
        _fused(white)


def test_each_half_is_white_and_counts_by_its_weight(bert: Path) -> None:
    encoder = _fused(bert, weight=0.6, tuned_exponent=0.5, whiten="sentences")
    vectors = encoder.encode(SENTENCES).astype(np.float64)
    np.testing.assert_allclose(vectors.mean(0), 0, atol=1e-5)
    weight = encoder[-1].linear.weight.detach().numpy()
    halves = [weight[:, :32].any(axis=1), weight[:, 32:].any(axis=1)]
    assert not (halves[0] & halves[1]).any()  # block-diagonal
    for half, share in zip(halves, (0.6, 0.4), strict=True):
        size = int(half.sum())
        np.testing.assert_allclose(np.cov(vectors[:, half].T, bias=True) * size / share, np.eye(size), atol=1e-4)
        assert (vectors[:, half] ** 2).sum(1).mean() == pytest.approx(share, rel=1e-5)


def test_the_extremes_are_the_parts(bert: Path) -> None:
    tuned = _fused(bert, weight=1.0, tuned_exponent=0.5)
    view = _fused(bert, weight=0.0, whiten="sentences", piece_weight=1.0)
    white = selfguide.train(bert, SENTENCES, "whitening", pooling="mean", quiet=True, device="cpu")
    sif = selfguide.train(bert, SENTENCES, "sif", frequencies="text", quiet=True, device="cpu")
    np.testing.assert_allclose(_cosines(tuned.encode(SENTENCES)), _cosines(white.encode(SENTENCES)), atol=1e-4)
    np.testing.assert_allclose(_cosines(view.encode(SENTENCES)), _cosines(sif.encode(SENTENCES)), atol=1e-4)


def test_dim_keeps_the_leading_directions_of_the_joined_vector(bert: Path) -> None:
    every = _fused(bert).encode(SENTENCES).astype(np.float64)
    some = _fused(bert, dim=9)
    assert some.get_embedding_dimension() == 9
    ours = some.encode(SENTENCES).astype(np.float64)
    # Many of this random encoder's variances are almost equal, so the variances are compared and not the directions.
    values = np.linalg.eigvalsh(np.cov(every.T, bias=True))[::-1]
    np.testing.assert_allclose(np.cov(ours.T, bias=True), np.diag(values[:9]), atol=1e-6)
    rotation, rest, *_ = np.linalg.lstsq(every, ours, rcond=None)
    np.testing.assert_allclose(rotation.T @ rotation, np.eye(9), atol=1e-4)
    assert rest.max() < 1e-6
    with pytest.raises(UsageError, match="dim = 65 is more"):
        _fused(bert, dim=65)


@pytest.mark.parametrize(
    ("whiten", "count"), [("tokens", 2), ("tokens", 40), ("sentences", 2), ("sentences", 50), ("sentences", 200)]
)
def test_a_small_text_is_shrunk_and_said(bert: Path, tmp_path: Path, whiten: str, count: int) -> None:
    encoder = _fused(bert, SENTENCES[:count], output=tmp_path / "out", whiten=whiten)
    vectors = encoder.encode([*SENTENCES, "", "xyz €"])
    assert np.isfinite(vectors).all()
    assert vectors.std(axis=0).max() < 10  # no direction blown up
    warnings = json.loads((tmp_path / "out" / "run.json").read_text())["warnings"]
    assert any(f"{count} sentences are few for an embedding dimension of 32" in warning for warning in warnings)
    assert not _fused(bert, SENTENCES[:count], shrinkage="1").statistics.sentences.shrinkage(0, "0")


def test_tokens_are_enough_where_sentences_are_not(bert: Path, tmp_path: Path) -> None:
    """A sentence has several tokens, so their covariance is known sooner; the tuned part is only centred."""
    _fused(bert, SENTENCES[:200], output=tmp_path / "out")
    assert not [
        note for note in json.loads((tmp_path / "out" / "run.json").read_text())["warnings"] if "few for" in note
    ]


def test_texts_that_cannot_be_fused_are_refused_in_words(bert: Path) -> None:
    with pytest.raises(SelfguideError, match="too little"):
        _fused(bert, ["one sentence", "one sentence"])
    strange = ["你好", "再见", "谢谢 你", "早上 好"]
    with pytest.raises(SelfguideError, match="knows no word of this text"):
        _fused(bert, strange)
    same = TextOptions(keep_duplicates=True)
    with pytest.raises(SelfguideError, match="same vector"):
        _fused(bert, ["the same words"] * 9, text_options=same)
    # Some sentences without a known word are no harm.
    assert np.isfinite(_fused(bert, [*SENTENCES, *strange]).encode([*strange, *SENTENCES])).all()


def test_tuning_moves_cls_and_leaves_layer_0(bert: Path, tmp_path: Path, dev_file: Path) -> None:
    output = tmp_path / "out"
    options = {"tune": "simcse", "max_steps": 3, "batch_size": 8, "learning_rate": 1e-3, "dev_every": 2}
    start = load_encoder(bert, device="cpu")
    # Without dev pairs the last weights are kept; with them, on so tiny an encoder, those of the start may be the best.
    encoder = _fused(bert, frequencies="both", **options)
    for before, after in zip(layer_zero_parameters(start), layer_zero_parameters(encoder), strict=True):
        assert torch.equal(before, after)
    last = [dict(backbone(model).named_parameters()) for model in (start, encoder)]
    assert not torch.equal(*(weights["encoder.layer.2.output.dense.weight"] for weights in last))
    _fused(bert, output=output, dev=dev_file, frequencies="both", **options)
    record = json.loads((output / "run.json").read_text())
    assert record["steps"] == 3
    assert record["config"]["options"]["tune"] == "simcse"
    assert [step for step, _ in record["dev_curve"]] == [0, 2, 3]
    assert record["checkpoint"].startswith("step ")
    # The score is that of the vector that was handed out, not of [CLS] alone.
    from selfguide.runs.run import _dev_pairs, _evaluator
    from selfguide.training.settings import TrainingSettings

    evaluator = _evaluator(_dev_pairs(str(dev_file)), TrainingSettings())
    loaded = SentenceTransformer(str(output), device="cpu")
    assert record["scores"]["after"] == pytest.approx(evaluator(loaded)["dev_spearman_cosine"], abs=1e-6)
    assert (output / STATISTICS_FILE).is_file()


@pytest.mark.parametrize("tune", ["sg-opt", "consert", "mirror"])
def test_other_methods_can_tune(bert: Path, tune: str) -> None:
    few = {"max_steps": 2, "batch_size": 4, "max_length": 16}
    encoder = _fused(bert, SENTENCES[:60], tune=tune, **few)
    assert encoder.get_embedding_dimension() == 63  # layer norm leaves one direction of layer 0 without variance
    assert registry.make("fused", {"tune": tune}).defaults.batch_size == registry.method_class(tune).defaults.batch_size
    for before, after in zip(
        layer_zero_parameters(load_encoder(bert, device="cpu")), layer_zero_parameters(encoder), strict=True
    ):
        assert torch.equal(before, after)


def test_the_tuned_part_is_resumed(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"tune": "simcse", "max_steps": 5, "batch_size": 8, "checkpoint_minutes": 0.0, "learning_rate": 1e-3}
    whole = _fused(bert, output=tmp_path / "whole", **options)

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("selfguide.methods.fused._statistics", stop)
        with pytest.raises(InterruptedRun):
            _fused(bert, output=tmp_path / "part", **options)
    assert list((tmp_path / "part.partial").glob("checkpoint-*"))
    resumed = _fused(bert, output=tmp_path / "part", resume=True, **options)
    np.testing.assert_allclose(resumed.encode(SENTENCES[:9]), whole.encode(SENTENCES[:9]), atol=1e-5)


def test_options_are_checked_in_words() -> None:
    for wrong, words in (
        ({"tune": "simsce"}, "Did you mean 'simcse'"),
        ({"tune": "ct"}, "has no option to freeze layer 0"),
        ({"tune": "whitening"}, "cannot tune"),
        ({"tune": "fused"}, "cannot tune"),
        ({"tune": "none", "tune_options": "a=1"}, "leave tune_options"),
        ({"tune_options": "temperature"}, "name=value"),
        ({"tune_options": "temperature=hot"}, "temperature takes a number, not 'hot'"),
        ({"tune_options": "heat=1"}, "no option 'heat'"),
        ({"tune_options": 'temperature="1'}, "cannot be read"),
        ({"tune_options": "freeze_layer_0=false"}, "itself"),
        ({"weight": 1.5}, "weight must be at least 0 and at most 1, or -1"),
        ({"weight": -0.5}, "weight must be at least 0 and at most 1, or -1"),
        ({"a": 0.0}, "a must be above 0"),
        ({"frequencies": "some"}, "frequencies must be one of"),
        ({"dim": -1}, "dim must be"),
        ({"shrinkage": "much"}, "shrinkage must be"),
        ({"whiten": "words"}, "whiten must be one of tokens, sentences"),
        ({"piece_weight": 0.0}, "piece_weight must be above 0 and at most 1"),
    ):
        with pytest.raises(UsageError, match=words):
            registry.make("fused", wrong)
    method = registry.make("fused", {"tune_options": "temperature=0.2 head=true"})
    assert isinstance(method, Fused)
    assert method.tuner is not None
    tuned = method.tuner.describe_options()
    assert (tuned["temperature"], tuned["head"], tuned["dropout"], tuned["freeze_layer_0"]) == (0.2, True, 0.05, True)


def test_a_layer_that_is_not_there_is_refused(bert: Path) -> None:
    with pytest.raises(UsageError, match="no layer 7"):
        _fused(bert, view_layer=7)


@given(st.lists(st.integers(1, 30), min_size=2, max_size=5))
@settings(max_examples=20, deadline=None)
def test_statistics_merge_exactly(sizes: list[int]) -> None:
    generator = np.random.default_rng(sum(sizes))
    vectors = generator.normal(size=(sum(sizes), 7)) @ generator.normal(size=(7, 7)) + 20
    whole, merged = Statistics.of(vectors, (3, 4)), Statistics.empty((3, 4))
    for chunk in np.split(vectors, np.cumsum(sizes)[:-1]):
        merged = merged.merge(Statistics.of(chunk, (3, 4)))
    assert merged.count == len(vectors)
    for ours, expected in (
        (merged.moments.scatter, whole.moments.scatter),
        (merged.cubes, whole.cubes),
        (merged.fourths, whole.fourths),
    ):
        np.testing.assert_allclose(ours, expected, rtol=1e-9, atol=1e-7)


def test_the_shrinkage_is_that_of_ledoit_and_wolf(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(25, 12)) @ generator.normal(size=(12, 12)) + 3
    statistics = Statistics.of(vectors, (5, 7))
    for number, place in enumerate(statistics.slices):
        assert statistics.shrinkage(number) == pytest.approx(ledoit_wolf_shrinkage(vectors[:, place]), rel=1e-9)
        assert statistics.shrinkage(number, "0.25") == 0.25
    assert Statistics.of(np.tile(vectors, (3, 1)), (5, 7)).shrinkage(0) == 0.0  # ten sentences a number
    for tokens in (None, Statistics.of(vectors[:, :7], (7,))):
        TextStatistics(statistics, tokens).save(tmp_path / "file")
        again = TextStatistics.load(tmp_path / "file")
        expected = joined_map(statistics, (0.5, 0.5)).weight
        np.testing.assert_array_equal(joined_map(again.sentences, (0.5, 0.5)).weight, expected)
        assert (again.tokens is None) == (tokens is None)
        if tokens is not None and again.tokens is not None:
            np.testing.assert_array_equal(again.tokens.moments.scatter, tokens.moments.scatter)
    (tmp_path / "file").write_bytes(b"nothing")
    with pytest.raises(SelfguideError, match="cannot be read"):
        TextStatistics.load(tmp_path / "file")


def test_what_is_not_tuned_has_a_dev_score_and_no_checkpoint(bert: Path, dev_file: Path, tmp_path: Path) -> None:
    _fused(bert, dev=dev_file, output=tmp_path / "out", report=False)
    record = json.loads((tmp_path / "out" / "run.json").read_text(encoding="utf-8"))
    chosen = record["chosen"]["weight"]
    assert record["checkpoint"] == f"none: nothing was tuned; weight {chosen:g} by the dev pairs"
    assert record["scores"]["after"] is not None
