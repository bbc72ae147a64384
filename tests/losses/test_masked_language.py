"""The masked-language-model head."""

from __future__ import annotations

from pathlib import Path

import torch

from selfguide.losses.masked_language import MaskedLanguageHead, masked_language_loss
from selfguide.models.encoders import backbone, load_encoder


def test_the_language_model_loss_is_a_plain_cross_entropy(bert: Path) -> None:
    torch.manual_seed(0)
    transformer = backbone(load_encoder(bert))
    weights = transformer.get_input_embeddings().weight
    head = MaskedLanguageHead(transformer.config, weights.shape[1], weights.shape[0])
    states, answers = torch.randn(4, 32), torch.tensor([5, 9, 9, 20])
    total = torch.zeros(())
    for state, answer in zip(states, answers, strict=True):
        inner = torch.nn.functional.layer_norm(torch.nn.functional.gelu(head.dense(state)), (32,))
        logits = torch.stack([torch.dot(inner, row) for row in weights]) + head.bias
        total = total - logits[answer] + torch.logsumexp(logits, 0)
    loss = masked_language_loss(head, states, answers, weights)
    torch.testing.assert_close(loss, total / 4)
    empty = masked_language_loss(head, states[:0], answers[:0], weights)
    empty.backward()
    assert float(empty.detach()) == 0.0
    assert head.bias.grad is not None
