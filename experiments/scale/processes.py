"""Weak scaling of training: one process with a batch, and several processes with a batch each, contrasted as one.

    python -m experiments.scale.processes --steps 60 --rounds 2            (gloo, a CPU core a process)
    python -m experiments.scale.processes --device cuda --processes 1 2    (on a machine with a GPU: processes share it)

Each process has one thread. Efficiency is the rate of n processes over n times the rate of one. On one GPU two processes
are no gain, but a check that the same run works with NCCL or gloo on CUDA tensors: the losses of the first steps are kept.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from experiments.provenance import RESULTS, command_parser, provenance, text_facts, write
from experiments.scale.texts import SEED, write_lines


def main() -> None:
    """Train, and write the results file."""
    arguments = _arguments()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        write_lines(text, arguments.steps * arguments.batch * max(arguments.processes) * 2)
        for number in range(arguments.rounds):
            for processes in arguments.processes:
                found = trained(text, Path(folder) / f"{number}-{processes}", processes, arguments)
                rows.append({"round": number, "processes": processes, **found})
                print(rows[-1], flush=True)
        facts = text_facts("drawn lines", text.read_text().splitlines())
    rates = {
        str(processes): statistics.median(row["sentences_a_second"] for row in rows if row["processes"] == processes)
        for processes in arguments.processes
    }
    one = rates[str(arguments.processes[0])]
    write(
        arguments.out or RESULTS / f"scale-processes-{arguments.device}.json",
        {
            **provenance("mini", text=facts, seeds=[SEED]),
            "cores": len(os.sched_getaffinity(0)),
            "method": "sg-opt",
            "batch_of_a_process": arguments.batch,
            "steps": arguments.steps,
            "rows": rows,
            "sentences_a_second": rates,
            "efficiency": {name: rate / (int(name) * one) for name, rate in rates.items()},
        },
    )


def trained(text: Path, output: Path, processes: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Train for some steps, and return rate and losses."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command += ["-m", "selfguide", "train", str(text), "--output", str(output), "--no-report", "--quiet"]
    command += ["--batch-size", str(arguments.batch), "--max-steps", str(arguments.steps), "--keep-views", "no"]
    command += ["--device", arguments.device, "--method", "sg-opt"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"} if arguments.device == "cpu" else dict(os.environ)
    subprocess.run(command, check=True, env=environment)
    record = json.loads((output / "run.json").read_text())
    return {"sentences_a_second": record["sentences_per_second"], "losses": record["loss_curve"]}


def _arguments() -> argparse.Namespace:
    parser = command_parser(__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
