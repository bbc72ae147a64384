"""A moving average of the weights, which is often better than the last ones while the learning rate is still high."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

EVERY = 10
"""Steps between updates: the average spans many more, and a pass over all weights takes time."""


class Average:
    """An exponential moving average over about ``horizon`` steps, in fp32 on the device of the model."""

    def __init__(self, model: nn.Module, horizon: int) -> None:
        """Start from the weights of a model."""
        if horizon < 1:
            raise ValueError(f"The average must span at least one step, got {horizon}.")
        self.horizon, self.updates = horizon, 0
        self.values: dict[str, Tensor] = {n: p.detach().clone() for n, p in model.named_parameters()}

    def weight(self) -> float:
        """Return the weight of the next update: early on that of a plain mean, so that the initial weights are forgotten."""
        steps = EVERY * (self.updates + 1)
        return min(1.0, max(EVERY / self.horizon, EVERY / (steps + EVERY)))

    @torch.no_grad()
    def after_step(self, model: nn.Module, step: int) -> None:
        """Update the average if one is due after this step."""
        if step % EVERY:
            return
        torch._foreach_lerp_(list(self.values.values()), list(model.parameters()), self.weight())
        self.updates += 1

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        """Give the model the averaged weights for the duration of the block."""
        own = [p.detach() for p in model.parameters()]
        kept = [p.clone() for p in own]
        torch._foreach_copy_(own, list(self.values.values()))
        try:
            yield
        finally:
            torch._foreach_copy_(own, kept)

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"values": self.values, "updates": self.updates}

    def load(self, state: dict[str, Any]) -> None:
        """Restore the state of a checkpoint."""
        for name, value in self.values.items():
            value.copy_(state["values"][name])
        self.updates = state["updates"]
