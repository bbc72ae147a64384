"""Compare fused with the plain tuned [CLS] on few sentences: the loss should be at most a point.

    python -m experiments.fused.small_text --tuned simcse sg-opt --draws 10     # NAME=FOLDER: an encoder tuned before
    python -m experiments.fused.small_text --own simcse --own-draws 2           # adds to the same file
    SELFGUIDE_DATA=folder python -m experiments.fused.small_text --tuned simcse --stsb 10000

Two situations, each with several random draws of 50, 200 and 1,000 of the embedded sentences:

    tuned   The encoder was tuned before, on all embedded sentences, and only the calibration sees the few sentences:
            `selfguide train few.txt --method fused --encoder FOLDER --tune none`. This is the harder one, since the plain
            vector is good.
    own     The few sentences are all there is, for tuning too: `selfguide train few.txt --method fused`.

Scores are Spearman × 100 on the embedded test pairs (440), at the default weight and at the weight that the embedded dev pairs
(220) choose, as the method does if it has them. ``--stsb`` draws from STS-B's sentences, since there are only 3,200 embedded
ones. Nothing is chosen by the test pairs.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sentence_transformers import SentenceTransformer

import selfguide
from experiments.fused.parts import Geometry, GradedSets, applied, joined, mapping_inputs, summary
from experiments.provenance import RESULTS, command_parser, provenance, text_facts, write
from selfguide.calibration.weight_choice import WEIGHTS
from selfguide.comparison.texts import DatasetLocator, text_of_sources
from selfguide.data import TextOptions
from selfguide.data.resources import demo_sentences
from selfguide.evaluation.evaluate import load_tasks
from selfguide.evaluation.protocol import Protocol
from selfguide.methods.fused import USUAL_WEIGHT, FusedOptions
from selfguide.models.encoders import load_encoder

SIZES = (50, 200, 1000)
ALLOWED = 1.0
"""Points that fused may lose against the plain tuned vector."""


def main() -> None:
    """Score the draws, and add them to the results file."""
    arguments = _arguments()
    sets = GradedSets.of(load_tasks(["demo", "demo-dev"], (), None, Protocol()))
    found: dict[str, Any] = json.loads(arguments.out.read_text())["rows"] if arguments.out.is_file() else {}
    text = demo_sentences() if not arguments.stsb else _stsb_sentences(arguments.data)
    sizes = SIZES if not arguments.stsb else (arguments.stsb,)
    for name, _, folder in (item.partition("=") for item in arguments.tuned):
        encoder = load_encoder(folder, max_length=128) if folder else tuned_encoder(name)
        for row in tuned_before(encoder, text, sets, sizes, arguments.draws):
            _keep(found, f"tuned: {name}", row)
    for name in arguments.own:
        for row in tuned_on_own(name, text, sets, sizes, arguments.own_draws):
            _keep(found, f"own: {name}", row)
    content = {
        **provenance(
            text=text_facts("STS-B's sentences" if arguments.stsb else "the demonstration's sentences", text),
            seeds=list(range(max(arguments.draws, arguments.own_draws))),
        ),
        "protocol": "Spearman x 100 of cosine on the embedded test pairs (440); difference: fused less the plain tuned [CLS]",
        "rows": found,
    }
    write(arguments.out, content)
    for key in ("difference", "difference by dev"):
        worst = min((cell[key]["least"] for rows in found.values() for cell in rows.values()), default=0.0)
        print(f"{key}, worst draw: {worst:+.2f}; {'within' if worst >= -ALLOWED else 'NOT within'} {ALLOWED:g} points")


def tuned_encoder(tune: str) -> SentenceTransformer:
    """Return `mini` with its [CLS] tuned on all embedded sentences, as fused tunes it."""
    return selfguide.train("mini", demo_sentences(), "fused", tune=tune, quiet=True)


def tuned_before(
    encoder: SentenceTransformer, text: Sequence[str], sets: GradedSets, sizes: Sequence[int], draws: int
) -> Iterator[dict[str, Any]]:
    """Score draws that calibrate an encoder which is tuned already.

    Args:
        encoder: The tuned encoder.
        text: The sentences to draw from.
        sets: The graded pairs.
        sizes: Sentences of a draw.
        draws: Draws of each size.

    Yields:
        One row a draw: its size and its scores.
    """
    generator = np.random.default_rng(1)
    for size in sizes:
        for _ in range(draws):
            few = [text[index] for index in generator.permutation(len(text))[:size]]
            yield {"size": size, **_draw_scores(encoder, few, sets, tune="none")}


def tuned_on_own(
    tune: str, text: Sequence[str], sets: GradedSets, sizes: Sequence[int], draws: int
) -> Iterator[dict[str, Any]]:
    """Score draws that tune [CLS] as well; each is a training run of its own.

    Args:
        tune: The method that tunes [CLS].
        text: The sentences to draw from.
        sets: The graded pairs.
        sizes: Sentences of a draw.
        draws: Draws of each size.

    Yields:
        One row a draw: its size and its scores.
    """
    for size in sizes:
        for seed in range(1, draws + 1):
            few = [text[index] for index in np.random.default_rng(seed).permutation(len(text))[:size]]
            yield {"size": size, **_draw_scores("mini", few, sets, tune=tune, seed=seed)}


def _draw_scores(encoder: Any, few: list[str], sets: GradedSets, **settings: Any) -> dict[str, float]:
    """Fit fused, and score the plain tuned [CLS], [CLS] whitened, the view, and both, on the demo pairs."""
    fused = selfguide.train(encoder, few, "fused", quiet=True, **settings)
    raw, statistics, prior = mapping_inputs(fused, sets.sentences)

    def vectors(weight: float, exponent: float = FusedOptions.tuned_exponent) -> Geometry:
        options = FusedOptions(weight=weight, tuned_exponent=exponent)
        return sets.geometry(applied(options.mapping(statistics, prior), raw))

    parts = {"cls": vectors(1.0), "view": vectors(0.0)}
    by_weight = {weight: joined(parts, {"cls": weight, "view": 1 - weight}) for weight in (*WEIGHTS, USUAL_WEIGHT)}
    by_dev = max(WEIGHTS, key=lambda weight: sets.scores(by_weight[weight])["demo-dev"])
    found = {
        "plain": sets.geometry(raw[:, statistics.sentences.slices[0]]),
        "cls, whitened": vectors(1.0, 0.5),
        "view": parts["view"],
        "fused": by_weight[USUAL_WEIGHT],
        "fused by dev": by_weight[by_dev],
    }
    return {name: sets.scores(geometry)["demo"] for name, geometry in found.items()} | {"weight by dev": by_dev}


def _keep(found: dict[str, Any], name: str, row: dict[str, Any]) -> None:
    """Add a draw to its cell, and summarise the cell."""
    cell = found.setdefault(name, {}).setdefault(str(row["size"]), {"draws": []})
    cell["draws"].append({key: value for key, value in row.items() if key != "size"})
    for key in ("plain", "cls, whitened", "view", "fused", "fused by dev", "weight by dev"):
        cell[key] = summary([draw[key] for draw in cell["draws"]])
    cell["difference"] = summary([draw["fused"] - draw["plain"] for draw in cell["draws"]])
    cell["difference by dev"] = summary([draw["fused by dev"] - draw["plain"] for draw in cell["draws"]])


def _stsb_sentences(data: str | None) -> list[str]:
    return list(text_of_sources(["data:stsb"], DatasetLocator(data, download=False), TextOptions()).sentences)


def _arguments() -> argparse.Namespace:
    parser = command_parser(__doc__)
    parser.add_argument("--tuned", nargs="*", default=[], metavar="METHOD[=FOLDER]", help="encoders tuned before")
    parser.add_argument("--draws", type=int, default=10, help="draws of each size for these")
    parser.add_argument("--own", nargs="*", default=[], metavar="METHOD", help="tune on the draws with these methods")
    parser.add_argument("--own-draws", type=int, default=2)
    parser.add_argument("--stsb", type=int, default=0, metavar="SIZE", help="draw from STS-B's sentences")
    parser.add_argument("--data", default=os.environ.get("SELFGUIDE_DATA"))
    parser.add_argument(
        "--out", type=Path, default=RESULTS / "fused-small-text.json", help="an existing file is added to"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
