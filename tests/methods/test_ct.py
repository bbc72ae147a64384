"""Contrastive Tension: the schedule of RMSprop, options, whole runs."""

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
from selfguide.losses import ContrastiveTensionInBatchLoss, ContrastiveTensionLoss
from selfguide.methods import registry
from selfguide.models.encoders import load_encoder
from selfguide.progress import Reporter
from selfguide.training.settings import TrainingSettings
from selfguide.training.trainer import FitContext
from toys import QUICK, toy_sentences

LOSSES: dict[str, Any] = {"ct": ContrastiveTensionLoss, "ct-in-batch": ContrastiveTensionInBatchLoss}


def _model(path: Path) -> SentenceTransformer:
    return load_encoder(path, pooling="mean", max_length=32)


def test_the_rate_of_rmsprop_falls_in_five_steps(bert: Path, tmp_path: Path) -> None:
    method: Any = registry.make("ct")
    method.context = FitContext([], TrainingSettings(learning_rate=1e-5), tmp_path, Reporter(quiet=True))  # type: ignore[arg-type]
    loss = ContrastiveTensionLoss(_model(bert))
    optimiser = method.optimiser(loss)
    schedule = method.scheduler(optimiser, 3000)
    assert isinstance(optimiser, torch.optim.RMSprop)
    trained = {id(parameter) for group in optimiser.param_groups for parameter in group["params"]}
    assert trained == {id(parameter) for parameter in loss.parameters() if parameter.requires_grad}
    rates = []
    for step in range(2600):
        if step % 500 == 0:
            rates.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        schedule.step()
    assert rates == pytest.approx([1e-5, 8e-6, 6e-6, 4e-6, 2e-6, 2e-6])


@pytest.mark.parametrize("method", list(LOSSES))
def test_a_run_hands_out_one_plain_encoder_and_follows_its_seed(bert: Path, tmp_path: Path, method: str) -> None:
    before = load_file(bert / "model.safetensors")
    for name, seed in (("a", 5), ("b", 6)):
        tuned = selfguide.train(bert, toy_sentences(40), method, output=tmp_path / name, seed=seed, **QUICK)
    a, b = (load_file(tmp_path / name / "model.safetensors") for name in "ab")
    assert {name: tensor.shape for name, tensor in a.items()} == {name: t.shape for name, t in before.items()}
    assert any(not torch.equal(a[name], before[name]) for name in a)
    assert any(not torch.equal(a[name], b[name]) for name in a)
    stock = SentenceTransformer(str(tmp_path / "b"))
    np.testing.assert_allclose(stock.encode(["my sister"]), tuned.encode(["my sister"]), atol=1e-6)
    config = json.loads((tmp_path / "a" / "config.json").read_text())
    assert config["hidden_dropout_prob"] == 0.1  # the encoder's own, whatever it was trained with


@pytest.mark.parametrize("method", list(LOSSES))
def test_a_resumed_run_ends_where_the_uninterrupted_one_does(bert: Path, tmp_path: Path, method: str) -> None:
    assert_resumes_exactly(method, LOSSES[method], bert, tmp_path)


def test_published_settings_are_the_defaults() -> None:
    for name, values in {"ct": (16, 1e-5, 0.0), "ct-in-batch": (128, 5e-5, 1.0)}.items():
        defaults = registry.method_class(name).defaults
        assert (defaults.batch_size, defaults.learning_rate, defaults.gradient_clip) == values
    assert registry.make("ct").options.negatives == 7
    assert registry.make("ct-in-batch").options.scale == 20.0


@pytest.mark.parametrize(
    ("method", "wrong", "words"),
    [
        ("ct", {"negatives": 0}, "negatives must be at least 1"),
        ("ct", {"anchors": -1}, "anchors must be at least 0"),
        ("ct", {"rate_step": 0}, "rate_step must be at least 1"),
        ("ct", {"pooling": "median"}, "pooling must be one of .*, got 'median'"),
        ("ct-in-batch", {"scale": 0.0}, "scale must be above 0"),
        ("ct-in-batch", {"negatives": 3}, "has no option 'negatives'"),
    ],
)
def test_wrong_options_are_refused_in_words(method: str, wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        registry.make(method, wrong)
