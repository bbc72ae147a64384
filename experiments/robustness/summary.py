"""Count the outcomes of the campaigns, and write them into the results file."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from experiments.provenance import folder_hash, provenance, text_facts, write
from experiments.robustness import material
from experiments.robustness.ledger import DEFECT, SKIPPED, Ledger, counted

GROUPS = {
    "kills": ("command", "where"),
    "together": ("command",),
    "faults": ("command", "fault"),
    "damage": ("kind", "damage"),
    "fuzz": ("kind", "command"),
}
UNFORESEEN = 70


def collect(work: Path, out: Path) -> int:
    """Write the results file, and print what is a defect.

    Args:
        work: The folder with the ledgers of the campaigns.
        out: The results file.

    Returns:
        1 if there are defects, else 0.
    """
    campaigns: dict[str, Any] = {}
    defects: list[dict[str, str]] = []
    for name, groups in GROUPS.items():
        outcomes = [
            entry for entry in Ledger(work / f"{name}.jsonl").outcomes().values() if entry["outcome"] != SKIPPED
        ]
        campaigns[name] = summary(outcomes, groups)
        defects += [
            {"campaign": name, "case": entry["case"], "why": entry["why"]}
            for entry in outcomes
            if entry["outcome"] == DEFECT
        ]
    origin = provenance(
        encoder=None,
        text=text_facts("sentences made of eight subjects, verbs and objects", material.sentences(96)),
        seeds="each case draws from a generator that its name seeds",
    )
    encoder = {"name": "a random BERT of two layers of 32", "weights": folder_hash(work / "template" / "bert")}
    commands = [f"python -m experiments.robustness {name}" for name in GROUPS]
    total = sum(part["cases"] for part in campaigns.values())
    unforeseen = sum(part["unforeseen"] for part in campaigns.values())
    origin |= {"command": "python -m experiments.robustness collect", "device": "CPU, 1 thread"}
    content = {**origin, "commands": commands, "encoder": encoder, "cases": total, "unforeseen": unforeseen}
    content["defects"] = defects
    write(out, content | {"campaigns": campaigns})
    for found in defects:
        print(f"DEFECT {found['campaign']}: {found['case']}: {found['why']}")
    return int(bool(defects))


def summary(outcomes: list[dict[str, Any]], groups: tuple[str, ...]) -> dict[str, Any]:
    """Count the outcomes of a campaign.

    Args:
        outcomes: Those that count.
        groups: The kinds of group to count by.
    """
    codes = Counter(str(entry["code"]) for entry in outcomes if "code" in entry)
    noticed = Counter(entry["noticed"] for entry in outcomes if "noticed" in entry)
    return {
        "cases": len(outcomes),
        "defects": sum(entry["outcome"] == DEFECT for entry in outcomes),
        "unforeseen": codes.get(str(UNFORESEEN), 0),
        **({"codes": dict(sorted(codes.items()))} if codes else {}),
        **({"noticed": dict(sorted(noticed.items()))} if noticed else {}),
        **{f"by_{kind}": counted(outcomes, kind) for kind in groups},
    }
