"""Run the main table: every row of rows.py on the embedded encoder, text of STS-B, eight seeds, the seven STS sets.

    python -m experiments.main_table.run --jobs 14 --minutes 9       at most nine minutes; the same command continues
    python -m experiments.main_table.run --rehearse --jobs 1         every row in miniature, on a CPU

Rows without labels come first, then chains that continue one of them, then rows with labels, and last what continues one of
those; within each part the cells are run seed by seed. Up to four calls of `selfguide compare` on one output folder do this:
each names the rows of the one before, whose cells are finished, and more. An interrupted run loses only the cells that were
running. ``--keep`` keeps the encoders, so that a chain such as simcse+whitening continues from that of simcse.
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
from experiments.provenance import command_parser

# A chain comes after the row that it continues, whose encoder it can then reuse.
_PARTS = (UNTRAINED + TUNED, LABEL_FREE, LABEL_FREE + SUPERVISED, ROWS)


def main() -> int:
    """Run the rows, and return the exit code."""
    arguments = _arguments()
    specs = _chosen(arguments.rows)
    settings = [STOPPING, *read_settings(Path(arguments.settings)), *arguments.set]
    inputs, output, until = (
        launch.inputs_folder(arguments.inputs),
        Path(arguments.output).resolve(),
        launch.deadline(arguments),
    )
    parts = [tuple(spec for spec in specs if spec in upto) for upto in _PARTS]
    baseline = ["--baseline", "mean"] if "mean" in specs else []
    more = ["--keep", *baseline] if arguments.keep else baseline
    code = 0
    launch.hear_ctrl_c()
    with launch.shared_gpu(arguments.mps) as shared:
        print(f"{arguments.jobs} cells at a time, multi-process service: {'on' if shared else 'off'}", flush=True)
        for part in dict.fromkeys(part for part in parts if part):
            if until is None or time.monotonic() < until:
                code = launch.compare(part, "sts", settings_for(part, settings), arguments, until, more)
    if (output / "cells").is_dir():
        # An interrupted comparison has written no table yet.
        launch.command("compare", ["--from", str(output), *baseline], inputs, None)
        shutil.copyfile(inputs / MANIFEST, output / MANIFEST)
    return code


def _chosen(rows: str) -> tuple[str, ...]:
    if not rows:
        return ROWS
    asked = rows.split(",")
    unknown = set(asked) - {label_of(spec) for spec in ROWS}
    if unknown:
        sys.exit(f"There is no row {', '.join(sorted(unknown))}.")
    return tuple(spec for spec in ROWS if label_of(spec) in asked)


def _arguments() -> argparse.Namespace:
    parser = command_parser(__doc__)
    launch.add_options(parser, ".device-results/main-table")
    parser.add_argument("--settings", default=str(SETTINGS_FILE), help="file of settings, one a line")
    parser.add_argument("--set", action="append", default=[], help="a further setting, as for `selfguide compare`")
    parser.add_argument("--encoder", default="mini")
    parser.add_argument("--rows", default="", help="labels separated by commas; default: all")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--keep", action="store_true", help="keep encoders for chains (100 MB a cell)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
