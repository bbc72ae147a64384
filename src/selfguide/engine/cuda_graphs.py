"""Training steps as CUDA graphs: launching the kernels of a small encoder takes longer than running them.

A step of a BERT on a few hundred tokens has about two thousand kernels of a few microseconds each; launching them one by one
from Python takes several times as long. CUDA can record a step's kernels and launch them all at once. That needs constant
shapes, so batches are laid out in rows of a few sizes, and each size is recorded once it has occurred often enough to pay.
Steps that cannot be recorded run as usual.

All recordings write their gradients to one set of tensors, which become the parameters' ``grad``: autograd would copy each
of them, with one launch per parameter and step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

# A recording takes as long as a few dozen steps, so a shape must recur before it is worth one.
_MIN_OCCURRENCES = 3
_MAX_RECORDINGS = 12
# Runs before a recording: libraries choose their kernels and allocate their workspace in the first ones.
_WARM_UP_RUNS = 3
# The recordings share their workspace; what each needs in addition is less than a copy of the weights.
_FREE_COPIES = 3

Step = Callable[..., tuple[Tensor, Tensor]]


class GraphedSteps:
    """Recordings of one function, one for each combination of input shapes.

    A step's gradients replace those of the step before: gradients cannot be accumulated over steps.

    Args:
        loss: The module whose parameters the function trains.
        step: Tensors → (loss, embeddings); must not synchronise with the device, nor draw random numbers on the CPU.
        note: Called with a message, once, when recording fails.
    """

    def __init__(self, loss: nn.Module, step: Step, note: Callable[[str], None]) -> None:
        self._step, self._note = step, note
        self._parameters = [parameter for parameter in loss.parameters() if parameter.requires_grad]
        self._recorded: dict[Any, _Recording] = {}
        self._seen: Counter[Any] = Counter()
        self._gradients: list[Tensor] = []
        self._pool: Any = None
        self.given_up = False

    def __len__(self) -> int:
        return len(self._recorded)

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Replay the recording for these shapes, or run the function.

        Args:
            *inputs: The function's tensors.

        Returns:
            Loss and embeddings.
        """
        shapes = tuple((tensor.shape, tensor.dtype) for tensor in inputs)
        if shapes in self._recorded:
            return self._recorded[shapes](inputs)
        self._seen[shapes] += 1
        if self.given_up or self._seen[shapes] < _MIN_OCCURRENCES or not self._has_room():
            return self._step(*inputs)
        try:
            self._recorded[shapes] = self._record(inputs)
        except Exception as error:  # drivers and libraries fail in many ways, none of which may end the run
            self.given_up = True
            self._note(
                f"Steps are not recorded as CUDA graphs, which only costs speed: {type(error).__name__}: {error}"
            )
            return self._step(*inputs)
        return self._recorded[shapes](inputs)

    def _has_room(self) -> bool:
        if len(self._recorded) >= _MAX_RECORDINGS:
            return False
        weights = sum(parameter.element_size() * parameter.numel() for parameter in self._parameters)
        free, _ = torch.cuda.mem_get_info()
        return free > _FREE_COPIES * weights

    def _record(self, inputs: tuple[Tensor, ...]) -> _Recording:
        device = inputs[0].device
        state = torch.cuda.get_rng_state(device)  # warm-up runs draw dropout, which must not change the run's numbers
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
            for _ in range(_WARM_UP_RUNS):
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
    """The graphs of a step and the tensors that they read and write."""

    inputs: tuple[Tensor, ...]
    forward: Any
    backward: Any
    loss: Tensor
    embeddings: Tensor
    weight: Tensor
    """Gradient of the loss: 1 unless the loss is scaled."""
    handle: Tensor
    """The input through which the recording is part of autograd's graph."""
    targets: list[tuple[nn.Parameter, Tensor]]
    """Parameters, and the tensors to which the backward graph writes their gradients."""

    def __call__(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        for own, given in zip(self.inputs, inputs, strict=True):
            own.copy_(given, non_blocking=True)
        self.forward.replay()
        loss: Tensor = _Replay.apply(self.handle, self)
        return loss, self.embeddings

    def assign_gradients(self) -> None:
        """Set the parameters' ``grad`` as autograd would."""
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
        recording.assign_gradients()
        return None, None
