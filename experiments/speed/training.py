"""Compare the time of a training step with that of the plain loop, and of SimCSE in sentence-transformers.

    SELFGUIDE_DATA=folder python -m experiments.speed.training
    python -m experiments.speed.training --short                     # mini, batch 16, a minute
    SELFGUIDE_DATA=folder python -m experiments.speed.training --growth   # cost by batch and by depth instead

SG-OPT with the paper's defaults against (a) the plain padded loop of ``experiments/speed/plain_loop.py`` and (b) SimCSE in
sentence-transformers, on the same batches; a step is collation, forward and backward pass, clipping and optimiser. Rounds
alternate between the contestants; the median of the rounds after the first is reported. Peak memory is that of a process of
its own for each contestant.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.provenance import RESULTS, command_parser, peak_megabytes, provenance, text_facts, write
from experiments.speed.contestants import SelfguideStep, Step, encoder_folder, plain_step, sentences, simcse_step

PLAIN, OURS, KEPT, SIMCSE = "plain loop", "selfguide", "selfguide, views kept", "SimCSE, sentence-transformers"
CONTESTANTS = (PLAIN, OURS, KEPT, SIMCSE)


def main() -> None:
    """Measure, and write the results file."""
    arguments = _arguments()
    if arguments.memory_of:
        print(_memory_here(arguments.memory_of, arguments.encoders[0], arguments.batches[0]))
        return
    described, text = sentences()
    content: dict[str, Any] = {
        **provenance(text=text_facts(described, text), seeds=[1]),
    }
    if arguments.growth:
        content |= {"batches": _by_batch(text, arguments), "layers": _by_layers(text, arguments)}
        write(arguments.out or RESULTS / "training-growth.json", content)
        return
    content["settings"] = [
        _measure(encoder, batch, text, arguments) for encoder in arguments.encoders for batch in arguments.batches
    ]
    write(arguments.out or RESULTS / "training-speed.json", content)


def _measure(encoder: str, batch: int, text: list[str], arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure all contestants with one encoder and batch size."""
    rounds = arguments.rounds if batch <= 16 else max(1, arguments.rounds - 2)
    used = text[: batch * arguments.steps * (rounds + 1)]
    with encoder_folder(encoder) as folder, tempfile.TemporaryDirectory() as work:
        steps = _contestants(folder, used, Path(work), CONTESTANTS)
        times = alternate(steps, used, batch, rounds, arguments.steps)
    medians = {name: statistics.median(values) for name, values in times.items()}
    memory = {name: _memory(name, encoder, batch) for name in medians} if arguments.memory else {}
    print(f"\n{encoder}, batch {batch}")
    ratios = {name: medians[PLAIN] / seconds for name, seconds in medians.items()}
    for name, seconds in medians.items():
        peak = f"   peak {memory[name] / 1e6:6.0f} MB" if memory else ""
        print(
            f"{name:32s} {1000 * seconds:8.0f} ms a step   {batch / seconds:7.1f} sentences/s   "
            f"{ratios[name]:5.2f} x the plain loop{peak}",
            flush=True,
        )
    return {
        "encoder": encoder,
        "batch": batch,
        "seconds_a_step": medians,
        "ratios_to_the_plain_loop": ratios,
        "rounds": times,
        "peak_memory_bytes": memory,
    }


def _contestants(folder: Path, text: list[str], work: Path, only: Sequence[str]) -> dict[str, Step]:
    ours = SelfguideStep(folder, text, work) if {OURS, KEPT} & set(only) else None
    made: dict[str, Step] = {}
    for name in only:
        if name == PLAIN:
            made[name] = plain_step(folder)
        elif name == SIMCSE:
            made[name] = simcse_step(folder)
        else:
            assert ours is not None
            kept = name == KEPT
            made[name] = lambda batch, ours=ours, kept=kept: ours.step(batch, kept)  # type: ignore[misc]
    return made


def alternate(steps: dict[str, Step], text: list[str], batch: int, rounds: int, each: int) -> dict[str, list[float]]:
    """Time steps in rounds; every contestant gets the same batches, and each round starts with another one.

    Args:
        steps: The contestants' steps.
        text: The sentences, from which batches are taken in order.
        batch: Sentences a batch.
        rounds: Rounds after the first, which is a warm-up.
        each: Steps of a contestant in a round.

    Returns:
        Seconds a step in each round, by contestant.
    """
    times: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(rounds + 1):
        names = [*steps][number % len(steps) :] + [*steps][: number % len(steps)]
        for name in names:
            step = steps[name]
            start = time.perf_counter()
            for part in range(each):
                first = (number * each + part) * batch % max(1, len(text) - batch + 1)
                step(text[first : first + batch])
            if number > 0:
                times[name].append((time.perf_counter() - start) / each)
    return times


def _by_batch(text: list[str], arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure time and peak memory of a step with 16 to 1,024 sentences, from 256 on with gradient caching too."""
    rows = []
    for batch, cache in ((16, 0), (64, 0), (256, 0), (256, 64), (1024, 64)):
        used = text[:batch]
        with encoder_folder(arguments.encoders[0]) as folder, tempfile.TemporaryDirectory() as work:
            ours = SelfguideStep(folder, used, Path(work), gradient_cache=cache)
            times = alternate({OURS: lambda part, ours=ours: ours.step(part, False)}, used, batch, 1, 1)[OURS]  # type: ignore[misc]
        name = f"{OURS}, gradient cache {cache}" if cache else OURS
        row = {"batch": batch, "gradient_cache": cache, "seconds": times[-1]}
        row["peak_memory_bytes"] = _memory(name, arguments.encoders[0], batch)
        print(
            f"batch {batch:5d}  cache {cache:3d}  {times[-1]:7.2f} s   peak {row['peak_memory_bytes'] / 1e6:6.0f} MB",
            flush=True,
        )
        rows.append(row)
    return rows


def _by_layers(text: list[str], arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure a step of 16 sentences by depth, in the shape of mini, beside the plain loop."""
    rows = []
    for layers in (6, 12, 24):
        used = text[: 16 * (arguments.rounds + 1)]
        with encoder_folder("mini-shape", layers) as folder, tempfile.TemporaryDirectory() as work:
            times = alternate(_contestants(folder, used, Path(work), [PLAIN, OURS]), used, 16, arguments.rounds, 1)
        medians = {name: statistics.median(values) for name, values in times.items()}
        print(
            f"{layers:2d} layers  " + "  ".join(f"{name} {1000 * value:.0f} ms" for name, value in medians.items()),
            flush=True,
        )
        rows.append({"layers": layers, "seconds_a_step": medians, "ratio": medians[PLAIN] / medians[OURS]})
    return rows


def _memory(name: str, encoder: str, batch: int) -> int:
    """Return the peak memory of two steps in a process of its own."""
    words = ["--memory-of", name, "--encoders", encoder, "--batches", str(batch)]
    done = subprocess.run(
        [sys.executable, "-m", "experiments.speed.training", *words], stdout=subprocess.PIPE, text=True, check=True
    )
    return int(done.stdout.strip().splitlines()[-1])


def _memory_here(name: str, encoder: str, batch: int) -> int:
    _, text = sentences()
    used = text[: 2 * batch]
    base, _, cache = name.partition(", gradient cache ")
    with encoder_folder(encoder) as folder, tempfile.TemporaryDirectory() as work:
        if cache:
            ours = SelfguideStep(folder, used, Path(work), gradient_cache=int(cache))
            steps: dict[str, Step] = {base: lambda part: ours.step(part, False)}
        else:
            steps = _contestants(folder, used, Path(work), [base])
        alternate(steps, used, batch, 1, 1)
    return int(peak_megabytes() * 2**20)


def _arguments() -> argparse.Namespace:
    parser = command_parser(__doc__)
    parser.add_argument("--encoders", nargs="+", default=["mini", "bert-base"], choices=["mini", "bert-base", "tiny"])
    parser.add_argument("--batches", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1, help="steps a round")
    parser.add_argument("--memory", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--growth", action="store_true", help="cost by batch and by depth instead")
    parser.add_argument("--short", action="store_true", help="mini, batch 16, no memory")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.short:
        arguments.encoders, arguments.batches, arguments.memory = ["mini"], [16], False
        arguments.out = arguments.out or RESULTS / "training-speed-short.json"
    return arguments


if __name__ == "__main__":
    main()
