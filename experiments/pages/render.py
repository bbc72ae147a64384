"""Write the figures of a page anew from the results.

Three marks, all of them comments that a reader of the page does not see:

* ``68.3<!--=main:sg-opt-->``: the figure before the mark is the value of the expression, with as many decimals as it is written
  with. ``68.3 ± 0.2`` gives the deviation too, ``+0.4`` the sign, ``p < 0.001`` a bound that must hold. A positive value that
  its decimals would make 0 is written as a bound: ``p = 0.0000`` becomes ``p < 0.0001``.
* ``<!--?main:fused > main:bt-->``: what the sentence claims must hold.
* ``<!-- made: NAME -->`` … ``<!-- /made -->``: the table or paragraph of that name.

``<!-- not results: 0.05 0.1 -->`` lists the decimals of a page that are settings, and ``76.25<!--from: SOURCE-->`` names where a
figure comes from that is not ours.
"""

from __future__ import annotations

import re

from experiments.pages import tables
from experiments.pages.expressions import evaluate
from experiments.pages.figures import SHOWN, form_of, written
from experiments.pages.sources import ROOT, Unknown

UNIT = r"(?:\*\*)?(?: ?[%×])?(?:\*\*)?"
VALUE = re.compile(
    rf"(?P<equals>= )?(?P<shown>{re.sub(r'P<[a-z]+>', ':', SHOWN.pattern)})(?P<unit>{UNIT})<!--=(?P<expression>.*?)-->"
)
CLAIM = re.compile(r"<!--\?(.*?)-->")
TABLE = re.compile(
    r"(?P<open><!-- made: (?P<name>[\w-]+) -->\n)(?:(?!<!-- /?made\b).)*(?P<close><!-- /made -->)", re.DOTALL
)
LOOSE = re.compile(r"<!--=.*?-->|<!-- /?made\b.*?-->")

PAGES = (
    "README.md",
    "CHANGELOG.md",
    "src/selfguide/resources/mini/README.md",
    "src/selfguide/resources/demo/README.md",
    *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")),
)


class Stale(ValueError):
    """A page claims what the results do not say."""


def rendered(text: str) -> str:
    """Return a page with every figure, table and claim made anew.

    Args:
        text: The page in Markdown.

    Returns:
        The page as the results have it.

    Raises:
        Unknown: A mark names something that there is not, or stands where there is no figure.
        Stale: A claim does not hold.
    """
    text = VALUE.sub(_value, text)
    text = TABLE.sub(lambda found: f"{found['open']}\n{tables.made(found['name'])}\n\n{found['close']}", text)
    for claim in CLAIM.findall(text):
        if evaluate(claim) is not True:
            raise Stale(f"The page claims {claim.strip()!r}, which does not hold.")
    if left := LOOSE.findall(TABLE.sub("", VALUE.sub("", text))):
        raise Unknown(f"{left[0]} has no figure before it, or no end.")
    return text


def _value(found: re.Match[str]) -> str:
    value = evaluate(found["expression"])
    form = form_of(found["shown"])
    shown, equals = written(value, form), found["equals"] or ""
    if equals and float(value) > 0 and not float(shown.replace(",", "").partition(" ")[0].replace("−", "-")):
        shown, equals = f"< {10**-form.decimals:.{form.decimals}f}", ""
    return f"{equals}{shown}{found['unit']}<!--={found['expression']}-->"
