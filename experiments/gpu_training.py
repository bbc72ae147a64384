"""Training SG-OPT on a GPU: ms a step against the plain loop, where the time goes, and a whole run.

    SELFGUIDE_DATA=folder python -m experiments.gpu_training --seconds 180
    python -m experiments.gpu_training --device cpu --encoders tiny --steps 2 --warm-up 1 --no-run   # tries the script

For each encoder and batch size: the plain loop (bf16 autocast, as ours), selfguide, and selfguide on kept views, in rounds
that alternate, after steps enough for every common shape to have been recorded (the plain loop records nothing: ten). The
share of the chip is that of the arithmetic of real tokens (guide, student forward and backward, head) in the rate measured
for a large bf16 product. What does not fit into ``--seconds`` is left out, and said so.
"""

from __future__ import annotations

import argparse
import re
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from experiments.contestants import Ours, Step, encoder_folder, plain_step, sentences
from experiments.results import RESULTS, folder_hash, provenance, write
from selfguide.data.resources import mini_folder

PLAIN, OURS, KEPT = "plain loop", "selfguide", "selfguide, views kept"


def main() -> None:
    arguments = _arguments()
    started = time.monotonic()
    described, text = sentences()
    half = torch.bfloat16 if arguments.device == "cuda" else None
    rate = _matrix_rate(arguments.device)
    print(f"bf16 matrix rate measured: {rate / 1e12:.0f} TFLOP/s" if rate else "no GPU: no matrix rate", flush=True)
    content: dict[str, Any] = {
        **provenance(f"python -m experiments.gpu_training --seconds {arguments.seconds:.0f}"),
        "encoder": {"name": "mini", "weights": folder_hash(mini_folder())},
        "text": described,
        "matrix_flops_a_second": rate,
        "settings": [],
        "left_out": [],
    }
    # What the bars are about comes first.
    plan: list[tuple[str, Callable[[], None]]] = []
    for encoder in arguments.encoders:
        for batch in arguments.batches:
            plan.append((f"{encoder}, batch {batch}", _setting(content, encoder, batch, text, half, rate, arguments)))
    if arguments.run:
        plan += [
            (f"whole run, {encoder}", _whole_run(content, encoder, text, arguments)) for encoder in arguments.encoders
        ]
    plan.append(("profile", _profile(content, arguments.encoders[0], text, half, arguments)))
    for name, part in plan:
        if time.monotonic() - started > arguments.seconds - 15:
            print(f"left out, no time: {name}")
            content["left_out"].append(name)
            continue
        try:
            part()
        except Exception as error:  # one part must not cost the others
            print(f"failed: {name}: {type(error).__name__}: {error}", flush=True)
            content["left_out"].append(f"{name}: {type(error).__name__}: {error}")
        if arguments.device == "cuda":
            torch.cuda.empty_cache()
    write(arguments.out or RESULTS / "gpu-training.json", content)


def _setting(
    content: dict[str, Any],
    encoder: str,
    batch: int,
    text: list[str],
    half: torch.dtype | None,
    rate: float,
    arguments: argparse.Namespace,
) -> Callable[[], None]:
    def measure() -> None:
        used = text[: max(64, min(len(text), batch * arguments.steps * 4))]
        with encoder_folder(encoder) as folder, tempfile.TemporaryDirectory() as work:
            ours = Ours(folder, used, Path(work), arguments.device, half)
            plain = plain_step(folder, arguments.device, half)
            steps: dict[str, Step] = {
                PLAIN: plain,
                OURS: lambda part: ours.step(part, False),
                KEPT: lambda part: ours.step(part, True),
            }
            times = _alternate(steps, used, batch, arguments)
            operations = _operations(ours, used, batch)
            graphs = ours.loss._graphs
            recorded = None if graphs is None else {"shapes": len(graphs), "given_up": graphs.given_up}
        medians = {name: statistics.median(values) for name, values in times.items()}
        print(f"\n{encoder}, batch {batch}; recorded: {recorded}; notes: {ours.notes}")
        for name, seconds in medians.items():
            share = operations[name] / seconds / rate if rate else float("nan")
            print(
                f"{name:24s} {1000 * seconds:8.2f} ms a step  {batch / seconds:8.0f} sentences/s  "
                f"{medians[PLAIN] / seconds:6.2f} x  {100 * share:5.2f} % of the chip",
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
                "share_of_the_chip": {name: operations[name] / medians[name] / rate for name in medians}
                if rate
                else {},
                "recorded": recorded,
                "notes": [
                    re.sub(r" in /\S+", "", note) for note in ours.notes
                ],  # where files lie is the machine's own business
            }
        )

    return measure


def _alternate(
    steps: dict[str, Step], text: list[str], batch: int, arguments: argparse.Namespace
) -> dict[str, list[float]]:
    """Seconds a step; all contestants have seen the same batches, and shapes that come back are recorded by then."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(arguments.rounds + 1):
        for name, step in steps.items():
            count = arguments.warm_up if number == 0 else arguments.steps
            if number == 0 and name == PLAIN:  # records nothing
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


def _operations(ours: Ours, text: list[str], batch: int) -> dict[str, float]:
    """Multiplications and additions of a step on real tokens: 2 for each weight forward, 4 more backward."""
    guide = ours.loss.guide
    layers = sum(weight.numel() for weight in guide.encoder.parameters() if weight.dim() == 2)  # type: ignore[union-attr]
    head = sum(weight.numel() for weight in ours.loss.head.parameters() if weight.dim() == 2)
    tokens = float(ours._collate.text.lengths.mean()) * batch
    vectors = batch * (len(ours.loss.layers) + 1)
    student = 6 * layers * tokens + 6 * head * vectors
    return {PLAIN: student + 2 * layers * tokens, OURS: student + 2 * layers * tokens, KEPT: student}


def _whole_run(
    content: dict[str, Any], encoder: str, text: list[str], arguments: argparse.Namespace
) -> Callable[[], None]:
    def run() -> None:
        import selfguide

        with encoder_folder(encoder) as folder, tempfile.TemporaryDirectory() as out:
            start = time.perf_counter()
            target = Path(out) / "run"
            selfguide.train(folder, text, output=target, quiet=True, report=False, device=arguments.device)
            seconds = time.perf_counter() - start
            import json

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

    return run


def _profile(
    content: dict[str, Any], encoder: str, text: list[str], half: torch.dtype | None, arguments: argparse.Namespace
) -> Callable[[], None]:
    def profile() -> None:
        from torch.profiler import ProfilerActivity

        activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if arguments.device == "cuda" else [])
        with encoder_folder(encoder) as folder, tempfile.TemporaryDirectory() as work:
            ours = Ours(folder, text[:512], Path(work), arguments.device, half)
            for recorded in (True, False):
                if not recorded:
                    if ours.loss._graphs is None:
                        break
                    ours.loss._graphs = None
                for _ in range(arguments.warm_up if recorded else 2):
                    ours.step(text[:16], False)
                with torch.profiler.profile(activities=activities) as found:
                    for _ in range(3):
                        ours.step(text[:16], False)
                    _wait(arguments.device)
                title = "as trained" if recorded else "nothing recorded"
                content.setdefault("profile", {"encoder": encoder, "batch": 16})[title] = _where_time_goes(found, 3)
                print(f"\n{encoder}, batch 16, three steps, {title}")
                for order in ("self_cpu_time_total", "self_cuda_time_total")[: len(activities)]:
                    print(found.key_averages().table(sort_by=order, row_limit=15, max_name_column_width=60), flush=True)

    return profile


def _where_time_goes(found: Any, steps: int, top: int = 8) -> dict[str, Any]:
    """Milliseconds a step of the host and of the GPU's kernels, and the largest items of both."""
    rows = found.key_averages()
    host = {row.key: row.self_cpu_time_total for row in rows if row.self_cpu_time_total}
    kernels = [row for row in rows if str(row.device_type).endswith("CUDA") and not row.is_user_annotation]
    by_kernel: Counter[str] = Counter()  # names are cut short, and several kernels may then have the same
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
    """Operations a second of a large bf16 product; 0 without a GPU."""
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
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=180.0, help="time for all of it")
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
