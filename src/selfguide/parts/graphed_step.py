"""A training step on a GPU as one recorded graph: a small encoder keeps a fast GPU waiting for the next launch.

A step of a BERT on a few hundred tokens is some two thousand kernels of a few microseconds each; starting them one by one
from Python takes several times as long as running them. CUDA can record a step's kernels and start them all at once. That
needs shapes that do not change, so batches are laid into rows of a few sizes, and each size is recorded once it has
been met often enough to pay. Whatever cannot be recorded runs as ever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

# A recording takes about as long as a few dozen steps, so a shape must have come back before it is worth one.
_WORTH_RECORDING = 3
_AT_MOST = 12
# Each recording holds the gradients of all weights, and its own working memory.
_COPIES_IN_MEMORY = 3

Step = Callable[..., tuple[Tensor, Tensor]]


class GraphedSteps:
    """Recordings of one function, one for each combination of input shapes.

    Args:
        loss: whose parameters the function trains.
        step: tensors → (loss, embeddings); must not wait for the device, and must draw nothing on the host.
        note: told, once, when recording failed.
    """

    def __init__(self, loss: nn.Module, step: Step, note: Callable[[str], None]) -> None:
        self._loss, self._step, self._note = loss, step, note
        self._recorded: dict[Any, Callable[..., tuple[Tensor, Tensor]]] = {}
        self._met: Counter[Any] = Counter()
        self.given_up = False

    def __len__(self) -> int:
        return len(self._recorded)

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Replay the recording for these shapes, or run the function."""
        shapes = tuple((tensor.shape, tensor.dtype) for tensor in inputs)
        if shapes in self._recorded:
            return self._recorded[shapes](*inputs)
        self._met[shapes] += 1
        if self.given_up or self._met[shapes] < _WORTH_RECORDING or not self._has_room():
            return self._step(*inputs)
        try:
            self._recorded[shapes] = self._record(inputs)
        except Exception as error:  # a driver or library may refuse in any way; none of them may cost the run
            self.given_up = True
            self._note(
                f"Steps are not recorded as CUDA graphs, which costs speed alone: {type(error).__name__}: {error}"
            )
            return self._step(*inputs)
        return self._recorded[shapes](*inputs)

    def _has_room(self) -> bool:
        if len(self._recorded) >= _AT_MOST:
            return False
        weights = sum(4 * parameter.numel() for parameter in self._loss.parameters() if parameter.requires_grad)
        free, _ = torch.cuda.mem_get_info()
        return free > _COPIES_IN_MEMORY * weights

    def _record(self, inputs: tuple[Tensor, ...]) -> Callable[..., tuple[Tensor, Tensor]]:
        device = inputs[0].device
        state = torch.cuda.get_rng_state(device)  # trial runs draw dropout; the run shall not notice
        samples = tuple(tensor.clone() for tensor in inputs)
        try:
            recorded: Any = torch.cuda.make_graphed_callables(_AsModule(self._loss, self._step), samples)
        finally:
            torch.cuda.set_rng_state(state, device)
        return recorded


class _AsModule(nn.Module):
    """The function as a module that owns the loss's parameters, as the recorder wants it."""

    def __init__(self, loss: nn.Module, step: Step) -> None:
        super().__init__()
        self.loss = loss
        self._step = step

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        return self._step(*inputs)
