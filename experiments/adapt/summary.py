"""Gains over the encoder as it is: by recipe and share, over texts and seeds, with paired tests."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from experiments.adapt.cell import AS_IS

SCORES = ("own", "elsewhere", "transfer")
Row = Mapping[str, Any]


def baselines(rows: Iterable[Row]) -> dict[tuple[str, str], dict[str, float]]:
    """Return the scores of each encoder as it is, by encoder and text."""
    return {(row["encoder"], row["text"]): row["shares"]["0"] for row in rows if row["word"] == AS_IS}


def gains(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Return one entry for every trained cell and share: what it gains over the encoder as it is.

    Args:
        rows: Cells, with those of the encoders as they are among them.

    Returns:
        The cell's description, its share, and its gain on its own pairs and elsewhere.
    """
    rows = list(rows)
    before = baselines(rows)
    found = []
    for row in rows:
        start = before.get((row["encoder"], row["text"]))
        if row["word"] == AS_IS or start is None:
            continue
        kept = {name: row[name] for name in ("encoder", "text", "word", "seed", "size", "instead")}
        for share, scores in row["shares"].items():
            change = {name: scores[name] - start[name] for name in SCORES if name in scores and name in start}
            found.append({**kept, "share": share, **change, **({"free": scores["free"]} if "free" in scores else {})})
    return found


def by_recipe(rows: Iterable[Row]) -> dict[str, dict[str, Any]]:
    """Return for every recipe and share the gain by text (mean of seeds), over all texts, and the worst text.

    Args:
        rows: Cells.

    Returns:
        A table by ``encoder, recipe, share`` of the cells that were trained on their own text.
    """
    groups: dict[str, list[dict[str, Any]]] = {}
    for gain in gains(rows):
        if not gain["instead"]:
            size = f", {gain['size']} sentences" if gain["size"] else ""
            groups.setdefault(f"{gain['encoder']}, {gain['word']}, share {gain['share']}{size}", []).append(gain)
    return {name: _summary(group) for name, group in groups.items()}


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Return the mean, the sample standard deviation and the values themselves."""
    return {
        "mean": float(np.mean(values)),
        "deviation": float(np.std(values, ddof=1)) if len(values) > 1 else 0.0,
        "values": list(values),
    }


def paired(values: Sequence[float]) -> dict[str, float]:
    """Test whether gains differ from 0.

    Args:
        values: Paired differences, one for each text (the mean of its seeds).

    Returns:
        The p-values of the paired t-test and of Wilcoxon's signed-rank test; 1 where they are undefined.
    """
    if len(values) < 2 or len(set(values)) < 2:
        return {"t": 1.0, "wilcoxon": 1.0}
    p = float(stats.ttest_1samp(values, 0.0).pvalue)
    return {"t": p if math.isfinite(p) else 1.0, "wilcoxon": float(stats.wilcoxon(values).pvalue)}


def _summary(group: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    texts = list(dict.fromkeys(gain["text"] for gain in group))
    own = {text: spread([gain["own"] for gain in group if gain["text"] == text]) for text in texts}
    means = [row["mean"] for row in own.values()]
    lost = {name: [gain[name] for gain in group if name in gain] for name in SCORES[1:]}
    return {
        "own": own,
        "mean": float(np.mean(means)),
        "worst": min(means),
        **{name: float(np.mean(values)) for name, values in lost.items() if values},
        **{f"worst {name}": min(values) for name, values in lost.items() if values},
        "texts": len(texts),
        "cells": len(group),
        "p": paired(means),
    }


def text(recipes: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the table as lines for the terminal."""
    lines = [f"{'gain over as-is':75s}  mean  worst  elsewhere"]
    for name, row in recipes.items():
        cells = " ".join(f"{key} {value['mean']:+.2f}" for key, value in row["own"].items())
        lines.append(f"{name:75s} {row['mean']:+.2f} {row['worst']:+.2f} {row.get('elsewhere', 0.0):+.2f}   {cells}")
    return "\n".join(lines)
