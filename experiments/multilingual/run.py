"""The papers' question at full size: does tuning on English help in other languages, and is their own text better?

    python -m experiments.multilingual.run --encoder MULTI/encoder --data DATA --corpus CORPUS CORPUS/multilingual \\
        --jobs 14 --minutes 9                                                      # the same command continues
    python -m experiments.multilingual.run … --rehearse                            # all in miniature, on a CPU

Every method is trained on STS-B's English sentences alone (zero-shot), on as many of Spanish, on as many of Arabic, on a third
of each; checkpoints are chosen by STS-B dev in English, and no test set chooses anything. The test sets are STS17 in Spanish,
Arabic, English and across them, and STS-B translated to Spanish; German (STS-B) and Korean (KorSTS) are languages that the
encoder has never seen. The results file has every seed, the difference of each row to the untuned mean, and a paired test.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from experiments.main_table import launch
from experiments.multilingual.texts import write_texts
from experiments.pages.expressions import p
from experiments.pages.sources import Spread
from experiments.provenance import RESULTS, command_parser, folder_hash, provenance, write

ROWS = (
    "mean",
    "cls",
    "whitening=whitening:pooling=mean",
    "bow=bow:frequencies=text",
    "flow",
    "sg-opt",
    "simcse",
    "consert",
    "fused=fused:frequencies=text",
)
BASE = "mean"
SEEN = ("sts17-es-es", "sts17-ar-ar", "sts17-es-en", "sts17-ar-en", "sts17-en-en", "stsb-es")
UNSEEN = ("stsb-de", "korsts")
LANGUAGES = ("spanish", "arabic")
REHEARSAL: dict[str, Any] = {"sentences": 300, "steps": 20, "seeds": "1,2", "share": 0.03}


def main(words: list[str] | None = None) -> int:
    """Run what is left to do, and write the results file when all is done.

    Args:
        words: The command's words; by default those of this process.

    Returns:
        The exit code; 1 while something is left.
    """
    arguments = _arguments(words)
    data, output = Path(arguments.data).resolve(), Path(arguments.output).resolve()
    until = launch.deadline(arguments)
    texts = output / "texts"
    texts.mkdir(parents=True, exist_ok=True)
    english = _english(data)
    if arguments.rehearse:
        english = english[: int(REHEARSAL["sentences"])]
    share = float(REHEARSAL["share"]) if arguments.rehearse else 1.0
    facts = write_texts(arguments.corpus, english, list(LANGUAGES), texts, share)
    launch.hear_ctrl_c()
    found: dict[str, Any] = {}
    with launch.shared_gpu(arguments.mps):
        for name in [name for name in facts if not arguments.texts or name in arguments.texts.split(",")]:
            _compare(name, arguments, data, output, until)
            comparison = _finished(output / name)
            if comparison is None:
                print(f"The rows on the text {name} are not finished yet: repeat the command.", flush=True)
                return 1
            found[name] = comparison
    name = f"multilingual-{arguments.name}" + "-rehearsal" * arguments.rehearse
    facts = {name: facts[name] for name in found}
    write(arguments.out or RESULTS / "multilingual" / f"{name}.json", results(found, facts, arguments))
    return 0


def _english(data: Path) -> list[str]:
    """Return STS-B's different sentences, without their grades."""
    lines = [
        line
        for split in ("train", "dev", "test")
        for line in (data / "sts" / "stsb" / f"{split}.tsv").read_text(encoding="utf-8").splitlines()
    ]
    return list(
        dict.fromkeys(" ".join(cell.split()) for line in lines for cell in line.split("\t")[1:3] if cell.strip())
    )


def _compare(name: str, arguments: argparse.Namespace, data: Path, output: Path, until: float | None) -> None:
    rows = [row for row in ROWS if not arguments.rows or row.partition("=")[0] in arguments.rows.split(",")]
    words = [str(output / "texts" / f"{name}.txt"), "--methods", ",".join(rows), "--encoder", arguments.encoder]
    words += ["--tasks", ",".join((*SEEN, *UNSEEN)), "--dev", "stsb-dev", "--baseline", BASE, "--bootstrap", "0"]
    words += ["--seeds", str(REHEARSAL["seeds"]) if arguments.rehearse else arguments.seeds]
    if arguments.rehearse:
        words += ["--set", f"max_steps={REHEARSAL['steps']}", "--set", "dev_every=10"]
    words += ["--offline", "--no-report", "--jobs", str(arguments.jobs), "--output", str(output / name)]
    launch.command("compare", words, data, until)


def _finished(folder: Path) -> dict[str, Any] | None:
    """Return a comparison whose rows are all there, or ``None``."""
    if not (folder / "comparison.json").is_file():
        return None
    comparison: dict[str, Any] = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
    return comparison if all(row["values"] or row["errors"] for row in comparison["rows"].values()) else None


def results(found: dict[str, Any], facts: dict[str, Any], arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the content of the results file.

    Args:
        found: The comparison on each text.
        facts: Facts about the texts.
        arguments: Those of the command.

    Returns:
        Origin, and by text and row the scores, the differences to the untuned mean and their p-values.
    """
    first = next(iter(found.values()))
    seeds = (str(REHEARSAL["seeds"]) if arguments.rehearse else arguments.seeds).split(",")
    digest = folder_hash(Path(arguments.encoder))
    text = {"name": "the texts below", "digests": {name: each["digest"] for name, each in facts.items()}}
    origin = {
        **provenance(None, text=text, seeds=[int(seed) for seed in seeds]),
        "date": first["date"],
        "devices": first["devices"],
        "versions": first["versions"],
        "encoder": {"name": arguments.name, "weights": digest},
        "dev": first["setting"]["dev"],
        "rehearsal": REHEARSAL if arguments.rehearse else None,
    }
    rows = {name: {label: _row(row, comparison["rows"][BASE]) for label, row in comparison["rows"].items()}
            for name, comparison in found.items()}  # fmt: skip
    above = {
        name: {
            label: sum(float(row["over"][task]["mean"]) > 0 for task in SEEN if task in row["over"])
            for label, row in table.items()
        }
        for name, table in rows.items()
    }
    return {**origin, "texts": facts, "rows": rows, "seen sets above the untuned mean": above}


def _row(row: dict[str, Any], base: dict[str, Any]) -> dict[str, Any]:
    """Return a row with its difference to the untuned mean on every set, and p by a paired test over seeds."""
    over = {}
    for task, value in row["values"].items():
        level = base["values"][task]["mean"]
        runs = {seed: score - level for seed, score in value["by_seed"].items()}
        tested = len(runs) > 1 and len(set(runs.values())) > 1
        spread = Spread(value["mean"], value["deviation"], value["by_seed"])
        over[task] = {
            "mean": value["mean"] - level,
            "deviation": value["deviation"],
            "by_seed": runs,
            "p": p(spread, Spread(level, None, {"once": level})) if tested else None,
        }
    return {name: row[name] for name in ("words", "values", "dev", "steps", "errors", "warnings")} | {"over": over}


def _arguments(words: list[str] | None) -> argparse.Namespace:
    parser = command_parser(__doc__)
    parser.add_argument("--encoder", required=True, help="folder of the multilingual encoder")
    parser.add_argument("--name", default="multi", help="what to call it")
    parser.add_argument("--data", required=True, help="folder with sts/ and multilingual/")
    parser.add_argument("--corpus", type=Path, nargs="+", required=True, help="folders with spanish-0.txt.xz …")
    parser.add_argument("--rows", default="", help="rows separated by commas; default: all")
    parser.add_argument(
        "--texts", default="", help="english, spanish, arabic and all, separated by commas; default: all"
    )
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--out", type=Path, help="results file; by default in experiments/results/multilingual")
    parser.add_argument("--output", default=".device-results/multilingual", help="folder of the cells")
    parser.add_argument("--jobs", type=int, default=14)
    parser.add_argument("--minutes", type=float, default=0, help="stop after this time; 0: when all is done")
    parser.add_argument("--no-mps", dest="mps", action="store_false", help="no NVIDIA multi-process service")
    parser.add_argument("--rehearse", action="store_true", help="few sentences and steps, on a CPU")
    arguments = parser.parse_args(words)
    arguments.encoder = str(Path(arguments.encoder).resolve())
    return arguments


if __name__ == "__main__":
    sys.exit(main())
