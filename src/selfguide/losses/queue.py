"""Momentum contrast: a slowly moving copy of the encoder makes *keys*, and a queue of past ones serves as negatives.

The copy's weights follow the encoder's as a running average, θ_key ← m θ_key + (1 − m) θ, so that keys made some steps ago
still fit those made now. That gives many more negatives than a batch has sentences. Neither the copy nor the queue has
gradients, yet both are part of what a resumed run must find again (:meth:`selfguide.losses.base.HeadedLoss.moving_state`).

Reference: He et al., Momentum Contrast for Unsupervised Visual Representation Learning, CVPR 2020.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class KeyQueue(nn.Module):
    """The last ``size`` keys, as unit vectors; it starts empty, the oldest leave first."""

    keys: Tensor
    added: Tensor

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(size, width))
        self.register_buffer("added", torch.zeros((), dtype=torch.long))

    def contents(self) -> Tensor:
        """The keys in the queue, in no particular order."""
        return self.keys[: min(int(self.added), len(self.keys))].clone()

    @torch.no_grad()
    def add(self, keys: Tensor) -> None:
        """Put keys in; where there is no room, in place of the oldest."""
        keys = F.normalize(keys.detach(), dim=-1)[-len(self.keys) :]
        places = (int(self.added) + torch.arange(len(keys), device=self.keys.device)) % len(self.keys)
        self.keys[places] = keys.to(self.keys.dtype)
        self.added += len(keys)


@torch.no_grad()
def follow(average: Iterable[Tensor], leader: Iterable[Tensor], momentum: float) -> None:
    """θ_key ← m θ_key + (1 − m) θ, in place."""
    for key, tensor in zip(average, leader, strict=True):
        key.lerp_(tensor, 1 - momentum)


def momentum_contrast(queries: Tensor, keys: Tensor, queue: Tensor, temperature: float) -> Tensor:
    """−log φ(q_i, k_i) / (Σ_j φ(q_i, k_j) + Σ_n φ(q_i, queue_n)), φ(u, v) = exp(cos(u, v) / τ), averaged over i.

    The batch's other keys are candidates as well as the queue's: at the start there is nothing in the queue.
    """
    candidates = torch.cat([F.normalize(keys, dim=-1), F.normalize(queue, dim=-1)])
    logits = F.normalize(queries, dim=-1) @ candidates.T / temperature
    return F.cross_entropy(logits, torch.arange(len(queries), device=queries.device))
