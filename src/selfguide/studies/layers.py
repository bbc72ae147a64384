"""Layers: which layer and pooling of the untuned encoder scores best, and where does the tuned [CLS] stand?

Every layer k = 0..l is pooled in three ways ([CLS], mean, max); all scores come from one pass over the sentences
(:mod:`selfguide.evaluation.probe`). The methods' own embeddings, the tuned [CLS] of the last layer for SG-OPT, are horizontal
lines: the mean over seeds. Kim, Yoo and Lee motivate their method with this: the best layer is hard to guess, differs from
task to task, and is seldom the last one's [CLS].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from selfguide.comparison.summary import Row, Summary
from selfguide.errors import UsageError
from selfguide.evaluation.probe import probe
from selfguide.report.plots import Lines
from selfguide.studies.base import FULL, SMALL, Findings, Grid, Measurement, Plan, Setup, Study
from selfguide.studies.context import MeasurementContext
from selfguide.studies.outcome import Column, Outcome, Table, TableRow, known_means, known_series, matrix
from selfguide.studies.values import Value, known_over_seeds, mean_value

GRID, BEFORE = "tuned", "before"
_POOLINGS = {"cls": "[CLS]", "mean": "mean", "max": "max"}
_MEAN_OF_TASKS = "average"
_NO_SCORE = (
    "A dash: all pairs have the same cosine, so there is nothing to rank. [CLS] of layer 0 has read no other token and is the "
    "same for every sentence."
)
_CAPTION = (
    "Untuned: a point is the pooled output of a layer, 0 being the embedding layer. The dotted line is the tuned encoder's own "
    "vector, its mean over seeds."
)
_MATRIX_CAPTION = "The same numbers as the lines: the brighter the cell, the better."
Scores = dict[str, list[float | None]]
"""By pooling, a score for each layer; None where there is none."""


class Layers(Study):
    """Layer × pooling before tuning, and methods as horizontal lines."""

    name = "layers"
    title = "Layers and poolings"
    question = (
        "Which layer and pooling of the untuned encoder know most about meaning, and where does the tuned [CLS] stand?"
    )
    reference = "Kim, Yoo and Lee, ACL 2021"
    small = replace(SMALL, values={"methods": ("sg-opt",)})
    full = replace(FULL, values={"methods": ("sg-opt",)})

    def plan(self, setup: Setup) -> Plan:
        """See :meth:`Study.plan`."""
        if setup.depth is None:
            raise UsageError(f"{setup.encoder} has no layers to compare; choose a BERT-like encoder.")
        before = Measurement(BEFORE, f"{__name__}:probed")
        return Plan((Grid(GRID, tuple(setup.values("methods")), "the tuned encoders"),), (before,))

    def outcome(self, findings: Findings) -> Outcome:
        """See :meth:`Study.outcome`."""
        summary = findings.summary(GRID)
        probes = (findings.results[BEFORE] or {"tasks": {}})["tasks"]
        by_task = {task: dict(zip(found["poolings"], found["scores"], strict=True)) for task, found in probes.items()}
        average, tasks = _average(list(by_task.values())), list(by_task)
        titles = {column.key: column.title for column in summary.columns}
        score = titles.get(tasks[0], "") if tasks else summary.main.title
        score = f"mean of {len(tasks)} tasks" if len(tasks) > 1 else score
        tables = [_layer_table(average, score), _task_table(by_task, average, summary, titles)]
        if not average:
            return Outcome(tables)
        values = {
            pooling: [known_over_seeds({None: number}) for number in by_layer] for pooling, by_layer in average.items()
        }
        levels = known_means({f"{row.label}, tuned": _tuned(row, tasks) for row in summary.rows})
        series = known_series({title: enumerate(values[pooling]) for pooling, title in _POOLINGS.items()})
        by_layer = {
            str(layer): {pooling: values[pooling][layer] for pooling in _POOLINGS}
            for layer in range(len(values["mean"]))
        }
        title, axes = f"{score} of every layer and pooling, before tuning", ("pooling", "layer")
        figures = [
            Lines("layers", f"{score} by layer and pooling", _CAPTION, "layer", score, series, levels),
            matrix("layer-matrix", title, _MATRIX_CAPTION, axes, _POOLINGS, by_layer),
        ]
        return Outcome(tables, figures)


def probed(context: MeasurementContext) -> dict[str, Any]:
    """Score every layer and pooling of the untuned encoder on every task.

    Args:
        context: What the study runs on.

    Returns:
        The scores by layer and pooling, as the study's record keeps them.
    """
    encoder = context.load_encoder()
    kept = ("task", "rows", "sentences", "digest", "metric", "layers", "poolings", "scores", "notes")
    found = {}
    for rows in context.graded_tasks():
        scores = probe(encoder, rows, poolings=tuple(_POOLINGS), batch_size=context.batch_size).to_dict()
        found[rows.task.name] = {name: scores[name] for name in kept}
    return {"tasks": found}


def _average(of_tasks: Sequence[Scores]) -> Scores:
    """Average over the tasks; a layer without a score on one of them has none."""

    def mean(values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return fmean(known) if len(known) == len(values) else None

    return {
        pooling: [mean(values) for values in zip(*(scores[pooling] for scores in of_tasks), strict=True)]
        for pooling in (_POOLINGS if of_tasks else ())
    }


def _layer_table(average: Scores, score: str) -> Table:
    depth = len(next(iter(average.values()), ()))
    rows: list[TableRow] = [
        {"layer": layer, **{pooling: average[pooling][layer] for pooling in _POOLINGS}} for layer in range(depth)
    ]
    columns = [Column("layer", "layer"), *(Column(key, title, better="high") for key, title in _POOLINGS.items())]
    notes = [_NO_SCORE] if any(value is None for values in average.values() for value in values) else []
    return Table("layers", f"{score} by layer, before tuning", columns, rows, notes)


def _task_table(by_task: Mapping[str, Scores], average: Scores, summary: Summary, titles: Mapping[str, str]) -> Table:
    """Compare each task's best layer with the last layer and the tuned embeddings."""
    columns = [Column("task", "task"), Column("best", "best layer, untuned"), Column("best score", "its score")]
    columns += [Column("cls", "[CLS], untuned"), Column("mean", "mean, untuned")]
    columns += [Column(f"tuned {row.label}", row.label) for row in summary.rows]
    rows: list[TableRow] = []
    for task, scores in {**by_task, **({_MEAN_OF_TASKS: average} if len(by_task) > 1 else {})}.items():
        row: TableRow = {"task": titles.get(task, task)}
        known = [
            (score, layer, pooling)
            for pooling, by_layer in scores.items()
            for layer, score in enumerate(by_layer)
            if score is not None
        ]
        if known:
            score, layer, pooling = max(known, key=lambda item: item[0])
            row |= {"best": f"{_POOLINGS[pooling]} of layer {layer}", "best score": score}
            row |= {name: scores[name][-1] for name in ("cls", "mean")}
        tasks = list(by_task) if task == _MEAN_OF_TASKS else [task]
        rows.append(row | {f"tuned {tuned.label}": _tuned(tuned, tasks) for tuned in summary.rows})
    return Table("tasks", "The best layer, the last layer and the tuned vector", columns, rows)


def _tuned(row: Row, tasks: Sequence[str]) -> Value | None:
    """Average a method over the probed tasks, seed by seed."""
    return mean_value([row.values[task] for task in tasks]) if row.values else None
