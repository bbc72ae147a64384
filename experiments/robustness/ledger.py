"""What has been found so far: one line a case, so that a campaign goes on where it was stopped."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOUND, DEFECT, SKIPPED = "sound", "defect", "skipped"


@dataclass(frozen=True)
class Case:
    """One thing to try."""

    name: str
    """Says all that decides it."""
    groups: dict[str, str]
    """What it is counted under, by kind of group."""
    trial: Callable[[], dict[str, Any]]
    """Tries it; returns facts, with ``outcome`` and, of a defect, ``why``."""


class Ledger:
    """The outcomes of one campaign."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def outcomes(self) -> dict[str, dict[str, Any]]:
        """Return the last outcome of each case."""
        if not self.file.exists():
            return {}
        found = {}
        for line in self.file.read_text(encoding="utf-8").splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue  # killed while it was written
            found[entry["case"]] = entry
        return found

    def go_through(self, cases: Iterable[Case], defects_again: bool = False) -> Iterator[dict[str, Any]]:
        """Try the cases that have no outcome yet.

        Args:
            cases: All cases.
            defects_again: Try those again that were defects.

        Yields:
            Each new outcome.
        """
        before = self.outcomes()
        self.file.parent.mkdir(parents=True, exist_ok=True)
        for case in cases:
            former = before.get(case.name)
            if former is not None and not (defects_again and former["outcome"] == DEFECT):
                continue
            begun = time.monotonic()
            facts = case.trial()
            entry = {"case": case.name, **case.groups, **facts, "seconds": round(time.monotonic() - begun, 2)}
            with self.file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry, ensure_ascii=False) + "\n")
            yield entry


def sound(**facts: Any) -> dict[str, Any]:
    """Return the facts of a case in which all was as it should be."""
    return {"outcome": SOUND, **facts}


def defect(why: str, **facts: Any) -> dict[str, Any]:
    """Return the facts of a case in which something was not."""
    return {"outcome": DEFECT, "why": why, **facts}


def skipped(why: str) -> dict[str, Any]:
    """Return the facts of a case that could not be tried, which does not count."""
    return {"outcome": SKIPPED, "why": why}


def counted(outcomes: Iterable[dict[str, Any]], kind: str) -> dict[str, dict[str, int]]:
    """Count outcomes by a kind of group.

    Args:
        outcomes: The outcomes of a campaign.
        kind: The kind of group, such as ``command``.

    Returns:
        For each group, how many cases were tried and how many were defects.
    """
    table: dict[str, dict[str, int]] = {}
    for entry in outcomes:
        if entry["outcome"] == SKIPPED:
            continue
        row = table.setdefault(str(entry.get(kind, "")), {"cases": 0, "defects": 0})
        row["cases"] += 1
        row["defects"] += entry["outcome"] == DEFECT
    return table
