"""Published figures, for the pages of the methods."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from experiments.pages.sources import lookup, read
from experiments.pages.tables.markdown import SET_TITLES, seven, table

FILE = "experiments/main_table/published.json"
_HEAD = " | ".join(["method", *SET_TITLES, "average", "read in"])
UNTUNED = {
    "GloVe mean": "glove",
    "[CLS]": "cls",
    "mean": "mean",
    "first-last (corrected)": "first-last",
    "whitening": "whitening",
}
CALIBRATED = {"mean": "mean", "whitening": "whitening", "flow (last2)": "flow"}


def _row(label: str, name: str) -> list[str]:
    row = lookup(f"published:{name}")
    return [label, *(f"{score:.2f}" for score in row["scores"]), f"{row['average']:.2f}"]


def several(rows: dict[str, str]) -> str:
    """Several published rows, with where each was read."""
    places = {"V": "the authors' paper or repository", "T": "a transcription by others"}
    return table(
        _HEAD, [[*_row(label, name), places[lookup(f"published:{name}/read")]] for label, name in rows.items()]
    )


def sentence(name: str) -> str:
    """One published row as a line of text."""
    row = lookup(f"published:{name}")
    decimals = 1 if all(round(score, 1) == score for score in row["scores"]) else 2
    scores = [f"{title} {score:.{decimals}f}" for title, score in zip(SET_TITLES, row["scores"], strict=True)]
    return f"{', '.join(scores)}, average {row['average']:.{decimals}f}."


def self_guided() -> str:
    """SG and SG-OPT as published, and ours."""
    head = " | ".join(["", *SET_TITLES, "average"])
    theirs = {"[CLS]": "cls", "mean": "mean", "SG": "sg", "SG-OPT": "sg-opt"}
    ours = {"[CLS]": "main:cls", "mean": "main:mean", "SG": "main:sg", "SG-OPT": "main:sg-opt"}
    rows = [
        ["*published, BERT-base (paper above; mean of 8 seeds for SG and SG-OPT)*", *[""] * 8],
        *(_row(label, name) for label, name in theirs.items()),
    ]
    rows += [
        ["*ours, `mini` (mean of 8 seeds for SG and SG-OPT)*", *[""] * 8],
        *(seven(label, path) for label, path in ours.items()),
    ]
    return table(head, rows)


TABLES: dict[str, Callable[[], str]] = {
    "published-untuned": partial(several, UNTUNED),
    "published-calibrated": partial(several, CALIBRATED),
    "self-guided": self_guided,
    **{f"published-{name}": partial(sentence, name) for name, row in read(FILE)["rows"].items() if "scores" in row},
}
