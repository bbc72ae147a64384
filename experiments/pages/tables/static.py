"""Tables of static encoders: what they cost in points, and how fast they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from experiments.pages.figures import figure
from experiments.pages.sources import lookup
from experiments.pages.tables.markdown import SET_TITLES, SETS, table

KINDS = {"encoder": "", "tokens alone": "static, tokens alone", "static": "**static**"}


def scores() -> str:
    """The seven STS sets and the domain files, by encoder and kind."""
    rows = []
    domains = list(dict.fromkeys(row["task"] for row in _rows() if row["task"] != "sts"))
    for encoder in dict.fromkeys(row["encoder"] for row in _rows()):
        for kind, title in KINDS.items():
            if not any((row["encoder"], row["kind"]) == (encoder, kind) for row in _rows()):
                continue
            path = f"static:rows/'{encoder}'/'{kind}'"
            cells = [figure(f"{path}/sts/values/{name}", 1) for name in (*SETS, "average")]
            cells += [figure(f"{path}/{domain}/values/average", 1) for domain in domains]
            rows.append([title or _shown(encoder), *cells])
    return table(" | ".join(["", *SET_TITLES, "average", *domains]), rows)


def speeds() -> str:
    """Sentences a second, and the ratio of each static encoder to its own."""
    rows = []
    found = {row["encoder"]: row["sentences a second"] for row in lookup("static-speed:speed")}
    for name in found:
        own = name.removesuffix(", static")
        ratio = f"{found[name] / found[own]:,.0f} ×" if own != name else ""
        rows.append([_shown(name), f"{found[name]:,.0f}", ratio])
    return table("| sentences a second | beside its own encoder", rows)


def choice() -> str:
    """STS-B dev by dimension, a and fit."""
    found: list[dict[str, Any]] = lookup("static:choice")
    encoders = list(dict.fromkeys(row["encoder"] for row in found))
    rows = []
    for fit in (False, True):
        for a in sorted({row["a"] for row in found}):
            for dim in sorted({row["dim"] for row in found}):
                by_name = {row["encoder"]: row for row in found if (row["fit"], row["a"], row["dim"]) == (fit, a, dim)}
                cells = [f"{by_name[name]['stsb dev']:.1f}" if name in by_name else "–" for name in encoders]
                rows.append(["fitted" if fit else "tokens alone", f"{a:g}", str(dim), *cells])
    return table(" | ".join(["", "a", "dimensions", *map(_shown, encoders)]), rows)


def _rows() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = lookup("static:rows")
    return found


def _shown(name: str) -> str:
    return name.replace("mini", "`mini`", 1) if name.startswith("mini") else name


TABLES: dict[str, Callable[[], str]] = {
    "static-scores": scores,
    "static-speed": speeds,
    "static-choice": choice,
}
