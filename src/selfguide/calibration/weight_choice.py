"""Choose the weights of two parts of an embedding by graded pairs.

The cosine of joined embeddings [√w a ; √(1 − w) b] needs three products of each part and pair:

    cos_w(i, j) = (w a_i·a_j + (1 − w) b_i·b_j) / √((w ‖a_i‖² + (1 − w) ‖b_i‖²) (w ‖a_j‖² + (1 − w) ‖b_j‖²))

so every weight is tried on embeddings that are computed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from selfguide.correlation import spearman

if TYPE_CHECKING:
    from numpy.typing import NDArray

WEIGHTS = tuple(round(0.05 * step, 2) for step in range(1, 20))
"""Without 0 and 1: the embedding dimension should not depend on the dev pairs."""

Pairs = tuple[Sequence[str], Sequence[str], "NDArray[np.float64]"]


def graded_pairs(evaluator: Any) -> Pairs | None:
    """Return the graded pairs of an evaluator.

    Args:
        evaluator: A sentence-transformers evaluator, or ``None``.

    Returns:
        First sentences, second sentences and grades; ``None`` where the evaluator has no such pairs.
    """
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
    """Return the weight of the first part with the best Spearman correlation.

    Args:
        first: The first part of both sides of the pairs.
        second: The second part of both sides.
        grades: The pairs' grades.
        usual: Preferred among equals (the nearest), and returned where grades are all the same.
    """
    parts = [_products(*sides) for sides in (first, second)]
    scores = {weight: spearman(grades, _cosines(parts, weight)) for weight in WEIGHTS}
    known = {weight: score for weight, score in scores.items() if np.isfinite(score)}
    if not known:
        return usual
    return max(known, key=lambda weight: (round(known[weight], 6), -abs(weight - usual)))


def _products(one: NDArray[np.float64], two: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    pairs = ((one, two), (one, one), (two, two))
    return tuple(np.einsum("ij,ij->i", left, right) for left, right in pairs)


def _cosines(parts: list[tuple[NDArray[np.float64], ...]], weight: float) -> NDArray[np.float64]:
    products, one, two = (weight * a + (1 - weight) * b for a, b in zip(*parts, strict=True))
    lengths = np.sqrt(one * two)
    return np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0)
