"""Adaptation in one go, on a GPU: try recipes, select one by a rule, freeze it, and only then look at the report list.

    SELFGUIDE_DATA=folder python -m experiments.adapt.campaign --encoder all-MiniLM-L6-v2=FOLDER \
        --large all-mpnet-base-v2=FOLDER --others sre=FOLDER mini-simcse=FOLDER --jobs 14
    … --jobs 0                                                      # only collect what is there into the results files

1. On the development list every recipe is trained with one seed. The rule: of our own recipes whose worst text loses no more
   than half a point, the one with the largest mean gain. Each peer's best setting is selected by the same rule, or by the mean
   alone if none passes, among as many trials for one peer as for another.
2. The selected recipe is tried at smaller rates on the larger encoder, and the rate selected by the same rule; and it is trained
   on small samples and on texts from which nothing can be learnt.
3. The report list is trained with what was selected: the first encoder and the large one with every seed, the others and the
   peers with fewer; what is lost elsewhere is scored for a few of its texts.

The order is that of importance, so that a run that ends early has the most important cells. A cell's file in ``--work`` is kept.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from experiments.adapt import summary
from experiments.adapt.cell import AS_IS
from experiments.adapt.judges import TASKS, Judge
from experiments.adapt.run import CELL, PROTOCOL, described, named_encoder
from experiments.adapt.texts import DEVELOPMENT, REPORT
from experiments.jobs import FunctionJob
from experiments.provenance import RESULTS, command_parser, folder_hash, provenance, text_facts, write
from selfguide.comparison.runner import run_in_processes
from selfguide.files import read_json
from selfguide.system import cores

ALLOWED = -0.5
_FAST = "contrast:learning_rate=1e-5:dropout=0.2"
_FAR = "contrast:learning_rate=2e-5:dropout=0.2"
_SIMCSE = (
    "contrast:learning_rate=2e-6",
    "contrast:learning_rate=5e-6",
    "contrast:learning_rate=1e-5",
    "contrast:learning_rate=2e-5",
    "contrast:learning_rate=1e-5:temperature=0.1",
    "contrast:learning_rate=5e-6:temperature=0.1",
)
_OURS = (
    _FAST,
    "contrast:learning_rate=1e-5:dropout=0.3",
    _FAR,
    "contrast:learning_rate=2e-5:dropout=0.3",
    "contrast:learning_rate=5e-6:dropout=0.2",
    "contrast:learning_rate=1e-5:thin=0.2",
    f"{_FAST}:thin=0.2",
    f"{_FAR}:thin=0.2",
    f"{_FAST}:thin=0.1",
    f"{_FAST}:temperature=0.07",
    f"{_FAST}:temperature=0.03",
    f"{_FAST}:thin=0.2:temperature=0.07",
    f"{_FAST}:anchor=1",
    f"{_FAR}:anchor=1",
    f"{_FAST}:thin=0.2:anchor=1",
    "contrast:learning_rate=5e-6:dropout=0.2:neighbours=10",
    "contrast:learning_rate=5e-6:dropout=0.2:thin=0.2:neighbours=10",
    f"{_FAR}:batch_size=128",
    f"{_FAST}:batch_size=32",
    f"{_FAST}:thin=0.2:match=0.3",
    f"{_FAR}:stay=0.1",
    "contrast:learning_rate=2e-5:stay=1",
    "contrast:learning_rate=1e-5:contrast=0:anchor=1",
    "contrast:learning_rate=2e-5:contrast=0:match=1:match_share=0.4:neighbours=10",
    "contrast:learning_rate=2e-5:contrast=0:match=1:match_share=0.6:neighbours=10",
    "contrast:learning_rate=1e-5:temperature=0.2",
    "sg-opt:pooling=mean:head_size=0:learning_rate=2e-6",
)
_PEERS: dict[str, tuple[str, ...]] = {
    "simcse": _SIMCSE,
    "tsdae": (
        "tsdae:pooling=mean:learning_rate=1e-6",
        "tsdae:pooling=mean:learning_rate=3e-6",
        "tsdae:pooling=mean:learning_rate=1e-5",
        "tsdae:pooling=mean:learning_rate=3e-5",
        "tsdae:pooling=mean:learning_rate=3e-6:delete_rate=0.3",
        "tsdae:pooling=mean:learning_rate=1e-5:delete_rate=0.3",
    ),
    "ct": (
        "ct:learning_rate=3e-7",
        "ct:learning_rate=1e-6",
        "ct:learning_rate=3e-6",
        "ct:learning_rate=1e-5",
        "ct:learning_rate=1e-6:batch_size=64",
        "ct:learning_rate=3e-6:batch_size=64",
    ),
    "whitening": tuple(f"whitening:pooling=keep:exponent={exponent}" for exponent in (0.02, 0.05, 0.1, 0.25, 0.5)),
}
_RATES = ("1e-6", "2e-6", "4e-6", "1e-5")
"""Learning rates of the selected recipe for the larger encoder."""
_SIZES = (50, 200, 1000)
_UNHELPFUL = ("korean", "template", "shuffled", "turkish")
_ELSEWHERE = ("twitter-url-test", "scifact")
CANDIDATES = (
    _FAR,
    f"{_FAR}:thin=0.2",
    "contrast:learning_rate=1e-5:temperature=0.2",
    "contrast:learning_rate=2e-5:contrast=0:match=1:match_share=0.6:neighbours=10",
)
"""Recipes that gain on different texts, for a choice by dev pairs."""
_PAIRS = 2000
"""Graded pairs of a development text at most."""


def main() -> None:
    """Run what is missing, in order of importance, and write the results files."""
    arguments = _arguments()
    campaign = Campaign(arguments)
    deadline = time.monotonic() + 60 * arguments.minutes
    arguments.work.mkdir(parents=True, exist_ok=True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.jobs:
        jobs = (job for job in campaign.jobs() if not job.path.is_file())
        due = itertools.takewhile(lambda _: time.monotonic() < deadline, jobs)
        for number, record in enumerate(run_in_processes(due, min(arguments.jobs, cores())), 1):
            if "error" in record:
                print(f"FAILED {record['job']}: {record['error']}", flush=True)
            if number % 20 == 0:
                print(f"{number} cells done", flush=True)
    campaign.collect(arguments.out)


class Campaign:
    """The cells, stage by stage.

    Args:
        arguments: Of the command line.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.first = named_encoder(arguments.encoder)
        self.large = named_encoder(arguments.large) if arguments.large else None
        self.others = [named_encoder(item) for item in arguments.others]
        self.asked: dict[Path, FunctionJob] = {}

    def jobs(self) -> Iterator[FunctionJob]:
        """Yield the cells, in the order of importance."""
        seeds: Sequence[int] = self.arguments.seeds
        words = tuple(dict.fromkeys((*_SIMCSE, *_OURS)))
        peers = [word for name in ("whitening", "tsdae", "ct") for word in _PEERS[name]]
        yield from self._cells([self.first], DEVELOPMENT, (AS_IS, *words), seeds[:1])
        yield from self._cells([self.first], DEVELOPMENT, peers, seeds[:1])
        if self.large:
            yield from self._cells([self.large], DEVELOPMENT, (AS_IS,), seeds[:1])
        report = (*REPORT, *TASKS)
        every = [self.first, *([self.large] if self.large else []), *self.others]
        yield from self._cells(every, report, (AS_IS,), seeds[:1], pairs=0)
        ours = self.selected(self.first, words)
        print(f"selected: {ours}", flush=True)
        yield from self._cells([self.first], report, (ours,), seeds, pairs=0)
        for size in _SIZES:
            yield from self._cells([self.first], DEVELOPMENT, (ours,), seeds[:2], size=size)
        for instead in _UNHELPFUL:
            yield from self._cells([self.first], DEVELOPMENT, (ours,), seeds[:1], instead=instead)
        if self.large:
            rated = [at_rate(ours, rate) for rate in _RATES]
            yield from self._cells([self.large], DEVELOPMENT, rated, seeds[:1])
            theirs = self.selected(self.large, rated)
            print(f"selected for the larger encoder: {theirs}", flush=True)
            yield from self._cells([self.large], report, (theirs,), seeds[:3], pairs=0)
        best = dict.fromkeys(self.selected(self.first, words) for words in _PEERS.values())
        print(f"selected of the peers: {list(best)}", flush=True)
        yield from self._cells(
            [self.first], report, [word for word in best if not word.startswith("tsdae")], seeds[:3], pairs=0
        )
        candidates = tuple(dict.fromkeys((ours, *CANDIDATES)))
        for seed in seeds[:3]:
            yield from self._cells([self.first], DEVELOPMENT, (AS_IS, *candidates), [seed], cosines=True)
            yield from self._cells([self.first], REPORT, (AS_IS, *candidates), [seed], pairs=0, cosines=True)
        yield from self._cells(self.others, report, (ours,), seeds[:3], pairs=0)
        yield from self._cells([self.first], _ELSEWHERE, (AS_IS, ours), seeds[:1], pairs=0, also="all")
        if self.large:
            yield from self._cells([self.large], _ELSEWHERE, (AS_IS, theirs), seeds[:1], pairs=0, also="all")
        yield from self._cells([self.first], report, list(best), seeds[:3], pairs=0)
        if self.large:
            yield from self._cells([self.large], report, (theirs,), seeds[3:], pairs=0)
        yield from self._cells([self.first], _ELSEWHERE, list(best), seeds[:1], pairs=0, also="all")

    def selected(self, encoder: tuple[str, Path], words: Sequence[str]) -> str:
        """Select a recipe by its gains on the development list.

        Args:
            encoder: Name and folder.
            words: The recipes to select from.

        Returns:
            Of those whose worst text loses no more than allowed the one with the largest mean gain; of all if none passes.
        """
        jobs = list(self._cells([encoder], DEVELOPMENT, (AS_IS, *words), self.arguments.seeds[:1]))
        limit = time.monotonic() + self.arguments.patience
        while not all(job.path.is_file() for job in jobs) and time.monotonic() < limit:
            time.sleep(0.5)
        gains = self.gains(encoder[0], words)
        safe = {word: found for word, found in gains.items() if min(found) >= ALLOWED} or gains
        return max(safe, key=lambda word: statistics.fmean(safe[word]), default=words[0])

    def gains(self, encoder: str, words: Sequence[str]) -> dict[str, list[float]]:
        """Return the gains on the development list of every recipe that is complete, text by text."""
        rows = [row for row in self.rows() if row["encoder"] == encoder and not row["size"] and row["also"] == "dev"]
        found = {word: [gain["own"] for gain in summary.gains(rows) if gain["word"] == word] for word in words}
        return {word: values for word, values in found.items() if len(values) >= len(DEVELOPMENT)}

    def rows(self) -> list[dict[str, Any]]:
        """Return the records of all cells that were asked for and are there."""
        return [
            {**described(job), "also": job.arguments["also"], **read_json(path)}
            for path, job in self.asked.items()
            if path.is_file() and not job.arguments["cosines"]
        ]

    def collect(self, folder: Path) -> None:
        """Write one results file for each list."""
        self.arguments.patience = 0.0
        for _ in self.jobs():
            pass
        rows = self.rows()
        encoders = [self.first, *([self.large] if self.large else []), *self.others]
        for name, texts in (("development", set(DEVELOPMENT)), ("report", {*REPORT, *TASKS})):
            kept = [row for row in rows if row["text"] in texts]
            content = {
                **provenance(
                    None, text={"name": "by cell", "digests": self._digests(texts)}, seeds=self.arguments.seeds
                ),
                "encoders": {encoder: folder_hash(path) for encoder, path in encoders},
                "list": name,
                "protocol": PROTOCOL,
                "selected": {
                    "ours": self.selected(self.first, tuple(dict.fromkeys((*_SIMCSE, *_OURS)))),
                    **{peer: self.selected(self.first, words) for peer, words in _PEERS.items()},
                },
                "missing": sum(
                    not path.is_file() and job.arguments["text"] in texts for path, job in self.asked.items()
                ),
                "recipes": summary.by_recipe([row for row in kept if row["also"] != "all"]),
                "cells": kept,
            }
            write(folder / f"adapt-campaign-{name}.json", content)
            print(summary.text(content["recipes"]))

    def _digests(self, texts: set[str]) -> dict[str, str]:
        """Return digests of the sentences of the texts."""
        pairs = self.arguments.pairs or _PAIRS
        judges = {
            text: Judge(text, Path(self.arguments.data), pairs if text in DEVELOPMENT else 0, "none")
            for text in sorted(texts)
        }
        return {text: text_facts(text, judge.sentences)["digest"] for text, judge in judges.items()}

    def _cells(
        self,
        encoders: Sequence[tuple[str, Path]],
        texts: Sequence[str] | dict[str, Any],
        words: Sequence[str],
        seeds: Sequence[int],
        *,
        pairs: int = _PAIRS,
        size: int = 0,
        instead: str = "",
        also: str = "",
        cosines: bool = False,
    ) -> Iterator[FunctionJob]:
        for seed in seeds:
            for name, encoder in encoders:
                for word in words:
                    for text in texts:
                        once = word == AS_IS or word.startswith("whitening")
                        if once and seed != self.arguments.seeds[0]:
                            continue
                        scored = also or ("dev" if text in DEVELOPMENT else "none")
                        extra = "cosines" if cosines else ""
                        parts = (name, text, word, instead, f"n{size}" if size else "", scored, extra, f"seed{seed}")
                        stem = ".".join(part.replace(":", "_") for part in parts if part)
                        job = FunctionJob(
                            self.arguments.work / f"{stem}.json",
                            CELL,
                            {
                                "name": name,
                                "encoder": str(encoder),
                                "text": text,
                                "word": word,
                                "seed": seed,
                                "data": self.arguments.data,
                                "shares": [0.5, 1.0] if cosines else [1.0],
                                "pairs": min(pairs, self.arguments.pairs) if self.arguments.pairs else pairs,
                                "size": size,
                                "instead": instead,
                                "max_steps": self.arguments.max_steps,
                                "also": scored,
                                "free": False,
                                "cosines": cosines,
                            },
                        )
                        self.asked[job.path] = job
                        yield job


def at_rate(word: str, rate: str) -> str:
    """Return a recipe at another learning rate."""
    parts = [part for part in word.split(":") if not part.startswith("learning_rate=")]
    return ":".join([parts[0], f"learning_rate={rate}", *parts[1:]])


def _arguments() -> argparse.Namespace:
    parser = command_parser(__doc__)
    parser.add_argument(
        "--encoder", required=True, metavar="NAME=FOLDER", help="the encoder that recipes are chosen on"
    )
    parser.add_argument("--large", metavar="NAME=FOLDER", help="a larger one")
    parser.add_argument("--others", nargs="*", default=[], metavar="NAME=FOLDER", help="encoders for the report alone")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--jobs", type=int, default=1, help="processes; 0: only collect the files in --work")
    parser.add_argument("--minutes", type=float, default=600, help="start no cell after so many minutes")
    parser.add_argument("--patience", type=float, default=90, help="seconds that a selection waits for its last cells")
    parser.add_argument("--data", default=os.environ.get("SELFGUIDE_DATA"), help="folder with domain/, nli/, sts/ …")
    parser.add_argument("--work", type=Path, default=Path(".device-adapt"), help="folder for one file a cell; kept")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results files")
    parser.add_argument("--pairs", type=int, default=0, help="rehearsal: graded pairs of a text at most")
    parser.add_argument("--max-steps", type=int, default=0, help="rehearsal: training steps")
    arguments = parser.parse_args()
    if not arguments.data or not (Path(arguments.data) / "domain").is_dir():
        parser.error("set SELFGUIDE_DATA (or --data) to a folder with domain/, nli/, sts/ and transfer/")
    return arguments


if __name__ == "__main__":
    main()
