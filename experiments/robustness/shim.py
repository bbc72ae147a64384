"""Interference at the system calls of a process: it is killed just before one, or one fails as on a full or broken disk.

``shim.c`` is compiled once and loaded with ``LD_PRELOAD``, so that what libraries in C++ and Rust write is reached like what
Python writes. Only calls that change files below one folder are counted. Linux, with a C compiler.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

RENAME, WRITE, CREATE, FOLDER, REMOVE, WRITABLE = 1, 2, 4, 8, 16, 32
NAMES = RENAME | CREATE | FOLDER | REMOVE
"""Everything that changes a name."""
_VARIABLE = "ROBUSTNESS_SHIM"
_SOURCE = Path(__file__).with_name("shim.c")


@dataclass(frozen=True)
class Interference:
    """What is to happen at which event."""

    kinds: int
    """The events that count."""
    at: int = 0
    """Which of them, from 1; 0 only counts."""
    number: int = 0
    """The errno that the call fails with, or minus the signal that ends the process just before it."""
    lasting: bool = False
    """Whether all later events fail too."""


def ready(work: Path) -> None:
    """Start this command again with the shim loaded, unless it is.

    Args:
        work: The folder for the compiled shim.

    Raises:
        SystemExit: There is no compiler, or the system is another one.
    """
    if loaded():
        return
    compiler = shutil.which("cc") or shutil.which("gcc")
    if sys.platform != "linux" or compiler is None:
        raise SystemExit("The kill and fault campaigns need Linux and a C compiler (cc) for their shim; see shim.py.")
    if "LD_PRELOAD" in os.environ:
        raise SystemExit(f"The shim {os.environ['LD_PRELOAD']} could not be loaded.")
    library = work / "shim.so"
    made = work / f"shim-{os.getpid()}.so"  # another process may be using the former one
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(made), str(_SOURCE), "-ldl"], check=True)
    made.replace(library)
    spec = sys.modules["__main__"].__spec__
    name = (spec.name if spec else "experiments.robustness").removesuffix(".__main__")
    environment = os.environ | {"LD_PRELOAD": str(library)} | QUIET
    os.execve(sys.executable, [sys.executable, "-m", name, *sys.argv[1:]], environment)


QUIET = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "NUMBA_THREADING_LAYER": "workqueue",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
}
"""One thread everywhere: a process with several cannot be forked, and tiny encoders gain nothing from them."""


def loaded() -> bool:
    """Return whether the shim is part of this process."""
    return hasattr(ctypes.CDLL(None), "shim_arm")


def arm(folder: Path, plan: Interference) -> None:
    """Begin to count, and to interfere, in this process.

    Args:
        folder: The folder whose changes count; a real path.
        plan: What is to happen.
    """
    ctypes.CDLL(None).shim_arm(os.fsencode(folder), plan.kinds, ctypes.c_long(plan.at), plan.number, int(plan.lasting))


def seen() -> int:
    """Return how many events there have been since :func:`arm`."""
    return _long("shim_seen")


def hits() -> int:
    """Return how many of them were made to fail."""
    return _long("shim_hits")


def variable(folder: Path, plan: Interference) -> dict[str, str]:
    """Return the environment variable that arms the shim of a new process from its start.

    Args:
        folder: The folder whose changes count.
        plan: What is to happen.
    """
    return {_VARIABLE: f"{plan.kinds}:{plan.at}:{plan.number}:{int(plan.lasting)}:{folder}"}


def _long(name: str) -> int:
    function = getattr(ctypes.CDLL(None), name)
    function.restype = ctypes.c_long
    return int(function())
