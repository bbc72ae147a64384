"""Geometry: how the vectors lie in space, before and after tuning.

Untuned vectors all point into one narrow cone, so that sentences with nothing in common have a cosine near 1; a contrastive
loss spreads them. Spread alone is worth nothing (noise has it too): pairs that mean the same have to stay together. The
study shows both: numbers of the whole cloud and of positive and negative pairs, histograms of the cosines by grade, grade
against cosine, and a map of pairs. What the numbers are is said in :mod:`selfguide.studies.geometry_numbers`. All of them are
of STS-B's pairs where they are among the tasks, else of the first task of graded pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from selfguide.comparison.summary import Value
from selfguide.errors import UsageError
from selfguide.evaluation.rows import TaskData
from selfguide.studies import geometry_figures
from selfguide.studies.base import FULL, SMALL, Found, Grid, Measurement, Plan, Setup, Study
from selfguide.studies.graded_runs import GradedPairs, Run, by_label, graded_rows, runs_of
from selfguide.studies.measuring import Place
from selfguide.studies.outcome import Column, Entry, Outcome, Table, main_value, over_seeds, score_columns

GRID = "methods"
UNTUNED = ("cls", "mean")
_FUNCTION = "selfguide.studies.geometry:shape"
_NAMES = {"cls": "[CLS], untuned", "mean": "mean, untuned"}
_COLUMNS = (
    Column("anisotropy", "anisotropy", 3),
    Column("alignment", "alignment", 3),
    Column("uniformity", "uniformity", 3),
    Column("effective_rank", "effective rank", 1),
    Column("first", "variance in 1", 1),
    Column("ten", "variance in 10", 1),
    Column("positive_cosine", "cosine, positive", 3),
    Column("negative_cosine", "cosine, negative", 3),
)
_NOTES = (
    "Anisotropy: the mean cosine of two different sentences. Alignment: the mean squared distance of positive pairs; "
    "uniformity: how evenly vectors are spread; both: lower is better. Variance in 1 and in 10: per cent of the variance "
    "in the first direction and in the first ten.",
    "Positive pairs have a grade in the top fifth of the scale, negative ones in the bottom fifth.",
)


class Geometry(Study):
    """[CLS] and mean before tuning, methods after it."""

    small = replace(SMALL, values={"methods": ("sg-opt", "simcse")})
    full = replace(FULL, values={"methods": ("sg-opt", "simcse")})

    def plan(self, setup: Setup) -> Plan:
        methods = setup.values("methods")
        for method in methods:
            if method in UNTUNED:
                raise UsageError(f"{method} is among the untuned vectors already; name other methods.")
        measurements = tuple(
            Measurement(run.key, _FUNCTION, {"label": run.label, "seed": run.seed}, after=(GRID,))
            for run in _runs(setup)
        )
        return Plan((Grid(GRID, (*UNTUNED, *methods), "the encoders", keep=True),), measurements)

    def outcome(self, found: Found) -> Outcome:
        summary = found.summary(GRID)
        results = by_label(_runs(found.setup), found.results)
        titles = {label: _NAMES.get(label, label) for label in results}
        rows: list[dict[str, Entry]] = []
        for label, title in titles.items():
            row: dict[str, Entry] = {"vectors": title, summary.main.key: main_value(summary[label], summary)}
            rows.append(row | {column.key: _over(results[label], column.key) for column in _COLUMNS})
        columns = (Column("vectors", "vectors"), *score_columns(summary, every=False), *_COLUMNS)
        known = [result for by_seed in results.values() for result in by_seed.values()]
        of = f"{known[0]['task']}: {known[0]['pairs']:,} pairs, {known[0]['sentences']:,} sentences." if known else ""
        table = Table("geometry", "The cloud of vectors", columns, tuple(rows), (*([of] if of else []), *_NOTES))
        named = {titles[label]: by_seed for label, by_seed in results.items() if by_seed}
        return Outcome((table,), geometry_figures.figures(named) if named else ())


def shape(place: Place, label: str, seed: int | None) -> dict[str, Any]:
    """Everything that the study shows of one encoder."""
    import numpy as np

    from selfguide.evaluation.embedder import embedder
    from selfguide.studies.geometry_numbers import numbers, pair_map, points

    rows = _chosen(graded_rows(place))
    pairs = GradedPairs.of(rows)
    vectors = embedder(place.kept(GRID, label, seed), batch_size=place.batch_size, name=label)
    units = vectors(pairs.sentences).astype(np.float64)
    units /= np.linalg.norm(units, axis=1, keepdims=True).clip(min=1e-12)
    grades = np.asarray(pairs.grades)
    low, high = rows.task.low, rows.task.high
    shares = ((grades - low) / (high - low)).clip(0.0, 1.0)
    cosines = np.einsum("pd,pd->p", units[pairs.left], units[pairs.right])
    return {
        "task": rows.task.title,
        "pairs": len(grades),
        "grades": [low, high],
        **numbers(units, pairs.left, pairs.right, shares),
        "points": points(cosines, grades),
        "map": pair_map(units, pairs.left, pairs.right, shares),
    }


def _runs(setup: Setup) -> list[Run]:
    return runs_of((*UNTUNED, *setup.values("methods")), setup.scale.seeds)


def _chosen(tasks: Sequence[TaskData]) -> TaskData:
    return next((rows for rows in tasks if rows.task.name == "stsb"), tasks[0])


def _over(by_seed: Mapping[int | None, Mapping[str, Any]], name: str) -> Value | None:
    numbers = {seed: _number(result, name) for seed, result in by_seed.items()}
    known = {seed: number for seed, number in numbers.items() if number is not None}
    return over_seeds(known) if known else None


def _number(result: Mapping[str, Any], name: str) -> float | None:
    directions = {"first": "1", "ten": "10"}
    if name in directions:
        share = result["explained"].get(directions[name])
        return None if share is None else 100 * share
    return result[name]
