"""Check whether this machine can compute in bf16."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from typing import TYPE_CHECKING

import torch

from selfguide.errors import UsageError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_PRODUCT = "import torch; x = torch.ones(512, 384, dtype=torch.bfloat16); torch.nn.functional.linear(x, x)"


def check_bf16(model: SentenceTransformer) -> None:
    """Check that an encoder's device can compute in bf16.

    Args:
        model: The encoder.

    Raises:
        UsageError: It cannot.
    """
    if model.device.type == "cuda":
        if not torch.cuda.is_bf16_supported(including_emulation=False):
            raise UsageError("This GPU cannot compute in bf16; leave --backend out.")
    elif model.device.type != "cpu":
        raise UsageError(f"The backend bf16 is for CUDA and CPU devices, not for {model.device.type}.")
    elif not cpu_computes_bf16():
        raise UsageError(
            "This CPU cannot compute in bf16: it has no instruction for it, or the instruction crashes. "
            "Leave --backend out, or use --backend int8, which is faster still."
        )


@cache
def cpu_computes_bf16() -> bool:
    """Return whether the processor reports bf16, and a matrix product in another process succeeds.

    Virtual machines may report matrix units that programs cannot use. The product then ends in an illegal instruction, which
    would kill this process.
    """
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            flags = file.read()
    except OSError:
        return False
    if "avx512_bf16" not in flags and "amx_bf16" not in flags and " bf16" not in flags:
        return False
    done = subprocess.run([sys.executable, "-c", _PRODUCT], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return done.returncode == 0
