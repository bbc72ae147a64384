"""Follow the first steps of methods that tune on text: when does the encoder get better, and how little is nothing?

    python -m experiments.first_steps --methods sg-opt simcse consert mirror ct is-bert

Trains on the demonstration's sentences and scores its dev pairs every 160 sentences; neither is a benchmark. ``curves`` has
one run of each method with its own settings, but for ConSERT's and CLEAR's learning rate (5e-5). ``movement`` has runs of a
few steps at growing learning rates: the gain over the start by the sum of the learning rates, from which
``selfguide.training.short_runs`` takes what it warns about."""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import selfguide
from experiments.provenance import RESULTS, command_parser, provenance, text_facts, write
from selfguide.data.resources import demo_file, demo_sentences
from selfguide.training.settings import TrainingSettings

METHODS: dict[str, dict[str, Any]] = {
    "sg-opt": {},
    "sg": {},
    "simcse": {},
    "consert": {"learning_rate": 5e-5, "epochs": 1.0},
    "mirror": {},
    "clear": {"learning_rate": 5e-5},
    "ct": {},
    "ct-in-batch": {},
    "is-bert": {},
    "tsdae": {},
}
MOVED = ("sg-opt", "simcse", "consert")
RATES = (1e-6, 3e-6, 1e-5, 3e-5)
SENTENCES_BETWEEN = 160
"""Sentences between two dev evaluations, for every method alike."""


def main() -> None:
    """Run all, and write the results file."""
    arguments = _arguments()
    text = demo_file("sentences.txt")
    curves = {name: follow(text, name, arguments.limit, **METHODS[name]) for name in arguments.methods}
    movement = {
        name: [
            {"rate": rate, "sum": TrainingSettings(learning_rate=rate, warmup=0.0).sum_of_rates(arguments.steps)}
            | follow(
                text,
                name,
                arguments.limit,
                learning_rate=rate,
                warmup=0.0,
                schedule="linear",
                batch_size=32,
                epochs=1.0,
                max_steps=arguments.steps,
                dev_every=arguments.steps,
            )
            for rate in RATES
        ]
        for name in MOVED
    }
    content = {
        **provenance(text=text_facts("the demonstration's sentences", demo_sentences()), seeds=[1]),
        "dev": "the demonstration's dev pairs",
    }
    write(arguments.out, content | {"curves": curves, "movement": movement})


def follow(text: Path, method: str, limit: int, **settings: Any) -> dict[str, Any]:
    """Train, and return the dev score (Spearman × 100) by the number of sentences seen.

    Args:
        text: The text.
        method: The method.
        limit: At most so many sentences; 0 for all.
        **settings: Training settings that differ from the method's own.

    Returns:
        The settings, and (sentences, score) from the start on.
    """
    from selfguide.data import TextOptions
    from selfguide.methods import registry

    batch = int(settings.get("batch_size", registry.method_class(method).defaults.batch_size))
    with tempfile.TemporaryDirectory() as work:
        selfguide.train(
            "mini",
            text,
            method,
            output=Path(work) / "run",
            dev=demo_file("pairs-dev.tsv"),
            dev_every=settings.pop("dev_every", max(1, SENTENCES_BETWEEN // batch)),
            patience=0,
            report=False,
            quiet=True,
            text_options=TextOptions(limit=limit or None),
            **settings,
        )
        record = json.loads((Path(work) / "run" / "run.json").read_text(encoding="utf-8"))
    curve = [(step * batch, 100 * score) for step, score in record["dev_curve"]]
    print(method, settings, [f"{score:.1f}" for _, score in curve], flush=True)
    return {
        "settings": record["config"]["training"],
        "text": record["text"]["fingerprint"],
        "curve": curve,
        "gain": curve[-1][1] - curve[0][1],
    }


def _arguments() -> argparse.Namespace:
    parser = command_parser(__doc__)
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--limit", type=int, default=0, help="at most so many sentences")
    parser.add_argument("--steps", type=int, default=20, help="steps of the runs at growing learning rates")
    parser.add_argument("--out", type=Path, default=RESULTS / "first-steps.json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
