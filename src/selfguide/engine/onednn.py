"""Linear layers by oneDNN, on processors for which MKL has no fast kernels.

PyTorch computes fp32 linear layers with MKL, which has no fast kernels for AMD's processors; oneDNN, which is part of PyTorch,
has. Both compute in fp32, but add in another order, so results differ by rounding. oneDNN can apply GELU in the same pass.

oneDNN compiles code for every shape, half a megabyte each, and keeps that of the last thousand shapes. The number of rows is the
number of tokens in a pass, so nearly every pass would have a shape of its own: rows are added up to a multiple of sixteen, which
leaves few shapes, and taken away again. The others' results stay what they are, on the processors tried to the bit.
"""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_ROWS = 16
"""Row counts are rounded up to multiples of this, except for a single row."""


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
        rows = len(x)
        padded = x if rows == 1 or rows % _ROWS == 0 else F.pad(x, (0, 0, 0, -rows % _ROWS))
        found: Tensor = _pointwise(padded, weight, bias, "gelu" if gelu else "none", [], "none" if gelu else "")
        return found[:rows]
    plain = F.linear(x, weight, bias)
    return F.gelu(plain) if gelu else plain


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
