"""Scores for pairs of sentences: graded ones (STS) by rank correlation, binary ones by average precision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from selfguide.correlation import pearson, spearman
from selfguide.errors import SelfguideError, UsageError
from selfguide.evaluation.metrics import Floats, aggregate, binary_scores, bootstrap_interval, similarities
from selfguide.evaluation.protocol import AGGREGATIONS, SIMILARITIES, Aggregation, Protocol, Scored, Similarity
from selfguide.evaluation.rows import TaskData

if TYPE_CHECKING:
    from selfguide.evaluation.protocol import Vectors

_MANY_TIES = 0.1
"""Share of pairs with equal similarities above which a note says so."""


class PairPart(NamedTuple):
    """One part's pairs with an encoder's similarities."""

    part: str
    grades: Floats
    sims: Floats
    """By the similarity of the protocol."""
    every: dict[Similarity, Floats]
    """By every similarity there is."""


def pair_similarities(data: TaskData, vectors: Vectors, protocol: Protocol) -> list[PairPart]:
    """Compute the similarities of a task's pairs: what :func:`score_pairs` scores and two encoders are compared by.

    Args:
        data: A task of graded or binary pairs.
        vectors: The encoder.
        protocol: Names the main similarity.

    Returns:
        The pairs of each part.

    Raises:
        UsageError: The task has no pairs of that kind.
        SelfguideError: A row lacks its second sentence or its grade.
    """
    if data.task.is_classification:
        raise UsageError(f"{data.task.title} is not a task of graded or binary pairs.")
    encoded = vectors(data.sentences())
    parts, start = [], 0
    for rows in data.parts:
        if rows.second is None or rows.grades is None:
            raise SelfguideError(f"{data.task.title} ({rows.part}) needs a second sentence and a grade in every row.")
        first, second = encoded[start : start + len(rows)], encoded[start + len(rows) : start + 2 * len(rows)]
        start += 2 * len(rows)
        every = {kind: similarities(first, second, kind) for kind in SIMILARITIES}
        grades = np.asarray(rows.grades, dtype=np.float64)
        parts.append(PairPart(rows.part, grades, every[protocol.similarity], every))
    return parts


def score_pairs(
    data: TaskData, vectors: Vectors, protocol: Protocol, parts: Sequence[PairPart] | None = None
) -> Scored:
    """Score an encoder on a task of pairs.

    Args:
        data: A task of graded or binary pairs.
        vectors: The encoder.
        protocol: How the score is made.
        parts: What :func:`pair_similarities` returned for the same protocol, if it has been computed.

    Returns:
        The score.
    """
    found = pair_similarities(data, vectors, protocol) if parts is None else list(parts)
    return (_graded if data.task.kind == "graded-pairs" else _binary)(found, protocol)


def _graded(parts: list[PairPart], protocol: Protocol) -> Scored:
    pairs = [(part.grades, part.sims) for part in parts]
    value = aggregate(pairs, protocol.aggregation)
    interval = bootstrap_interval(pairs, protocol.aggregation, resamples=protocol.bootstrap, seed=protocol.seed)
    subsets = {
        part.part: {
            "spearman": 100 * spearman(part.grades, part.sims),
            "pearson": 100 * pearson(part.grades, part.sims),
            "rows": len(part.grades),
        }
        for part in parts
    }
    ties, notes = _ties(parts, protocol.similarity)
    count = sum(len(part.grades) for part in parts)
    details = {**_correlations(parts), "subsets": subsets, "pairs": count, "ties": ties}
    if np.isnan(value):
        notes = [*_why_undefined(parts, protocol.similarity, protocol.aggregation), *notes]
    metric = f"spearman {protocol.similarity} {protocol.aggregation}"
    return Scored(metric, 100 * value, _percent(interval), details, tuple(notes))


def _binary(parts: list[PairPart], protocol: Protocol) -> Scored:
    labels = np.concatenate([part.grades for part in parts])
    sims = np.concatenate([part.sims for part in parts])
    if not np.isin(labels, (0.0, 1.0)).all():
        strange = labels[~np.isin(labels, (0.0, 1.0))][0]
        raise SelfguideError(f"Binary pairs are labelled 0 or 1, but there is a label {strange:g}.")
    scores = binary_scores(labels, sims)
    interval = bootstrap_interval(
        [(labels, sims)], metric="average precision", resamples=protocol.bootstrap, seed=protocol.seed
    )
    ties, notes = _ties(parts, protocol.similarity)
    details: dict[str, Any] = {
        "accuracy": 100 * scores.accuracy,
        "threshold": scores.threshold,
        "auc": 100 * scores.auc,
        "f1": 100 * scores.f1,
        "f1_threshold": scores.f1_threshold,
        "spearman": 100 * spearman(labels, sims),
        "average_precision": {
            kind: 100 * binary_scores(labels, np.concatenate([part.every[kind] for part in parts])).average_precision
            for kind in SIMILARITIES
        },
        "positive": int(labels.sum()),
        "pairs": len(labels),
        "ties": ties,
    }
    if np.isnan(scores.average_precision):
        interval = None
        notes = [
            "All pairs have the same label, or a similarity is not a number, so there is no average precision.",
            *notes,
        ]
    metric = f"average precision {protocol.similarity}"
    return Scored(metric, 100 * scores.average_precision, _percent(interval), details, tuple(notes))


def _correlations(parts: list[PairPart]) -> dict[str, Any]:
    """Compute both correlations by similarity and by aggregation."""
    names: tuple[Any, ...] = ("spearman", "pearson")
    pairs = {kind: [(part.grades, part.every[kind]) for part in parts] for kind in SIMILARITIES}
    return {
        name: {kind: {how: 100 * aggregate(pairs[kind], how, name) for how in AGGREGATIONS} for kind in SIMILARITIES}
        for name in names
    }


def _ties(parts: list[PairPart], similarity: Similarity) -> tuple[int, list[str]]:
    """Count the pairs that share their similarity with another pair, to the last bit; with a note where they are many."""
    sims = np.concatenate([part.sims for part in parts])
    _, counts = np.unique(sims, return_counts=True)
    tied = int(counts[counts > 1].sum())
    if tied <= _MANY_TIES * len(sims):
        return tied, []
    return tied, [
        f"{tied:,} of {len(sims):,} pairs have the same {similarity} similarity as another pair, so their order is open."
    ]


def _why_undefined(parts: list[PairPart], similarity: Similarity, aggregation: Aggregation) -> list[str]:
    lists = [(f"In {part.part} ", part.grades, part.sims) for part in parts]
    if aggregation == "all" or len(parts) == 1:
        lists = [("", np.concatenate([part.grades for part in parts]), np.concatenate([part.sims for part in parts]))]
    reasons = [(where, _obstacle(grades, sims, similarity)) for where, grades, sims in lists]
    sentences = [f"{where}{reason}, so there is no correlation." for where, reason in reasons if reason]
    return [sentence[0].upper() + sentence[1:] for sentence in sentences]


def _obstacle(grades: Floats, sims: Floats, similarity: Similarity) -> str | None:
    if len(grades) < 2:
        return "there are fewer than two pairs"
    if not np.isfinite(sims).all() or not np.isfinite(grades).all():
        return f"a {similarity} similarity or a grade is not a number"
    if sims.max() == sims.min():
        return f"all {len(sims):,} pairs have the same {similarity} similarity"
    if grades.max() == grades.min():
        return f"all {len(grades):,} pairs have the same grade"
    return None


def _percent(interval: tuple[float, float] | None) -> tuple[float, float] | None:
    return None if interval is None else (100 * interval[0], 100 * interval[1])
