"""fused and its peers on pairs of other domains, each fitted on that domain's own sentences and on nothing else.

    SELFGUIDE_DATA=folder python -m experiments.fused_domain --jobs 14 --work .device-domain
    SELFGUIDE_DATA=folder python -m experiments.fused_domain --seeds 1 --max-steps 2 --rows 60 --work /tmp/work    # rehearsal

For every file in the data folder's domain/ (grade, sentence, sentence) a method sees the sentences without their grades. No dev
pairs: the encoder is the one after the last step. Scores are Spearman × 100 of cosine and the grades as released, whether they
are two or seven. Of fused every weight is scored from the same run; the row is that of
the default.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

import selfguide
from experiments import side_by_side
from experiments.fused_objectives import IDEAS, tuning_by
from experiments.fused_parts import GradedSets, applied, summary
from experiments.results import RESULTS, folder_hash, provenance, write
from selfguide.calibration.frequencies import Vocabulary
from selfguide.calibration.fused_modules import CalibratedEncoder
from selfguide.calibration.general_tokens import general_tokens
from selfguide.data.resources import mini_folder
from selfguide.evaluation.data import own_pairs
from selfguide.methods.fused import USUAL_WEIGHT, FusedOptions
from selfguide.runs.calibrate import _without_last

OUT = RESULTS / "fused-domain.json"
METHODS: dict[str, dict[str, Any]] = {
    "mean": {},
    "sg-opt": {"learning_rate": 5e-5},
    "simcse": {"learning_rate": 5e-5},
    "consert": {"learning_rate": 1e-4, "epochs": 2.0},
    "fused": {},
}
"""With the settings of the main table, which were chosen on STS-B dev."""
FUSED = "fused"
IDEA_SEEDS = 2
WEIGHTS = (0.35, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.8)
BASELINE = "simcse"


def main() -> None:
    arguments = _arguments()
    files = sorted((Path(arguments.data) / "domain").glob("*.tsv"))
    jobs = {}
    for name in (*reversed(METHODS), *arguments.ideas):
        for seed in arguments.seeds[: {"mean": 1}.get(name, IDEA_SEEDS if name in arguments.ideas else None)]:
            for file in files:
                place = arguments.work / f"{file.stem}.{name}.seed{seed}.json"
                jobs[place] = partial(one_run, file, name, seed, place, arguments)
    if arguments.worker is not None:
        side_by_side.take_turns(jobs, arguments.worker)
        return
    if not arguments.collect:
        side_by_side.start("experiments.fused_domain", arguments.work, arguments.jobs)
    content = {
        **provenance("SELFGUIDE_DATA=... python -m experiments.fused_domain"),
        "encoder": {"name": "mini", "weights": folder_hash(mini_folder())},
        "text": "the distinct sentences of each file of pairs, no grades",
        "protocol": "Spearman x 100 of cosine and the grades as released; no dev pairs, the last step",
        "settings": METHODS,
        "weight": USUAL_WEIGHT,
        "seeds": arguments.seeds,
        "rehearsal": bool(arguments.max_steps or arguments.rows),
        "failed": side_by_side.lacking(jobs),
        "rows": {file.stem: rows(file.stem, arguments) for file in files},
    }
    content["mean of the files"] = over_files(list(content["rows"].values()))
    write(arguments.out, content)
    for name, found in (*content["rows"].items(), ("mean of the files", content["mean of the files"])):
        for method, row in found.items():
            over = row.get(f"over {BASELINE}", {})
            tail = f", over {BASELINE} {over['mean']:+.2f} ± {over['deviation']:.2f}, p {over['p']:.1g}" if over else ""
            print(f"{name:20s} {method:10s} {row['mean']:.2f} ± {row['deviation']:.2f}{tail}")


def one_run(file: Path, name: str, seed: int, place: Path, arguments: argparse.Namespace) -> str:
    """Fit a method on the sentences of a file, and score it on the pairs."""
    task = own_pairs(file)
    sets = GradedSets.of([task], arguments.rows or None)
    text = [sentence for sentence in sets.sentences if sentence.strip()]
    limits = {"max_steps": arguments.max_steps} if arguments.max_steps and name != "mean" else {}
    settings: dict[str, Any] = METHODS.get(name, {}) | limits
    with tuning_by(name, text):
        encoder = selfguide.train("mini", text, FUSED if name in IDEAS else name, seed=seed, quiet=True, **settings)
    found = {"scores": scored(sets, encoder.encode(sets.sentences, batch_size=128)), "sentences": len(text)}
    found["device"] = provenance("")["device"]
    if isinstance(encoder, CalibratedEncoder):
        found["weights"] = by_weight(encoder, sets)
    write(place, found)
    return f"{file.stem} {name}, seed {seed}: {found['scores']}"


def by_weight(encoder: CalibratedEncoder, sets: GradedSets) -> dict[str, float]:
    """Spearman of the same two parts joined with other weights."""
    views = _without_last(encoder).encode(sets.sentences, batch_size=128)
    options = FusedOptions()
    prior = options.prior(general_tokens(encoder, Vocabulary.of_encoder(encoder), options.view_layer))
    maps = {
        weight: replace(options, weight=weight).mapping(encoder.statistics, prior) for weight in (0.0, *WEIGHTS, 1.0)
    }
    return {str(weight): scored(sets, applied(mapping, views))["spearman"] for weight, mapping in maps.items()}


def scored(sets: GradedSets, vectors: Any) -> dict[str, float]:
    """On the one set of pairs."""
    ((_, _, grades),) = sets.pairs.values()
    cosines = sets.geometry(np.asarray(vectors)).cosines()
    return {"spearman": float(100 * stats.spearmanr(cosines, grades).statistic)}


def rows(file: str, arguments: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Of each method mean, deviation and values over seeds, and its difference from the baseline, paired by seed."""
    found: dict[str, dict[str, Any]] = {}
    for method in (*METHODS, *arguments.ideas):
        runs = [_read(arguments.work / f"{file}.{method}.seed{seed}.json") for seed in arguments.seeds]
        done = [run for run in runs if run]
        if not done:
            continue
        # Of fused, at today's usual weight, whatever it was when the run was made.
        found[method] = _row([run.get("weights", {}).get(str(USUAL_WEIGHT), run["scores"]["spearman"]) for run in done])
        if "weights" in done[0]:
            found[method]["by weight"] = {
                weight: float(np.mean([run["weights"][weight] for run in done])) for weight in done[0]["weights"]
            }
    return _compared(found)


def over_files(files: Sequence[dict[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """The mean of the files, seed by seed."""
    every = dict.fromkeys(method for found in files for method in found)
    counts = {m: {len(found[m]["values"]) if m in found else 0 for found in files} for m in every}
    methods = [method for method, count in counts.items() if len(count) == 1 and 0 not in count]
    means = {m: np.mean([found[m]["values"] for found in files], axis=0).tolist() for m in methods}
    return _compared({method: _row(values) for method, values in means.items()})


def _row(values: list[float]) -> dict[str, Any]:
    return summary(values) | {"values": values}


def _compared(found: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Adds the paired difference from the baseline, with a paired t-test."""
    base = found.get(BASELINE, {}).get("values", [])
    for method, row in found.items():
        if method != BASELINE and len(row["values"]) == len(base) > 1:
            test = stats.ttest_rel(row["values"], base)
            row[f"over {BASELINE}"] = summary(list(np.subtract(row["values"], base))) | {"p": float(test.pvalue)}
    return found


def _read(place: Path) -> dict[str, Any] | None:
    return json.loads(place.read_text(encoding="utf-8")) if place.is_file() else None


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(1, 9)))
    parser.add_argument("--ideas", nargs="*", default=[], choices=IDEAS, help="fused with other objectives, besides")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--data", default=os.environ.get("SELFGUIDE_DATA"))
    parser.add_argument("--work", type=Path, required=True, help="a file for each run; kept")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--collect", action="store_true", help="run nothing: put together the files in --work")
    parser.add_argument("--max-steps", type=int, default=0, help="rehearsal: so many training steps")
    parser.add_argument("--rows", type=int, default=0, help="rehearsal: so many pairs of each file")
    parser.add_argument(side_by_side.WORKER, type=float, metavar="BEGAN", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not arguments.data or not (Path(arguments.data) / "domain").is_dir():
        parser.error("set SELFGUIDE_DATA (or --data) to a folder with domain/")
    return arguments


if __name__ == "__main__":
    main()
