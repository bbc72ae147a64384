"""The table about other views of the same forward pass beside a sentence encoder's own embedding."""

from __future__ import annotations

from collections.abc import Callable

from experiments.pages.figures import Form, written
from experiments.pages.sources import lookup
from experiments.pages.tables.adapt import TITLES
from experiments.pages.tables.markdown import table


def views() -> str:
    """Every view at the weight that gains the most on this list, and what a choice gains that does not see the text."""
    rows = []
    for encoder, found in lookup("adapt-views:summary").items():
        cells = {cell["text"]: cell for cell in lookup("adapt-views:cells") if cell["encoder"] == encoder}
        texts = [text for text in TITLES if text in cells]
        rows.append([encoder, "", *(written(cells[text]["own"], Form(2)) for text in texts), "", ""])
        for view, by_weight in found.items():
            if view == "held out":
                continue
            weight = max(by_weight, key=lambda one: by_weight[one]["mean"])
            gains = [_signed(cells[text]["gains"][view][weight]) for text in texts]
            rows.append([view, weight, *gains, *_ends(by_weight[weight])])
        rows.append(
            ["view and weight selected on the other texts", "", *("" for _ in texts), *_ends(found["held out"])]
        )
    return table(f"view | weight | {' | '.join(TITLES[text] for text in texts)} | mean | worst", rows)


def _ends(found: dict[str, float]) -> list[str]:
    return [_signed(found["mean"]), _signed(found["worst"])]


def _signed(value: float) -> str:
    return written(value, Form(2, sign=True))


TABLES: dict[str, Callable[[], str]] = {"adapt-views": views}
