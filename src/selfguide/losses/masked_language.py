"""Masked-language modelling beside another objective: hide some tokens, let a head name them.

The encoders here come without the head that they were pre-trained with (Hugging Face's plain models leave it out), so the
head starts anew: Linear, GELU and LayerNorm, then the product with the encoder's own input embeddings, to which
it is tied, and a bias for each token. It belongs to a loss and is never saved with the encoder.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def mask_tokens(
    tokens: list[int], rate: float, mask: int, vocabulary: int, barred: Collection[int] = ()
) -> tuple[list[int], list[int]]:
    """Hide a share of the tokens, one at least. Returns the sentence with holes, and the places.

    Of the chosen tokens 80 % become [MASK], 10 % a random token (never one of ``barred``), 10 % stay. Randomness is torch's.
    """
    places = torch.randperm(len(tokens))[: max(1, round(rate * len(tokens)))].tolist() if tokens else []
    hidden = list(tokens)
    for place in places:
        draw = float(torch.rand(()))
        if draw < 0.8:
            hidden[place] = mask
        elif draw < 0.9:
            other = int(torch.randint(vocabulary, ()))
            hidden[place] = mask if other in barred else other
    return hidden, places


class MaskedLanguageHead(nn.Module):
    """A fresh head over hidden states, tied to input embeddings that are handed in at each call."""

    def __init__(self, config: Any, embedding_width: int, vocabulary: int) -> None:
        super().__init__()
        self.dense = nn.Linear(int(config.hidden_size), embedding_width)
        self.norm = nn.LayerNorm(embedding_width)
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        nn.init.normal_(self.dense.weight, std=float(getattr(config, "initializer_range", 0.02)))
        nn.init.zeros_(self.dense.bias)

    def forward(self, states: Tensor, embeddings: Tensor) -> Tensor:
        """Logits over the vocabulary for states (tokens, dim)."""
        return self.norm(F.gelu(self.dense(states))) @ embeddings.T + self.bias


def masked_language_loss(head: MaskedLanguageHead, states: Tensor, answers: Tensor, embeddings: Tensor) -> Tensor:
    """Cross-entropy at the hidden places: their states (places, dim) and the tokens that were there."""
    if len(answers) == 0:  # a batch of empty sentences has nothing to guess, but every weight still needs a gradient
        return 0.0 * (head(states.sum(dim=0, keepdim=True), embeddings).sum())
    return F.cross_entropy(head(states, embeddings), answers)
