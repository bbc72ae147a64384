"""Check shared negatives on a GPU: two processes on one device against one process with the whole batch.

    python -m experiments.scale.one_gpu [--device cuda] [--processes 2] [--sentences 24]

The processes talk over gloo, since NCCL wants a device each. The embedded encoder is tuned with SG-OPT and opt2, without
dropout, in double precision; loss and gradients are compared, and the largest relative difference of each is written. This
is a check of correctness: on one GPU two processes are no faster.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel

from experiments.provenance import RESULTS, command_parser, provenance, text_facts, write
from selfguide import losses
from selfguide.data.resources import demo_sentences
from selfguide.losses import self_guided
from selfguide.models.encoders import load_encoder

OBJECTIVES = ("sg-opt", "opt2")


def main() -> None:
    """Compare, and write the results file."""
    arguments = _arguments()
    text = demo_sentences()[: arguments.sentences]
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found.pt"
        given = (arguments.processes, arguments.device, text, str(found), folder)
        spawn(_process, given, nprocs=arguments.processes)
        rows = torch.load(found, weights_only=True)
    write(
        arguments.out or RESULTS / f"scale-one-{arguments.device}.json",
        {
            **provenance("mini", text=text_facts("demonstration", text), seeds=[1]),
            "processes": arguments.processes,
            "precision": "float64",
            "rows": rows,
        },
    )


def _process(rank: int, processes: int, device: str, text: list[str], found: str, folder: str) -> None:
    os.environ.update({"RANK": str(rank), "WORLD_SIZE": str(processes)})
    torch.set_num_threads(1)
    self_guided._draw_one = lambda views: views[:, 1]  # a draw cannot be the same in batches of different sizes
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=processes)
    mine = text[rank * len(text) // processes : (rank + 1) * len(text) // processes]
    rows = []
    for objective in OBJECTIVES:
        whole, shared = _made(objective, device), _made(objective, device)
        whole.share_negatives = False
        reference = whole([_features(whole, text, device)])
        reference.backward()
        shared.model = DistributedDataParallel(shared.encoder)
        own = shared([_features(shared, mine, device)])
        own.backward()
        mean = own.detach().cpu()
        dist.all_reduce(mean)
        rows.append(
            {
                "objective": objective,
                "loss": float(reference.detach()),
                "loss_difference": abs(float(mean) / processes - float(reference.detach()))
                / abs(float(reference.detach())),
                "gradient_difference": _difference(whole, shared),
            }
        )
    if rank == 0:
        torch.save(rows, found)
    dist.barrier()
    dist.destroy_process_group()


def _made(objective: str, device: str) -> Any:
    torch.manual_seed(1)
    model = load_encoder("mini", pooling="cls", device=device).double()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return self_guided.SelfGuidedLoss(model, objective=objective, head_size=64).double().to(device).train()


def _features(loss: losses.SelfGuidedLoss, text: list[str], device: str) -> dict[str, Any]:
    made = loss.encoder.preprocess(text)
    return {name: value.to(device) if isinstance(value, torch.Tensor) else value for name, value in made.items()}


def _difference(one: Any, other: Any) -> float:
    """Return the largest difference of two gradients, relative to the largest gradient (some are zero but for rounding)."""
    most = largest = 0.0
    pairs = zip(one.encoder.named_parameters(), other.encoder.named_parameters(), strict=True)
    for (_, first), (_, second) in pairs:
        if first.grad is not None and second.grad is not None:
            largest = max(largest, float(first.grad.abs().max()))
            most = max(most, float((first.grad - second.grad).abs().max()))
    return most / largest


def _arguments() -> argparse.Namespace:
    parser = command_parser(__doc__)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--sentences", type=int, default=24)
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
