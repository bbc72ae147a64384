"""Choose learning rates (and what goes with them) for the embedded encoder by STS-B dev, one seed each.

    python -m experiments.main_table.rates --jobs 14 --minutes 4

Runs every setting of ``rows.GRID`` with seed 1 and scores STS-B dev; no test set is read. Writes the comparison, ``rates.json``
(each setting's dev score, the best of each method) and ``settings.txt``, which then replaces the one beside this file.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from experiments.main_table import launch
from experiments.main_table.rows import GRID, SETTINGS_FILE, STOPPING, Choice, read_settings
from experiments.provenance import command_parser, write

# A method with a stage that is trained like another method takes its settings.
FOLLOWING = {
    "consert-sup-unsup.learning_rate": "consert.learning_rate",
    "consert-sup-unsup.epochs": "consert.epochs",
    "consert-sup-unsup.nli_learning_rate": "consert-joint.learning_rate",
    "consert-joint-unsup.learning_rate": "consert.learning_rate",
    "consert-joint-unsup.epochs": "consert.epochs",
    "consert-joint-unsup.nli_learning_rate": "consert-joint.learning_rate",
}


def main() -> int:
    """Run the grid, and write the choices."""
    arguments = _arguments()
    output = Path(arguments.output).resolve()
    launch.hear_ctrl_c()
    with launch.shared_gpu(arguments.mps):
        code = launch.compare(grid_specs(), "stsb-dev", [STOPPING], arguments, launch.deadline(arguments))
    if not (output / "cells").is_dir():
        return code
    launch.command("compare", ["--from", str(output)], launch.inputs_folder(arguments.inputs), None)
    comparison = json.loads((output / "comparison.json").read_text(encoding="utf-8"))
    found = chosen(comparison)
    origin = {name: comparison[name] for name in ("commands", "date", "devices", "versions", "setting")}
    write(output / "rates.json", {**origin, **found})
    lines = settings_lines(found["best"], read_settings(SETTINGS_FILE))
    (output / "settings.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))
    return code


def grid_specs() -> list[str]:
    """Return every setting of the grid as a row of its own."""
    return [
        f"{_label(choice, place)}={':'.join(filter(None, [choice.method, choice.source, *tried]))}"
        for choice in GRID
        for place, tried in enumerate(choice.tried)
    ]


def chosen(comparison: dict[str, Any]) -> dict[str, Any]:
    """Return the dev score of every setting, and the best setting of each method."""
    scores: dict[str, dict[str, float]] = {}
    best: dict[str, list[str]] = {}
    for choice in GRID:
        of_method: dict[str, float] = {}
        for place, tried in enumerate(choice.tried):
            row = comparison["rows"].get(_label(choice, place))
            if row and row["dev"]:
                of_method[" ".join(tried)] = row["dev"]["mean"]
        if of_method:
            scores[choice.method] = of_method
            best[choice.method] = max(of_method, key=lambda words: of_method[words]).split()
    return {"seed": 1, "chosen by": "STS-B dev", "dev": scores, "best": best}


def settings_lines(best: dict[str, list[str]], former: list[str]) -> list[str]:
    """Make a settings file.

    Args:
        best: The chosen settings by method.
        former: The lines of the former file.

    Returns:
        What was chosen, what follows from it, and the former lines about anything else.
    """
    values = dict(line.split("=", 1) for line in former)
    for method, words in best.items():
        tried = {name for choice in GRID if choice.method == method for each in choice.tried for name in _names(each)}
        values = {key: value for key, value in values.items() if key not in {f"{method}.{name}" for name in tried}}
        values |= {f"{method}.{name}": value for name, value in (word.split("=", 1) for word in words)}
    values |= {follower: values[leader] for follower, leader in FOLLOWING.items() if leader in values}
    head = "# Settings of the main table that differ from a method's own defaults; written by experiments.main_table.rates."
    return [head, *(f"{key}={value}" for key, value in sorted(values.items()))]


def _names(words: tuple[str, ...]) -> list[str]:
    return [word.split("=", 1)[0] for word in words]


def _label(choice: Choice, place: int) -> str:
    return f"{choice.method}@{place + 1}"


def _arguments() -> argparse.Namespace:
    parser = command_parser(__doc__)
    launch.add_options(parser, ".device-results/rates")
    parser.add_argument("--encoder", default="mini")
    return parser.parse_args(namespace=argparse.Namespace(seeds=1))


if __name__ == "__main__":
    sys.exit(main())
