"""Running selfguide's commands on the inputs of the main table: unpacked, with a time limit, many cells to one GPU."""

from __future__ import annotations

import importlib.util
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
_GRACE = 40.0  # seconds that a comparison has to stop its cells and write what it has


def unpacked(inputs: Path) -> Path:
    """The folder of inputs; an archive, or a folder with nothing but the archive in it, is unpacked beside it first."""
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
    """Where the comparison and its cells find the package, the data and what this Python lacks."""
    paths = [str(REPOSITORY / "src")]
    if importlib.util.find_spec("datasets") is None and (inputs / "site").is_dir():
        paths.append(str(inputs / "site"))
    if given := os.environ.get("PYTHONPATH"):
        paths.append(given)
    own = {"PYTHONPATH": os.pathsep.join(paths), "SELFGUIDE_DATA": str(inputs), "HF_HUB_OFFLINE": "1"}
    # A cell has one core or so: threads of the tokenizer and of the matrix library would only push each other aside.
    return {**os.environ, **own, "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}


def hear_ctrl_c() -> None:
    """A shell's background job ignores Ctrl-C and so would its children; then a time limit could not be told to them."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def compare(words: Sequence[str], inputs: Path, until: float | None) -> int:
    """Run one comparison; see :func:`command`."""
    return command("compare", words, inputs, until)


def command(name: str, words: Sequence[str], inputs: Path, until: float | None) -> int:
    """Run `selfguide NAME` in the folder of inputs; stopped like Ctrl-C at ``until`` (of time.monotonic), cells kept."""
    print(f"selfguide {name} {' '.join(words)}", flush=True)
    started = [sys.executable, "-m", "selfguide", name, *words]
    process = subprocess.Popen(started, cwd=inputs, env=environment(inputs))
    try:
        return process.wait(None if until is None else max(1.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        print("The time is up: the cells in hand are stopped, finished ones are kept.", flush=True)
        process.send_signal(signal.SIGINT)
    try:
        return process.wait(_GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


@contextmanager
def shared_gpu(wanted: bool = True) -> Iterator[bool]:
    """NVIDIA's multi-process service for the time of the block, where it is there: many small jobs then run at once."""
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
    """Whether a program reaches the GPU through the service: in a container the service may start and serve nobody."""
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
    """Cells and tables as one file, for machines that give few files back."""
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
