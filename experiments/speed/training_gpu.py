"""Measure SG-OPT on a GPU: milliseconds a step beside the plain loop, a profile, and a whole run.

    SELFGUIDE_DATA=folder python -m experiments.speed.training_gpu --seconds 180
    python -m experiments.speed.training_gpu --device cpu --encoders tiny --steps 2 --warm-up 1 --no-run   # rehearsal

For each encoder and batch size: the plain loop (bf16 autocast, as ours), selfguide, and selfguide with cached views, in
alternating rounds, after enough steps for a CUDA graph of every common shape (the plain loop records none: ten steps). The
share of the chip relates the operations on real tokens (guide, student forward and backward, head) to the rate of a large bf16
matrix product. What does not fit into ``--seconds`` is left out and listed.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity

import selfguide
from experiments.provenance import RESULTS, command_parser, provenance, text_facts, write
from experiments.speed.contestants import SelfguideStep, Step, encoder_folder, plain_step, sentences

PLAIN, OURS, KEPT = "plain loop", "selfguide", "selfguide, views kept"


def main() -> None:
    """Measure what fits into the time, and write the results file."""
    arguments = _arguments()
    started = time.monotonic()
    arguments.half = torch.bfloat16 if arguments.device == "cuda" else None
    arguments.rate = _matrix_rate(arguments.device)
    print(f"bf16 matrix rate measured: {arguments.rate / 1e12:.0f} TFLOP/s" if arguments.rate else "no GPU", flush=True)
    described, text = sentences()
    content: dict[str, Any] = {
        **provenance(text=text_facts(described, text), seeds=[1]),
        "matrix_flops_a_second": arguments.rate,
        "settings": [],
        "left_out": [],
    }
    # The most important measurements come first, in case the time runs out.
    plan: dict[str, Callable[[], None]] = {
        f"{encoder}, batch {batch}": partial(_step_times, content, encoder, batch, text, arguments)
        for encoder in arguments.encoders
        for batch in arguments.batches
    }
    if arguments.run:
        for encoder in arguments.encoders:
            plan[f"whole run, {encoder}"] = partial(_whole_run, content, encoder, text, arguments)
    plan["profile"] = partial(_profile, content, arguments.encoders[0], text, arguments)
    for name, measure in plan.items():
        if time.monotonic() - started > arguments.seconds - 15:
            print(f"left out, no time: {name}")
            content["left_out"].append(name)
            continue
        try:
            measure()
        except Exception as error:  # the other measurements are still worth having
            print(f"failed: {name}: {type(error).__name__}: {error}", flush=True)
            content["left_out"].append(f"{name}: {type(error).__name__}: {error}")
        if arguments.device == "cuda":
            torch.cuda.empty_cache()
    write(arguments.out or RESULTS / "gpu-training.json", content)


def _step_times(
    content: dict[str, Any], encoder: str, batch: int, text: list[str], arguments: argparse.Namespace
) -> None:
    """Time a step of every contestant."""
    used = text[: max(64, min(len(text), batch * arguments.steps * 4))]
    with encoder_folder(encoder) as folder, tempfile.TemporaryDirectory() as work:
        ours = SelfguideStep(folder, used, Path(work), arguments.device, arguments.half)
        steps: dict[str, Step] = {
            PLAIN: plain_step(folder, arguments.device, arguments.half),
            OURS: lambda part: ours.step(part, False),
            KEPT: lambda part: ours.step(part, True),
        }
        times = _alternate(steps, used, batch, arguments)
        operations = _operations(ours, batch)
        graphs = ours.loss._graphs
        recorded = None if graphs is None else {"shapes": len(graphs), "given_up": graphs.given_up}
    medians = {name: statistics.median(values) for name, values in times.items()}
    rates = {name: operations[name] / seconds for name, seconds in medians.items()}
    shares = {name: value / arguments.rate for name, value in rates.items()} if arguments.rate else {}
    print(f"\n{encoder}, batch {batch}; recorded: {recorded}; notes: {ours.notes}")
    for name, seconds in medians.items():
        print(
            f"{name:24s} {1000 * seconds:8.2f} ms a step  {batch / seconds:8.0f} sentences/s  "
            f"{medians[PLAIN] / seconds:6.2f} x  {100 * shares.get(name, float('nan')):5.2f} % of the chip",
            flush=True,
        )
    content["settings"].append(
        {
            "encoder": encoder,
            "batch": batch,
            "seconds_a_step": medians,
            "rounds": times,
            "ratios_to_the_plain_loop": {name: medians[PLAIN] / value for name, value in medians.items()},
            "operations_a_step": operations,
            "share_of_the_chip": shares,
            "recorded": recorded,
            "notes": [re.sub(r" in /\S+", "", note) for note in ours.notes],  # without paths of this machine
        }
    )


def _alternate(
    steps: dict[str, Step], text: list[str], batch: int, arguments: argparse.Namespace
) -> dict[str, list[float]]:
    """Return seconds a step; all contestants see the same batches, and the warm-up records graphs of the common shapes."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(arguments.rounds + 1):
        for name, step in steps.items():
            count = arguments.warm_up if number == 0 else arguments.steps
            if number == 0 and name == PLAIN:  # it records no graphs
                count = min(count, 10)
            _wait(arguments.device)
            start = time.perf_counter()
            for part in range(count):
                first = part * batch % max(1, len(text) - batch + 1)
                step(text[first : first + batch])
            _wait(arguments.device)
            if number > 0:
                times[name].append((time.perf_counter() - start) / count)
    return times


def _operations(ours: SelfguideStep, batch: int) -> dict[str, float]:
    """Return the floating-point operations of a step on real tokens: 2 for each weight forward, 4 more backward."""
    guide = ours.loss.guide
    layers = sum(weight.numel() for weight in guide.encoder.parameters() if weight.dim() == 2)
    head = sum(weight.numel() for weight in ours.loss.head.parameters() if weight.dim() == 2)
    tokens = float(ours.collate.text.lengths.mean()) * batch
    vectors = batch * (len(ours.loss.layers) + 1)
    student = 6 * layers * tokens + 6 * head * vectors
    return {PLAIN: student + 2 * layers * tokens, OURS: student + 2 * layers * tokens, KEPT: student}


def _whole_run(content: dict[str, Any], encoder: str, text: list[str], arguments: argparse.Namespace) -> None:
    """Time ``selfguide.train`` with its defaults."""
    with encoder_folder(encoder) as folder, tempfile.TemporaryDirectory() as out:
        start = time.perf_counter()
        target = Path(out) / "run"
        selfguide.train(folder, text, output=target, quiet=True, report=False, device=arguments.device)
        seconds = time.perf_counter() - start
        record = json.loads((target / "run.json").read_text())
    per_step = record["seconds"]["training"] / record["steps"]
    print(
        f"\nwhole run, {encoder}: {seconds:.1f} s for {record['steps']} steps of 16, {1000 * per_step:.1f} ms a step in "
        f"the trainer, final loss {record['final_loss']}",
        flush=True,
    )
    content.setdefault("whole_runs", []).append(
        {"encoder": encoder, "seconds": seconds, "steps": record["steps"], "seconds_a_step_in_trainer": per_step}
    )


def _profile(content: dict[str, Any], encoder: str, text: list[str], arguments: argparse.Namespace) -> None:
    """Profile three steps, with and without CUDA graphs."""
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if arguments.device == "cuda" else [])
    with encoder_folder(encoder) as folder, tempfile.TemporaryDirectory() as work:
        ours = SelfguideStep(folder, text[:512], Path(work), arguments.device, arguments.half)
        for title in ("as trained", "nothing recorded")[: 1 if ours.loss._graphs is None else 2]:
            if title == "nothing recorded":
                ours.loss._graphs = None
            for _ in range(2 if title == "nothing recorded" else arguments.warm_up):
                ours.step(text[:16], False)
            with torch.profiler.profile(activities=activities) as found:
                for _ in range(3):
                    ours.step(text[:16], False)
                _wait(arguments.device)
            content.setdefault("profile", {"encoder": encoder, "batch": 16})[title] = _where_time_goes(found, 3)
            print(f"\n{encoder}, batch 16, three steps, {title}")
            for order in ("self_cpu_time_total", "self_cuda_time_total")[: len(activities)]:
                print(found.key_averages().table(sort_by=order, row_limit=15, max_name_column_width=60), flush=True)


def _where_time_goes(found: Any, steps: int, top: int = 8) -> dict[str, Any]:
    """Return milliseconds a step of the host and of the GPU's kernels, and the largest items of both."""
    rows = found.key_averages()
    host = {row.key: row.self_cpu_time_total for row in rows if row.self_cpu_time_total}
    kernels = [row for row in rows if str(row.device_type).endswith("CUDA") and not row.is_user_annotation]
    by_kernel: Counter[str] = Counter()  # truncated names may coincide
    for row in kernels:
        by_kernel[row.key[:80]] += row.self_device_time_total / 1000 / steps
    return {
        "host_ms": sum(host.values()) / 1000 / steps,
        "kernels_ms": sum(row.self_device_time_total for row in kernels) / 1000 / steps,
        "kernels": sum(row.count for row in kernels) / steps,
        "host_by_item_ms": {
            name: host[name] / 1000 / steps for name in sorted(host, key=lambda name: -host[name])[:top]
        },
        "kernels_by_item_ms": dict(by_kernel.most_common(top)),
    }


def _matrix_rate(device: str) -> float:
    """Return the operations a second of a large bf16 matrix product; 0 without a GPU."""
    if device != "cuda":
        return 0.0
    size = 8192
    one, other = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        one @ other
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(20):
        one @ other
    torch.cuda.synchronize()
    return 20 * 2 * size**3 / (time.perf_counter() - start)


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _arguments() -> argparse.Namespace:
    parser = command_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=180.0, help="time for all measurements")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--encoders", nargs="+", default=["bert-base", "mini"], choices=["bert-base", "mini", "tiny"])
    parser.add_argument("--batches", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20, help="steps a round")
    parser.add_argument("--warm-up", type=int, default=80)
    parser.add_argument("--run", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
