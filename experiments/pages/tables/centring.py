"""Tables about centring a sentence encoder on a text."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.pages.figures import Form, written
from experiments.pages.sources import lookup
from experiments.pages.tables.adapt import TITLES
from experiments.pages.tables.markdown import table

DEV, REPORT = "centring-dev", "centring-report"


def shares() -> str:
    """Gains on the development list, by encoder and by the share of the mean that is subtracted."""
    rows = []
    for name, cells in _by_encoder(DEV).items():
        known = {text: cells[text] for text in TITLES if text in cells}
        rows.append([name, "as it is", *_texts(known, lambda cell: _plain(cell["own"])), "", ""])
        first = next(iter(known.values()))
        for share in next(iter(first["seeds"].values()))["shares"]:
            gains = {text: _mean(cell, share) for text, cell in known.items()}
            rows.append(["", f"centred, {share}", *_texts(gains, _signed), *_ends(gains)])
        for exponent in first["whitening"]:
            gains = {text: cell["whitening"][exponent] for text, cell in known.items()}
            rows.append(["", f"whitened, {exponent}", *_texts(gains, _signed), *_ends(gains)])
    return table(f"encoder | what | {' | '.join(TITLES.values())} | mean | worst", rows)


def unhelpful() -> str:
    """What small and unhelpful texts do."""
    rows = []
    for name, found in lookup(f"{DEV}:summary").items():
        general = _plain(found["general"])
        for size, fate in found["sizes"].items():
            rows.append([name, general, f"{size} sentences of the text", "", "", *_fate(fate)])
        for kind, fate in found["instead"].items():
            common = _range([fate["common"]["worst"], fate["common"]["best"]])
            rows.append([name, general, kind, common, _signed(fate["without the rule"]["worst"]), *_fate(fate["rule"])])
        half = _signed(found["shares"]["0.5"]["worst"])
        rows.append([name, general, "the text itself", _range(found["common"]), half, *_fate(found["rule"])])
    return table(
        "encoder | mean cosine of general English | fitted on | common to all | worst, always centred | mean gain of the rule | "
        "worst | cells | more than 0.5 below",
        rows,
    )


def report() -> str:
    """The report list: as it is, and centred."""
    found = _by_encoder(REPORT)
    texts = list(dict.fromkeys(text for cells in found.values() for text in cells))
    rows = []
    for text in texts:
        row = [text]
        for cells in found.values():
            cell = cells.get(text)
            row += ["", ""] if cell is None else [_plain(cell["own"]), _signed(_half(cell))]
        rows.append(row)
    ends: dict[str, Callable[[Sequence[float]], float]] = {"mean gain": statistics.fmean, "worst": min}
    for title, end in ends.items():
        row = [title]
        for cells in found.values():
            row += ["", _signed(end([_half(cell) for cell in cells.values()]))]
        rows.append(row)
    head = " | ".join(f"{name}, as it is | centred" for name in found)
    return table(f"text | {head}", rows)


def _by_encoder(name: str) -> dict[str, dict[str, Mapping[str, Any]]]:
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for cell in lookup(f"{name}:cells"):
        found.setdefault(cell["encoder"], {})[cell["text"]] = cell
    return found


def _texts(values: Mapping[str, Any], form: Callable[[Any], str]) -> list[str]:
    return [form(values[text]) if text in values else "" for text in TITLES]


def _ends(gains: Mapping[str, float]) -> list[str]:
    return [_signed(statistics.fmean(gains.values())), _signed(min(gains.values()))]


def _fate(row: Mapping[str, Any]) -> list[str]:
    return [_signed(row["mean"]), _signed(row["worst"]), str(row["cells"]), str(row["below"])]


def _range(values: Sequence[float]) -> str:
    low, high = (_plain(value) for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def _half(cell: Mapping[str, Any]) -> float:
    return _mean(cell, "0.5")


def _mean(cell: Mapping[str, Any], share: str) -> float:
    return statistics.fmean(seed["shares"][share] for seed in cell["seeds"].values())


def _plain(value: float) -> str:
    return written(value, Form(2))


def _signed(value: float) -> str:
    return written(value, Form(2, sign=True))


TABLES: dict[str, Callable[[], str]] = {
    "centring-shares": shares,
    "centring-unhelpful": unhelpful,
    "centring-report": report,
}
