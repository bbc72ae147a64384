"""Figures that a page states, as expressions over results: ``main:sg-opt - main:mean``, ``p(main:fused, main:bt)``."""

from __future__ import annotations

import ast
import operator
import re
import statistics
from collections.abc import Callable
from typing import Any

from experiments.pages.sources import FILES, Spread, Unknown, value

_PART = r"(?:'[^']*'|[\w.+\[\]=#-]+)"
_PATH = re.compile(
    rf"(?<![\w'])({'|'.join(map(re.escape, sorted(FILES, key=len, reverse=True)))}):({_PART}(?:/{_PART})*)"
)
_ARITHMETIC: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_ORDER: dict[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
}
Value = float | Spread


def difference(one: Spread, other: Spread) -> Spread:
    """Return the mean difference of runs that are paired by seed, and its deviation."""
    shared = _paired(one, other)
    gaps = {seed: one.runs[seed] - other.runs[seed] for seed in shared}
    return Spread(statistics.fmean(gaps.values()), statistics.stdev(gaps.values()), gaps)


def p(one: Spread, other: Spread) -> float:
    """Return the p-value of a paired t-test over seeds; against a row without seeds, of a one-sample test."""
    from scipy.stats import ttest_1samp, ttest_rel

    if len(other.runs) == 1:
        return float(ttest_1samp(list(one.runs.values()), other.mean).pvalue)
    shared = _paired(one, other)
    return float(ttest_rel([one.runs[seed] for seed in shared], [other.runs[seed] for seed in shared]).pvalue)


def _paired(one: Spread, other: Spread) -> list[str]:
    shared = [seed for seed in one.runs if seed in other.runs]
    if len(shared) < 2:
        raise Unknown("A paired test needs two runs at least that share their seeds.")
    return shared


def deviation(row: Spread) -> float:
    """Return the deviation over seeds alone."""
    if row.deviation is None:
        raise Unknown("A row that was run once has no deviation.")
    return row.deviation


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "difference": difference,
    "p": p,
    "deviation": deviation,
    "mean": lambda *values: statistics.fmean(map(float, values)),
    "min": lambda *values: min(map(float, values)),
    "max": lambda *values: max(map(float, values)),
    "abs": lambda value: abs(float(value)),
}


def evaluate(text: str) -> Value | bool:
    """Compute an expression.

    Args:
        text: Paths of results, numbers, + − * /, comparisons and the functions of ``FUNCTIONS``. Operators stand between spaces.

    Returns:
        A number, a mean with its deviation, or whether a comparison holds.

    Raises:
        Unknown: The expression is none, or it names something that there is not.
    """
    paths: list[str] = []

    def keep(found: re.Match[str]) -> str:
        paths.append(found[0])
        return f"_{len(paths) - 1}"

    prepared = _PATH.sub(keep, text.strip())
    try:
        tree = ast.parse(prepared, mode="eval")
    except SyntaxError as error:
        raise Unknown(f"{text.strip()!r} is no expression: {error.msg}.") from None
    return _computed(tree.body, paths, text)


def _computed(node: ast.expr, paths: list[str], text: str) -> Any:
    def inner(part: ast.expr) -> Any:
        return _computed(part, paths, text)

    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return node.value
    if isinstance(node, ast.Name) and node.id.startswith("_"):
        return value(paths[int(node.id[1:])])
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -float(inner(node.operand))
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        return _ARITHMETIC[type(node.op)](float(inner(node.left)), float(inner(node.right)))
    if isinstance(node, ast.Compare) and all(type(op) in _ORDER for op in node.ops):
        sides = [float(inner(side)) for side in (node.left, *node.comparators)]
        pairs = zip(node.ops, sides, sides[1:], strict=False)
        return all(_ORDER[type(op)](left, right) for op, left, right in pairs)
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        return all(inner(part) for part in node.values)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS:
        return FUNCTIONS[node.func.id](*map(inner, node.args))
    raise Unknown(f"{text.strip()!r}: {ast.unparse(node)!r} is not understood.")
