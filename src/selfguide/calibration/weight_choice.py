"""How much each of two parts should count, by graded pairs.

The cosine of joined vectors [√w a ; √(1 − w) b] needs three products of each part and pair:

    cos_w(i, j) = (w a_i·a_j + (1 − w) b_i·b_j) / √((w ‖a_i‖² + (1 − w) ‖b_i‖²) (w ‖a_j‖² + (1 − w) ‖b_j‖²))

so that every weight is tried on vectors that are computed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from selfguide.correlation import spearman

if TYPE_CHECKING:
    from numpy.typing import NDArray

WEIGHTS = tuple(round(0.05 * step, 2) for step in range(1, 20))
"""Neither part is left out altogether: how long a vector is should not depend on the dev pairs."""

Pairs = tuple[Sequence[str], Sequence[str], "NDArray[np.float64]"]


def graded_pairs(evaluator: Any) -> Pairs | None:
    """First sentences, second sentences and grades of an evaluator of similarities; None of any other."""
    found = [getattr(evaluator, name, None) for name in ("sentences1", "sentences2", "scores")]
    if any(part is None or isinstance(part, str) for part in found):
        return None
    first, second, grades = found
    return list(first), list(second), np.asarray(grades, dtype=np.float64)  # type: ignore[arg-type]


def best_weight(
    first: tuple[NDArray[np.float64], NDArray[np.float64]],
    second: tuple[NDArray[np.float64], NDArray[np.float64]],
    grades: NDArray[np.float64],
    usual: float,
) -> float:
    """The weight of the first of two parts, each given for both sides of the pairs, that orders the pairs best.

    Spearman's correlation decides; of equals, the one that is nearest to ``usual``.
    """
    parts = [_products(*sides) for sides in (first, second)]
    scores = {weight: spearman(grades, _cosines(parts, weight)) for weight in WEIGHTS}
    known = {weight: score for weight, score in scores.items() if np.isfinite(score)}
    if not known:  # grades that are all the same choose nothing
        return usual
    return max(known, key=lambda weight: (round(known[weight], 6), -abs(weight - usual)))


def _products(one: NDArray[np.float64], two: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    pairs = ((one, two), (one, one), (two, two))
    return tuple(np.einsum("ij,ij->i", left, right) for left, right in pairs)


def _cosines(parts: list[tuple[NDArray[np.float64], ...]], weight: float) -> NDArray[np.float64]:
    products, one, two = (weight * a + (1 - weight) * b for a, b in zip(*parts, strict=True))
    lengths = np.sqrt(one * two)
    return np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0)
