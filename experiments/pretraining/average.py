"""A moving average of the weights: often better than the last ones while the rate is still high."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

EVERY = 10  # steps between updates: the average looks back over many more, and a pass over all weights costs time


class Average:
    """An exponential moving average over about ``horizon`` steps, in fp32 on the device of the model."""

    def __init__(self, model: nn.Module, horizon: int) -> None:
        if horizon < 1:
            raise ValueError("an average over less than one step")
        self.horizon, self.updates = horizon, 0
        self.values: dict[str, Tensor] = {n: p.detach().clone() for n, p in model.named_parameters()}

    def weight(self) -> float:
        """What the weights of now count in the next update: early on as in a plain mean, to forget the start."""
        steps = EVERY * (self.updates + 1)
        return min(1.0, max(EVERY / self.horizon, EVERY / (steps + EVERY)))

    @torch.no_grad()
    def after_step(self, model: nn.Module, step: int) -> None:
        """Take the weights after ``step`` in, when it is time."""
        if step % EVERY:
            return
        torch._foreach_lerp_(list(self.values.values()), list(model.parameters()), self.weight())
        self.updates += 1

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        """The model with the averaged weights, for as long as the block runs."""
        own = [p.detach() for p in model.parameters()]
        kept = [p.clone() for p in own]
        torch._foreach_copy_(own, list(self.values.values()))
        try:
            yield
        finally:
            torch._foreach_copy_(own, kept)

    def state(self) -> dict[str, Any]:
        return {"values": self.values, "updates": self.updates}

    def load(self, state: dict[str, Any]) -> None:
        for name, value in self.values.items():
            value.copy_(state["values"][name])
        self.updates = state["updates"]
