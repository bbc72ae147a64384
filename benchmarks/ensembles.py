"""What do tuned encoders know together that none knows alone? Their vectors side by side, every choice of up to three methods.

    SELFGUIDE_DATA=folder python -m benchmarks.ensembles MAIN_TABLE/encoders --methods simcse consert bt tsdae sg-opt

Reads the encoders that `selfguide compare --keep` left (``METHOD.seedN``), encodes the sentences of the seven STS sets and of
STS-B dev with each, and joins vectors that are centred on STS-B's sentences and scaled to length 1, with equal shares: within
a seed, members of different methods; and all seeds of one method. ``sif`` is the whitened, frequency-weighted embedding layer
of the untuned encoder. It is a bound for methods that put several objectives into one network, not a method: every member
costs a forward pass. Choices, where any are made, are by STS-B dev.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

import selfguide
from benchmarks.fused_parts import Floats, Geometry, GradedSets, summary
from benchmarks.results import RESULTS, folder_hash, provenance, write
from selfguide.comparison.texts import Places, text_of_sources
from selfguide.encoders import load, mini_folder
from selfguide.encoding import encode
from selfguide.evaluation.evaluate import load_tasks
from selfguide.evaluation.protocol import Protocol
from selfguide.evaluation.tasks import GROUPS
from selfguide.text import TextOptions

DEV, VIEW = "stsb-dev", "sif"
MOST = 3


def main() -> None:
    arguments = _arguments()
    sets = GradedSets.of(load_tasks([*GROUPS["sts"], DEV], (), arguments.data, Protocol(), download=False))
    text = list(text_of_sources(["data:stsb"], Places(arguments.data, download=False), TextOptions()).sentences)
    text = text[: arguments.sentences or None]
    by_seed: dict[int, dict[str, Geometry]] = {}
    view = _centred(selfguide.train("mini", text, "sif", quiet=True), text, sets)
    for seed in arguments.seeds:
        by_seed[seed] = {VIEW: view}
        for method in arguments.methods:
            folder = arguments.folder / f"{method}.seed{seed}"
            if folder.is_dir():
                by_seed[seed][method] = _centred(load(folder), text, sets)
                print(f"{folder.name}: {_short(sets.scores(by_seed[seed][method]))}", flush=True)
    rows = {name: _over_seeds(found) for name, found in _scores(by_seed, sets).items()}
    for name, row in sorted(rows.items(), key=lambda item: -item[1][DEV]["mean"])[:15]:
        print(
            f"{name:50s} dev {row[DEV]['mean']:.2f}  average {row['average']['mean']:.2f} ± {row['average']['deviation']:.2f}"
        )
    write(
        arguments.out,
        {
            **provenance(
                f"SELFGUIDE_DATA=... python -m benchmarks.ensembles FOLDER --methods {' '.join(arguments.methods)}"
            ),
            "encoder": {"name": "mini", "weights": folder_hash(mini_folder())},
            "protocol": "Spearman x 100 of cosine, 'all' setting, text as released; parts of length 1, equal shares",
            "seeds": arguments.seeds,
            "rows": rows,
        },
    )


def _centred(encoder: Any, text: list[str], sets: GradedSets) -> Geometry:
    """What the pairs need of an encoder's vectors, centred on the text and of length 1."""
    centre = np.asarray(encode(encoder, text, show_progress=False), dtype=np.float64).mean(axis=0)
    vectors: Floats = np.asarray(encode(encoder, sets.sentences, show_progress=False), dtype=np.float64) - centre
    return sets.geometry(vectors).unit()


def _scores(by_seed: dict[int, dict[str, Geometry]], sets: GradedSets) -> dict[str, list[dict[str, float]]]:
    found: dict[str, list[dict[str, float]]] = {}
    for members in by_seed.values():
        for chosen in _choices(members):
            found.setdefault(" + ".join(chosen), []).append(sets.scores(_sum([members[name] for name in chosen])))
    for method in dict.fromkeys(name for members in by_seed.values() for name in members if name != VIEW):
        every = [members[method] for members in by_seed.values() if method in members]
        if len(every) > 1:
            found[f"{method}, {len(every)} seeds together"] = [sets.scores(_sum(every))]
    return found


def _choices(members: dict[str, Geometry]) -> Iterator[tuple[str, ...]]:
    for count in range(1, MOST + 1):
        yield from combinations(members, count)


def _sum(parts: list[Geometry]) -> Geometry:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _over_seeds(scores: list[dict[str, float]]) -> dict[str, dict[str, Any]]:
    return {name: summary([score[name] for score in scores]) for name in scores[0]}


def _short(scores: dict[str, float]) -> str:
    return f"dev {scores[DEV]:.2f}, average {scores['average']:.2f}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("folder", type=Path, help="encoders that `selfguide compare --keep` left")
    parser.add_argument(
        "--methods", nargs="+", default=["simcse", "consert", "bt", "tsdae", "sg-opt", "mirror", "clear"]
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(1, 9)))
    parser.add_argument("--sentences", type=int, default=0, help="rehearsal: so many sentences of the text")
    parser.add_argument("--data", default=os.environ.get("SELFGUIDE_DATA"))
    parser.add_argument("--out", type=Path, default=RESULTS / "ensembles.json")
    arguments = parser.parse_args()
    if not arguments.data or not (Path(arguments.data) / "sts").is_dir():
        parser.error("set SELFGUIDE_DATA (or --data) to a folder with sts/")
    return arguments


if __name__ == "__main__":
    main()
