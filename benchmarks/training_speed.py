"""How much faster is a training step than the plain loop? A ratio, measured in one run.

    python -m benchmarks.training_speed --rounds 5 --batch 16

Both train SG-OPT with the paper's defaults on the same batches of the embedded sentences; the step is forward, backward,
clipping and optimiser. Rounds alternate between the two, the median of the rounds is reported, warm-up is left out.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.plain import PlainSelfGuidance
from benchmarks.results import RESULTS, folder_hash, provenance, write
from selfguide.demo import demo_sentences
from selfguide.encoders import load_encoder, mini_folder
from selfguide.methods.self_guided import SelfGuidedLoss


def main() -> None:
    arguments = _arguments()
    sentences = demo_sentences()
    ours = SelfGuidedLoss(load_encoder("mini", pooling="cls", max_length=128))
    plain = PlainSelfGuidance(load_encoder("mini", pooling="cls", max_length=128))
    # The plain loop in training mode has its guide's dropout off as ours has, so that both do the same work.
    plain.train()
    plain.guide.eval()
    steps = {
        "plain loop": _step(plain, lambda batch: plain(batch), fused=False),
        "selfguide": _step(ours.train(), lambda batch: ours([ours.model.preprocess(batch)]), fused=True),
    }
    times: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(arguments.rounds + 1):
        for name, step in steps.items():
            start = time.perf_counter()
            for part in range(arguments.steps):
                first = (number * arguments.steps + part) * arguments.batch % (len(sentences) - arguments.batch)
                step(sentences[first : first + arguments.batch])
            if number > 0:  # the first round is the warm-up
                times[name].append((time.perf_counter() - start) / arguments.steps)
    medians = {name: statistics.median(values) for name, values in times.items()}
    ratio = medians["plain loop"] / medians["selfguide"]
    for name, seconds in medians.items():
        print(f"{name:12s} {1000 * seconds:7.0f} ms a step   {arguments.batch / seconds:6.1f} sentences/s")
    print(f"ratio {ratio:.2f}")
    write(
        RESULTS / "training-speed.json",
        {
            **provenance(f"python -m benchmarks.training_speed --rounds {arguments.rounds} --batch {arguments.batch}"),
            "encoder": {"name": "mini", "weights": folder_hash(mini_folder())},
            "seconds_a_step": medians,
            "rounds": times,
            "ratio": ratio,
        },
    )


def _step(module: torch.nn.Module, loss: Callable[[list[str]], Any], fused: bool) -> Callable[[list[str]], None]:
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    optimiser = torch.optim.AdamW(parameters, lr=5e-5, betas=(0.9, 0.9), fused=fused)

    def step(batch: list[str]) -> None:
        loss(batch).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        optimiser.zero_grad()

    return step


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4, help="steps a round")
    parser.add_argument("--batch", type=int, default=16)
    return parser.parse_args()


if __name__ == "__main__":
    main()
