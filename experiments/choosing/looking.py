"""One encoder after another: its label-free scores on every ground, and its grade there; a file for each.

A ground is something to be right about, a text and grades on it:

    sts     the average of the seven STS sets, from the cell; scored on STS-B's sentences without their grades
    NAME    pairs of domain/NAME.tsv in the data folder, graded here; scored on the sentences of these very pairs

Every sentence is encoded once for an encoder, and its vectors are not kept. What is there already is not done again.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments.choosing.agreement import pair_cosines
from experiments.choosing.candidates import STSB
from experiments.choosing.sample import Sample, sampled
from experiments.choosing.scores import label_free_scores
from experiments.results import write
from experiments.table import launch
from selfguide.comparison.cells import Cell, CellFolder, CellRecord
from selfguide.comparison.specs import Spec, Stage
from selfguide.comparison.texts import DatasetLocator, named_text
from selfguide.data import TextOptions
from selfguide.evaluation.data import digest_of, own_pairs
from selfguide.evaluation.embedder import Embedder, embedder
from selfguide.evaluation.protocol import Protocol
from selfguide.evaluation.rows import Rows, TaskData
from selfguide.evaluation.sts import score_pairs
from selfguide.evaluation.tasks import GROUPS

FOLDER = "looked"
MOST_PAIRS = 2000
"""So many pairs of a domain are graded, drawn at random with the seed."""


@dataclass(frozen=True)
class Kept:
    """An encoder of a comparison."""

    record: CellRecord
    folder: Path

    @property
    def name(self) -> str:
        """For people."""
        return self.record.label if self.record.seed is None else f"{self.record.label}, seed {self.record.seed}"


@dataclass(frozen=True)
class Ground:
    """A text, and where the grades on it come from."""

    name: str
    sample: Sample
    pairs: TaskData | None = None
    """None: the average of the STS sets that the cells give."""
    there: int = 0
    """How many pairs the file has."""
    fingerprint: str | None = None
    """Of the text, where the encoders were made with it."""


def encoders(work: Path) -> list[Kept]:
    """The encoders of all comparisons that finished and were kept."""
    found = []
    for folder, record in _cells(work):
        spec = Spec(record.label, record.words, tuple(Stage(**stage) for stage in record.stages))
        encoder = folder / "encoders" / Cell(spec, record.seed, record.order).stem
        if record.error is None and encoder.is_dir():
            found.append(Kept(record, encoder))
    return found


def not_made(work: Path) -> dict[str, str]:
    """The encoders whose making failed, and why."""
    return {Kept(record, folder).name: record.error for folder, record in _cells(work) if record.error is not None}


def _cells(work: Path) -> list[tuple[Path, CellRecord]]:
    folders = [folder for folder in sorted(work.glob("seed*")) if any((folder / "cells").glob("*.json"))]
    return [(folder, record) for folder in folders for record in CellFolder(folder).read_all()]


def grounds(data: Path, seed: int, partial: bool = False) -> list[Ground]:
    """What the encoders are held against."""
    text = named_text(STSB, DatasetLocator(data, allow_partial=partial, download=False), TextOptions())
    found = [Ground("sts", sampled(text.sentences, seed), fingerprint=text.sentences.summary.fingerprint)]
    for path in sorted((data / "domain").glob("*.tsv")):
        every = own_pairs(path)
        pairs = some_pairs(every, MOST_PAIRS, seed)
        found.append(Ground(path.stem, sampled(pairs.sentences(), seed), pairs, len(every.parts[0])))
    return found


def some_pairs(data: TaskData, most: int, seed: int) -> TaskData:
    """At most so many pairs, drawn at random, in the order of the file."""
    (rows,) = data.parts
    if len(rows) <= most or rows.second is None or rows.grades is None:
        return data
    chosen = sorted(np.random.default_rng(seed).choice(len(rows), most, replace=False).tolist())
    first, second, grades = ([column[index] for index in chosen] for column in (rows.first, rows.second, rows.grades))
    fewer = Rows(rows.part, first, second, grades=grades)
    return replace(data, parts=(fewer,), digest=digest_of([fewer]))


def sts_average(record: CellRecord) -> float | None:
    """The average of the seven sets, where the cell has them all."""
    values = {score.task: score.value for score in record.scores}
    return float(np.mean([values[task] for task in GROUPS["sts"]])) if set(GROUPS["sts"]) <= set(values) else None


def looked_at(one: Kept, every: Sequence[Ground], seed: int) -> dict[str, Any]:
    """All that is asked of an encoder, or why there is no answer."""
    began = time.monotonic()
    record = one.record
    found: dict[str, Any] = {
        "encoder": one.name,
        "words": record.words,
        "tuned": record.steps > 0,  # fused with tune=none is not
        "steps": record.steps,
        "made": record.finished,
        "seed": seed,
        "base": record.setting.encoder_digest,
        "notes": sorted({note for score in record.scores for note in score.notes}),
        "dev": next((_number(score.value) for score in record.scores if score.task == "stsb-dev"), None),
        "error": None,
        "grounds": {},
    }
    try:
        vectors = embedder(one.folder, batch_size=256)
        for ground in every:
            found["grounds"][ground.name] = _on(ground, one, vectors)
    except Exception as error:  # one bad encoder is no reason to give up the others
        found["error"] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return found | {"seconds": round(time.monotonic() - began, 2)}


def _on(ground: Ground, one: Kept, vectors: Embedder) -> dict[str, Any]:
    setting = one.record.setting
    if ground.fingerprint is not None and ground.fingerprint != setting.fingerprint:
        raise SystemExit("The encoders were made with other sentences of STS-B than those in the data folder.")
    scores = label_free_scores(vectors, ground.sample)
    cosines = np.round(pair_cosines(vectors, ground.sample), 6).tolist()
    if ground.pairs is None:
        grade, metric = sts_average(one.record), "mean of seven sets, Spearman"
        rows = sum(score.data.rows for score in one.record.scores if score.task in GROUPS["sts"])
        there = rows
    else:
        scored = score_pairs(ground.pairs, vectors, Protocol(bootstrap=0))
        grade, metric = scored.value, scored.metric
        rows, there = len(ground.pairs.parts[0]), ground.there
    return {
        "grade": _number(grade),
        "metric": metric,
        "pairs": rows,
        "pairs_there": there,
        "sentences": len(ground.sample.sentences),
        "scores": scores,
        "cosines": cosines,
    }


def _number(value: float | None) -> float | None:
    """JSON has no NaN."""
    return None if value is None or math.isnan(value) else value


# -- files, and processes side by side ---------------------------------------------------------------------------------


def place(work: Path, one: Kept) -> Path:
    """The file of an encoder."""
    return work / FOLDER / f"{one.folder.name}.json"


def due(work: Path, seed: int) -> list[Kept]:
    """The encoders that nobody has looked at since they were made, or that failed before."""
    found = []
    for one in encoders(work):
        file = place(work, one)
        former = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {"error": "not there"}
        same = former["error"] is None and (former["made"], former["seed"]) == (one.record.finished, seed)
        if not same:
            found.append(one)
    return found


def look(work: Path, data: Path, seed: int, jobs: int, partial: bool) -> None:
    """Look at every encoder that is due, in processes of one thread each."""
    waiting = [one.folder.name for one in due(work, seed)]
    count = min(jobs, len(waiting))
    print(f"{len(waiting)} encoders to look at, {count} side by side", flush=True)
    (work / FOLDER).mkdir(parents=True, exist_ok=True)
    started = [
        sys.executable,
        "-m",
        "experiments.choosing.looking",
        str(work),
        "--data",
        str(data),
        "--seed",
        str(seed),
    ]
    started += ["--partial"] if partial else []
    workers = []
    for number in range(count):
        log = (work / FOLDER / f"process-{number}.log").open("w", encoding="utf-8")
        own = [*started, "--encoders", *waiting[number::count]]
        workers.append(
            subprocess.Popen(own, stdout=log, stderr=log, cwd=launch.REPOSITORY, env=launch.environment(data))
        )
        log.close()
    try:
        codes = [worker.wait() for worker in workers]
    finally:
        for worker in workers:
            worker.terminate()
    for number in (number for number, code in enumerate(codes) if code):
        said = (work / FOLDER / f"process-{number}.log").read_text(encoding="utf-8").strip()
        print(f"process {number} failed: {' '.join(said.split())[-300:]}", flush=True)


def main() -> None:
    """A process's part of the encoders."""
    parser = argparse.ArgumentParser(description="Look at a part of the encoders; `validate` starts this.")
    parser.add_argument("work", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--encoders", nargs="+", required=True, help="names of their folders")
    parser.add_argument("--partial", action="store_true")
    arguments = parser.parse_args()
    every = grounds(arguments.data, arguments.seed, arguments.partial)
    for one in encoders(arguments.work):
        if one.folder.name in arguments.encoders:
            write(place(arguments.work, one), looked_at(one, every, arguments.seed))


if __name__ == "__main__":
    main()
