"""How a figure is written: decimals, sign, thousands, mean ± deviation."""

from __future__ import annotations

import re
from dataclasses import dataclass

from experiments.pages.expressions import evaluate
from experiments.pages.sources import Spread, Unknown

MINUS = "−"
SHOWN = re.compile(
    r"(?P<bound>[<>] )?(?P<sign>[+−])?(?P<number>\d[\d,]*(?:\.\d+)?(?:e-?\d+)?)(?: ± (?P<deviation>\d+(?:\.\d+)?))?"
)


@dataclass(frozen=True)
class Form:
    """The way in which a figure is written."""

    decimals: int = 2
    deviation: int | None = None
    """Decimals of the deviation; None: it is not shown."""
    sign: bool = False
    bound: str = ""
    """``< `` or ``> `` with its limit: written as long as it holds."""
    power: bool = False
    """As 4e-06 is written: 4e-6."""


def form_of(shown: str) -> Form:
    """Return the form in which a figure has been written, so that it can be written again."""
    found = SHOWN.fullmatch(shown)
    if found is None:
        raise Unknown(f"{shown!r} is no figure.")
    deviation = found["deviation"]
    return Form(
        _decimals(found["number"]),
        None if deviation is None else _decimals(deviation),
        found["sign"] == "+",
        f"{found['bound']}{found['number']}" if found["bound"] else "",
        "e" in found["number"],
    )


def written(value: float | Spread, form: Form) -> str:
    """Write a figure.

    Args:
        value: The figure.
        form: How it is written.

    Returns:
        The figure as text.

    Raises:
        Unknown: A deviation is asked for, and the figure has none.
    """
    number = float(value)
    if form.bound:
        mark, limit = form.bound.split()
        holds = number < float(limit) if mark == "<" else number > float(limit)
        return form.bound if holds else f"= {number:.3f}"
    if form.power:
        mantissa, exponent = f"{number:.{form.decimals}e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    text = f"{abs(number):,.{form.decimals}f}"
    zero = float(text.replace(",", "")) == 0
    text = (MINUS if number < 0 and not zero else "+" if form.sign else "") + text
    if form.deviation is None:
        return text
    if not isinstance(value, Spread) or value.deviation is None:
        raise Unknown("The page gives a deviation that the results do not have.")
    return f"{text} ± {value.deviation:.{form.deviation}f}"


def figure(expression: str, decimals: int = 2, *, spread: bool = False, sign: bool = False) -> str:
    """Write the value of an expression, for tables.

    Args:
        expression: See :func:`experiments.pages.expressions.evaluate`.
        decimals: Digits after the point.
        spread: Whether the deviation is shown, where there is one.
        sign: Whether a plus is shown.

    Returns:
        The figure as text.
    """
    value = evaluate(expression)
    has = spread and isinstance(value, Spread) and value.deviation is not None
    return written(value, Form(decimals, decimals if has else None, sign))


def _decimals(number: str) -> int:
    return len(number.partition("e")[0].partition(".")[2])
