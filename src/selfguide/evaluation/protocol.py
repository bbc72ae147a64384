"""How scores are made: everything that changes a number, by name, so that it can be written beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from selfguide.errors import UsageError
from selfguide.evaluation.tasks import TEXT_FORMS, TextForm

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors = Callable[[Sequence[str]], NDArray[np.float32]]
    """Sentences to vectors, a row each and in order; whoever makes it sees to checks and to encoding nothing twice."""

Similarity = Literal["cosine", "dot", "euclidean", "manhattan"]
Aggregation = Literal["all", "mean", "wmean"]
SIMILARITIES: tuple[Similarity, ...] = ("cosine", "dot", "euclidean", "manhattan")
AGGREGATIONS: tuple[Aggregation, ...] = ("all", "mean", "wmean")


@dataclass(frozen=True)
class Protocol:
    """The settings of an evaluation; the defaults are those of the papers' tables, on text as released."""

    similarity: Similarity = "cosine"
    aggregation: Aggregation = "all"
    """A task's subsets: ``all`` as one list, or the ``mean`` of their correlations, plain or weighted by size."""
    text: TextForm = "raw"
    bootstrap: int = 1000
    """Resamples for the 95 % interval; 0: none."""
    folds: int = 10
    """Folds of the transfer tasks without splits of their own."""
    seed: int = 1

    def __post_init__(self) -> None:
        for name, allowed in (("similarity", SIMILARITIES), ("aggregation", AGGREGATIONS), ("text", TEXT_FORMS)):
            if getattr(self, name) not in allowed:
                raise UsageError(f"There is no {name} {getattr(self, name)!r}; choose one of {', '.join(allowed)}.")
        if self.bootstrap < 0:
            raise UsageError(f"bootstrap must be at least 0, got {self.bootstrap}.")
        if self.folds < 2:
            raise UsageError(f"folds must be at least 2, got {self.folds}.")


@dataclass(frozen=True)
class Scored:
    """What scoring one task gives, before it is known whose score it is."""

    metric: str
    """The name of the main metric in full, such as ``spearman cosine all`` or ``accuracy``."""
    value: float
    """The main metric × 100; NaN where it has none, and then a note says why."""
    interval: tuple[float, float] | None = None
    """Its 95 % bootstrap interval, × 100."""
    details: dict[str, Any] = field(default_factory=dict)
    """Every other number, × 100 where it is a score: by subset, by similarity, by aggregation."""
    notes: tuple[str, ...] = ()
