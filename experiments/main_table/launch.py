"""Run selfguide's commands on the inputs of the main table, with a time limit and many cells on one GPU."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest.mock import patch

REPOSITORY = Path(__file__).resolve().parents[2]
_MPS = "nvidia-cuda-mps-control"
_GRACE = 40.0  # seconds that a comparison gets to stop its cells and write its results


def inputs_folder(path: str) -> Path:
    """Return the folder of inputs, or exit if it has none."""
    if not (Path(path) / "sts").is_dir():
        sys.exit(f"There are no inputs in {path}: `python -m experiments.main_table.prepare` makes them.")
    return Path(path).resolve()


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


def add_options(parser: argparse.ArgumentParser, output: str) -> None:
    """Add the options that all commands on these inputs share."""
    parser.add_argument("--inputs", default=".device-inputs", help="folder of experiments.main_table.prepare")
    parser.add_argument("--output", default=output)
    parser.add_argument("--jobs", type=int, default=14)
    parser.add_argument("--minutes", type=float, default=0, help="stop after this time; 0: when all is done")
    parser.add_argument("--no-mps", dest="mps", action="store_false", help="no NVIDIA multi-process service")
    parser.add_argument("--rehearse", action="store_true", help="a few steps, 120 sentences and a few pairs, on a CPU")


def deadline(arguments: argparse.Namespace) -> float | None:
    """Return the value of ``time.monotonic`` after ``--minutes``; None if there is no limit."""
    return time.monotonic() + 60 * arguments.minutes if arguments.minutes else None


def compare(
    specs: Sequence[str],
    tasks: str,
    settings: Sequence[str],
    arguments: argparse.Namespace,
    until: float | None,
    more: Sequence[str] = (),
) -> int:
    """Run `selfguide compare` on STS-B's sentences, with checkpoints chosen by STS-B dev.

    Args:
        specs: The rows.
        tasks: What is scored.
        settings: The values of ``--set``.
        arguments: The options of :func:`add_options`, ``encoder`` and ``seeds``.
        until: See :func:`command`.
        more: Further arguments.

    Returns:
        The exit code.
    """
    inputs, output = inputs_folder(arguments.inputs), Path(arguments.output).resolve()
    words = ["data:stsb", "--methods", ",".join(specs)]
    if arguments.rehearse:
        output.mkdir(parents=True, exist_ok=True)
        pairs = output / "few-pairs.tsv"
        lines = (inputs / "sts" / "stsb" / "dev.tsv").read_text(encoding="utf-8").split("\n")
        pairs.write_text("\n".join(lines[:40]) + "\n", encoding="utf-8")
        words += ["--seeds", "1", "--pairs", str(pairs), "--dev", str(pairs), "--limit", "120"]
        settings = [*settings, "max_steps=3", "dev_every=2"]
    else:
        words += ["--seeds", str(arguments.seeds), "--tasks", tasks, "--dev", "stsb-dev"]
    for setting in settings:
        words += ["--set", setting]
    # The deviation over seeds is reported, so there is no need for bootstrap intervals.
    words += ["--encoder", arguments.encoder, "--bootstrap", "0", "--batch-size", "256", "--offline", *more]
    return command("compare", [*words, "--jobs", str(arguments.jobs), "--output", str(output)], inputs, until)


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
    with patch.dict(os.environ), tempfile.TemporaryDirectory(prefix="mps-", ignore_cleanup_errors=True) as folder:
        service = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        os.environ.update(service)
        # In a container the service may start and still not reach the GPU.
        works = _succeeds([_MPS, "-d"], 90) and _succeeds(
            [sys.executable, "-c", "import torch; torch.ones(1).cuda()"], 90
        )
        if not works:
            for name in service:
                del os.environ[name]
        try:
            yield works
        finally:
            os.environ.update(service)
            _succeeds([_MPS], 20, b"quit\n")


def _succeeds(words: Sequence[str], seconds: float, given: bytes = b"") -> bool:
    with suppress(subprocess.TimeoutExpired):
        done = subprocess.run(words, input=given, check=False, capture_output=True, timeout=seconds)
        return done.returncode == 0
    return False
