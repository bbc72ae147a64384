"""Tables about adapting an encoder that is good already."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from experiments.pages.figures import Form, figure, written
from experiments.pages.sources import lookup
from experiments.pages.tables.markdown import table

RULES = ("thinned", "halves", "whole", "found")
TITLES = {
    "mqp": "medical questions",
    "qqp": "QQP",
    "mrpc": "MRPC",
    "headlines": "headlines",
    "forums": "answers-forums",
    "glosses": "OnWN",
}


def recipes() -> str:
    """Gains of every recipe on the development list."""
    found = lookup("adapt-dev:recipes")
    as_is = {cell["text"]: cell["shares"]["0"]["own"] for cell in lookup("adapt-dev:cells") if cell["word"] == "as-is"}
    texts = [text for text in TITLES if text in as_is]
    rows = [["as it is", "", *(_plain(as_is[text]) for text in texts), "", "", ""]]
    for name, row in found.items():
        _, word, share = name.split(", ")[:3]
        path = f"adapt-dev:recipes/'{name}'"
        gains = [figure(f"{path}/own/{text}", sign=True) if text in row["own"] else "" for text in texts]
        ends = [figure(f"{path}/{key}", sign=True) for key in ("mean", "worst", "elsewhere")]
        rows.append([f"`{word}`", share.removeprefix("share "), *gains, *ends])
    titles = " | ".join(TITLES[text] for text in texts)
    return table(f"recipe | share | {titles} | mean | worst | STS-B dev", rows)


def unhelpful() -> str:
    """What texts from which nothing can be learnt do to an encoder, and what the scores say."""
    rows = []
    for gain in _gains():
        if gain["instead"] or "3e-4" in gain["word"]:
            kind = gain["instead"] or "its own"
            changes = [_z(gain["free"][score]) for score in ("thinned", "whole")]
            row = [kind, f"`{gain['word']}`", gain["share"], TITLES[gain["text"]], _signed(gain["own"])]
            rows.append([*row, *changes, _plain(gain["free"]["overlap"])])
    return table("text | recipe | share | judged on | gain | thinned, z | whole, z | neighbours kept", rows)


def rules() -> str:
    """What a choice by each score gains and loses, over good and bad cells: the rules that ask for two standard errors."""
    found = lookup("adapt-dev:choices")
    rows = [["always what was trained", "", *_fate(found["always"])]]
    for name, row in found["rules"].items():
        score, margin, overlap = _rule(name)
        if score in RULES and margin == "2" and overlap in ("0", "0.8"):
            rows.append([f"`{score}`", overlap, *_fate(row)])
    rows.append(["the rule selected on the other texts", "", *_fate(found["held out"])])
    rows.append(["the better of the two candidates, by labels", "", *_fate(found["best"])])
    return table(
        "score | neighbours kept at least | mean gain | worst | cells more than 0.5 below | as it is",
        rows,
    )


def report() -> str:
    """The report list: as it is, and the gain."""
    cells = lookup("adapt-report:cells")
    words = list(dict.fromkeys(cell["word"] for cell in cells if cell["word"] != "as-is"))
    as_is = {cell["text"]: cell["shares"]["0"]["own"] for cell in cells if cell["word"] == "as-is"}
    gains = {
        (cell["text"], cell["word"]): (cell["sentences"], cell["shares"]["1"]["own"] - as_is[cell["text"]])
        for cell in cells
        if cell["word"] != "as-is" and "1" in cell["shares"] and cell["text"] in as_is
    }
    rows = []
    for text, before in as_is.items():
        shown = [_signed(gains[text, word][1]) if (text, word) in gains else "" for word in words]
        rows.append([text, _plain(before), *shown])
    return table(" | ".join(["text", "as it is", *(f"`{word}`" for word in words)]), rows)


def _gains() -> list[dict[str, Any]]:
    from experiments.adapt.summary import gains

    return gains(lookup("adapt-dev:cells"))


def _rule(name: str) -> tuple[str, ...]:
    found = re.fullmatch(r"(\w+), margin (-?[\d.]+), overlap ([\d.]+)", name)
    assert found is not None, name
    return found.groups()


def _fate(row: Mapping[str, Any]) -> list[str]:
    return [_signed(row["mean"]), _signed(row["worst"]), str(row["below"]), f"{100 * row['kept']:.0f} %"]


def _z(row: Mapping[str, float]) -> str:
    return written(row["change"] / row["error"] if row["error"] else 0.0, Form(1, sign=True))


def _plain(value: float) -> str:
    return written(value, Form(2))


def _signed(value: float) -> str:
    return written(value, Form(2, sign=True))


TABLES: dict[str, Callable[[], str]] = {
    "adapt-recipes": recipes,
    "adapt-unhelpful": unhelpful,
    "adapt-rules": rules,
    "adapt-report": report,
}
