"""What the tables about adaptation share: scores as they are and gains, by text, from files of ``experiments.adapt.run``."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from experiments.adapt.judges import TASKS
from experiments.adapt.texts import DEVELOPMENT, REPORT
from experiments.pages.figures import Form, written
from experiments.pages.sources import lookup

ADAPT, TRAINED, AS_IS = "adapt", "adapt:tune=always:choose=false", "as-is"
WELL_SPREAD = "all-MiniLM-L6-v2"
_ORDER = (*DEVELOPMENT, *REPORT, *TASKS)
Gains = Mapping[str, float]


def cells(name: str, encoder: str, word: str) -> list[Mapping[str, Any]]:
    """Return the cells of a recipe that was fitted on the whole of each text, in the order of the lists.

    Args:
        name: The short name of the results file.
        encoder: The encoder.
        word: The recipe, or ``as-is``.
    """
    found = [
        cell
        for cell in lookup(f"{name}:cells")
        if (cell["encoder"], cell["word"]) == (encoder, word) and not cell["instead"] and not cell["size"]
    ]
    return sorted(found, key=lambda cell: (_ORDER.index(cell["text"]), cell["seed"]))


def encoders(name: str) -> list[str]:
    """Return the encoders that a results file has cells of."""
    return list(dict.fromkeys(cell["encoder"] for cell in lookup(f"{name}:cells")))


def before(name: str, encoder: str, score: str = "own") -> dict[str, float]:
    """Return the scores of an encoder as it is, by text."""
    return {cell["text"]: cell["shares"]["0"][score] for cell in cells(name, encoder, AS_IS)}


def gains(name: str, word: str, share: str = "1", encoder: str = WELL_SPREAD, score: str = "own") -> dict[str, float]:
    """Return what a recipe gains by text, the mean of its seeds.

    Args:
        name: The short name of the results file.
        word: The recipe.
        share: How far the weights are from the original's: 0.5 half-way, 1 what was trained.
        encoder: The encoder.
        score: ``own``, or ``elsewhere``.
    """
    start = before(name, encoder, score)
    found: dict[str, list[float]] = {}
    for cell in cells(name, encoder, word):
        if cell["text"] in start and share in cell["shares"]:
            found.setdefault(cell["text"], []).append(cell["shares"][share][score] - start[cell["text"]])
    return {text: statistics.fmean(values) for text, values in found.items()}


def centred(name: str, encoder: str, share: str = "0.5") -> dict[str, float]:
    """Return what subtracting a share of the mean gains by text, the mean of its seeds."""
    found = [cell for cell in lookup(f"{name}:cells") if cell["encoder"] == encoder and cell["whitening"]]
    return {cell["text"]: statistics.fmean(seed["shares"][share] for seed in cell["seeds"].values()) for cell in found}


def whitened(name: str, encoder: str, exponent: str) -> dict[str, float]:
    """Return what whitening with an exponent gains by text."""
    found = [cell for cell in lookup(f"{name}:cells") if cell["encoder"] == encoder and cell["whitening"]]
    return {cell["text"]: cell["whitening"][exponent] for cell in found}


def pairs(found: Gains) -> dict[str, float]:
    """Return what is said of texts of the report list that have graded pairs."""
    return {text: value for text, value in found.items() if text in REPORT}


def tasks(found: Gains) -> dict[str, float]:
    """Return what is said of the report list's tasks."""
    return {text: value for text, value in found.items() if text in TASKS}


def plain(value: float | None) -> str:
    """Write a score; nothing where there is none."""
    return "" if value is None else written(value, Form(2))


def signed(value: float | None) -> str:
    """Write a gain; nothing where there is none."""
    return "" if value is None else written(value, Form(2, sign=True))


def ends(found: Gains) -> list[str]:
    """Return the mean and the worst gain; nothing where there is none."""
    values = list(found.values())
    return [signed(statistics.fmean(values)), signed(min(values))] if values else ["", ""]
