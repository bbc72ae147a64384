"""What matters in fused, and what pushes it further: every cheap variant of many tuned encoders, over several seeds.

    SELFGUIDE_DATA=folder python -m experiments.fused_ablation --seeds 1 2 3 4 5 6 7 8 --jobs 14 --work .device-fused
    SELFGUIDE_DATA=folder python -m experiments.fused_ablation --seeds 1 2 --max-steps 3 --sentences 300 --pairs 60   # rehearsal

Second parts are made once: layer 0 stays as it is, whatever tunes the rest. Then each (way of tuning, seed) is tuned once
on STS-B's sentences without their grades, several side by side (checkpoint by STS-B dev). Its vectors of the text and of all
scored sentences are kept in memory, and the variants of :mod:`experiments.fused_variants` are made of them: all for the usual
way of tuning (what takes minutes for its first seed alone), parts and weights for the others.
Each leaves a file in --work; what is there is not done again. Then come the ideas that need several tuned encoders: two tuned
parts side by side, and the mean of the seeds' weights. Objectives that are not the method's (:mod:`experiments.fused_objectives`)
are ways of tuning too, with three seeds.

Scores are Spearman × 100 ('all', text as released). Where a variant is chosen, it is by STS-B dev, the mean over seeds.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import shutil
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import selfguide
from experiments import side_by_side
from experiments.fused_across import across_runs, save_weights
from experiments.fused_objectives import IDEAS, TWO_PARTS, tuning_by
from experiments.fused_parts import GradedSets, encoded, summary, token_weights
from experiments.fused_variants import LAYERS, Material, all_variants, second_parts
from experiments.results import RESULTS, folder_hash, provenance, write
from selfguide.comparison.specs import Spec, parse_specs
from selfguide.comparison.texts import DatasetLocator, text_of_sources
from selfguide.data import TextOptions
from selfguide.data.resources import demo_sentences, mini_folder
from selfguide.evaluation.data import own_pairs
from selfguide.evaluation.evaluate import load_tasks
from selfguide.evaluation.protocol import Protocol
from selfguide.evaluation.rows import TaskData
from selfguide.evaluation.tasks import GROUPS
from selfguide.methods.fused import USUAL_WEIGHT
from selfguide.models.encoders import load_encoder, with_pooling

OUT = RESULTS / "fused-ablation.json"
UNTUNED, USUAL = "none", "simcse-0.05"
TUNES = (
    f"{UNTUNED}=fused:tune=none",
    "simcse-0.02=fused:tune_options=dropout=0.02",
    f"{USUAL}=fused",
    "simcse-0.1=fused:tune_options=dropout=0.1",
    "simcse-0.2=fused:tune_options=dropout=0.2",
    "by-sg-opt=fused:tune=sg-opt",
    "by-sg-opt-no-head=fused:tune=sg-opt:tune_options=head_size=0",
    "by-consert=fused:tune=consert:learning_rate=1e-4:epochs=2",
    *(f"{idea}=fused" for idea in IDEAS),
)
DEV = "stsb-dev"
IDEA_SEEDS = 3


def main() -> None:
    arguments = _arguments()
    specs = parse_specs(arguments.tunes)
    started = time.monotonic()
    jobs = [(spec, seed) for spec in specs for seed in _seeds(spec, arguments.seeds)]
    jobs.sort(key=lambda job: job[0].label not in arguments.full)  # the long ones first
    places = {_place(spec.label, seed, arguments): partial(one_run, spec, seed, arguments) for spec, seed in jobs}
    if arguments.worker is not None:
        side_by_side.take_turns(places, arguments.worker, arguments.minutes)
        return
    arguments.work.mkdir(parents=True, exist_ok=True)
    if not arguments.collect:
        if not _views(arguments).is_file():
            _make_views(arguments, brief=not any(spec.label in arguments.full for spec in specs))
        side_by_side.start("experiments.fused_ablation", arguments.work, arguments.jobs, arguments.threads)
    failed = side_by_side.lacking(places)
    runs = {spec.label: _read(spec.label, arguments) for spec in specs}
    across = (
        {}
        if arguments.no_across or arguments.collect
        else across_runs(_untuned_material(arguments), arguments.work, USUAL, runs)
    )
    content = {
        **provenance(f"SELFGUIDE_DATA=... python -m experiments.fused_ablation {' '.join(_plain_words())}"),
        "encoder": {"name": "mini", "weights": folder_hash(mini_folder())},
        "text": "STS-B sentences (train, dev, test), no grades, repeats dropped",
        "protocol": "Spearman x 100 of cosine, 'all' setting, text as released; checkpoint and choices by STS-B dev",
        "seeds": arguments.seeds,
        "rehearsal": bool(arguments.max_steps or arguments.sentences or arguments.pairs),
        "tunes": {spec.label: spec.words for spec in specs},
        "failed": failed,
        "seconds": round(time.monotonic() - started),
        "rows": {label: _over_seeds(found) for label, found in runs.items() if found},
        "chosen by dev": {label: _chosen(_over_seeds(found)) for label, found in runs.items() if found},
        "across": _over_seeds(across) if across else {},
    }
    write(arguments.out, content)
    _print(content)


def one_run(spec: Spec, seed: int, arguments: argparse.Namespace) -> str:
    """Tune once, score every variant, and leave a file. The vectors of [CLS] stay beside it for what compares runs."""
    began = time.monotonic()
    (stage,) = spec.stages
    training = {name: value for name, value in stage.training.items() if name != "seed"}
    if arguments.max_steps:
        training["max_steps"] = arguments.max_steps
    text = _text(arguments)
    dev = Path(arguments.data) / "sts" / "stsb" / "dev.tsv" if _tunes(spec) and not arguments.max_steps else None
    with tuning_by(spec.label, text):
        encoder = selfguide.train("mini", text, "fused", dev=dev, seed=seed, quiet=True, **stage.options, **training)
    tuned = time.monotonic() - began
    brief = spec.label not in arguments.full
    material = _material(encoder, text, arguments, deep=not brief and seed == arguments.seeds[0])
    scores = {name: material.sets.scores(geometry) for name, geometry in all_variants(material, brief)}
    if spec.label.startswith(TWO_PARTS):
        scores |= two_parts(material)
    place = _place(spec.label, seed, arguments)
    np.savez(place.with_suffix(".npz"), cls=material.found.cls.astype(np.float16))
    if spec.label == USUAL:
        save_weights(encoder, place.with_suffix(".pt"))
    seconds = {"tuning": tuned, "all": time.monotonic() - began}
    write(place, {"scores": scores, "seconds": seconds, "device": provenance("")["device"]})
    value = scores[f"weight, cls centred only: {USUAL_WEIGHT:.2f}"].get("average", float("nan"))
    return f"{spec.label}, seed {seed}: fused {value:.2f}, {seconds['all']:.0f} s"


def two_parts(material: Material) -> dict[str, dict[str, float]]:
    """The mean of the last layer as a second tuned part: alone, beside the view, and beside both."""
    tokens = encoded(with_pooling(material.encoder, "mean"), material.sentences, keep_tokens=False).cls
    second = material.geometry(material.calibrated(material.part(tokens)))
    first, view, share = material.geometry(material.calibrated(material.cls)), material.own_view, USUAL_WEIGHT
    variants = {
        "mean alone": second,
        "mean and view": second * share + view * (1 - share),
        "both alone": first + second,
        "both and view": (first + second) * (share / 2) + view * (1 - share),
    }
    return {f"two parts: {name}": material.sets.scores(geometry) for name, geometry in variants.items()}


def _untuned_material(arguments: argparse.Namespace) -> Material:
    return _material(load_encoder("mini", max_length=128), _text(arguments), arguments)


def _views(arguments: argparse.Namespace) -> Path:
    return Path(arguments.work) / "views.pickle"


def _make_views(arguments: argparse.Namespace, brief: bool) -> None:
    """Second parts of every variant, from the untuned encoder; in a file, under another name until it is whole."""
    began = time.monotonic()
    material = _untuned_material(arguments)
    print(f"{len(material.sentences):,} sentences read, {time.monotonic() - began:.0f} s", flush=True)
    second_parts(material, brief)
    partial = _views(arguments).with_suffix(".partial")
    partial.write_bytes(pickle.dumps((material.views, material.own_part())))
    partial.replace(_views(arguments))
    print(f"{len(material.views)} second parts made, {time.monotonic() - began:.0f} s", flush=True)


def _material(encoder: Any, text: Sequence[str], arguments: argparse.Namespace, deep: bool = False) -> Material:
    """Every sentence that is needed, encoded once; the tokens of layer 0 are kept only where they are needed."""
    views, own = pickle.loads(_views(arguments).read_bytes()) if _views(arguments).is_file() else ({}, None)
    domains = [own_pairs(path) for path in sorted((Path(arguments.data) / "domain").glob("*.tsv"))]
    tasks = [*load_tasks([*GROUPS["sts"], DEV], (), arguments.data, Protocol(), download=False), *domains]
    sets = GradedSets.of(tasks, arguments.pairs or None)
    texts = {"stsb": list(text), "demo": demo_sentences()} | {task.task.name: _distinct(task) for task in domains}
    if arguments.sentences:
        texts = {name: sentences[: arguments.sentences] for name, sentences in texts.items()}
    row: dict[str, int] = {}
    for sentence in (*(sentence for many in texts.values() for sentence in many), *sets.sentences):
        row.setdefault(sentence, len(row))
    sentences = list(row)
    weights = token_weights(encoder, texts["stsb"])
    found = encoded(encoder, sentences, LAYERS, weights, keep_tokens=deep or not views)
    places = {name: np.array([row[sentence] for sentence in many]) for name, many in texts.items()}
    scored = np.array([row[sentence] for sentence in sets.sentences])
    return Material(encoder, sentences, found, places, scored, sets, views, own, deep)


def _distinct(task: TaskData) -> list[str]:
    return list(dict.fromkeys(sentence for sentence in task.sentences() if sentence.strip()))


def _text(arguments: argparse.Namespace) -> list[str]:
    every = list(
        text_of_sources(["data:stsb"], DatasetLocator(arguments.data, download=False), TextOptions()).sentences
    )
    return every[: arguments.sentences or None]


def _seeds(spec: Spec, seeds: Sequence[int]) -> Sequence[int]:
    """What tunes nothing has one, ideas that are not the method's have a few."""
    if not _tunes(spec):
        return seeds[:1]
    return seeds[:IDEA_SEEDS] if spec.label in IDEAS else seeds


def _tunes(spec: Spec) -> bool:
    return bool(spec.stages[0].options["tune"] != "none")


# -- files of the runs -------------------------------------------------------------------------------------------------


def _place(label: str, seed: int, arguments: argparse.Namespace) -> Path:
    return Path(arguments.work) / f"{label}.seed{seed}.json"


def _read(label: str, arguments: argparse.Namespace) -> dict[int, dict[str, dict[str, float]]]:
    places = {seed: _place(label, seed, arguments) for seed in arguments.seeds}
    return {seed: json.loads(place.read_text())["scores"] for seed, place in places.items() if place.is_file()}


# -- tables ------------------------------------------------------------------------------------------------------------


def _over_seeds(runs: dict[int, dict[str, dict[str, float]]]) -> dict[str, dict[str, Any]]:
    """Of each variant: the mean of every set over seeds, and of the average also its deviation and values by seed."""
    found: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(name for scores in runs.values() for name in scores):
        values = [scores[name] for scores in runs.values() if name in scores]
        row: dict[str, Any] = {key: round(float(np.mean([v[key] for v in values])), 3) for key in values[0]}
        averages = [value.get("average", float("nan")) for value in values]
        row["seeds"] = summary(averages) | {"values": averages}
        found[name] = row
    return found


def _chosen(rows: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Of each group of variants the one that is best on STS-B dev, and what it scores."""
    best: dict[str, dict[str, Any]] = {}
    for name, row in rows.items():
        group = name.partition(":")[0]
        if group not in best or row[DEV] > best[group][DEV]:
            best[group] = {"variant": name, DEV: row[DEV], "average": row.get("average")}
    return best


def _print(content: dict[str, Any]) -> None:
    for label, groups in content["chosen by dev"].items():
        for choice in groups.values():
            print(f"{label:12s} {choice['variant']:60s} dev {choice[DEV]:.2f}  average {choice['average'] or 0:.2f}")
    for name, row in content["across"].items():
        print(f"{'across':12s} {name:60s} dev {row[DEV]:.2f}  average {row.get('average', 0):.2f}")


def _plain_words() -> list[str]:
    """The command without folders, which are the machine's own business."""
    kept = list(sys.argv[1:])
    for option in ("--data", "--out", "--work"):
        if option in kept:
            del kept[kept.index(option) : kept.index(option) + 2]
    return kept


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--tunes", nargs="+", default=list(TUNES), metavar="LABEL=SPEC", help="ways of tuning")
    parser.add_argument(
        "--full", nargs="+", default=[USUAL], help="labels for which every variant is tried (minutes each)"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(1, 9)))
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--minutes", type=float, default=0, help="begin no run after so many; the same command goes on")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of each")
    parser.add_argument("--data", default=os.environ.get("SELFGUIDE_DATA"))
    parser.add_argument("--work", type=Path, default=Path(".device-fused"), help="a file for each run; kept")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--max-steps", type=int, default=0, help="rehearsal: so many training steps")
    parser.add_argument("--sentences", type=int, default=0, help="rehearsal: so many sentences of each text")
    parser.add_argument("--pairs", type=int, default=0, help="rehearsal: so many pairs of each set")
    parser.add_argument("--no-across", action="store_true", help="leave out what needs several tuned encoders")
    parser.add_argument("--collect", action="store_true", help="run nothing: put together the files in --work")
    parser.add_argument("--fresh", action="store_true", help="forget the files in --work")
    parser.add_argument(side_by_side.WORKER, type=float, metavar="BEGAN", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not arguments.data or not (Path(arguments.data) / "sts").is_dir():
        parser.error("set SELFGUIDE_DATA (or --data) to a folder with sts/ (and domain/)")
    if arguments.fresh and arguments.worker is None:
        shutil.rmtree(arguments.work, ignore_errors=True)
    return arguments


if __name__ == "__main__":
    main()
