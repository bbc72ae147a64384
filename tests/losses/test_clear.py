"""CLEAR's loss: its two terms, and how it rewrites its copies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from naive_losses import naive_nt_xent
from selfguide.errors import SelfguideError
from selfguide.losses import ClearLoss
from selfguide.models.encoders import load_encoder
from toys import toy_sentences


def _model(path: Path) -> SentenceTransformer:
    return load_encoder(path, pooling="cls", max_length=32)


def test_clear_adds_up_its_two_losses(bert: Path) -> None:
    """With copies that are not rewritten and no dropout, the contrast is known, and the rest is the language model's."""
    model = _model(bert)
    sentences = toy_sentences(4)
    options: dict[str, Any] = {"first": "none", "second": "none", "dropout": 0.0, "temperature": 0.3}
    alone = ClearLoss(model, **options, mlm_weight=0.0)
    assert not hasattr(alone, "mlm")
    vectors = model.encode(sentences, convert_to_tensor=True).clone()  # out of inference mode
    expected = naive_nt_xent(alone.head(vectors), alone.head(vectors), 0.3)
    torch.testing.assert_close(alone.train()([model.preprocess(sentences)]), expected, rtol=1e-4, atol=1e-4)
    whole = ClearLoss(model, **options, mlm_weight=0.5).train()
    whole.head.load_state_dict(alone.head.state_dict())
    captured: list[tuple[Tensor, Tensor]] = []
    whole.mlm.register_forward_hook(lambda module, inputs, output: captured.append((inputs[0], output)))
    torch.manual_seed(3)
    value = whole([model.preprocess(sentences)])
    torch.manual_seed(3)
    words = [model.tokenizer(text, add_special_tokens=False)["input_ids"] for text in sentences]
    answers = [row[place] for row in words for place in whole._hide(list(row))[1]]
    (_, logits), *_ = captured
    guess = -torch.log_softmax(logits, dim=1)[torch.arange(len(answers)), torch.tensor(answers)].mean()
    torch.testing.assert_close(value, expected + 0.5 * guess, rtol=1e-4, atol=1e-4)


def test_clear_rewrites_its_two_copies(bert: Path) -> None:
    model = _model(bert)
    loss = ClearLoss(model, first="reorder", second="delete-words", mlm_weight=0.0)
    seen: list[Tensor] = []
    loss.model.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]["input_ids"]))
    features = model.preprocess(toy_sentences(3))
    torch.manual_seed(0)
    loss([features])
    frame, mask = (0, 1, 2), model.tokenizer.mask_token_id
    rows = [[token for token in row if token not in frame] for row in seen[0].tolist()]
    own = [[token for token in row if token not in frame] for row in features["input_ids"].tolist()]
    assert len(rows) == 6
    for full, moved, thinned in zip(own, rows[:3], rows[3:], strict=True):
        assert sorted(moved) == sorted(full)
        assert moved != full
        assert sum(token != mask for token in thinned) == len(full) - int(0.7 * len(full))


def test_clear_needs_a_mask_token(bert: Path) -> None:
    model = _model(bert)
    model.tokenizer.mask_token = None
    with pytest.raises(SelfguideError, match="no mask token"):
        ClearLoss(model)
