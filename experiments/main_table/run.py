"""The main table: every row of rows.py on the embedded encoder, text of STS-B, eight seeds, the seven STS sets.

    python -m experiments.main_table.run --plan                      what would be run, and how long it may take
    python -m experiments.main_table.run --jobs 14 --minutes 9       run, at most nine minutes; again to go on
    python -m experiments.main_table.run --rehearse --encoder FOLDER every row in miniature, on a CPU

The rows without labels come first, then those that go on from one of them, those with labels, what goes on from a
labelled row last, and within each part seed by seed. Up to four calls of `selfguide compare` on one output folder do this: each
names the rows of the one before, whose cells it finds finished, and more. What is stopped loses the cells in hand only.
``--keep`` keeps the encoders, so that a chain such as simcse+whitening goes on from the one of simcse. ``--archive`` packs cells
and tables.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from experiments.main_table import launch
from experiments.main_table.prepare import MANIFEST
from experiments.main_table.rows import (
    LABEL_FREE,
    ROWS,
    SENTENCES,
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
# For the plan only, from earlier runs of this kind: fourteen cells side by side made 84 steps a second together; a cell
# starts, loads and scores in about 20 seconds. A step of a flow or of an LSTM is a tenth of one of the encoder.
_STEPS_A_SECOND, _START, _SIDE_BY_SIDE = 84.0, 20.0, 14
_LIGHT = ("flow", "infersent")
_NLI_ROWS = 44_237
# What goes on from another row's encoder comes after it, or it would be trained twice.
_PARTS = (UNTRAINED + TUNED, LABEL_FREE, LABEL_FREE + SUPERVISED, ROWS)


def main() -> int:
    arguments = _arguments()
    specs = _chosen(arguments.rows)
    settings = [STOPPING, *read_settings(Path(arguments.settings)), *arguments.set]
    inputs = launch.unpacked(Path(arguments.inputs))
    if arguments.plan:
        _print_plan(specs, settings, inputs)
        return 0
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
        # What was stopped has no table of its own yet.
        launch.compare(["--from", str(output), *_baseline(specs)], inputs, None)
        shutil.copyfile(inputs / MANIFEST, output / MANIFEST)
    if arguments.archive:
        launch.pack_results(output, Path(arguments.archive).resolve())
    return code


def _words(specs: tuple[str, ...], settings: list[str], output: Path, arguments: argparse.Namespace) -> list[str]:
    """What `selfguide compare` is called with."""
    words = ["data:stsb", "--methods", ",".join(specs)]
    if arguments.rehearse:
        pairs = str(few_pairs(launch.unpacked(Path(arguments.inputs)), output))
        words += ["--seeds", "1", "--pairs", pairs, "--dev", pairs, "--limit", "120"]
        settings = [*settings, "max_steps=3", "dev_every=2"]
    else:
        words += ["--seeds", str(arguments.seeds), "--tasks", "sts", "--dev", "stsb-dev"]
    # Deviations are over seeds here; intervals over resampled pairs would cost more than the scoring.
    words += ["--encoder", arguments.encoder, "--bootstrap", "0", "--batch-size", "256", "--offline"]
    words += ["--keep"] if arguments.keep else []
    for setting in settings:
        words += ["--set", setting]
    return [*words, *_baseline(specs), "--jobs", str(arguments.jobs), "--output", str(output)]


def few_pairs(inputs: Path, output: Path) -> Path:
    """A handful of STS-B's dev pairs to score a rehearsal on: it shows that everything runs, not how well."""
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


# -- the plan ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Estimate:
    """What one row will take."""

    label: str
    cells: int
    steps: int
    seconds: float
    """Of one cell, with thirteen others beside it."""


def estimates(specs: tuple[str, ...], settings: list[str], nli_rows: int) -> list[Estimate]:
    """Each row's cells, steps of a cell, and a guess of its seconds; early stopping makes it less."""
    from selfguide.comparison.specs import parse_specs
    from selfguide.methods import registry

    found = []
    for spec in parse_specs(list(specs), settings_for(specs, settings)):
        steps, work = 0, 0.0
        for stage in spec.stages:
            if not stage.trained:
                continue
            training = stage.training
            paired = registry.info(stage.method).needs_labels
            rows = nli_rows if paired else SENTENCES
            count = int(training["max_steps"] or -(-training["epochs"] * rows // training["batch_size"]))
            if "nli_epochs" in stage.options:  # two stages in one method: the pairs, then the text
                pairs = -(-nli_rows * stage.options["nli_epochs"] // training["batch_size"])
                count = int(pairs + -(-training["epochs"] * SENTENCES // training["batch_size"]))
            steps += count
            work += count * (0.1 if stage.method in _LIGHT else 1.0)
        seconds = work * _SIDE_BY_SIDE / _STEPS_A_SECOND + _START
        found.append(Estimate(spec.label, SEEDS if spec.seeded else 1, steps, seconds))
    return found


def _print_plan(specs: tuple[str, ...], settings: list[str], inputs: Path) -> None:
    manifest = inputs / MANIFEST
    rows = json.loads(manifest.read_text(encoding="utf-8"))["nli"]["rows"] if manifest.is_file() else _NLI_ROWS
    with _inside(inputs):
        found = estimates(specs, settings, rows)
    print(f"{'row':28s} {'cells':>5s} {'steps':>6s} {'s a cell':>8s}")
    for row in found:
        print(f"{row.label:28s} {row.cells:5d} {row.steps:6d} {row.seconds:8.0f}")
    total = sum(row.cells * row.seconds for row in found) / _SIDE_BY_SIDE / 60
    print(f"{sum(row.cells for row in found)} cells, about {total:.0f} minutes with {_SIDE_BY_SIDE} side by side")


class _inside:  # noqa: N801 (contextlib.chdir came with Python 3.11)
    """The working folder for a moment: rows name their files from there, and options are checked when they are read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> None:
        import os

        self.before = Path.cwd()
        os.chdir(self.folder)

    def __exit__(self, *_: object) -> None:
        import os

        os.chdir(self.before)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run the main table.")
    parser.add_argument("--inputs", default=".device-table", help="folder or archive that `prepare` made")
    parser.add_argument("--output", default=".device-results/main-table")
    parser.add_argument("--settings", default=str(SETTINGS_FILE), help="file of --set lines, one a line")
    parser.add_argument("--set", action="append", default=[], help="a further setting, as for `selfguide compare`")
    parser.add_argument("--encoder", default="mini")
    parser.add_argument("--rows", default="", help="labels with commas; empty: all")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--jobs", type=int, default=14)
    parser.add_argument("--minutes", type=float, default=0, help="stop after so many; 0: when all is done")
    parser.add_argument("--keep", action="store_true", help="keep encoders, for chains to go on from (100 MB a cell)")
    parser.add_argument("--archive", help="pack cells and tables into this file at the end")
    parser.add_argument("--no-mps", dest="mps", action="store_false", help="leave the multi-process service alone")
    parser.add_argument("--plan", action="store_true", help="only say what would be run")
    parser.add_argument("--rehearse", action="store_true", help="three steps, 120 sentences, 40 pairs")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
