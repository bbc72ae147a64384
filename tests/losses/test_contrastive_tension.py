"""Contrastive Tension: the two encoders, and that both are trained."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer

from selfguide.augment.dropout import highest_dropout
from selfguide.losses import ContrastiveTensionInBatchLoss, ContrastiveTensionLoss, functional
from selfguide.losses.base import own_parameters
from selfguide.methods import registry
from selfguide.models.encoders import backbone, load_encoder
from toys import FAMILIES, toy_sentences

LOSSES = (ContrastiveTensionLoss, ContrastiveTensionInBatchLoss)


def _model(path: Path) -> SentenceTransformer:
    return load_encoder(path, pooling="mean", max_length=32)


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
    torch.testing.assert_close(
        value, functional.contrastive_tension(u.clone(), v.clone(), distances), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", LOSSES)
def test_both_encoders_move_and_the_unused_pooler_does_not(tiny: Callable[[str], Path], family: str, kind: Any) -> None:
    model = _model(tiny(family))
    loss = kind(model).train()
    own = own_parameters(loss)
    assert {name.partition(".")[0] for name in own} <= {"first", "log_scale"}
    assert len(own) >= len([p for p in model.parameters() if p.requires_grad])
    loss([model.preprocess(toy_sentences(4))]).backward()
    for name, parameter in loss.named_parameters():
        assert (parameter.grad is not None) == ("pooler" not in name), name


def test_losses_tell_their_settings_and_whom_to_cite(bert: Path) -> None:
    assert ContrastiveTensionLoss(_model(bert)).get_config_dict() == {
        "negatives": 7,
        "anchors": 0,
        "negative_term": "code",
        "dropout": 0.0,
    }
    loss = ContrastiveTensionInBatchLoss(_model(bert))
    assert json.loads(json.dumps(loss.get_config_dict()))["scale"] == pytest.approx(20.0)
    assert loss.citation == registry.method_class("ct").citation
    assert backbone(loss.first) is not backbone(loss.model)
