"""Losses over sentences and their back-translations: NT-Xent, the queue, and both with self-guidance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer

from selfguide.errors import UsageError
from selfguide.losses import BackTranslationLoss, SelfGuidedLoss, SelfGuidedTranslationLoss, functional
from selfguide.losses.base import own_parameters
from selfguide.losses.queue import KeyQueue, update_average
from selfguide.models.encoders import backbone, load_encoder
from toys import toy_sentences
from translations import turned


def _model(path: Path) -> SentenceTransformer:
    return load_encoder(path, pooling="cls", max_length=32)


def _batches(model: SentenceTransformer, count: int = 4) -> list[dict[str, Any]]:
    sentences = toy_sentences(count)
    return [model.preprocess(sentences), model.preprocess([turned(sentence) + " a" for sentence in sentences])]


def test_the_queue_forgets_the_oldest() -> None:
    queue = KeyQueue(5, 2)
    assert queue.contents().shape == (0, 2)
    rows = torch.nn.functional.normalize(torch.randn(12, 2), dim=-1)
    for start in range(0, 8, 2):
        queue.add(3.0 * rows[start : start + 2])
        newest = rows[max(0, start - 3) : start + 2]
        assert sorted(queue.contents().tolist()) == [pytest.approx(row) for row in sorted(newest.tolist())]
    queue.add(rows)  # more than it holds
    assert sorted(queue.contents().tolist()) == [pytest.approx(row) for row in sorted(rows[-5:].tolist())]
    average, leader = [torch.zeros(3)], [torch.ones(3)]
    update_average(average, leader, 0.9)
    torch.testing.assert_close(average[0], torch.full((3,), 0.1))


def test_nt_xent_compares_sentences_with_translations_through_the_head(bert: Path) -> None:
    model = _model(bert)
    loss = BackTranslationLoss(model, temperature=0.2, head_size=8, stay_close=0.5, dropout=0.0).train()
    start = {name: parameter.detach().clone() for name, parameter in backbone(model).named_parameters()}
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.01)
    value = loss(_batches(model))
    model.eval()
    first, second = (loss.head(model(batch)["sentence_embedding"]) for batch in _batches(model))
    moved = sum((parameter - start[name]).square().sum() for name, parameter in backbone(model).named_parameters())
    assert float(moved.detach()) > 0
    expected = functional.nt_xent_pairs(first, second, 0.2) + 0.5 * moved
    torch.testing.assert_close(value, expected, rtol=1e-4, atol=1e-4)
    assert set(own_parameters(loss)) == {f"head.{part}" for part in ("0.weight", "0.bias", "2.weight", "2.bias")}
    assert loss.moving_state() == {}


def test_the_head_is_that_of_sg_opt_and_the_embeddings_are_frozen(bert: Path) -> None:
    """The settings of the BT branch in the SG-OPT authors' script."""
    loss = BackTranslationLoss(_model(bert))
    assert (loss.temperature, loss.stay_close, loss.head_size) == (0.01, 0.1, 4096)
    assert [type(module).__name__ for module in loss.head] == ["Linear", "GELU", "Linear", "GELU"]
    spread = backbone(loss.encoder).config.initializer_range
    assert float(loss.head[2].weight.detach().std()) == pytest.approx(spread, rel=0.05)
    assert not any(parameter.requires_grad for parameter in backbone(loss.encoder).embeddings.parameters())
    relu = BackTranslationLoss(_model(bert), head="relu", head_size=8, stay_close=0.0, freeze_layer_0=False)
    assert [type(module).__name__ for module in relu.head] == ["Linear", "ReLU", "Linear"]
    assert backbone(relu.encoder).embeddings.word_embeddings.weight.requires_grad


def test_the_queue_holds_the_keys_of_the_moving_average(bert: Path) -> None:
    model = _model(bert)
    cert = {"head": "relu", "stay_close": 0.0, "freeze_layer_0": False, "temperature": 0.07}
    loss = BackTranslationLoss(model, "moco", head_size=8, queue_size=6, momentum=0.75, dropout=0.0, **cert).train()
    start = {name: parameter.clone() for name, parameter in backbone(loss.key_encoder).named_parameters()}
    with torch.no_grad():
        for parameter in backbone(model).parameters():
            parameter.add_(0.04)
    queries = loss.head(model(_batches(model)[0])["sentence_embedding"]).detach()
    value = loss(_batches(model))
    for name, parameter in backbone(loss.key_encoder).named_parameters():
        torch.testing.assert_close(parameter, start[name] + 0.01)  # a quarter of the way
    with torch.no_grad():
        keys = loss.key_head(loss.key_encoder(_batches(model)[1])["sentence_embedding"])
    empty = torch.zeros(0, 8)
    torch.testing.assert_close(value, functional.momentum_contrast(queries, keys, empty, 0.07), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(loss.queue.contents(), torch.nn.functional.normalize(keys, dim=-1))
    value.backward()
    moving = {name for name, parameter in loss.named_parameters() if parameter.grad is not None}
    assert all(name.startswith(("model.", "head.")) for name in moving)
    assert any(name.startswith("head.") for name in moving)
    before = loss.queue.contents()
    loss.eval()(_batches(model))  # evaluation changes nothing
    assert torch.equal(loss.queue.contents(), before)
    names = set(loss.moving_state())
    assert {"queue.keys", "queue.added", "key_head.0.weight"} <= names
    assert not names & set(own_parameters(loss))


def test_sg_opt_and_translations_add_up(bert: Path) -> None:
    model = _model(bert)
    torch.manual_seed(0)
    loss = SelfGuidedTranslationLoss(model, translation_weight=0.5, head_size=8, temperature=0.1).eval()
    torch.manual_seed(0)
    alone = SelfGuidedLoss(_model(bert), head_size=8, temperature=0.1).eval()
    first, second = (loss.head(model(batch)["sentence_embedding"]) for batch in _batches(model))
    expected = alone(_batches(model)[:1]) + 0.5 * functional.nt_xent_pairs(first, second, 0.1)
    torch.testing.assert_close(loss(_batches(model)), expected, rtol=1e-4, atol=1e-4)
    assert loss.get_config_dict()["translation_weight"] == 0.5
    with pytest.raises(UsageError, match="translation_weight must be at least 0"):
        SelfGuidedTranslationLoss(_model(bert), translation_weight=-1.0)
