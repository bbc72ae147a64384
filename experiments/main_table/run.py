"""Run the main table: every row of rows.py on the embedded encoder, text of STS-B, eight seeds, the seven STS sets.

    python -m experiments.main_table.run --jobs 14 --minutes 9       at most nine minutes; the same command continues
    python -m experiments.main_table.run --rehearse --jobs 1         every row in miniature, on a CPU

Rows without labels come first, then chains that continue one of them, then rows with labels, and last what continues one of
those; within each part the cells are run seed by seed. Up to four calls of `selfguide compare` on one output folder do this:
each names the rows of the one before, whose cells are finished, and more. An interrupted run loses only the cells that were
running. ``--keep`` keeps the encoders, so that a chain such as simcse+whitening continues from that of simcse. ``--archive``
packs cells and tables.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path

from experiments.main_table import launch
from experiments.main_table.rows import (
    LABEL_FREE,
    MANIFEST,
    ROWS,
    SETTINGS_FILE,
    STOPPING,
    SUPERVISED,
    TUNED,
    UNTRAINED,
    label_of,
    read_settings,
    settings_for,
)

SEEDS = 8
# A chain comes after the row that it continues, whose encoder it can then reuse.
_PARTS = (UNTRAINED + TUNED, LABEL_FREE, LABEL_FREE + SUPERVISED, ROWS)


def main() -> int:
    """Run the rows, and return the exit code."""
    arguments = _arguments()
    specs = _chosen(arguments.rows)
    settings = [STOPPING, *read_settings(Path(arguments.settings)), *arguments.set]
    inputs = launch.unpacked(Path(arguments.inputs))
    until = time.monotonic() + 60 * arguments.minutes if arguments.minutes else None
    output = Path(arguments.output).resolve()
    parts = [tuple(spec for spec in specs if spec in upto) for upto in _PARTS]
    code = 0
    launch.hear_ctrl_c()
    with launch.shared_gpu(arguments.mps) as shared:
        print(f"{arguments.jobs} cells side by side, multi-process service: {'on' if shared else 'off'}", flush=True)
        for part in dict.fromkeys(part for part in parts if part):
            if until is None or time.monotonic() < until:
                code = launch.compare(_words(part, settings_for(part, settings), output, arguments), inputs, until)
    if (output / "cells").is_dir():
        # An interrupted comparison has written no table yet.
        launch.compare(["--from", str(output), *_baseline(specs)], inputs, None)
        shutil.copyfile(inputs / MANIFEST, output / MANIFEST)
    if arguments.archive:
        launch.pack_results(output, Path(arguments.archive).resolve())
    return code


def _words(specs: tuple[str, ...], settings: list[str], output: Path, arguments: argparse.Namespace) -> list[str]:
    """Return the arguments of `selfguide compare`."""
    words = ["data:stsb", "--methods", ",".join(specs)]
    if arguments.rehearse:
        pairs = str(few_pairs(launch.unpacked(Path(arguments.inputs)), output))
        words += ["--seeds", "1", "--pairs", pairs, "--dev", pairs, "--limit", "120"]
        settings = [*settings, "max_steps=3", "dev_every=2"]
    else:
        words += ["--seeds", str(arguments.seeds), "--tasks", "sts", "--dev", "stsb-dev"]
    # The deviation over seeds is reported, so there is no need for bootstrap intervals.
    words += ["--encoder", arguments.encoder, "--bootstrap", "0", "--batch-size", "256", "--offline"]
    words += ["--keep"] if arguments.keep else []
    for setting in settings:
        words += ["--set", setting]
    return [*words, *_baseline(specs), "--jobs", str(arguments.jobs), "--output", str(output)]


def few_pairs(inputs: Path, output: Path) -> Path:
    """Write a few of STS-B's dev pairs for the rehearsal, and return the file."""
    output.mkdir(parents=True, exist_ok=True)
    lines = (inputs / "sts" / "stsb" / "dev.tsv").read_text(encoding="utf-8").split("\n")
    (output / "few-pairs.tsv").write_text("\n".join(lines[:40]) + "\n", encoding="utf-8")
    return output / "few-pairs.tsv"


def _baseline(specs: tuple[str, ...]) -> list[str]:
    return ["--baseline", "mean"] if "mean" in specs else []


def _chosen(rows: str) -> tuple[str, ...]:
    if not rows:
        return ROWS
    asked = rows.split(",")
    unknown = set(asked) - {label_of(spec) for spec in ROWS}
    if unknown:
        sys.exit(f"There is no row {', '.join(sorted(unknown))}.")
    return tuple(spec for spec in ROWS if label_of(spec) in asked)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run the main table.")
    parser.add_argument("--inputs", default=".device-table", help="folder or archive that `prepare` made")
    parser.add_argument("--output", default=".device-results/main-table")
    parser.add_argument("--settings", default=str(SETTINGS_FILE), help="file of settings, one a line")
    parser.add_argument("--set", action="append", default=[], help="a further setting, as for `selfguide compare`")
    parser.add_argument("--encoder", default="mini")
    parser.add_argument("--rows", default="", help="labels separated by commas; default: all")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--jobs", type=int, default=14)
    parser.add_argument("--minutes", type=float, default=0, help="stop after this time; 0: when all is done")
    parser.add_argument("--keep", action="store_true", help="keep encoders for chains (100 MB a cell)")
    parser.add_argument("--archive", help="pack cells and tables into this file")
    parser.add_argument(
        "--no-mps", dest="mps", action="store_false", help="do not start NVIDIA's multi-process service"
    )
    parser.add_argument("--rehearse", action="store_true", help="three steps, 120 sentences, 40 pairs")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
