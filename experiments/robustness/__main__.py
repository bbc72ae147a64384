"""Kill commands, run two at once, break their disk, damage their files and feed them nonsense; count what comes of it.

    python -m experiments.robustness kills together faults damage fuzz --work FOLDER      # goes on where it was stopped
    python -m experiments.robustness collect --work FOLDER                       # counts → experiments/results/robustness.json

Every campaign works on a tiny random BERT; most commands run in forked children of one process that has imported the libraries,
some in processes of their own. Linux, with a C compiler.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from experiments.provenance import RESULTS, command_parser
from experiments.robustness import shim
from experiments.robustness.ledger import DEFECT, SKIPPED, Case, Ledger

CAMPAIGNS = ("kills", "together", "faults", "damage", "fuzz")


def main() -> int:
    """Run campaigns, or collect their outcomes.

    Returns:
        1 if a defect was found, else 0.
    """
    arguments = _arguments()
    arguments.work.mkdir(parents=True, exist_ok=True)
    if arguments.campaigns == ["collect"]:
        from experiments.robustness.summary import collect

        return collect(arguments.work, arguments.out)
    shim.ready(arguments.work)
    from experiments.robustness.forks import preload
    from experiments.robustness.worlds import Worlds

    preload()
    worlds = Worlds(arguments.work)
    worlds.prepare()
    defects, until = 0, time.monotonic() + 60 * (arguments.minutes or 10**6)
    for campaign in arguments.campaigns:
        ledger = Ledger(arguments.work / f"{campaign}.jsonl")
        cases = _chosen(_cases(campaign)(worlds, arguments.short), arguments.only, arguments.share)
        for entry in ledger.go_through(cases, arguments.again):
            defects += entry["outcome"] == DEFECT
            if entry["outcome"] == DEFECT:
                print(f"DEFECT {entry['case']}: {entry['why']}", flush=True)
            elif arguments.verbose or entry["outcome"] == SKIPPED:
                print(f"{entry['outcome']} {entry['seconds']:.1f} s {entry['case']}", flush=True)
            if time.monotonic() > until:
                break
        outcomes = ledger.outcomes().values()
        print(f"{campaign}: {sum(e['outcome'] != SKIPPED for e in outcomes)} cases so far", file=sys.stderr, flush=True)
        if time.monotonic() > until:
            break
    return int(defects > 0)


def _cases(campaign: str) -> Callable[..., Iterator[Case]]:
    from importlib import import_module

    found: Callable[..., Iterator[Case]] = import_module(f"experiments.robustness.{campaign}").cases
    return found


def _chosen(cases: Iterator[Case], part: str, share: str) -> Iterator[Case]:
    mine, of = map(int, share.split("/"))
    return (case for number, case in enumerate(cases) if part in case.name and number % of == mine - 1)


def _arguments() -> argparse.Namespace:
    parser = command_parser(__doc__)
    parser.add_argument("campaigns", nargs="+", choices=[*CAMPAIGNS, "collect"])
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "selfguide-robustness")
    parser.add_argument("--short", action="store_true", help="a few cases of each kind")
    parser.add_argument("--only", default="", help="only cases whose name has this in it")
    parser.add_argument("--share", default="1/1", help="2/3: the second of three processes that share the work")
    parser.add_argument("--minutes", type=float, help="stop after so many minutes; the same command goes on")
    parser.add_argument("--again", action="store_true", help="try again what was a defect")
    parser.add_argument("--verbose", action="store_true", help="name every case")
    parser.add_argument("--out", type=Path, default=RESULTS / "robustness.json")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
