"""The losses over labelled pairs, against loops that follow the formulas."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from naive_losses import naive_nt_xent
from selfguide.augment.encoding import embed, stacked
from selfguide.losses.joint import JointLoss, adversarial_step
from selfguide.losses.nli import NLISoftmaxLoss
from selfguide.methods import registry
from selfguide.methods.infersent import bilstm_encoder
from selfguide.models.encoders import backbone, load_encoder
from selfguide.models.word_vectors import WordVectors
from toys import FAMILIES, toy_sentences

PREMISES, HYPOTHESES = toy_sentences(4), [*toy_sentences(103)[100:], "a"]
TARGETS = torch.tensor([0, 2, 1, 1])


def _model(path: Path) -> SentenceTransformer:
    return load_encoder(path, pooling="mean", max_length=32)


def _bilstm(words: list[str], hidden: int = 6) -> SentenceTransformer:
    matrix = np.random.default_rng(1).normal(size=(len(words), 5)).astype(np.float32)
    return bilstm_encoder(WordVectors(words, matrix), hidden, lower=True, device="cpu")


def _columns(model: SentenceTransformer) -> list[dict[str, Any]]:
    return [model.preprocess(PREMISES), model.preprocess(HYPOTHESES)]


def _naive_cross_entropy(classifier: Any, u: Tensor, v: Tensor, product: bool = False) -> Tensor:
    total = u.new_zeros(())
    for first, second, label in zip(u, v, TARGETS.tolist(), strict=True):
        seen = [first, second, (first - second).abs(), *([first * second] if product else [])]
        logits = classifier(torch.cat(seen))
        total = total - torch.log(torch.exp(logits[label]) / torch.exp(logits).sum())
    return total / len(u)


def test_the_pair_loss_follows_its_formula(bert: Path) -> None:
    model = _model(bert)
    loss = NLISoftmaxLoss(model).eval()
    u, v = (model.encode(texts, convert_to_tensor=True).clone() for texts in (PREMISES, HYPOTHESES))
    expected = _naive_cross_entropy(loss.classifier, u, v)
    torch.testing.assert_close(loss(_columns(model), TARGETS), expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="needs labels"):
        loss(_columns(model))


def test_the_pair_loss_over_an_lstm_follows_its_formula() -> None:
    model = _bilstm(["the", "old", "man", "my", "sister", "a", "clock"])
    loss = NLISoftmaxLoss(model, product=True, hidden=7).eval()
    u, v = (model.encode(texts, convert_to_tensor=True, prompt="").clone() for texts in (PREMISES, HYPOTHESES))
    value = loss(_columns(model), TARGETS)
    torch.testing.assert_close(value, _naive_cross_entropy(loss.classifier, u, v, product=True), rtol=1e-4, atol=1e-5)
    value.backward()
    assert {name for name, parameter in model.named_parameters() if parameter.grad is None} == {"0.emb_layer.weight"}


@pytest.mark.parametrize("alpha", [0.0, 0.15, 2.0])
def test_the_joint_loss_adds_up_labels_and_contrast(bert: Path, alpha: float) -> None:
    """Without dropout, and with copies that are not changed, both terms are known."""
    model = _model(bert)
    loss = JointLoss(model, alpha=alpha, first="none", second="none", temperature=0.2, dropout=0.0).train()
    u, v = (model.encode(texts, convert_to_tensor=True).clone() for texts in (PREMISES, HYPOTHESES))
    contrast = 2 * naive_nt_xent(u, u, 0.2) + 2 * naive_nt_xent(v, v, 0.2)
    expected = _naive_cross_entropy(loss.classifier, u, v) + alpha * contrast
    model.train()
    torch.testing.assert_close(loss(_columns(model), TARGETS), expected, rtol=1e-4, atol=1e-4)


def test_copies_are_drawn_one_by_one_and_the_plain_sentence_stays(bert: Path) -> None:
    model = _model(bert)
    plain_of = torch.cat([model.encode(texts, convert_to_tensor=True) for texts in (PREMISES, HYPOTHESES)])
    for first, second, same in (("none", "token-cutoff+shuffle", True), ("shuffle", "shuffle", False)):
        loss = JointLoss(model, first=first, second=second, dropout=0.0, rates={"token-cutoff": 0.5}).train()
        torch.manual_seed(0)
        plain, one, other = loss.copies(loss.both(*_columns(model)), TARGETS)
        torch.testing.assert_close(plain, plain_of, rtol=1e-4, atol=1e-5)
        assert torch.equal(plain, one) is same
        assert not torch.allclose(one, other, atol=1e-4)


def test_the_adversarial_step_is_a_unit_along_the_gradient_of_every_token() -> None:
    """Against finite differences: the step raises the loss, and no other direction of its length raises it more."""
    torch.manual_seed(0)
    states = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    weights, mask = torch.randn(2, 3, 4, dtype=torch.float64), torch.tensor([[1, 1, 1], [1, 1, 0]])

    def loss(values: Tensor) -> Tensor:
        return (torch.tanh(values * weights) * mask.unsqueeze(-1)).square().sum()

    step = adversarial_step(loss(states), states, mask, size=0.5)
    torch.testing.assert_close(step.norm(dim=-1), 0.5 * mask.double())
    for place in mask.nonzero().tolist():
        slopes = []
        for number in range(4):
            nudge = torch.zeros_like(states)
            nudge[(*place, number)] = 1e-6
            slopes.append((loss(states + nudge) - loss(states - nudge)).detach() / 2e-6)
        slope = torch.stack(slopes)
        torch.testing.assert_close(step[tuple(place)], 0.5 * slope / slope.norm(), rtol=1e-5, atol=1e-7)
        raw = adversarial_step(loss(states), states, mask, size=0.5, normalised=False)
        torch.testing.assert_close(raw[tuple(place)], 0.5 * slope, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("family", ["bert", "roberta", "electra"])
@pytest.mark.parametrize("frozen", [False, True])
def test_the_adversarial_copy_is_the_sentence_moved_by_that_step(
    tiny: Callable[[str], Path], family: str, frozen: bool
) -> None:
    model = _model(tiny(family))
    loss = JointLoss(model, second="adversarial", noise=0.3, dropout=0.0, freeze_layer_0=frozen).train()
    batch = loss.both(*_columns(model))
    plain, first, moved = loss.copies(batch, TARGETS)
    assert torch.equal(plain, first)
    u, v = plain.detach().chunk(2)
    # How the embedding layer's output changed, seen from outside, and the classification of what came of it.
    outputs: list[Tensor] = []
    model.train()
    embed(model, backbone(model), dict(batch), lambda states: outputs.append(states.detach()) or states)
    leaf = outputs[0].requires_grad_()
    vectors = embed(model, backbone(model), dict(batch), lambda states: leaf)["sentence_embedding"]
    value = _naive_cross_entropy(loss.classifier, *vectors.chunk(2))
    (gradient,) = torch.autograd.grad(value, leaf)
    step = 0.3 * torch.nn.functional.normalize(gradient, dim=-1) * batch["attention_mask"].unsqueeze(-1)
    expected = embed(model, backbone(model), dict(batch), lambda states: states + step)["sentence_embedding"]
    torch.testing.assert_close(moved, expected, rtol=1e-3, atol=1e-4)
    with torch.no_grad():
        before, after = (loss.classify(*pair.chunk(2), TARGETS) for pair in (torch.cat([u, v]), moved))
    assert after > before


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_learns_and_everything_that_may_move_has_a_gradient(
    tiny: Callable[[str], Path], family: str
) -> None:
    for make in (NLISoftmaxLoss, JointLoss, lambda model: JointLoss(model, second="adversarial")):
        torch.manual_seed(0)
        model = _model(tiny(family))
        loss = make(model).train()
        value = loss(_columns(model), TARGETS)
        value.backward()
        assert bool(torch.isfinite(value))
        assert all(parameter.grad is not None for parameter in loss.parameters() if parameter.requires_grad)


def test_losses_tell_their_settings(bert: Path) -> None:
    model = _model(bert)
    assert json.loads(json.dumps(NLISoftmaxLoss(model, hidden=3).get_config_dict())) == {"product": False, "hidden": 3}
    joint = JointLoss(model)
    assert json.loads(json.dumps(joint.get_config_dict()))["alpha"] == 0.15
    assert joint.citation == registry.method_class("consert-joint").citation


def test_premises_and_hypotheses_share_a_batch(bert: Path) -> None:
    model = _model(bert)
    batch = NLISoftmaxLoss(model).both(*_columns(model))
    expected = stacked(_columns(model), padding=1)
    assert torch.equal(batch["input_ids"], expected["input_ids"])
    assert len(batch["input_ids"]) == 8
