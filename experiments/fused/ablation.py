"""Measure what each part and option of fused contributes, for several ways of tuning and several seeds.

    SELFGUIDE_DATA=folder python -m experiments.fused.ablation --jobs 14
    SELFGUIDE_DATA=folder python -m experiments.fused.ablation --seeds 1 2 --max-steps 3 --sentences 300 --pairs 60   # rehearsal

Each way of tuning is trained once for each seed on STS-B's sentences without their grades, with the checkpoint chosen by STS-B
dev. The encoder's vectors of the text and of all scored sentences are kept in memory, and the variants of
:mod:`experiments.fused.variants` are made of them: all for the default way of tuning, single parts and weights for the others.
Each run leaves a file in ``--work``; the same command continues an interrupted one.

Scores are Spearman × 100 ('all' setting, text as released). Of each group of variants the best on STS-B dev is reported too.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sentence_transformers import SentenceTransformer

import selfguide
from experiments.fused.parts import GradedSets, encoded, summary, token_weights
from experiments.fused.variants import LAYERS, Material, all_variants
from experiments.jobs import FunctionJob, run_jobs
from experiments.provenance import RESULTS, command_parser, device_name, provenance, text_facts, write
from selfguide.comparison.specs import Spec, parse_specs
from selfguide.comparison.texts import DatasetLocator, text_of_sources
from selfguide.data import TextOptions
from selfguide.data.resources import demo_sentences
from selfguide.evaluation.data import own_pairs
from selfguide.evaluation.evaluate import load_tasks
from selfguide.evaluation.protocol import Protocol
from selfguide.evaluation.tasks import GROUPS

UNTUNED, DEFAULT = "none", "simcse-0.05"
TUNES = (
    f"{UNTUNED}=fused:tune=none",
    "simcse-0.02=fused:tune_options=dropout=0.02",
    f"{DEFAULT}=fused",
    "simcse-0.1=fused:tune_options=dropout=0.1",
    "simcse-0.2=fused:tune_options=dropout=0.2",
    "by-sg-opt=fused:tune=sg-opt",
    "by-sg-opt-no-head=fused:tune=sg-opt:tune_options=head_size=0",
    "by-consert=fused:tune=consert:learning_rate=1e-4:epochs=2",
)
DEV = "stsb-dev"
Scores = dict[str, dict[str, float]]


def main() -> None:
    """Run what is missing in ``--work``, and write the results file."""
    arguments = _arguments()
    started = time.monotonic()
    specs = parse_specs(arguments.tunes)
    jobs = {(spec.label, seed): _job(spec, seed, arguments) for spec in specs for seed in _seeds(spec, arguments.seeds)}
    # The longest runs start first, so that no process waits for them at the end.
    failed = run_jobs(sorted(jobs.values(), key=lambda job: job.arguments["brief"]), arguments.jobs)
    runs: dict[str, list[Scores]] = {spec.label: [] for spec in specs}
    for (label, _), job in jobs.items():
        if record := job.find_record():
            runs[label].append(record["scores"])
    rows = {label: _over_seeds(found) for label, found in runs.items() if found}
    content = {
        **provenance(
            text=text_facts(
                "STS-B sentences (train, dev, test), no grades, repeats dropped", _stsb_text(arguments.data)
            ),
            seeds=arguments.seeds,
        ),
        "protocol": "Spearman x 100 of cosine, 'all' setting, text as released; checkpoint and choices by STS-B dev",
        "rehearsal": bool(arguments.max_steps or arguments.sentences or arguments.pairs),
        "tunes": {spec.label: spec.words for spec in specs},
        "failed": failed,
        "seconds": round(time.monotonic() - started),
        "rows": rows,
        "chosen by dev": {label: _chosen(found) for label, found in rows.items()},
    }
    write(arguments.out, content)
    for label, groups in content["chosen by dev"].items():
        for choice in groups.values():
            print(f"{label:12s} {choice['variant']:60s} dev {choice[DEV]:.2f}  average {choice['average'] or 0:.2f}")


def one_run(
    label: str, spec: str, seed: int, data: str, sentences: int, pairs: int, max_steps: int, brief: bool
) -> dict[str, Any]:
    """Tune one encoder, and score every variant.

    Args:
        label: The name of the way of tuning.
        spec: The method and its options, as ``selfguide compare`` takes them.
        seed: The seed.
        data: The data folder.
        sentences: Sentences of each text at most; 0: all.
        pairs: Pairs of each set at most; 0: all.
        max_steps: Training steps; 0: one epoch, with the checkpoint chosen by STS-B dev.
        brief: Whether only single parts and weights are scored.

    Returns:
        The scores by variant, the seconds, and the device.
    """
    began = time.monotonic()
    ((stage,),) = (one.stages for one in parse_specs([f"{label}={spec}"]))
    training = {name: value for name, value in stage.training.items() if name != "seed"}
    if max_steps:
        training["max_steps"] = max_steps
    text = _stsb_text(data)[: sentences or None]
    dev = Path(data) / "sts" / "stsb" / "dev.tsv" if stage.options["tune"] != "none" and not max_steps else None
    encoder = selfguide.train("mini", text, "fused", dev=dev, seed=seed, quiet=True, **stage.options, **training)
    tuned = time.monotonic() - began
    material = _material(encoder, text, data, sentences, pairs)
    scores = {name: material.sets.scores(geometry) for name, geometry in all_variants(material, brief)}
    return {
        "scores": scores,
        "seconds": {"tuning": tuned, "all": time.monotonic() - began},
        "device": device_name(),
    }


def _stsb_text(data: str) -> list[str]:
    return list(text_of_sources(["data:stsb"], DatasetLocator(data, download=False), TextOptions()).sentences)


def _material(encoder: SentenceTransformer, text: list[str], data: str, sentences: int, pairs: int) -> Material:
    """Encode every sentence of the texts and of the pairs once."""
    domains = [own_pairs(path) for path in sorted((Path(data) / "domain").glob("*.tsv"))]
    tasks = [*load_tasks([*GROUPS["sts"], DEV], (), data, Protocol(), download=False), *domains]
    sets = GradedSets.of(tasks, pairs or None)
    texts = {"stsb": text, "demo": demo_sentences()}
    texts |= {task.task.name: list(dict.fromkeys(filter(str.strip, task.sentences()))) for task in domains}
    if sentences:
        texts = {name: found[:sentences] for name, found in texts.items()}
    row: dict[str, int] = {}
    for sentence in (*(sentence for found in texts.values() for sentence in found), *sets.sentences):
        row.setdefault(sentence, len(row))
    found = encoded(encoder, list(row), LAYERS, token_weights(encoder, texts["stsb"]))
    rows = {name: np.array([row[sentence] for sentence in many]) for name, many in texts.items()}
    scored = np.array([row[sentence] for sentence in sets.sentences])
    return Material(encoder, list(row), found, rows, scored, sets)


def _job(spec: Spec, seed: int, arguments: argparse.Namespace) -> FunctionJob:
    settings = {name: getattr(arguments, name) for name in ("data", "sentences", "pairs", "max_steps")}
    settings |= {"label": spec.label, "spec": spec.words, "seed": seed, "brief": spec.label not in arguments.full}
    path = arguments.work / f"{spec.label}.seed{seed}.json"
    return FunctionJob(path, "experiments.fused.ablation:one_run", settings)


def _seeds(spec: Spec, seeds: Sequence[int]) -> Sequence[int]:
    """Return the seeds of a way of tuning; without tuning, one is enough."""
    return seeds[:1] if spec.stages[0].options["tune"] == "none" else seeds


def _over_seeds(runs: list[Scores]) -> dict[str, dict[str, Any]]:
    """Return each variant's mean on every set over seeds, and mean, deviation and values of the average."""
    found: dict[str, dict[str, Any]] = {}
    for name in runs[0]:
        values = [scores[name] for scores in runs]
        row: dict[str, Any] = {key: round(float(np.mean([v[key] for v in values])), 3) for key in values[0]}
        averages = [value.get("average", float("nan")) for value in values]
        found[name] = row | {"seeds": summary(averages) | {"values": averages}}
    return found


def _chosen(rows: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return of each group of variants the best on STS-B dev."""
    best: dict[str, dict[str, Any]] = {}
    for name, row in rows.items():
        group = name.partition(":")[0]
        if group not in best or row[DEV] > best[group][DEV]:
            best[group] = {"variant": name, DEV: row[DEV], "average": row.get("average")}
    return best


def _arguments() -> argparse.Namespace:
    parser = command_parser(__doc__)
    parser.add_argument("--tunes", nargs="+", default=list(TUNES), metavar="LABEL=SPEC", help="ways of tuning")
    parser.add_argument("--full", nargs="+", default=[DEFAULT], help="labels for which every variant is scored")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(1, 9)))
    parser.add_argument("--jobs", type=int, default=1, help="processes; 0: only collect the files in --work")
    parser.add_argument("--data", default=os.environ.get("SELFGUIDE_DATA"), help="folder with sts/ and domain/")
    parser.add_argument("--work", type=Path, default=Path(".device-fused"), help="folder for one file a run; kept")
    parser.add_argument("--out", type=Path, default=RESULTS / "fused-ablation.json")
    parser.add_argument("--max-steps", type=int, default=0, help="rehearsal: training steps")
    parser.add_argument("--sentences", type=int, default=0, help="rehearsal: sentences of each text")
    parser.add_argument("--pairs", type=int, default=0, help="rehearsal: pairs of each set")
    arguments = parser.parse_args()
    if not arguments.data or not (Path(arguments.data) / "sts").is_dir():
        parser.error("set SELFGUIDE_DATA (or --data) to a folder with sts/")
    return arguments


if __name__ == "__main__":
    main()
