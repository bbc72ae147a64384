"""SimCSE, ConSERT, Mirror-BERT and CLEAR: options, and whole runs on tiny encoders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer

import selfguide
from resuming import assert_resumes_exactly
from selfguide.errors import UsageError
from selfguide.losses import ClearLoss, ConSERTLoss, DropoutContrastLoss, MirrorLoss
from selfguide.methods import registry
from selfguide.models.encoders import load_encoder, with_pooling
from toys import QUICK, toy_sentences

METHODS = ("simcse", "consert", "mirror", "clear")


def test_consert_is_handed_out_with_the_mean_of_the_last_two_layers(bert: Path, dev_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    tuned = selfguide.train(bert, toy_sentences(40), "consert", output=out, dev=dev_file, dev_every=2, **QUICK)
    stock = SentenceTransformer(str(out))
    rebuilt = with_pooling(load_encoder(out), "last2")
    np.testing.assert_allclose(stock.encode(toy_sentences(4)), rebuilt.encode(toy_sentences(4)), atol=1e-5)
    np.testing.assert_allclose(stock.encode(toy_sentences(4)), tuned.encode(toy_sentences(4)), atol=1e-5)
    mean = selfguide.train(bert, toy_sentences(40), "consert", eval_pooling="mean", **QUICK)
    assert not np.allclose(mean.encode(["my sister"]), tuned.encode(["my sister"]), atol=1e-3)


@pytest.mark.parametrize("method", METHODS)
def test_a_run_writes_a_plain_folder_without_heads_and_follows_its_seed(
    bert: Path, tmp_path: Path, method: str
) -> None:
    before = load_file(bert / "model.safetensors")
    for name, seed in (("a", 5), ("b", 6)):
        tuned = selfguide.train(bert, toy_sentences(40), method, output=tmp_path / name, seed=seed, **QUICK)
        if name == "a":
            stock = SentenceTransformer(str(tmp_path / "a"))
            np.testing.assert_allclose(stock.encode(["my sister"]), tuned.encode(["my sister"]), atol=1e-6)
    a, b = (load_file(tmp_path / name / "model.safetensors") for name in "ab")
    assert {name: tensor.shape for name, tensor in a.items()} == {n: t.shape for n, t in before.items()}
    assert any(not torch.equal(a[name], before[name]) for name in a)
    assert any(not torch.equal(a[name], b[name]) for name in a)
    record = json.loads((tmp_path / "a" / "run.json").read_text())
    assert record["config"]["method"] == method
    assert record["steps"] == 3
    card = (tmp_path / "a" / "README.md").read_text()
    assert method in card
    assert "bibtex" in card
    config = json.loads((tmp_path / "a" / "config.json").read_text())
    assert config["hidden_dropout_prob"] == 0.1  # the encoder's own, whatever it was trained with


@pytest.mark.parametrize("method", METHODS)
def test_a_resumed_run_ends_where_the_uninterrupted_one_does(bert: Path, tmp_path: Path, method: str) -> None:
    kind = {"simcse": DropoutContrastLoss, "consert": ConSERTLoss, "mirror": MirrorLoss, "clear": ClearLoss}[method]
    assert_resumes_exactly(method, kind, bert, tmp_path)


def test_published_settings_are_the_defaults() -> None:
    published = {
        "simcse": (64, 3e-5, 0.999, 1.0),
        "consert": (96, 5e-7, 0.999, 10.0),
        "mirror": (200, 2e-5, 0.999, 1.0),
    }
    for name, values in published.items():
        defaults = registry.method_class(name).defaults
        assert (defaults.batch_size, defaults.learning_rate, defaults.beta2, defaults.epochs) == values
    assert registry.make("simcse").options.temperature == 0.05
    assert registry.make("consert").options.temperature == 0.1
    assert registry.make("mirror").options.temperature == 0.04


@pytest.mark.parametrize(
    ("method", "wrong", "words"),
    [
        ("simcse", {"temperature": 0.0}, "temperature must be above 0"),
        ("simcse", {"pooling": "median"}, "pooling must be one of .*, got 'median'"),
        ("simcse", {"dropout": 1.5}, "dropout must be"),
        ("consert", {"first": "shuffel"}, "no augmentation 'shuffel'"),
        ("consert", {"second": "dropout", "dropout_rate": 1.0}, "dropout_rate must be at least 0 and below 1"),
        ("consert", {"eval_pooling": "all"}, "eval_pooling must be one of .*, got 'all'"),
        ("mirror", {"span": -1}, "span must be at least 0"),
        ("clear", {"first": "delete"}, r"no augmentation 'delete'.*delete-words"),
        ("clear", {"delete_rate": 1.0}, "delete_rate must be above 0 and below 1"),
        ("clear", {"spans": 0}, "spans must be at least 1"),
        ("clear", {"mlm_weight": -1.0}, "mlm_weight must be at least 0"),
        ("clear", {"pooling": "last2"}, "pooling must be one of cls, mean, max, got 'last2'"),
    ],
)
def test_wrong_options_are_refused_in_words(method: str, wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        registry.make(method, wrong)
