"""Geometry: how the embeddings are distributed, before and after tuning.

Untuned embeddings all point into one narrow cone, so that unrelated sentences have a cosine near 1; a contrastive loss
spreads them. Spread alone is worthless (random vectors have it too): pairs that mean the same must stay close. The study
shows both: numbers of all embeddings and of positive and negative pairs (:mod:`selfguide.studies.geometry_numbers`),
histograms of the cosines by grade, grade against cosine, and a map of pairs. All are computed on STS-B's pairs where it is
among the tasks, else on the first task of graded pairs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from selfguide.errors import UsageError
from selfguide.evaluation.embedder import embedder
from selfguide.studies import geometry_figures
from selfguide.studies.base import FULL, SMALL, Findings, Grid, Plan, Setup, Study
from selfguide.studies.context import GradedPairs, MeasurementContext
from selfguide.studies.geometry_numbers import numbers, pair_map, points
from selfguide.studies.outcome import UNTUNED, Column, Outcome, Table, TableRow, main_value, score_columns
from selfguide.studies.specs import GridRun, results_by_label, runs_of
from selfguide.studies.values import known_over_seeds

GRID = "methods"
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
_DIRECTIONS = {"first": "1", "ten": "10"}
_NOTES = (
    "Anisotropy: the mean cosine of two different sentences. Alignment: the mean squared distance of positive pairs; "
    "uniformity: how evenly embeddings are spread; both: lower is better. Variance in 1 and in 10: per cent of the variance "
    "in the first direction and in the first ten.",
    "Positive pairs have a grade in the top fifth of the scale, negative ones in the bottom fifth.",
)


class Geometry(Study):
    """[CLS] and mean before tuning, methods after it."""

    name = "geometry"
    title = "Geometry of the embeddings"
    question = "How are the embeddings distributed, before and after tuning?"
    reference = "Wang and Isola, ICML 2020; Ethayarajh, EMNLP 2019"
    small = replace(SMALL, values={"methods": ("sg-opt", "simcse")})
    full = replace(FULL, values={"methods": ("sg-opt", "simcse")})

    def plan(self, setup: Setup) -> Plan:
        """See :meth:`Study.plan`."""
        for method in setup.values("methods"):
            if method in UNTUNED:
                raise UsageError(f"{method} is among the untuned vectors already; name other methods.")
        grid = Grid(GRID, (*UNTUNED, *setup.values("methods")), "the encoders", keep=True)
        return Plan((grid,), tuple(run.measurement(f"{__name__}:shape", GRID) for run in _runs(setup)))

    def outcome(self, findings: Findings) -> Outcome:
        """See :meth:`Study.outcome`."""
        summary = findings.summary(GRID)
        results = results_by_label(_runs(findings.setup), findings.results)
        titles = {label: UNTUNED.get(label, label) for label in results}
        rows: list[TableRow] = []
        for label, title in titles.items():
            row: TableRow = {"vectors": title, summary.main.key: main_value(summary[label], summary)}
            for column in _COLUMNS:
                by_seed = {seed: _number(result, column.key) for seed, result in results[label].items()}
                row[column.key] = known_over_seeds(by_seed)
            rows.append(row)
        columns = [Column("vectors", "vectors"), *score_columns(summary, every=False), *_COLUMNS]
        data = [
            f"{result['task']}: {result['pairs']:,} pairs, {result['sentences']:,} sentences."
            for by_seed in results.values()
            for result in by_seed.values()
        ]
        table = Table("geometry", "Distribution of the embeddings", columns, rows, [*data[:1], *_NOTES])
        named = {titles[label]: by_seed for label, by_seed in results.items() if by_seed}
        return Outcome([table], geometry_figures.figures(named) if named else ())


def shape(context: MeasurementContext, label: str, seed: int | None) -> dict[str, Any]:
    """Measure everything that the study shows of one encoder.

    Args:
        context: What the study runs on.
        label: The row.
        seed: The seed; ``None`` for a row without one.

    Returns:
        The numbers, as the study's record keeps them.
    """
    tasks = context.graded_tasks()
    rows = next((rows for rows in tasks if rows.task.name == "stsb"), tasks[0])
    pairs = GradedPairs.of(rows, differing=True)
    left, right = pairs.indices
    vectors = embedder(context.kept_encoder(GRID, label, seed), batch_size=context.batch_size, name=label)
    units = vectors(pairs.sentences).astype(np.float64)
    units /= np.linalg.norm(units, axis=1, keepdims=True).clip(min=1e-12)
    grades = np.asarray(pairs.grades)
    low, high = rows.task.low, rows.task.high
    shares = ((grades - low) / (high - low)).clip(0.0, 1.0)
    return {
        "task": rows.task.title,
        "pairs": len(grades),
        "grades": [low, high],
        **numbers(units, left, right, shares),
        "points": points(np.einsum("pd,pd->p", units[left], units[right]), grades),
        "map": pair_map(units, left, right, shares),
    }


def _runs(setup: Setup) -> list[GridRun]:
    return runs_of((*UNTUNED, *setup.values("methods")), setup.scale.seeds)


def _number(result: Mapping[str, Any], name: str) -> float | None:
    if name in _DIRECTIONS:
        share = result["explained"].get(_DIRECTIONS[name])
        return None if share is None else 100 * share
    return result[name]
