"""Compare fused with its peers on pairs of other domains, each method fitted on the domain's own sentences only.

    SELFGUIDE_DATA=folder python -m experiments.fused.domain --jobs 14
    SELFGUIDE_DATA=folder python -m experiments.fused.domain --seeds 1 --max-steps 2 --rows 60 --work /tmp/work    # rehearsal

For every file in the data folder's domain/ (grade, sentence, sentence) a method sees the sentences without their grades. There
are no dev pairs: the encoder is that of the last step. Scores are Spearman × 100 of cosine and the grades as released, whether
they have two or seven values. Of fused every weight is scored from the same run; its row is that of the default weight.
"""

from __future__ import annotations

import argparse
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

import selfguide
from experiments.fused.parts import GradedSets, applied, mapping_inputs, summary
from experiments.jobs import FunctionJob, run_jobs
from experiments.provenance import RESULTS, command_parser, device_name, provenance, write
from selfguide.calibration.two_views import CalibratedEncoder
from selfguide.evaluation.data import own_pairs
from selfguide.methods.fused import USUAL_WEIGHT, FusedOptions

METHODS: dict[str, dict[str, Any]] = {
    "mean": {},
    "sg-opt": {"learning_rate": 5e-5},
    "simcse": {"learning_rate": 5e-5},
    "consert": {"learning_rate": 1e-4, "epochs": 2.0},
    "fused": {},
}
"""The settings of the main table, which were chosen on STS-B dev."""
WEIGHTS = (0.35, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.8)
BASELINE = "simcse"
Rows = dict[str, dict[str, Any]]


def main() -> None:
    """Run what is missing in ``--work``, and write the results file."""
    arguments = _arguments()
    files = sorted((Path(arguments.data) / "domain").glob("*.tsv"))
    jobs = [
        FunctionJob(
            arguments.work / f"{file.stem}.{name}.seed{seed}.json",
            "experiments.fused.domain:one_run",
            {"file": file, "method": name, "seed": seed, "pairs": arguments.rows, "max_steps": arguments.max_steps},
        )
        for name in reversed(METHODS)
        for seed in (arguments.seeds[:1] if name == "mean" else arguments.seeds)
        for file in files
    ]
    failed = run_jobs(jobs, arguments.jobs)
    content = {
        **provenance(
            text={
                "name": "the distinct sentences of each file of pairs, no grades",
                "digests": {file.stem: hashlib.sha256(file.read_bytes()).hexdigest()[:16] for file in files},
            },
            seeds=arguments.seeds,
        ),
        "protocol": "Spearman x 100 of cosine and the grades as released; no dev pairs, the last step",
        "settings": METHODS,
        "weight": USUAL_WEIGHT,
        "rehearsal": bool(arguments.max_steps or arguments.rows),
        "failed": failed,
        "rows": {file.stem: _rows([job for job in jobs if job.arguments["file"] == file]) for file in files},
    }
    content["mean of the files"] = _over_files(list(content["rows"].values()))
    write(arguments.out, content)
    for name, found in (*content["rows"].items(), ("mean of the files", content["mean of the files"])):
        for method, row in found.items():
            over = row.get(f"over {BASELINE}", {})
            tail = f", over {BASELINE} {over['mean']:+.2f} ± {over['deviation']:.2f}, p {over['p']:.1g}" if over else ""
            print(f"{name:20s} {method:10s} {row['mean']:.2f} ± {row['deviation']:.2f}{tail}")


def one_run(file: Path, method: str, seed: int, pairs: int, max_steps: int) -> dict[str, Any]:
    """Fit a method on the sentences of a file, and score it on the pairs.

    Args:
        file: The graded pairs.
        method: One of ``METHODS``.
        seed: The seed.
        pairs: Pairs at most; 0: all.
        max_steps: Training steps; 0: the method's epochs.

    Returns:
        The score, the number of sentences, the device and, of fused, the score at other weights.
    """
    sets = GradedSets.of([own_pairs(file)], pairs or None)
    text = [sentence for sentence in sets.sentences if sentence.strip()]
    limits: dict[str, Any] = {"max_steps": max_steps} if max_steps and method != "mean" else {}
    encoder = selfguide.train("mini", text, method, seed=seed, quiet=True, **METHODS[method], **limits)
    score = _spearman(sets, encoder.encode(sets.sentences, batch_size=128))
    found: dict[str, Any] = {"scores": {"spearman": score}, "sentences": len(text), "device": device_name()}
    if isinstance(encoder, CalibratedEncoder):
        found["weights"] = _by_weight(encoder, sets)
    return found


def _by_weight(encoder: CalibratedEncoder, sets: GradedSets) -> dict[str, float]:
    """Score the same two parts joined with other weights."""
    raw, statistics, prior = mapping_inputs(encoder, sets.sentences)
    maps = {weight: FusedOptions(weight=weight).mapping(statistics, prior) for weight in (0.0, *WEIGHTS, 1.0)}
    return {str(weight): _spearman(sets, applied(mapping, raw)) for weight, mapping in maps.items()}


def _spearman(sets: GradedSets, vectors: Any) -> float:
    """Score the only set of pairs; the grades may have two values only, so ties are many."""
    ((_, _, grades),) = sets.pairs.values()
    return float(100 * stats.spearmanr(sets.geometry(np.asarray(vectors)).cosines(), grades).statistic)


def _rows(jobs: Sequence[FunctionJob]) -> Rows:
    """Return each method's mean, deviation and values over seeds, and its difference from the baseline, paired by seed."""
    found: Rows = {}
    for method in METHODS:
        records = [job.find_record() for job in jobs if job.arguments["method"] == method]
        runs = [record for record in records if record]
        if not runs:
            continue
        # Of fused the score at the default weight of today, whatever it was when the run was made.
        found[method] = _row([run.get("weights", {}).get(str(USUAL_WEIGHT), run["scores"]["spearman"]) for run in runs])
        if "weights" in runs[0]:
            found[method]["by weight"] = {
                weight: float(np.mean([run["weights"][weight] for run in runs])) for weight in runs[0]["weights"]
            }
    return _compared(found)


def _over_files(files: Sequence[Rows]) -> Rows:
    """Return the mean of the files seed by seed, for methods with equally many seeds in all files."""
    counts = {method: {len(found.get(method, {"values": ()})["values"]) for found in files} for method in METHODS}
    methods = [method for method, count in counts.items() if len(count) == 1 and 0 not in count]
    means = {m: np.mean([found[m]["values"] for found in files], axis=0).tolist() for m in methods}
    return _compared({method: _row(values) for method, values in means.items()})


def _row(values: list[float]) -> dict[str, Any]:
    return summary(values) | {"values": values}


def _compared(found: Rows) -> Rows:
    """Add the paired difference from the baseline, with a paired t-test."""
    base = found.get(BASELINE, {}).get("values", [])
    for method, row in found.items():
        if method != BASELINE and len(row["values"]) == len(base) > 1:
            test = stats.ttest_rel(row["values"], base)
            row[f"over {BASELINE}"] = summary(list(np.subtract(row["values"], base))) | {"p": float(test.pvalue)}
    return found


def _arguments() -> argparse.Namespace:
    parser = command_parser(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(1, 9)))
    parser.add_argument("--jobs", type=int, default=1, help="processes; 0: only collect the files in --work")
    parser.add_argument("--data", default=os.environ.get("SELFGUIDE_DATA"), help="folder with domain/")
    parser.add_argument("--work", type=Path, default=Path(".device-domain"), help="folder for one file a run; kept")
    parser.add_argument("--out", type=Path, default=RESULTS / "fused-domain.json")
    parser.add_argument("--max-steps", type=int, default=0, help="rehearsal: training steps")
    parser.add_argument("--rows", type=int, default=0, help="rehearsal: pairs of each file")
    arguments = parser.parse_args()
    if not arguments.data or not (Path(arguments.data) / "domain").is_dir():
        parser.error("set SELFGUIDE_DATA (or --data) to a folder with domain/")
    return arguments


if __name__ == "__main__":
    main()
