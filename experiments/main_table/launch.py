"""Run selfguide's commands on the inputs of the main table, with a time limit and many cells on one GPU."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
_MPS = "nvidia-cuda-mps-control"
_GRACE = 40.0  # seconds that a comparison gets to stop its cells and write its results


def unpacked(inputs: Path) -> Path:
    """Return the folder of inputs; an archive, or a folder that holds only the archive, is unpacked first."""
    archive = inputs if inputs.is_file() else inputs / "inputs.tar.xz"
    if inputs.is_dir() and (inputs / "sts").is_dir():
        return inputs.resolve()
    if not archive.is_file():
        sys.exit(f"There are no inputs in {inputs}: `python -m experiments.main_table.prepare` makes them.")
    folder = archive.parent / "unpacked"
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder.resolve()


def environment(inputs: Path) -> dict[str, str]:
    """Return the environment in which a comparison and its cells find the package and the data."""
    paths = [str(REPOSITORY / "src")]
    if given := os.environ.get("PYTHONPATH"):
        paths.append(given)
    own = {"PYTHONPATH": os.pathsep.join(paths), "SELFGUIDE_DATA": str(inputs), "HF_HUB_OFFLINE": "1"}
    # A cell has about one core, so more threads of the tokenizer and of the matrix library would only compete.
    return {**os.environ, **own, "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}


def hear_ctrl_c() -> None:
    """Handle SIGINT even in a shell's background job, whose children would ignore it and thus the time limit."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def compare(words: Sequence[str], inputs: Path, until: float | None) -> int:
    """Run `selfguide compare`; see :func:`command`."""
    return command("compare", words, inputs, until)


def command(name: str, words: Sequence[str], inputs: Path, until: float | None) -> int:
    """Run a selfguide command in the folder of inputs.

    Args:
        name: The command.
        words: Its arguments.
        inputs: The folder of inputs.
        until: The value of ``time.monotonic`` at which the command is interrupted; finished cells are kept.

    Returns:
        The exit code.
    """
    print(f"selfguide {name} {' '.join(words)}", flush=True)
    started = [sys.executable, "-m", "selfguide", name, *words]
    process = subprocess.Popen(started, cwd=inputs, env=environment(inputs))
    try:
        return process.wait(None if until is None else max(1.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        print("The time is up: running cells are stopped, finished ones are kept.", flush=True)
        process.send_signal(signal.SIGINT)
    try:
        return process.wait(_GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


@contextmanager
def shared_gpu(wanted: bool = True) -> Iterator[bool]:
    """Run NVIDIA's multi-process service for the block, if it is installed, so that many small jobs share a GPU."""
    if not wanted or shutil.which(_MPS) is None or shutil.which("nvidia-smi") is None:
        yield False
        return
    with tempfile.TemporaryDirectory(prefix="mps-", ignore_cleanup_errors=True) as folder:
        places = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        os.environ.update(places)
        started = subprocess.run([_MPS, "-d"], check=False, capture_output=True).returncode == 0
        works = started and _gpu_answers()
        if not works:
            _stop_sharing(started, places)
        try:
            yield works
        finally:
            if works:
                _stop_sharing(started, places)


def _gpu_answers() -> bool:
    """Return whether a program reaches the GPU through the service, which may not work in a container."""
    program = "import torch; torch.ones(1, device='cuda').sum().item()"
    with suppress(subprocess.TimeoutExpired):
        return (
            subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, timeout=90).returncode
            == 0
        )
    return False


def _stop_sharing(started: bool, places: dict[str, str]) -> None:
    if started:
        with suppress(subprocess.TimeoutExpired):
            subprocess.run([_MPS], input=b"quit\n", check=False, capture_output=True, timeout=20)
    for name in places:
        os.environ.pop(name, None)


def pack_results(folder: Path, archive: Path) -> None:
    """Pack cells and tables into one file."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w:xz") as packed:
        for name in (
            "cells",
            "comparison.json",
            "comparison.md",
            "comparison.csv",
            "comparison.tex",
            "manifest.json",
            "rates.json",
            "settings.txt",
        ):
            if (folder / name).exists():
                packed.add(folder / name, arcname=f"{folder.name}/{name}")
