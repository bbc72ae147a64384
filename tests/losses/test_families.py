"""Contrastive losses over one column of sentences, on every family of encoders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer

from selfguide.losses import ClearLoss, ConSERTLoss, DropoutContrastLoss, MirrorLoss
from selfguide.models.encoders import backbone, load_encoder
from toys import FAMILIES, toy_sentences

LOSSES: tuple[Callable[[Any], Any], ...] = (
    lambda model: DropoutContrastLoss(model, dropout=0.1),
    ConSERTLoss,
    lambda model: MirrorLoss(model, dropout=0.1),
    ClearLoss,
)


def _model(path: Path) -> SentenceTransformer:
    return load_encoder(path, pooling="cls", max_length=32)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("make", LOSSES)
def test_every_family_trains_and_everything_that_may_move_has_a_gradient(
    tiny: Callable[[str], Path], family: str, make: Callable[[Any], Any]
) -> None:
    torch.manual_seed(0)
    model = _model(tiny(family))
    before = {name: tensor.clone() for name, tensor in backbone(model).state_dict().items()}
    loss = make(model).train()
    optimiser = torch.optim.AdamW([p for p in loss.parameters() if p.requires_grad], lr=1e-3)
    for _ in range(2):
        loss([model.preprocess([*toy_sentences(5), "a"])]).backward()
        assert all(parameter.grad is not None for parameter in loss.parameters() if parameter.requires_grad)
        optimiser.step()
        optimiser.zero_grad()
    after = backbone(model).state_dict()
    assert any(not torch.equal(after[name], before[name]) for name in before)
    assert all(torch.equal(after[name], before[name]) for name in before if "pooler" in name)
    assert all(bool(torch.isfinite(tensor).all()) for tensor in after.values())


def test_layer_0_can_be_frozen(bert: Path) -> None:
    for loss in (
        DropoutContrastLoss(_model(bert), freeze_layer_0=True),
        ConSERTLoss(_model(bert), freeze_layer_0=True),
        MirrorLoss(_model(bert), freeze_layer_0=True),
    ):
        loss([loss.model.preprocess(toy_sentences(4))]).backward()
        moving = {name for name, parameter in backbone(loss.model).named_parameters() if parameter.grad is not None}
        assert moving
        assert not any(name.startswith("embeddings.") for name in moving)
