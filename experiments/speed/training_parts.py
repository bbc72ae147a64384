"""Measure what each optimisation of the training step contributes, by timing the step without it.

    SELFGUIDE_DATA=folder python -m experiments.speed.training_parts --encoders mini bert-base

The step is selfguide's own with 16 sentences. Rounds alternate between the variants; the ratio is the median time without a
part over the median time with all of them, so 1.10 says that leaving the part out costs a tenth.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from experiments.provenance import RESULTS, command_parser, provenance, text_facts, write
from experiments.speed.contestants import SelfguideStep, Step, encoder_folder, optimiser_step, sentences
from experiments.speed.training import alternate

ALL = "all parts"


def main() -> None:
    """Measure, and write the results file."""
    arguments = _arguments()
    described, text = sentences()
    used = text[: arguments.batch * (arguments.rounds + 1)]
    rows = []
    for encoder in arguments.encoders:
        with encoder_folder(encoder) as folder, tempfile.TemporaryDirectory() as work:
            times = alternate(
                _variants(SelfguideStep(folder, used, Path(work))), used, arguments.batch, arguments.rounds, 1
            )
        medians = {name: statistics.median(values) for name, values in times.items()}
        ratios = {name: seconds / medians[ALL] for name, seconds in medians.items()}
        print(f"\n{encoder}, batch {arguments.batch}")
        for name, seconds in medians.items():
            print(f"{name:44s} {1000 * seconds:8.0f} ms a step   {ratios[name]:5.2f} x the time", flush=True)
        rows.append({"encoder": encoder, "seconds_a_step": medians, "ratios": ratios, "rounds": times})
    write(
        arguments.out or RESULTS / "training-parts.json",
        {
            **provenance(text=text_facts(described, text), seeds=[1]),
            "batch": arguments.batch,
            "settings": rows,
        },
    )


def _variants(ours: SelfguideStep) -> dict[str, Step]:
    def step(batch: list[str]) -> None:
        ours.step(batch, False)

    def without(change: Callable[[], Any]) -> Step:
        def changed(batch: list[str]) -> None:
            with change():
                step(batch)

        return changed

    loss: Any = ours.loss
    slow_optimiser = optimiser_step(loss, fused=False)
    return {
        ALL: step,
        "without packing": without(lambda: patch("selfguide.engine.packing.ENABLED", False)),
        "without the last layer for [CLS] alone": without(lambda: patch.object(loss, "_firsts", False)),
        "without the stay-close term in the cache": without(
            lambda: patch("selfguide.losses.functional.stay_close", _term_by_term)
        ),
        "without tokens made ahead": without(lambda: _tokens_in_the_loop(ours)),
        "without the fused optimiser": without(lambda: patch.object(ours, "finish", slow_optimiser)),
        "with the views kept": lambda batch: ours.step(batch, True),
    }


def _term_by_term(student: Sequence[Tensor], guide: Sequence[Tensor]) -> Tensor:
    total = torch.zeros(())
    for one, other in zip(student, guide, strict=True):
        total = total + ((one - other) ** 2).sum()
    return total


@contextmanager
def _tokens_in_the_loop(ours: SelfguideStep) -> Iterator[None]:
    def collate(examples: list[dict[str, str]]) -> dict[str, Any]:
        model: Any = ours.loss.model
        return {f"s_{name}": value for name, value in model.preprocess([row["s"] for row in examples]).items()}

    with patch.object(ours, "collate", collate):
        yield


def _arguments() -> argparse.Namespace:
    parser = command_parser(__doc__)
    parser.add_argument("--encoders", nargs="+", default=["mini"], choices=["mini", "bert-base", "tiny"])
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
