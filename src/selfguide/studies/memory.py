"""Peak memory of a piece of work, on a GPU or of this process."""

from __future__ import annotations

import ctypes
import gc
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

GPU = "GPU"
_MIB = 2**20
_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class PeakMemory:
    """A context manager that measures the peak memory of what runs inside, and what was in use before.

    On a GPU it is the memory that torch has allocated, on a CPU the resident size of the process.

    Args:
        on_gpu: Whether the work runs on a CUDA device.
    """

    def __init__(self, on_gpu: bool) -> None:
        self._on_gpu = on_gpu
        self._before = self._peak = 0.0

    def __enter__(self) -> PeakMemory:
        if self._on_gpu:
            torch.cuda.reset_peak_memory_stats()
            self._before = torch.cuda.memory_allocated() / _MIB
        else:
            _return_freed_memory()
            # Linux resets the peak on request; elsewhere the peak is that of the warm-up.
            with suppress(OSError):
                _RESET.write_text("5")
            self._before = _resident("VmRSS")
        return self

    def __exit__(self, *error: object) -> None:
        self._peak = torch.cuda.max_memory_allocated() / _MIB if self._on_gpu else _resident("VmHWM")

    def to_dict(self) -> dict[str, Any]:
        """Return the device, the peak and what the work added, in MiB."""
        return {
            "of": GPU if self._on_gpu else "CPU",
            "peak": round(self._peak, 2),
            "added": round(max(0.0, self._peak - self._before), 2),
        }


def _return_freed_memory() -> None:
    """Return freed memory to the system; work that reuses what a warm-up left would seem to need none."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def _resident(field: str) -> float:
    """Return the process's memory in MiB: current (``VmRSS``) or peak (``VmHWM``).

    ``getrusage`` would not do on Linux, where a new process inherits the peak of the one that started it.
    """
    if _STATUS.is_file():
        line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(f"{field}:"))
        return int(line.split()[1]) / 1024
    import resource  # not on Windows

    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest / (_MIB if sys.platform == "darwin" else 1024)
