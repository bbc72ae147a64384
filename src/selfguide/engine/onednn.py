"""Linear layers by oneDNN, on processors for which MKL has no fast kernels.

PyTorch computes fp32 linear layers with MKL, which has no fast kernels for AMD's processors; oneDNN, which is part of PyTorch,
has. Both compute in fp32, but add in another order, so results differ by rounding. oneDNN can apply GELU in the same pass.

oneDNN compiles code for every shape, half a megabyte each, and keeps that of the last thousand shapes. The number of rows is the
number of tokens in a pass, so nearly every pass would have a shape of its own: rows are added up to a multiple of sixteen, which
leaves few shapes, and taken away again. The others' results stay what they are, on the processors tried to the bit.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

_ROWS = 16
"""Row counts are rounded up to multiples of this, except for a single row."""
_SHAPES = 8
"""In training, so many row counts between a power of two and the next, because each needs three products of every layer."""
_LEAST_WEIGHTS = 256 * 256
"""Smaller layers are trained as usual: the calls would take longer than the arithmetic."""


def linear(x: Tensor, weight: Tensor, bias: Tensor, gelu: bool = False) -> Tensor:
    """Compute x Wᵀ + b, and GELU of it on request, with the faster library.

    Args:
        x: (rows, inputs).
        weight: (outputs, inputs).
        bias: (outputs,).
        gelu: Apply the exact GELU, the one with the error function.

    Returns:
        (rows, outputs).
    """
    if x.dtype == torch.float32 and x.device.type == "cpu" and preferred():
        found: Tensor = _pointwise(_padded(x), weight, bias, "gelu" if gelu else "none", [], "none" if gelu else "")
        return found[: len(x)]
    plain = F.linear(x, weight, bias)
    return F.gelu(plain) if gelu else plain


@contextmanager
def fast_linear_layers(model: nn.Module) -> Iterator[int]:
    """Let the fp32 linear layers of a model compute by oneDNN inside the block, forward and backward, where that is faster.

    Args:
        model: The model that is trained; its modules and weights stay what they are.

    Yields:
        How many layers do so: none where MKL is as fast.
    """
    layers: list[Any] = []
    if preferred():
        # Subclasses (quantised, parametrised) and layers whose forward somebody has replaced compute as they want to.
        plain = (layer for layer in model.modules() if type(layer) is nn.Linear and "forward" not in vars(layer))
        layers = [layer for layer in plain if layer.weight.numel() >= _LEAST_WEIGHTS]
    for layer in layers:
        layer.forward = partial(_forward, layer)
    try:
        yield len(layers)
    finally:
        for layer in layers:
            vars(layer).pop("forward", None)


def _forward(layer: nn.Linear, x: Tensor) -> Tensor:
    weight, bias = layer.weight, layer.bias
    usual = x.dtype != torch.float32 or weight.dtype != torch.float32 or x.device.type != "cpu"
    if usual or x.numel() == 0 or torch.is_autocast_enabled("cpu"):
        return F.linear(x, weight, bias)
    rows: Tensor = _Linear.apply(x.reshape(-1, x.shape[-1]), weight, bias)
    return rows.view(*x.shape[:-1], -1)


class _Linear(torch.autograd.Function):
    """x Wᵀ + b and its gradients by oneDNN."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        padded = _padded(x, _SHAPES)
        ctx.save_for_backward(padded, weight)
        found: Tensor = _product(padded, weight, bias)
        return found[: len(x)]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        to_x, to_weight, to_bias = ctx.needs_input_grad
        rows = len(gradient)
        # The rows that were added have no gradient, and add nothing to that of the weights.
        padded = _padded(gradient.contiguous(), _SHAPES)
        return (
            _product(padded, weight.t().contiguous())[:rows] if to_x else None,
            _product(padded.t().contiguous(), x.t().contiguous()) if to_weight else None,
            gradient.sum(dim=0) if to_bias else None,
        )


def _padded(x: Tensor, shapes: int = 0) -> Tensor:
    """Return x with rows of zeros: up to a multiple of :data:`_ROWS`, or with coarser steps for many rows."""
    rows = len(x)
    step = max(_ROWS, 2 ** (rows - 1).bit_length() // (2 * shapes)) if shapes else _ROWS
    return x if rows == 1 or rows % step == 0 else F.pad(x, (0, 0, 0, -rows % step))


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    return _pointwise(x, weight, bias, "none", [], "")


def _pointwise(*arguments: Any) -> Any:
    operator: Any = torch.ops.mkldnn._linear_pointwise
    return operator(*arguments)


def is_gelu(act: Any) -> bool:
    """Return whether an activation of a Hugging Face model is the exact GELU."""
    inner = getattr(act, "act", act)
    return inner is F.gelu or (isinstance(inner, nn.GELU) and inner.approximate == "none")


@cache
def preferred() -> bool:
    """Return whether oneDNN is to be used: an AMD processor, a PyTorch with MKL, and the operator."""
    if not (torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()):
        return False
    return hasattr(torch.ops.mkldnn, "_linear_pointwise") and "AuthenticAMD" in _processor()


def _processor() -> str:
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
            return next((line for line in lines if line.startswith("vendor_id")), "")
    except OSError:  # not Linux
        return platform.processor()
