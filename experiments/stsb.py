"""SG-OPT on STS-B's sentences, scored on the seven STS sets, over several seeds.

    SELFGUIDE_DATA=folder python -m experiments.stsb --seeds 1 2 3 --jobs 3

The text is every sentence of STS-B (train, dev, test; no grades). The checkpoint is chosen by STS-B dev. Scores are Spearman
× 100 of cosine and grade in the 'all' setting (a year's subsets as one list), text as released. STS-B's training sentences
are in part those of STS12 to STS16, so the text is in-domain for these sets, as in the paper.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from experiments.results import RESULTS, folder_hash, mean_and_deviation, provenance, write
from selfguide.data.pairs import read_pairs
from selfguide.data.resources import mini_folder
from selfguide.engine.encode import cosine, encode
from selfguide.models.encoders import load_encoder

SETS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
PARTS = {"stsb": "test.tsv", "sickr": "test.tsv"}


def main() -> None:
    arguments = _arguments()
    if arguments.one_seed is not None:
        print(_one_seed(arguments, arguments.one_seed))
        return
    data = Path(arguments.data)
    baselines = {}
    for pooling in ("cls", "mean"):
        baselines[pooling] = score(load_encoder(arguments.encoder, pooling=pooling), data)
        print(_line(pooling, {name: (value, 0.0) for name, value in baselines[pooling].items()}), flush=True)
    runs = _all_seeds(arguments)
    summary = {name: mean_and_deviation([run[name] for run in runs.values()]) for name in (*SETS, "average")}
    print(_line(arguments.method, summary))
    folder = mini_folder() if arguments.encoder == "mini" else Path(arguments.encoder)
    write(
        arguments.out or RESULTS / f"stsb-{arguments.method}-{Path(arguments.encoder).name}.json",
        {
            **provenance(arguments.command),
            "encoder": {"name": Path(arguments.encoder).name, "weights": folder_hash(folder)},
            "text": "STS-B sentences (train, dev, test), no grades, repeats dropped",
            "protocol": "Spearman x 100 of cosine, 'all' setting, text as released; checkpoint by STS-B dev",
            "method": arguments.method,
            "options": arguments.options,
            "seeds": sorted(runs),
            "before": baselines,
            "runs": runs,
            "mean": {name: value for name, (value, _) in summary.items()},
            "deviation": {name: value for name, (_, value) in summary.items()},
        },
    )


def score(encoder: Any, data: Path) -> dict[str, float]:
    """Spearman × 100 on each of the seven sets, 'all', and their average. Every distinct sentence is encoded once."""
    sets = {name: _pairs(data, name) for name in SETS}
    sentences = sorted({text for first, second, _ in sets.values() for text in (*first, *second)})
    row = {text: number for number, text in enumerate(sentences)}
    vectors = encode(encoder, sentences, batch_size=256, show_progress=False)
    scores = {}
    for name, (first, second, grades) in sets.items():
        left, right = vectors[[row[text] for text in first]], vectors[[row[text] for text in second]]
        scores[name] = 100 * float(spearmanr(cosine(left, right), grades).statistic)
    scores["average"] = float(np.mean(list(scores.values())))
    return scores


def _pairs(data: Path, name: str) -> tuple[list[str], list[str], list[float]]:
    first: list[str] = []
    second: list[str] = []
    grades: list[float] = []
    for path in sorted((data / "sts" / name).glob(PARTS.get(name, "*.tsv"))):
        pairs = read_pairs(path)
        first += pairs.first
        second += pairs.second
        grades += pairs.scores
    return first, second, grades


def _one_seed(arguments: argparse.Namespace, seed: int) -> str:
    import json

    from selfguide import train

    data = Path(arguments.data)
    text = [
        sentence
        for part in ("train", "dev", "test")
        for pairs in [read_pairs(data / "sts" / "stsb" / f"{part}.tsv")]
        for both in zip(pairs.first, pairs.second, strict=True)
        for sentence in both
    ]
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        options = {key: _number(value) for key, value in (item.split("=", 1) for item in arguments.options)}
        dev = data / "sts" / "stsb" / "dev.tsv"
        encoder = train(
            arguments.encoder, text, arguments.method, output=run, dev=dev, seed=seed, quiet=True, **options
        )
        record = json.loads((run / "run.json").read_text())
    best = record["scores"]["after"]
    details = {
        "dev": 100 * best,
        "steps": record["steps"],
        "checkpoint": record["checkpoint"],
        "seconds": record["seconds"],
    }
    return json.dumps({**score(encoder, data), **details})


def _all_seeds(arguments: argparse.Namespace) -> dict[int, dict[str, Any]]:
    """Every seed in a process of its own, ``--jobs`` at a time."""
    import json
    from concurrent.futures import ThreadPoolExecutor

    def one(seed: int) -> tuple[int, dict[str, Any]]:
        command = [sys.executable, "-m", "experiments.stsb", *sys.argv[1:], "--one-seed", str(seed)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        result = json.loads(done.stdout.strip().splitlines()[-1])
        print(f"seed {seed}: average {result['average']:.2f}, dev {result['dev']:.2f}", flush=True)
        return seed, result

    with ThreadPoolExecutor(arguments.jobs) as pool:
        return dict(pool.map(one, arguments.seeds))


def _number(word: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


def _line(name: str, scores: dict[str, tuple[float, float]]) -> str:
    cells = "  ".join(f"{key} {value:.2f}±{spread:.2f}" for key, (value, spread) in scores.items())
    return f"{name:8s} {cells}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--encoder", default="mini")
    parser.add_argument("--method", default="sg-opt")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--jobs", type=int, default=1, help="seeds side by side")
    parser.add_argument(
        "--data", default=os.environ.get("SELFGUIDE_DATA"), help="folder with sts/ (default: SELFGUIDE_DATA)"
    )
    parser.add_argument("--options", nargs="*", default=[], help="name=value for selfguide.train")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one-seed", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not arguments.data or not (Path(arguments.data) / "sts").is_dir():
        parser.error("set SELFGUIDE_DATA (or --data) to a folder with sts/stsb/train.tsv and the other STS sets")
    arguments.command = _command(sys.argv[1:])
    return arguments


def _command(words: list[str]) -> str:
    """The command as anyone would type it: where the data and the results lie is the machine's own business."""
    kept = list(words)
    for option in ("--data", "--out"):
        if option in kept:
            position = kept.index(option)
            del kept[position : position + 2]
    return " ".join(["SELFGUIDE_DATA=... python -m experiments.stsb", *kept])


if __name__ == "__main__":
    main()
