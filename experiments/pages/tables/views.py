"""Tables about signals beside a sentence encoder's own embedding: other views of the same forward pass, and possible teachers."""

from __future__ import annotations

from collections.abc import Callable

from experiments.pages.figures import Form, written
from experiments.pages.sources import lookup
from experiments.pages.tables.adapt import TITLES
from experiments.pages.tables.markdown import table


def views() -> str:
    """Every view at the weight that gains the most on this list, and what a choice gains that does not see the text."""
    return _signals("adapt-views", "view")


def teachers() -> str:
    """Every signal likewise, and what a choice by the grades of each text would gain."""
    return _signals("adapt-teachers", "signal")


def _signals(name: str, title: str) -> str:
    rows = []
    for encoder, found in lookup(f"{name}:summary").items():
        cells = {cell["text"]: cell for cell in lookup(f"{name}:cells") if cell["encoder"] == encoder}
        texts = [text for text in TITLES if text in cells]
        rows.append([encoder, "", *(written(cells[text]["own"], Form(2)) for text in texts), "", ""])
        for view, by_weight in found.items():
            if view == "held out":
                continue
            weight = max(by_weight, key=lambda one: by_weight[one]["mean"])
            gains = [_signed(cells[text]["gains"][view][weight]) for text in texts]
            rows.append([view, weight, *gains, *_ends(by_weight[weight])])
        rows.append(
            [f"{title} and weight selected on the other texts", "", *("" for _ in texts), *_ends(found["held out"])]
        )
        if "by labels" in lookup(f"{name}:"):
            best = lookup(f"{name}:by labels/'{encoder}'")
            shown = [_signed(best[text]) for text in texts]
            rows.append(
                [f"{title} and weight selected by the grades of each text", "", *shown, _signed(best["mean"]), ""]
            )
    return table(f"{title} | weight | {' | '.join(TITLES[text] for text in texts)} | mean | worst", rows)


def _ends(found: dict[str, float]) -> list[str]:
    return [_signed(found["mean"]), _signed(found["worst"])]


def _signed(value: float) -> str:
    return written(value, Form(2, sign=True))


TABLES: dict[str, Callable[[], str]] = {"adapt-views": views, "adapt-teachers": teachers}
