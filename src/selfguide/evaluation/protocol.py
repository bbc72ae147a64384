"""How scores are made: every setting that changes a number, so that it can be written beside the score."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from selfguide.evaluation.tasks import TextForm
from selfguide.options import SEED, AtLeast, CheckedOptions

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors = Callable[[Sequence[str]], NDArray[np.float32]]
    """Sentences to vectors, one row each and in order, such as an :class:`~selfguide.evaluation.embedder.Embedder`."""

Similarity = Literal["cosine", "dot", "euclidean", "manhattan"]
Aggregation = Literal["all", "mean", "wmean"]
SIMILARITIES: tuple[Similarity, ...] = get_args(Similarity)
AGGREGATIONS: tuple[Aggregation, ...] = get_args(Aggregation)


@dataclass(frozen=True)
class Protocol(CheckedOptions):
    """The settings of an evaluation; the defaults are those of the papers' tables, on text as released."""

    similarity: Similarity = "cosine"
    aggregation: Aggregation = "all"
    """A task's subsets: ``all`` as one list, or the ``mean`` of their correlations, plain or weighted by size."""
    text: TextForm = "raw"
    bootstrap: Annotated[int, AtLeast(0)] = 1000
    """Resamples for the 95 % interval; 0: none."""
    folds: Annotated[int, AtLeast(2)] = 10
    """Folds of the transfer tasks without splits of their own."""
    seed: Annotated[int, SEED] = 1
    examples: Annotated[int, AtLeast(1)] = 8
    """Labelled examples of each label, from which few-shot tasks train a classifier."""
    draws: Annotated[int, AtLeast(1)] = 10
    """Draws of these examples, and starts of the clustering; the score is their mean."""


@dataclass(frozen=True)
class Scored:
    """The score of one task, not yet attributed to an encoder."""

    metric: str
    """The full name of the main metric, such as ``spearman cosine all`` or ``accuracy``."""
    value: float
    """The main metric × 100; NaN where it is undefined, and then a note says why."""
    interval: tuple[float, float] | None = None
    """Its 95 % bootstrap interval, × 100."""
    details: dict[str, Any] = field(default_factory=dict)
    """Every other number, × 100 where it is a score: by subset, by similarity, by aggregation."""
    notes: tuple[str, ...] = ()
