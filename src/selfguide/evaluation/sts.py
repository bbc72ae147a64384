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
"""From this share of pairs on, equal similarities are worth a note."""


class PairPart(NamedTuple):
    """One part's pairs as an encoder sees them."""

    part: str
    grades: Floats
    sims: Floats
    """By the similarity of the protocol."""
    every: dict[Similarity, Floats]
    """By every similarity there is."""


def pair_similarities(data: TaskData, vectors: Vectors, protocol: Protocol) -> list[PairPart]:
    """The similarity of every pair, part by part: what :func:`score_pairs` scores and what two encoders are compared by."""
    if data.task.kind not in ("graded-pairs", "binary-pairs"):
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
    """Score a task of pairs; ``parts`` may be what :func:`pair_similarities` gave for the same protocol."""
    found = pair_similarities(data, vectors, protocol) if parts is None else list(parts)
    score = _graded if data.task.kind == "graded-pairs" else _binary
    return score(found, protocol)


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
    details = {**_correlations(parts), "subsets": subsets, "pairs": _count(parts), "ties": _ties(parts)}
    notes = _tie_notes(parts, protocol.similarity)
    if np.isnan(value):
        notes = [*_why_no_value(parts, protocol.similarity, protocol.aggregation), *notes]
    metric = f"spearman {protocol.similarity} {protocol.aggregation}"
    return Scored(metric, 100 * value, _times_100(interval), details, tuple(notes))


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
        "ties": _ties(parts),
    }
    notes = _tie_notes(parts, protocol.similarity)
    if np.isnan(scores.average_precision):
        notes.insert(
            0, "All pairs have the same label, or a similarity is not a number, so there is no average precision."
        )
        interval = None
    metric = f"average precision {protocol.similarity}"
    return Scored(metric, 100 * scores.average_precision, _times_100(interval), details, tuple(notes))


def _correlations(parts: list[PairPart]) -> dict[str, Any]:
    """Both correlations by similarity and by aggregation."""
    names: tuple[Any, ...] = ("spearman", "pearson")
    return {
        name: {
            kind: {
                how: 100 * aggregate([(part.grades, part.every[kind]) for part in parts], how, name)
                for how in AGGREGATIONS
            }
            for kind in SIMILARITIES
        }
        for name in names
    }


def _count(parts: list[PairPart]) -> int:
    return sum(len(part.grades) for part in parts)


def _ties(parts: list[PairPart]) -> int:
    """How many pairs have a similarity that another pair has as well, to the last bit."""
    _, counts = np.unique(np.concatenate([part.sims for part in parts]), return_counts=True)
    return int(counts[counts > 1].sum())


def _tie_notes(parts: list[PairPart], similarity: Similarity) -> list[str]:
    tied, count = _ties(parts), _count(parts)
    if not count or tied / count <= _MANY_TIES:
        return []
    return [
        f"{tied:,} of {count:,} pairs have the same {similarity} similarity as another pair, so their order is open."
    ]


def _why_no_value(parts: list[PairPart], similarity: Similarity, aggregation: Aggregation) -> list[str]:
    """What stands in the way of a correlation, in words."""
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


def _times_100(interval: tuple[float, float] | None) -> tuple[float, float] | None:
    return None if interval is None else (100 * interval[0], 100 * interval[1])
