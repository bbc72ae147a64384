"""Tables about choosing an encoder without labels."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from experiments.pages.sources import lookup, read
from experiments.pages.tables.markdown import table

GROUNDS = ("sts", "mqp", "twitter-url-test")
LABELLED = "(STS-B dev, labelled)"
NAMES = {
    "fused, seed 1": "`fused`",
    "fused, seed 2": "`fused`",
    "fused:weight=0.2:max_steps=120, seed 1": "`fused`, weight 0.2",
    "fused:tune=none, seed 1": "`fused` untuned",
    "whitening:layer=0": "whitened layer 0",
}


def _ground(name: str) -> dict[str, Any]:
    found: dict[str, Any] = lookup(f"choosing:{name}")
    return found


def _by_worst() -> list[str]:
    worst: dict[str, float] = read("experiments/results/choosing.json")["worst_ground"]
    return [*sorted(worst, key=lambda score: -worst[score]), LABELLED]


def grounds() -> str:
    """The three benchmarks."""
    lines: dict[str, Callable[[dict[str, Any]], str]] = {
        "encoders (of them tuned)": lambda ground: f"{ground['encoders']} ({ground['tuned']})",
        "graded by": lambda ground: str(ground["metric"]),
        "graded pairs (of those in the files)": lambda ground: f"{ground['pairs']:,} ({ground['pairs_in_the_file']:,})",
        "sentences that scores are computed on": lambda ground: f"{ground['sentences']:,}",
        "lowest and highest grade": lambda ground: "{:.1f} to {:.1f}".format(*ground["range_of_grades"]),
    }
    rows = [[label, *(show(_ground(name)) for name in GROUNDS)] for label, show in lines.items()]
    return table(" | ".join(["", *GROUNDS]), rows)


def correlations() -> str:
    """Every score beside the grades."""
    rows = []
    for score in _by_worst():
        cells = []
        for name in GROUNDS:
            found = _ground(name)["scores"].get(score)
            if found is None:
                cells += ["", "", ""]
                continue
            low, high = found["interval"]
            shown = f"{found['spearman']:.2f} [{low:.2f}, {high:.2f}]"
            cells += [shown, f"{found['kendall']:.2f}", f"{found['regret']:.1f}"]
        rows.append([_title(score), *cells])
    heads = [f"{name}: Spearman [95 %] | Kendall | regret" for name in GROUNDS]
    return table(" | ".join(["score", *heads]), rows)


def by_kind() -> str:
    """Every score among tuned and among untuned encoders."""
    rows = []
    for score in _by_worst():
        found = [_ground(name)["scores"].get(score) for name in GROUNDS]
        cells = [
            (f"{one['spearman_tuned']:.2f}", f"{one['spearman_untuned']:.2f}") if one else ("", "") for one in found
        ]
        rows.append([_title(score), *(text for pair in cells for text in pair)])
    return table(" | ".join(["score", *(f"{name}: tuned | untuned" for name in GROUNDS)]), rows)


def regrets() -> str:
    """What choosing by a score costs."""
    rows = []
    for tuned in (False, True):
        for score in ("found", "thinned", "corruptions"):
            cells = [_regret(name, score, tuned) for name in GROUNDS]
            rows.append([f"`{score}`, among {'tuned' if tuned else 'all'}", *cells])
    chance = [f"{_best(name) - statistics.fmean(_grades(name, tuned=True)):.1f}" for name in GROUNDS]
    always = [f"{_best(name) - _grade_of(name, 'fused, seed 1'):.1f}" for name in GROUNDS]
    rows += [["chance, among tuned", *chance], ["nothing: always `fused`, seed 1", *always]]
    return table(" | ".join(["chosen by", *GROUNDS]), rows)


def _regret(name: str, score: str, tuned: bool) -> str:
    rows = [row for row in _ground(name)["table"] if row["tuned"] or not tuned]
    chosen = max(rows, key=lambda row: row[score])
    return f"{_best(name) - chosen['grade']:.1f} ({NAMES.get(chosen['encoder'], chosen['encoder'])})"


def _best(name: str) -> float:
    return max(_grades(name))


def _grades(name: str, tuned: bool = False) -> list[float]:
    return [row["grade"] for row in _ground(name)["table"] if row["tuned"] or not tuned]


def _grade_of(name: str, encoder: str) -> float:
    return float(next(row["grade"] for row in _ground(name)["table"] if row["encoder"] == encoder))


def _title(score: str) -> str:
    return score if score == LABELLED else f"`{score}`"


TABLES: dict[str, Callable[[], str]] = {
    "choosing-grounds": grounds,
    "choosing-scores": correlations,
    "choosing-kinds": by_kind,
    "choosing-regrets": regrets,
}
