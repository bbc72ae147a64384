"""Contrastive Tension: losses against loops that follow the formulas, the second encoder, the stairs of RMSprop, whole runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from torch import Tensor

import selfguide
from resuming import assert_resumes_exactly
from selfguide.augment.dropout import highest_dropout
from selfguide.errors import UsageError
from selfguide.losses.base import own_parameters
from selfguide.methods import registry
from selfguide.methods.ct import ContrastiveTensionLoss, TensionInBatchLoss, in_batch, tension
from selfguide.models.encoders import backbone, load_encoder
from selfguide.progress import Reporter
from selfguide.training.settings import TrainingSettings
from selfguide.training.trainer import FitContext
from toys import FAMILIES, toy_sentences

LOSSES: dict[str, Any] = {"ct": ContrastiveTensionLoss, "ct-in-batch": TensionInBatchLoss}
QUICK: dict[str, Any] = {"batch_size": 8, "learning_rate": 1e-3, "max_steps": 3, "device": "cpu", "quiet": True}


def _model(path: Path) -> SentenceTransformer:
    return load_encoder(path, pooling="mean", max_length=32)


def _sigmoid(value: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-value))


@pytest.mark.parametrize(("batch", "anchors", "negatives"), [(2, 2, 1), (5, 5, 3), (9, 2, 7), (1, 1, 0)])
def test_tension_is_the_cross_entropy_of_a_positive_and_its_negatives(batch: int, anchors: int, negatives: int) -> None:
    torch.manual_seed(batch)
    u, v = torch.randn(anchors, 6, dtype=torch.float64), torch.randn(batch, 6, dtype=torch.float64)
    distances = 1 + torch.randperm(batch - 1)[:negatives]
    terms = []
    for i in range(anchors):
        terms.append(-torch.log(_sigmoid(u[i] @ v[i])))
        for distance in distances.tolist():
            j = (i + distance) % batch
            assert j != i
            terms.append(-torch.log(1 - _sigmoid(u[i] @ v[j])))
    assert len(terms) == anchors * (1 + negatives)
    torch.testing.assert_close(tension(u, v, distances), torch.stack(terms).mean())


@pytest.mark.parametrize("batch", [1, 2, 6])
def test_in_batch_is_the_mean_of_both_directions(batch: int) -> None:
    torch.manual_seed(batch)
    u, v = torch.randn(2, batch, 5, dtype=torch.float64)
    scale = torch.tensor(20.0, dtype=torch.float64)
    total = u.new_zeros(())
    for i in range(batch):
        for one, other in ((u, v), (v, u)):
            cosines = [one[i] @ other[j] / (one[i].norm() * other[j].norm()) for j in range(batch)]
            total = total - torch.log(torch.exp(scale * cosines[i]) / sum(torch.exp(scale * c) for c in cosines))
    torch.testing.assert_close(in_batch(u, v, scale), total / (2 * batch))


def test_the_loss_compares_the_two_encoders(bert: Path) -> None:
    model = _model(bert)
    loss = ContrastiveTensionLoss(model, negatives=3, anchors=2).train()
    assert highest_dropout(model) == 0.0  # off while training, in both encoders
    with torch.no_grad():
        for parameter in loss.first.parameters():
            parameter.add_(0.01)
    sentences = toy_sentences(6)
    u = loss.first.encode(sentences[:2], convert_to_tensor=True)
    v = model.encode(sentences, convert_to_tensor=True)
    torch.manual_seed(4)
    distances = 1 + torch.randperm(5)[:3]
    torch.manual_seed(4)
    value = loss.train()([model.preprocess(sentences)])
    torch.testing.assert_close(value, tension(u.clone(), v.clone(), distances), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("method", list(LOSSES))
def test_both_encoders_move_and_the_unused_pooler_does_not(
    tiny: Callable[[str], Path], family: str, method: str
) -> None:
    model = _model(tiny(family))
    loss = LOSSES[method](model).train()
    own = own_parameters(loss)
    assert {name.partition(".")[0] for name in own} <= {"first", "log_scale"}
    assert len(own) >= len([p for p in model.parameters() if p.requires_grad])
    loss([model.preprocess(toy_sentences(4))]).backward()
    for name, parameter in loss.named_parameters():
        assert (parameter.grad is not None) == ("pooler" not in name), name


@pytest.mark.parametrize("method", list(LOSSES))
def test_gradients_of_the_first_encoder_do_not_add_up_over_steps(bert: Path, method: str) -> None:
    model = _model(bert)
    loss = LOSSES[method](model, dropout=0.0).train()

    def gradients() -> list[Tensor]:
        torch.manual_seed(5)
        loss([model.preprocess(toy_sentences(4))]).backward()
        return [parameter.grad.clone() for parameter in own_parameters(loss).values() if parameter.grad is not None]

    once = gradients()
    model.zero_grad()
    torch.testing.assert_close(gradients(), once)


def test_the_rate_of_rmsprop_falls_in_five_stairs(bert: Path, tmp_path: Path) -> None:
    method: Any = registry.make("ct")
    method.context = FitContext([], TrainingSettings(learning_rate=1e-5), tmp_path, Reporter(quiet=True))  # type: ignore[arg-type]
    loss = ContrastiveTensionLoss(_model(bert))
    optimiser, schedule = method.optimiser(loss, 3000)
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
def test_a_run_hands_out_one_plain_encoder_and_repeats(bert: Path, tmp_path: Path, method: str) -> None:
    before = load_file(bert / "model.safetensors")
    for name, seed in (("a", 5), ("b", 5), ("c", 6)):
        tuned = selfguide.train(bert, toy_sentences(40), method, output=tmp_path / name, seed=seed, **QUICK)
    a, b, c = (load_file(tmp_path / name / "model.safetensors") for name in "abc")
    assert {name: tensor.shape for name, tensor in a.items()} == {name: t.shape for name, t in before.items()}
    assert any(not torch.equal(a[name], before[name]) for name in a)
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert any(not torch.equal(a[name], c[name]) for name in a)
    stock = SentenceTransformer(str(tmp_path / "c"))
    np.testing.assert_allclose(stock.encode(["my sister"]), tuned.encode(["my sister"]), atol=1e-6)
    config = json.loads((tmp_path / "a" / "config.json").read_text())
    assert config["hidden_dropout_prob"] == 0.1  # the encoder's own, whatever it was trained with


@pytest.mark.parametrize("method", list(LOSSES))
def test_a_resumed_run_ends_where_the_uninterrupted_one_does(bert: Path, tmp_path: Path, method: str) -> None:
    assert_resumes_exactly(method, LOSSES[method], bert, tmp_path)


def test_published_settings_are_the_defaults() -> None:
    for name, values in {"ct": (16, 1e-5, 75, 0.0), "ct-in-batch": (128, 5e-5, 75, 1.0)}.items():
        defaults = registry.method_class(name).defaults
        assert (defaults.batch_size, defaults.learning_rate, defaults.max_length, defaults.gradient_clip) == values
    assert registry.make("ct").options.negatives == 7
    assert registry.make("ct-in-batch").options.scale == 20.0


@pytest.mark.parametrize(
    ("method", "wrong", "words"),
    [
        ("ct", {"negatives": 0}, "negatives must be at least 1"),
        ("ct", {"anchors": -1}, "anchors must be at least 0"),
        ("ct", {"rate_step": 0}, "rate_step must be at least 1"),
        ("ct", {"pooling": "median"}, "no pooling 'median'"),
        ("ct-in-batch", {"scale": 0.0}, "scale must be above 0"),
        ("ct-in-batch", {"negatives": 3}, "has no option 'negatives'"),
    ],
)
def test_wrong_options_are_refused_in_words(method: str, wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        registry.make(method, wrong)


def test_losses_tell_their_settings_and_whom_to_cite(bert: Path) -> None:
    assert ContrastiveTensionLoss(_model(bert)).get_config_dict() == {"negatives": 7, "anchors": 0, "dropout": 0.0}
    loss = TensionInBatchLoss(_model(bert))
    assert json.loads(json.dumps(loss.get_config_dict()))["scale"] == pytest.approx(20.0)
    assert loss.citation == registry.method_class("ct").citation
    assert backbone(loss.first) is not backbone(loss.model)
