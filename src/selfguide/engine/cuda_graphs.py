"""A training step on a GPU as recorded graphs: a small encoder keeps a fast GPU waiting for the next launch.

A step of a BERT on a few hundred tokens is some two thousand kernels of a few microseconds each; starting them one by one
from Python takes several times as long as running them. CUDA can record a step's kernels and start them all at once. That
needs shapes that do not change, so batches are laid into rows of a few sizes, and each size is recorded once it has
been met often enough to pay. Whatever cannot be recorded runs as ever.

All recordings write their gradients to one set of tensors, which become the parameters' ``grad`` as they are: autograd would
copy each of them, one launch a parameter and step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

# A recording takes about as long as a few dozen steps, so a shape must have come back before it is worth one.
_WORTH_RECORDING = 3
_AT_MOST = 12
# Runs before a recording: libraries choose their kernels and take their working memory in the first ones.
_TRIALS = 3
# The recordings' working memory is shared; what each takes of its own is less than a copy of the weights.
_COPIES_IN_MEMORY = 3

Step = Callable[..., tuple[Tensor, Tensor]]


class GraphedSteps:
    """Recordings of one function, one for each combination of input shapes.

    A step's gradients replace those of the step before: they must not be added up over steps.

    Args:
        loss: whose parameters the function trains.
        step: tensors → (loss, embeddings); must not wait for the device, and must draw nothing on the host.
        note: told, once, when recording failed.
    """

    def __init__(self, loss: nn.Module, step: Step, note: Callable[[str], None]) -> None:
        self._step, self._note = step, note
        self._parameters = [parameter for parameter in loss.parameters() if parameter.requires_grad]
        self._recorded: dict[Any, _Recording] = {}
        self._met: Counter[Any] = Counter()
        self._gradients: list[Tensor] = []
        self._pool: Any = None
        self.given_up = False

    def __len__(self) -> int:
        return len(self._recorded)

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Replay the recording for these shapes, or run the function."""
        shapes = tuple((tensor.shape, tensor.dtype) for tensor in inputs)
        if shapes in self._recorded:
            return self._recorded[shapes](inputs)
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
        return self._recorded[shapes](inputs)

    def _has_room(self) -> bool:
        if len(self._recorded) >= _AT_MOST:
            return False
        weights = sum(parameter.element_size() * parameter.numel() for parameter in self._parameters)
        free, _ = torch.cuda.mem_get_info()
        return free > _COPIES_IN_MEMORY * weights

    def _record(self, inputs: tuple[Tensor, ...]) -> _Recording:
        device = inputs[0].device
        state = torch.cuda.get_rng_state(device)  # trial runs draw dropout; the run shall not notice
        try:
            with torch.cuda.device(device), torch.enable_grad():
                return self._capture(tuple(tensor.detach().clone() for tensor in inputs))
        finally:
            torch.cuda.set_rng_state(state, device)

    def _capture(self, inputs: tuple[Tensor, ...]) -> _Recording:
        if not self._gradients:
            self._gradients = [torch.empty_like(parameter) for parameter in self._parameters]
            self._pool = torch.cuda.graph_pool_handle()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_TRIALS):
                loss, _ = self._step(*inputs)
                torch.autograd.grad(loss, self._parameters, allow_unused=True)
                del loss
        torch.cuda.current_stream().wait_stream(stream)
        forward, backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(forward, pool=self._pool):
            loss, embeddings = self._step(*inputs)
        weight = torch.ones_like(loss)
        with torch.cuda.graph(backward, pool=self._pool):
            found = torch.autograd.grad(loss, self._parameters, weight, allow_unused=True)
            used = [number for number, gradient in enumerate(found) if gradient is not None]
            gradients = [gradient for gradient in found if gradient is not None]
            torch._foreach_copy_([self._gradients[number] for number in used], gradients)
        targets = [(self._parameters[number], self._gradients[number]) for number in used]
        handle = torch.ones((), device=loss.device, requires_grad=True)
        return _Recording(inputs, forward, backward, loss.detach(), embeddings.detach(), weight, handle, targets)


@dataclass(frozen=True)
class _Recording:
    """A step's two graphs and the tensors that they read and write."""

    inputs: tuple[Tensor, ...]
    forward: Any
    backward: Any
    loss: Tensor
    embeddings: Tensor
    weight: Tensor
    """Of the loss in what is differentiated: 1, unless somebody scales it."""
    handle: Tensor
    """What autograd holds the recording by."""
    targets: list[tuple[nn.Parameter, Tensor]]
    """Parameters, and where the backward graph leaves their gradients."""

    def __call__(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        for own, given in zip(self.inputs, inputs, strict=True):
            own.copy_(given, non_blocking=True)
        self.forward.replay()
        loss: Tensor = _Replay.apply(self.handle, self)
        return loss, self.embeddings

    def hand_out_gradients(self) -> None:
        """Whoever trains sees gradients as if autograd had made them."""
        for parameter, gradient in self.targets:
            if parameter.grad is None or parameter.grad is gradient:
                parameter.grad = gradient
            else:
                parameter.grad.add_(gradient)


class _Replay(torch.autograd.Function):
    """The recorded loss; its backward replays the recorded backward pass."""

    @staticmethod
    def forward(ctx: Any, handle: Tensor, recording: _Recording) -> Tensor:
        ctx.recording = recording
        return recording.loss.clone()

    @staticmethod
    def backward(ctx: Any, weight: Tensor) -> tuple[None, None]:
        recording: _Recording = ctx.recording
        recording.weight.copy_(weight)
        recording.backward.replay()
        recording.hand_out_gradients()
        return None, None
