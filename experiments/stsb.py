"""Train SG-OPT on STS-B's sentences with several seeds, and score it on the seven STS sets.

    SELFGUIDE_DATA=folder python -m experiments.stsb --seeds 1 2 3 --jobs 3

The text is every sentence of STS-B (train, dev, test; no grades). The checkpoint is chosen by STS-B dev. Scores are Spearman
× 100 of cosine and grade in the 'all' setting (a year's subsets as one list), text as released. STS-B's training sentences
are in part those of STS12 to STS16, so the text is in-domain for these sets, as in the paper.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

import selfguide
from experiments.jobs import FunctionJob, run_jobs
from experiments.provenance import RESULTS, command_parser, provenance, text_facts, write
from selfguide.data.pairs import read_pairs


def main() -> None:
    """Run every seed in a process of its own, and write the results file."""
    arguments = _arguments()
    baselines = {}
    for pooling in ("cls", "mean"):
        baselines[pooling] = score(selfguide.load_encoder(arguments.encoder, pooling=pooling), arguments.data)
        print(_line(pooling, baselines[pooling]), flush=True)
    settings = {name: getattr(arguments, name) for name in ("encoder", "method", "options", "data")}
    with tempfile.TemporaryDirectory() as work:
        jobs = [
            FunctionJob(Path(work) / f"seed{seed}.json", "experiments.stsb:one_seed", settings | {"seed": seed})
            for seed in arguments.seeds
        ]
        if failed := run_jobs(jobs, arguments.jobs):
            raise SystemExit(f"These runs failed: {failed}")
        runs = {job.arguments["seed"]: json.loads(job.path.read_text(encoding="utf-8")) for job in jobs}
    values = {name: [run[name] for run in runs.values()] for name in baselines["cls"]}
    mean = {name: statistics.fmean(found) for name, found in values.items()}
    print(_line(arguments.method, mean))
    name, folder = Path(arguments.encoder).name, None if arguments.encoder == "mini" else Path(arguments.encoder)
    write(
        arguments.out or RESULTS / f"stsb-{arguments.method}-{name}.json",
        {
            **provenance(
                name,
                folder,
                text=text_facts("STS-B sentences (train, dev, test), no grades", sentences(arguments.data)),
                seeds=sorted(runs),
            ),
            "protocol": "Spearman x 100 of cosine, 'all' setting, text as released; checkpoint by STS-B dev",
            "method": arguments.method,
            "options": arguments.options,
            "before": baselines,
            "runs": runs,
            "mean": mean,
            "deviation": {name: statistics.stdev(found) if len(found) > 1 else 0.0 for name, found in values.items()},
        },
    )


def score(encoder: Any, data: str) -> dict[str, float]:
    """Return Spearman × 100 on each of the seven sets, and their average."""
    found = selfguide.evaluate(encoder, "sts", data=data, bootstrap=0, batch_size=256)
    scores = {item.task: item.value for item in found.scores}
    return scores | {"average": statistics.fmean(scores.values())}


def one_seed(encoder: str, method: str, options: list[str], data: str, seed: int) -> dict[str, Any]:
    """Train with one seed.

    Args:
        encoder: The encoder to start from.
        method: The method.
        options: Its options and training settings, as ``name=value``.
        data: The data folder.
        seed: The seed.

    Returns:
        The scores, and the run's dev score, steps, checkpoint and seconds.
    """
    folder, text = Path(data) / "sts" / "stsb", sentences(data)
    given: dict[str, Any] = {name: _number(value) for name, value in (item.split("=", 1) for item in options)}
    with tempfile.TemporaryDirectory() as work:
        run = Path(work) / "run"
        tuned = selfguide.train(
            encoder, text, method, output=run, dev=folder / "dev.tsv", seed=seed, quiet=True, **given
        )
        record = json.loads((run / "run.json").read_text(encoding="utf-8"))
    details = {name: record[name] for name in ("steps", "checkpoint", "seconds")}
    return {**score(tuned, data), "dev": 100 * record["scores"]["after"], **details}


def sentences(data: str) -> list[str]:
    """Return every sentence of STS-B, with repeats, which training drops.

    Args:
        data: The data folder.

    Returns:
        The sentences of train, dev and test.
    """
    folder = Path(data) / "sts" / "stsb"
    return [
        sentence
        for part in ("train", "dev", "test")
        for pairs in [read_pairs(folder / f"{part}.tsv")]
        for both in zip(pairs.first, pairs.second, strict=True)
        for sentence in both
    ]


def _number(word: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


def _line(name: str, scores: dict[str, float]) -> str:
    return f"{name:8s} " + "  ".join(f"{key} {value:.2f}" for key, value in scores.items())


def _arguments() -> argparse.Namespace:
    parser = command_parser(__doc__)
    parser.add_argument("--encoder", default="mini")
    parser.add_argument("--method", default="sg-opt")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--jobs", type=int, default=1, help="seeds trained at a time")
    parser.add_argument("--data", default=os.environ.get("SELFGUIDE_DATA"), help="folder with sts/")
    parser.add_argument("--options", nargs="*", default=[], help="name=value for selfguide.train")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if not arguments.data or not (Path(arguments.data) / "sts").is_dir():
        parser.error("set SELFGUIDE_DATA (or --data) to a folder with sts/stsb/train.tsv and the other STS sets")
    return arguments


if __name__ == "__main__":
    main()
