"""Check that the embedded demonstration pairs rank encoders as STS-B does.

    SELFGUIDE_DATA=folder python -m experiments.demo_pairs [--also all-MiniLM-L6-v2=FOLDER]

Scores poolings of the embedded encoder, whitening, SG-OPT and SimCSE (fitted on the embedded sentences, checkpoints chosen by
the pairs' dev half) and further encoders on both sets (Spearman × 100 of cosine), and reports the rank correlation of the two
columns.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from scipy.stats import spearmanr

import selfguide
from experiments.provenance import RESULTS, command_parser, provenance, text_facts, write
from selfguide.data.resources import demo_file, demo_sentences


def main() -> None:
    """Score every encoder on both sets, and write the results file."""
    arguments = _arguments()
    rows: dict[str, dict[str, float]] = {}
    for name, encoder in _encoders(arguments.also).items():
        found = selfguide.evaluate(encoder, "demo,stsb", data=arguments.data, bootstrap=0)
        rows[name] = {item.task: item.value for item in found.scores}
        print(f"{name:24s} demo {rows[name]['demo']:6.2f}   STS-B test {rows[name]['stsb']:6.2f}", flush=True)
    agreement = float(
        spearmanr([row["demo"] for row in rows.values()], [row["stsb"] for row in rows.values()]).statistic
    )
    print(f"rank correlation over {len(rows)} encoders: {agreement:.3f}")
    content = {
        **provenance(text=text_facts("the demonstration's sentences", demo_sentences()), seeds=[1]),
        "protocol": "Spearman x 100 of cosine; demo pairs (test half, 440) and STS-B test (1,379), text as released; one seed",
        "rows": rows,
        "rank_correlation": agreement,
    }
    write(RESULTS / "demo-pairs.json", content)


def _encoders(also: list[str]) -> dict[str, Any]:
    encoders: dict[str, Any] = {
        name: selfguide.load_encoder("mini", pooling=name) for name in ("cls", "mean", "max", "last2", "first-last")
    }
    encoders["mean, layer 0"] = selfguide.load_encoder("mini", pooling="mean", layer=0)
    encoders["whitening (last2)"] = selfguide.train("mini", demo_sentences(), "whitening", pooling="last2", quiet=True)
    dev = demo_file("pairs-dev.tsv")
    for method in ("simcse", "sg-opt"):
        encoders[method] = selfguide.train(
            "mini", demo_sentences(), method, dev=dev, dev_every=25, patience=4, quiet=True
        )
    for item in also:
        name, _, folder = item.partition("=")
        encoders[name] = selfguide.load_encoder(folder)
    return encoders


def _arguments() -> argparse.Namespace:
    parser = command_parser(__doc__)
    parser.add_argument("--data", default=os.environ.get("SELFGUIDE_DATA"), help="folder with sts/")
    parser.add_argument("--also", nargs="*", default=[], metavar="NAME=FOLDER", help="further encoders")
    arguments = parser.parse_args()
    if not arguments.data or not (Path(arguments.data) / "sts").is_dir():
        parser.error("set SELFGUIDE_DATA (or --data) to a folder with sts/stsb/test.tsv")
    return arguments


if __name__ == "__main__":
    main()
