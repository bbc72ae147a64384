"""fp32 linear layers by MKL and by oneDNN on one core, and what the difference makes of ``encode`` and of training.

    python -m experiments.speed.linear_layers

Layers have the sizes of ``mini``; they and the encoder run in turns, the medians of the rounds are reported. ``encode`` runs on
512 embedded sentences in one thread; training takes some steps by a method's defaults, and only the time of the steps counts. For
machines on which :func:`selfguide.engine.onednn.preferred` says yes: AMD's processors.
"""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.nn.functional as F

import selfguide
from experiments.origins import NONE
from experiments.provenance import RESULTS, command_parser, provenance, text_facts, write
from selfguide.data.resources import demo_sentences
from selfguide.engine import onednn
from selfguide.engine.encode import encode
from selfguide.files import private_folder, read_json
from selfguide.models.encoders import load_encoder

SIZES = ((384, 384), (384, 1536), (1536, 384))
ROWS = (1, 8, 32, 128, 512)
STEPS = {"sg-opt": 10, "simcse": 3}
"""Training steps by method."""


def main() -> None:
    """Measure, and write the results file."""
    parser = command_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, default=RESULTS / "linear-layers.json")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if not onednn.preferred():
        raise SystemExit("oneDNN is not used on this machine: there is nothing to compare.")
    content = {
        **provenance(text=text_facts("the demonstration's sentences", demo_sentences()), seeds=NONE),
        "processor": _processor(),
        "rounds": arguments.rounds,
        "layers": [_layer(rows, *size, arguments.rounds) for rows in ROWS for size in SIZES],
        "encode": _encode(arguments.rounds),
        "training": {method: _training(method, steps, arguments.rounds) for method, steps in STEPS.items()},
    }
    write(arguments.out, content)


@torch.inference_mode()
def _layer(rows: int, inputs: int, outputs: int, rounds: int) -> dict[str, Any]:
    x, weight, bias = torch.randn(rows, inputs), torch.randn(outputs, inputs), torch.randn(outputs)
    repeats = max(1, 200 // rows)

    def timed(compute: Callable[[], Any]) -> float:
        started = time.perf_counter()
        for _ in range(repeats):
            compute()
        return (time.perf_counter() - started) / repeats

    times = _in_turns(
        {
            "mkl": lambda: timed(lambda: F.linear(x, weight, bias)),
            "onednn": lambda: timed(lambda: onednn.linear(x, weight, bias)),
        },
        rounds,
    )
    work = 2 * rows * inputs * outputs / 1e9
    return {
        "rows": rows,
        "inputs": inputs,
        "outputs": outputs,
        "gflops": {name: round(work / seconds, 1) for name, seconds in times.items()},
        "ratio": round(times["mkl"] / times["onednn"], 3),
    }


def _encode(rounds: int) -> dict[str, Any]:
    model, sentences = load_encoder("mini", device="cpu"), demo_sentences()[:512]
    vectors: dict[str, Any] = {}

    def run(name: str) -> float:
        with patch("selfguide.engine.onednn.preferred", lambda: name == "onednn"):
            started = time.perf_counter()
            vectors[name] = encode(model, sentences, show_progress=False)
            return time.perf_counter() - started

    times = _in_turns({"mkl": lambda: run("mkl"), "onednn": lambda: run("onednn")}, max(3, rounds // 3))
    norms = np.linalg.norm(vectors["mkl"], axis=1)
    return {
        "sentences": len(sentences),
        "seconds": {name: round(seconds, 3) for name, seconds in times.items()},
        "ratio": round(times["mkl"] / times["onednn"], 3),
        "largest_difference": float(np.abs(vectors["mkl"] - vectors["onednn"]).max()),
        "largest_difference_relative_to_length": float(
            (np.linalg.norm(vectors["mkl"] - vectors["onednn"], axis=1) / norms).max()
        ),
    }


def _training(method: str, steps: int, rounds: int) -> dict[str, Any]:
    sentences = demo_sentences()[:640]

    def run(name: str) -> float:
        with patch("selfguide.engine.onednn.preferred", lambda: name == "onednn"), private_folder("linear-") as work:
            views: dict[str, Any] = {"keep_views": "no"} if method == "sg-opt" else {}
            selfguide.train(
                "mini",
                sentences,
                method,
                output=work / "out",
                max_steps=steps,
                device="cpu",
                quiet=True,
                report=False,
                **views,
            )
            return float(read_json(work / "out" / "run.json")["seconds"]["training"])

    times = _in_turns({"mkl": lambda: run("mkl"), "onednn": lambda: run("onednn")}, max(3, rounds // 3))
    return {
        "steps": steps,
        "seconds": {name: round(seconds, 3) for name, seconds in times.items()},
        "ratio": round(times["mkl"] / times["onednn"], 3),
    }


def _in_turns(ways: dict[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Return the median seconds of each way; the first round is a warm-up."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, run in ways.items():
            seconds = run()
            if number:
                found[name].append(seconds)
    return {name: statistics.median(values) for name, values in found.items()}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


if __name__ == "__main__":
    main()
