"""A masked-language-model head, for a loss that has this objective beside another.

Encoders are loaded without the head of their pre-training, so this one starts from random weights: Linear, GELU and LayerNorm,
then the product with the encoder's input embeddings, to which it is tied, and a bias for each token. It belongs to a loss and
is never saved with the encoder.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class MaskedLanguageHead(nn.Module):
    """A head over hidden states, tied to input embeddings that are passed in at each call.

    Args:
        config: The Transformer's configuration.
        embedding_width: Width of its input embeddings.
        vocabulary: Size of its vocabulary.
    """

    def __init__(self, config: Any, embedding_width: int, vocabulary: int) -> None:
        super().__init__()
        self.dense = nn.Linear(int(config.hidden_size), embedding_width)
        self.norm = nn.LayerNorm(embedding_width)
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        nn.init.normal_(self.dense.weight, std=float(getattr(config, "initializer_range", 0.02)))
        nn.init.zeros_(self.dense.bias)

    def forward(self, states: Tensor, embeddings: Tensor) -> Tensor:
        """Return logits (tokens, vocabulary) for hidden states (tokens, dim)."""
        return self.norm(F.gelu(self.dense(states))) @ embeddings.T + self.bias


def masked_language_loss(head: MaskedLanguageHead, states: Tensor, answers: Tensor, embeddings: Tensor) -> Tensor:
    """Compute the cross-entropy of the hidden tokens.

    Args:
        head: The head.
        states: Hidden states at the hidden positions (hidden, dim).
        answers: The tokens that were there (hidden,).
        embeddings: The encoder's input embeddings (vocabulary, dim).

    Returns:
        The loss, a scalar.
    """
    if len(answers) == 0:  # a batch of empty sentences hides nothing, but every weight still needs a gradient
        return 0.0 * (head(states.sum(dim=0, keepdim=True), embeddings).sum())
    return F.cross_entropy(head(states, embeddings), answers)
