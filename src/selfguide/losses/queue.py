"""Momentum contrast: a slowly moving copy of the encoder makes *keys*, and a queue of past keys serves as negatives.

The copy's weights are an exponential moving average of the encoder's, θ_key ← m θ_key + (1 − m) θ, so that keys made some steps
ago still fit those made now. That gives many more negatives than a batch has sentences. Neither the copy nor the queue has
gradients, but checkpoints must keep both (:meth:`selfguide.losses.base.HeadedLoss.moving_state`).

Reference: He et al., Momentum Contrast for Unsupervised Visual Representation Learning, CVPR 2020.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class KeyQueue(nn.Module):
    """The most recent keys, as unit vectors; it starts empty, and the oldest keys leave first.

    Args:
        size: Keys that it holds.
        width: Dimension of a key.
    """

    keys: Tensor
    added: Tensor

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(size, width))
        self.register_buffer("added", torch.zeros((), dtype=torch.long))

    def contents(self) -> Tensor:
        """Return a copy of the keys in the queue, in no particular order."""
        return self.keys[: min(int(self.added), len(self.keys))].clone()

    @torch.no_grad()
    def add(self, keys: Tensor) -> None:
        """Add keys (batch, dim), in place of the oldest where the queue is full."""
        keys = F.normalize(keys.detach(), dim=-1)[-len(self.keys) :]
        places = (int(self.added) + torch.arange(len(keys), device=self.keys.device)) % len(self.keys)
        self.keys[places] = keys.to(self.keys.dtype)
        self.added += len(keys)


@torch.no_grad()
def update_average(average: Iterable[Tensor], current: Iterable[Tensor], momentum: float) -> None:
    """Update a moving average of parameters in place: θ_key ← m θ_key + (1 − m) θ."""
    for key, tensor in zip(average, current, strict=True):
        key.lerp_(tensor, 1 - momentum)
