"""Check shared negatives on a GPU: two processes on one device against one process with the whole batch; and how fast it encodes.

    python -m experiments.scale.one_gpu [--out FILE]
    python -m experiments.scale.one_gpu --device cpu --encode-lines 300 --encoders mini --out FILE     (a rehearsal)

The processes talk over gloo, since NCCL wants a device each. The embedded encoder is tuned with the self-guided objectives,
without dropout, in double precision, and the processes' shares of the batch differ by a sentence. Loss and gradients are compared
with those of one process with the whole batch, and these with the same step recorded as a CUDA graph; the largest difference of
each is written. This is a check of correctness: on one GPU two processes are no faster.

Then the GPU encodes drawn lines, in memory and into a folder of parts, for the plan of a billion sentences. ``bert-base`` is
randomly initialised, since only its shape matters here. Neither ``datasets`` nor training data is needed.
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

from experiments.origins import NONE
from experiments.provenance import RESULTS, command_parser, folder_hash, provenance, text_facts, write
from experiments.scale.gpu_encoding import ENCODERS, measured
from selfguide.data.resources import demo_sentences, mini_folder
from selfguide.engine.tokens import TokenCollator, TokenisedText
from selfguide.losses import self_guided
from selfguide.losses.base import Preparation
from selfguide.models.encoders import load_encoder
from selfguide.progress import Reporter
from selfguide.training.settings import TrainingSettings

OBJECTIVES: dict[str, dict[str, Any]] = {
    "sg-opt": {},
    "sg": {"objective": "sg"},
    "opt1": {"objective": "opt1"},
    "opt2": {"objective": "opt2"},
    "sg-opt, gradient cache": {"gradient_cache": 5},
}
RECORDED = ("sg-opt", "opt1", "opt2")
"""Objectives whose steps a GPU records; the others draw numbers or make several passes."""
_STEPS = 4
"""Steps until a shape is recorded, and one more that replays it."""


def main() -> None:
    """Compare, encode, and write the results file."""
    arguments = _arguments()
    text = demo_sentences()[: arguments.sentences]
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found.pt"
        given = (arguments.processes, arguments.device, text, str(found), folder)
        spawn(_process, given, nprocs=arguments.processes)
        rows = torch.load(found, weights_only=True)
    for row in rows:
        print(row, flush=True)
    encoding, lines = measured(arguments.encoders, arguments.device, arguments.encode_lines, arguments.rounds)
    write(
        arguments.out or RESULTS / f"scale-one-{arguments.device}.json",
        {
            **provenance(
                None,
                text={
                    "name": "demonstration (shared negatives), drawn lines (encoding)",
                    "digests": [text_facts("demonstration", text)["digest"], lines["digest"]],
                },
                seeds=[1],
            ),
            "encoders": {"mini": {"weights": folder_hash(mini_folder())}, "bert-base": {"weights": NONE}},
            "processes": arguments.processes,
            "cpu_threads": torch.get_num_threads(),
            "precision": "float64",
            "rows": rows,
            "encoding": encoding,
        },
    )


def _process(rank: int, processes: int, device: str, text: list[str], found: str, folder: str) -> None:
    os.environ.update({"RANK": str(rank), "WORLD_SIZE": str(processes)})
    torch.set_num_threads(1)
    self_guided._draw_one = lambda views: views[:, 1]  # a draw cannot be the same in batches of different sizes
    # Before the processes meet: a process that has others does not record its steps.
    recorded = {name: _recorded(name, device, text) for name in RECORDED} if rank == 0 else {}
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=processes)
    first, last = (place * len(text) // processes for place in (rank, rank + 1))
    mine = text[first:last]
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
        loss, gradients = float(reference.detach()), _gradients(whole)
        row = {
            "objective": objective,
            "loss": loss,
            "loss_difference": abs(float(mean) / processes - loss) / abs(loss),
            "gradient_difference": _difference(gradients, _gradients(shared)),
        }
        if objective in recorded:
            graph_loss, graph_gradients, recordings = recorded[objective]
            row["recordings"] = recordings
            row["recorded_loss_difference"] = abs(graph_loss - loss) / abs(loss)
            row["recorded_gradient_difference"] = _difference(gradients, graph_gradients)
        rows.append(row)
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
    options = {"head_size": 64, "keep_views": "no", **OBJECTIVES[objective]}
    return self_guided.SelfGuidedLoss(model, **options).double().to(device).train()


def _recorded(objective: str, device: str, text: list[str]) -> tuple[float, dict[str, torch.Tensor], int]:
    """Return loss and gradients of a step as training makes it, and how many recordings it used (none on a CPU)."""
    loss = _made(objective, device)
    tokens = TokenisedText(loss.encoder, text)
    with tempfile.TemporaryDirectory() as folder:
        loss.prepare(Preparation(TrainingSettings(), Path(folder), Reporter(quiet=True), tokens))
    batch = TokenCollator(tokens, loss.on_host)([{"s": sentence} for sentence in text])
    for _ in range(_STEPS):
        loss.zero_grad(set_to_none=True)
        features = {
            name.removeprefix("s_"): value.to(device) if hasattr(value, "to") else value
            for name, value in batch.items()
        }
        found = loss([features])
        found.backward()
    graphs = loss._graphs
    recordings = 0 if graphs is None or graphs.given_up else len(graphs)
    return float(found.detach()), {name: value.cpu() for name, value in _gradients(loss).items()}, recordings


def _features(loss: Any, text: list[str], device: str) -> dict[str, Any]:
    made = loss.encoder.preprocess(text)
    return {name: value.to(device) if isinstance(value, torch.Tensor) else value for name, value in made.items()}


def _gradients(loss: Any) -> dict[str, torch.Tensor]:
    """Return copies of the gradients of the encoder and of the head."""
    own = {f"head {name}": weight for name, weight in loss.head.named_parameters()}
    weights = {**dict(loss.encoder.named_parameters()), **own}
    return {name: weight.grad.clone() for name, weight in weights.items() if weight.grad is not None}


def _difference(wanted: dict[str, torch.Tensor], found: dict[str, torch.Tensor]) -> float:
    """Return the largest difference of two gradients, relative to the largest gradient (some are zero but for rounding)."""
    if wanted.keys() != found.keys():
        raise SystemExit(f"Gradients of other weights: {sorted(wanted.keys() ^ found.keys())[:3]}.")
    largest = max(float(gradient.abs().max()) for gradient in wanted.values())
    return max(float((found[name].cpu() - wanted[name].cpu()).abs().max()) for name in wanted) / largest


def _arguments() -> argparse.Namespace:
    parser = command_parser(__doc__)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--sentences", type=int, default=23, help="of the batch; an odd number gives uneven shares")
    parser.add_argument("--encode-lines", type=int, default=200_000)
    parser.add_argument("--encoders", nargs="+", default=list(ENCODERS), choices=list(ENCODERS))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
