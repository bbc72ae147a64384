"""Which label-free score decides safely between the original, the average and the tuned weights, and by how much.

A rule takes the share with the best score if its improvement over the original exceeds so many standard errors, and otherwise
keeps the original. What counts is what the rule loses at worst over all cells, the deliberately bad ones among them, and what it
keeps of the gain.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from experiments.adapt.scores import FOUND
from experiments.adapt.summary import gains
from selfguide.correlation import spearman

SCORES = (*FOUND, "found")
MARGINS = (-1.0, 0.0, 1.0, 2.0, 3.0)
"""Standard errors by which a candidate must be better; a negative margin allows it to be a little worse."""
OVERLAPS = (0.0, 0.6, 0.8, 0.9)
"""Least share of the original's nearest neighbours that a candidate must keep."""
ALLOWED = -0.5
"""Points that adapting may lose at most."""

Gain = Mapping[str, Any]


def validated(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return how every rule fares on the cells.

    Args:
        rows: Cells, with those of the encoders as they are among them.

    Returns:
        How the scores' changes follow the gains, and by rule the mean gain, the worst, and how often the original was kept.
    """
    found = gains(rows)
    groups: dict[tuple[Any, ...], list[Gain]] = {}
    for gain in found:
        key = tuple(gain[name] for name in ("encoder", "text", "word", "seed", "size", "instead"))
        groups.setdefault(key, []).append(gain)
    cells = list(groups.values())
    rules = {
        _named(score, margin, least): outcome(cells, score, margin, least)
        for score in SCORES
        for margin in MARGINS
        for least in OVERLAPS
    }
    return {
        "cells": len(cells),
        "always": _result([max(cell, key=lambda gain: float(gain["share"])) for cell in cells]),
        "best": _result([max(cell, key=lambda gain: float(gain["own"])) for cell in cells]),
        "correlation": {score: _correlation(found, score) for score in SCORES},
        "rules": rules,
        "held out": held_out(cells),
    }


def held_out(cells: Sequence[Sequence[Gain]]) -> dict[str, Any]:
    """Return what a rule is worth that was selected without the text it is applied to.

    Selecting among so many rules on so few cells flatters the one selected. Here the cells of each text are left out in turn:
    of the rules that lose no more than allowed on the other texts, the one with the largest mean gain there is applied.

    Args:
        cells: The candidates of each cell.

    Returns:
        As :func:`outcome`, and the rule selected for each text.
    """
    taken: list[Gain | None] = []
    selected: dict[str, str] = {}
    for text in dict.fromkeys(cell[0]["text"] for cell in cells):
        others = [cell for cell in cells if cell[0]["text"] != text]
        safe = {
            rule: result
            for rule in itertools.product(SCORES, MARGINS, OVERLAPS)
            if others and (result := outcome(others, *rule))["worst"] >= ALLOWED
        }
        best = max(safe, key=lambda rule: float(safe[rule]["mean"]), default=None)
        selected[text] = "none" if best is None else _named(*best)
        here = [cell for cell in cells if cell[0]["text"] == text]
        taken += [None if best is None else chosen(cell, *best) for cell in here]
    return _result(taken) | {"selected": selected}


def outcome(cells: Sequence[Sequence[Gain]], score: str, margin: float, least: float) -> dict[str, Any]:
    """Return what a rule gains and loses.

    Args:
        cells: The candidates of each cell, one for each share.
        score: The label-free score.
        margin: Standard errors by which a candidate must be better than the original.
        least: Share of the original's neighbours that a candidate must keep.

    Returns:
        Mean gain, worst gain, mean gain elsewhere, and the share of cells in which the original was kept.
    """
    return _result([chosen(cell, score, margin, least) for cell in cells])


def chosen(candidates: Sequence[Gain], score: str, margin: float, least: float) -> Gain | None:
    """Return the candidate that a rule takes, or ``None`` for the original."""
    good = [
        item
        for item in candidates
        if item["free"][score]["change"] > margin * item["free"][score]["error"] and item["free"]["overlap"] >= least
    ]
    return max(good, key=lambda item: float(item["free"][score]["change"]), default=None)


def _named(score: str, margin: float, least: float) -> str:
    return f"{score}, margin {margin:g}, overlap {least:g}"


def _result(taken: Sequence[Gain | None]) -> dict[str, Any]:
    own = [0.0 if item is None else float(item["own"]) for item in taken]
    lost = [0.0 if item is None else float(item.get("elsewhere", 0.0)) for item in taken]
    return {
        "mean": float(np.mean(own)) if own else 0.0,
        "worst": min(own, default=0.0),
        "elsewhere": float(np.mean(lost)) if lost else 0.0,
        "worst elsewhere": min(lost, default=0.0),
        "below": sum(value < ALLOWED for value in own),
        "kept": sum(item is None for item in taken) / max(1, len(taken)),
    }


def _correlation(found: Sequence[Gain], score: str) -> float:
    """Return Spearman's correlation of the score's change with the gain; 0 where it is undefined."""
    value = spearman([item["free"][score]["change"] for item in found], [item["own"] for item in found])
    return value if np.isfinite(value) else 0.0


def text(choices: Mapping[str, Any]) -> str:
    """Return the rules that never lose more than allowed, the best first, as lines for the terminal."""
    rules = sorted(choices["rules"].items(), key=lambda item: (item[1]["below"], -item[1]["mean"]))
    lines = [
        f"{choices['cells']} cells; always all the way: {_line(choices['always'])}; best: {_line(choices['best'])}"
    ]
    lines += [f"{name:40s} {_line(row)}" for name, row in rules[:12]]
    lines.append(f"{'selected without the text at hand':40s} {_line(choices['held out'])}")
    return "\n".join([*lines, f"correlation with the gain: {choices['correlation']}"])


def _line(row: Mapping[str, Any]) -> str:
    return (
        f"mean {row['mean']:+.2f} worst {row['worst']:+.2f} elsewhere {row['elsewhere']:+.2f} "
        f"below {row['below']} kept {row['kept']:.0%}"
    )
