"""Train recipes on the texts of a list, score them, and check which label-free choice is safe.

    SELFGUIDE_DATA=folder python -m experiments.adapt.run --list development --encoder all-MiniLM-L6-v2=FOLDER --jobs 14
    SELFGUIDE_DATA=folder python -m experiments.adapt.run --list report --encoder all-MiniLM-L6-v2=FOLDER --jobs 14 \
        --recipes contrast --seeds 1 2 3 4 5
    SELFGUIDE_DATA=folder python -m experiments.adapt.run --texts forums --recipes contrast --seeds 1 --pairs 60 \
        --max-steps 2 --work /tmp/work --out /tmp/adapt.json                                             # rehearsal

A cell is an encoder, a text, a recipe and a seed. Its file in ``--work`` is kept, so that the same command continues; with
``--jobs 0`` it only collects what is there. A cell that an earlier results file has, measured in the same way, is not lost when
its file is gone: it is taken over with its date, and not measured again (``--again`` does). Each trained cell is scored at
several shares of the way between the original's weights and the tuned ones. ``--instead`` adds texts from which nothing can be
learnt, ``--sizes`` small samples of each text.
Everything may be chosen on the development list, nothing on the report list.
"""

from __future__ import annotations

import argparse
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.adapt import choice, summary
from experiments.adapt.cell import AS_IS
from experiments.adapt.judges import ALSO, TASKS, Judge
from experiments.adapt.texts import DEVELOPMENT, REPORT
from experiments.adapt.unhelpful import KINDS
from experiments.jobs import FunctionJob, run_jobs
from experiments.provenance import RESULTS, command_parser, folder_hash, provenance, text_facts, write
from selfguide.data.resources import mini_folder
from selfguide.files import read_json

PROTOCOL = (
    "own: Spearman x 100 of cosine and grade on the text's own pairs, or the task's main metric x 100; elsewhere: STS-B dev, or "
    "with also = all the mean of the seven STS sets; trained on the text without grades, queries and labels; last step"
)
CELL = "experiments.adapt.cell:one_run"
BASELINE = "contrast"
RECIPES = (
    BASELINE,
    "contrast:learning_rate=2e-5",
    "contrast:learning_rate=2e-5:stay=1",
    "contrast:learning_rate=5e-5:stay=1",
    "contrast:learning_rate=2e-5:anchor=1",
    "contrast:learning_rate=2e-5:dropout=0.2",
)
"""The recipes of the first round; ``--recipes`` names others."""
LISTS: dict[str, tuple[str, ...]] = {"development": tuple(DEVELOPMENT), "report": (*REPORT, *TASKS)}


def main() -> None:
    """Run the cells that are missing, and write the results file."""
    arguments = _arguments()
    encoders = dict(named_encoder(item) for item in arguments.encoder)
    facts = {
        "encoders": {name: folder_hash(path) for name, path in encoders.items()},
        "list": arguments.list,
        "protocol": PROTOCOL,
        "also": arguments.also,
        "pairs": arguments.pairs,
        "sentences": arguments.sentences,
        "shares": arguments.shares,
        "precision": arguments.precision,
        "rehearsal": bool(arguments.max_steps),
    }
    known = {} if arguments.again else former_cells(arguments.out, facts)
    jobs = list(_jobs(encoders, arguments))
    failed = run_jobs([job for job in jobs if _key(described(job)) not in known], arguments.jobs)
    rows = [
        {**described(job), **record} if (record := job.find_record()) else known[_key(described(job))]
        for job in jobs
        if job.path.is_file() or _key(described(job)) in known
    ]
    content = {
        **provenance(None, text=_texts(arguments), seeds=arguments.seeds),
        **facts,
        "failed": failed,
        "cells": rows,
        "recipes": summary.by_recipe(rows),
    }
    if arguments.scores:
        content["choices"] = choice.validated(rows)
        print(choice.text(content["choices"]))
    write(arguments.out, content)
    print(summary.text(content["recipes"]))


def former_cells(path: Path, facts: Mapping[str, Any]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return the cells of an earlier results file that were measured in the same way.

    Args:
        path: The results file; it need not exist.
        facts: How cells are measured now: the protocol, the limits, and the encoders with the hashes of their weights.

    Returns:
        Cells by what identifies them, each with the date of the file that it was measured for.
    """
    if not path.is_file():
        return {}
    former = read_json(path)
    if any(former.get(name) != value for name, value in facts.items() if name != "encoders"):
        return {}
    same = {name for name, weights in facts["encoders"].items() if former["encoders"].get(name) == weights}
    return {_key(row): {"date": former["date"], **row} for row in former["cells"] if row["encoder"] in same}


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("encoder", "text", "word", "seed", "size", "instead"))


def _texts(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the names of the texts, with digests of their sentences."""
    texts = {name: Judge(name, Path(arguments.data), arguments.pairs, "none").sentences for name in arguments.texts}
    return {"name": "by cell", "digests": {name: text_facts(name, text)["digest"] for name, text in texts.items()}}


def named_encoder(item: str) -> tuple[str, Path]:
    """Return the name and the folder of an encoder given as ``NAME=FOLDER``, ``FOLDER`` or ``mini``."""
    name, _, path = item.rpartition("=")
    return (name or Path(path).name, mini_folder() if path == "mini" else Path(path))


def described(job: FunctionJob) -> dict[str, Any]:
    """Return what identifies a cell."""
    kept = ("text", "word", "seed", "size", "instead")
    return {"encoder": job.arguments["name"], **{name: job.arguments.get(name) for name in kept}}


def _jobs(encoders: dict[str, Path], arguments: argparse.Namespace) -> Iterator[FunctionJob]:
    """Yield the cells: seed by seed, so that an interrupted run has something of every row."""
    words = [AS_IS, *arguments.recipes]
    insteads = ["", *arguments.instead]
    sizes: Sequence[int] = [arguments.sentences, *arguments.sizes]
    for seed, (name, folder), instead, size, word, text in itertools.product(
        arguments.seeds, encoders.items(), insteads, sizes, words, arguments.texts
    ):
        if word == AS_IS and (seed != arguments.seeds[0] or instead or size != arguments.sentences):
            continue
        if instead and size != arguments.sentences:
            continue
        parts = (name, text, word, instead, f"n{size}" if size else "", f"seed{seed}")
        stem = ".".join(part.replace(":", "_") for part in parts if part)
        yield FunctionJob(
            arguments.work / f"{stem}.json",
            CELL,
            {
                "name": name,
                "encoder": str(folder),
                "text": text,
                "word": word,
                "seed": seed,
                "data": arguments.data,
                "shares": arguments.shares,
                "pairs": arguments.pairs,
                "size": size,
                "instead": instead,
                "max_steps": arguments.max_steps,
                "precision": arguments.precision,
                "also": arguments.also,
                "free": arguments.scores,
            },
        )


def _arguments() -> argparse.Namespace:
    parser = command_parser(__doc__)
    parser.add_argument("--encoder", nargs="+", default=["mini"], metavar="NAME=FOLDER")
    parser.add_argument("--list", default="development", choices=list(LISTS))
    parser.add_argument("--texts", nargs="+", metavar="TEXT", help="some texts of the list")
    parser.add_argument("--also", choices=ALSO, help="what is scored elsewhere; default: by the list")
    parser.add_argument("--recipes", nargs="*", default=list(RECIPES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--shares", type=float, nargs="+", default=[0.5, 1.0])
    parser.add_argument("--pairs", type=int, default=0, help="graded pairs of a text at most; 0: all")
    parser.add_argument("--sentences", type=int, default=0, help="sentences to train on at most; 0: all")
    parser.add_argument("--sizes", type=int, nargs="*", default=[], help="small samples of each text as well")
    parser.add_argument("--instead", nargs="*", default=[], choices=KINDS, help="unhelpful texts as well")
    parser.add_argument("--precision", default="fp32", choices=("fp32", "bf16"), help="of training and of scoring")
    parser.add_argument("--jobs", type=int, default=1, help="processes; 0: only collect the files in --work")
    parser.add_argument("--data", default=os.environ.get("SELFGUIDE_DATA"), help="folder with domain/, nli/, sts/ …")
    parser.add_argument("--work", type=Path, default=Path(".device-adapt"), help="folder for one file a cell; kept")
    parser.add_argument("--out", type=Path, help="default: adapt-LIST.json among the results")
    parser.add_argument("--max-steps", type=int, default=0, help="rehearsal: training steps")
    parser.add_argument("--again", action="store_true", help="measure cells that the results file has already")
    parser.add_argument("--no-scores", dest="scores", action="store_false", help="without the label-free scores")
    arguments = parser.parse_args()
    if not arguments.data or not (Path(arguments.data) / "domain").is_dir():
        parser.error("set SELFGUIDE_DATA (or --data) to a folder with domain/, nli/, sts/ and transfer/")
    known = LISTS[arguments.list]
    arguments.texts = arguments.texts or list(known)
    if unknown := set(arguments.texts) - set(known):
        parser.error(f"{', '.join(sorted(unknown))} is not on the {arguments.list} list, which has {', '.join(known)}")
    arguments.also = arguments.also or ("dev" if arguments.list == "development" else "all")
    arguments.out = arguments.out or RESULTS / f"adapt-{arguments.list}.json"
    return arguments


if __name__ == "__main__":
    main()
