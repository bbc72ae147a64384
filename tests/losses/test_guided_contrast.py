"""The loss of adaptation against a loop, with the guide in the step and with its embeddings computed before."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from torch import Tensor

from naive_losses import naive_info_nce, naive_relational_divergence
from selfguide.engine.tokens import tokenise_dataset
from selfguide.errors import UsageError
from selfguide.losses import DropoutContrastLoss, GuidedContrastLoss, functional
from selfguide.losses.base import Preparation
from selfguide.models.encoders import load_encoder
from selfguide.progress import Reporter
from selfguide.training.settings import TrainingSettings
from toys import toy_sentences


def _model(path: Path) -> SentenceTransformer:
    return load_encoder(path, pooling="mean", max_length=32, device="cpu")


@pytest.mark.parametrize("batch", [3, 4, 9])
@pytest.mark.parametrize("temperature", [0.02, 0.05, 1.0])
def test_relational_divergence_follows_its_formula(batch: int, temperature: float) -> None:
    torch.manual_seed(batch)
    first, second = (torch.randn(batch, 6, dtype=torch.float64, requires_grad=True) for _ in range(2))
    guide = torch.randn(batch, 5, dtype=torch.float64)
    value = functional.relational_divergence(first, second, guide, temperature)
    torch.testing.assert_close(value, naive_relational_divergence(first, second, guide, temperature))
    parts = [
        functional.relational_divergence(first, second, guide, temperature, own=own)
        for own in (slice(0, 1), slice(1, batch))
    ]
    torch.testing.assert_close(sum(parts), value)
    assert torch.autograd.gradcheck(
        lambda a, b: functional.relational_divergence(a, b, guide, temperature), (first, second), atol=1e-4
    )


def test_a_guide_that_agrees_asks_for_nothing() -> None:
    vectors = torch.randn(5, 4, dtype=torch.float64)
    assert abs(float(functional.relational_divergence(vectors, vectors, vectors, 0.05))) < 1e-12
    few = torch.randn(2, 4, requires_grad=True)
    assert functional.relational_divergence(few, few, few.detach(), 0.05).item() == 0.0
    with pytest.raises(ValueError, match="3 vectors for 5 sentences"):
        functional.relational_divergence(vectors, vectors, vectors[:3], 0.05)


@pytest.mark.parametrize("weight", [0.0, 0.5, 2.0])
def test_the_loss_is_contrast_and_divergence(bert: Path, weight: float) -> None:
    loss = GuidedContrastLoss(_model(bert), temperature=0.07, stay_close=weight, guide_temperature=0.1)
    first, second, guide = (torch.randn(6, 32) for _ in range(3))
    wanted = naive_info_nce(first, second, 0.07)
    if weight:
        wanted = wanted + weight * naive_relational_divergence(first, second, guide, 0.1)
    torch.testing.assert_close(loss.guided(first, second, guide), wanted)


def test_the_guide_is_the_encoder_as_it_was_and_in_evaluation_mode(bert: Path) -> None:
    model = _model(bert)
    sentences = toy_sentences(6)
    start = torch.from_numpy(model.encode(sentences))
    loss = GuidedContrastLoss(model, stay_close=1.0).train()
    seen: list[Tensor] = []
    guided = loss.guided
    loss.guided = lambda first, second, guide: seen.append(guide) or guided(first, second, guide)  # type: ignore
    optimiser = torch.optim.SGD([p for p in loss.parameters() if p.requires_grad], lr=0.1)
    for _ in range(2):
        loss([model.preprocess(sentences)]).backward()
        optimiser.step()
        optimiser.zero_grad()
    for guide in seen:
        torch.testing.assert_close(guide, start, atol=1e-5, rtol=1e-4)
    assert not torch.allclose(torch.from_numpy(model.eval().encode(sentences)), start, atol=1e-3)
    assert all(name.startswith("model.") for name, _ in loss.named_parameters())


def test_embeddings_computed_before_training_are_those_of_the_step(bert: Path, tmp_path: Path) -> None:
    sentences = toy_sentences(20)
    text = Dataset.from_dict({"sentence": sentences})
    model = _model(bert)
    in_step = GuidedContrastLoss(model, stay_close=1.0).eval()
    before = GuidedContrastLoss(model, stay_close=1.0).eval()
    tokens = tokenise_dataset(model, text)
    assert tokens is not None
    before.prepare(Preparation(TrainingSettings(), tmp_path, Reporter(quiet=True), tokens))
    rows = [7, 3, 12, 0]
    features = tokens.batch(rows)
    with_targets = before.on_host(dict(features), rows)
    assert with_targets["guide_embedding"].shape == (4, 32)
    value = before([with_targets])
    assert math.isfinite(value.item())
    torch.testing.assert_close(value, in_step([features]), atol=1e-5, rtol=1e-4)
    assert np.load(tmp_path / "guide.npy").shape == (20, 32)


def test_without_a_guide_it_is_the_dropout_contrast(bert: Path) -> None:
    model = _model(bert)
    plain, guided = DropoutContrastLoss(model, head=False), GuidedContrastLoss(model, stay_close=0.0)
    features = model.preprocess(toy_sentences(5))
    torch.testing.assert_close(plain.eval()([dict(features)]), guided.eval()([dict(features)]))
    with pytest.raises(UsageError, match="stay_close must be at least 0"):
        GuidedContrastLoss(model, stay_close=-1.0)
