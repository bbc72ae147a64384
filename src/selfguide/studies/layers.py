"""Layers: which layer and which pooling of the untuned encoder know most about meaning, and where does tuning's [CLS] stand?

Every layer k = 0..l is pooled in three ways ([CLS], mean, max), and each gives a score; all of them come from one pass over
the sentences (:mod:`selfguide.evaluation.probe`). The methods' own vector, the tuned [CLS] of the last layer for SG-OPT, is
a level line: the mean over its seeds. Kim, Yoo and Lee show this as the reason for their method: the best layer is hard to
guess, differs from task to task, and [CLS] of the last layer is seldom it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from selfguide.comparison.summary import Row, Summary, Value
from selfguide.errors import UsageError
from selfguide.studies.base import FULL, SMALL, Found, Grid, Measurement, Plan, Setup, Study
from selfguide.studies.graded_runs import graded_rows
from selfguide.studies.measuring import Place
from selfguide.studies.outcome import (
    Column,
    Entry,
    Figure,
    Lines,
    Matrix,
    Outcome,
    Series,
    Table,
    over_seeds,
)

GRID, BEFORE = "tuned", "before"
_POOLINGS = {"cls": "[CLS]", "mean": "mean", "max": "max"}
_MEAN_OF_TASKS = "average"
_NO_SCORE = (
    "A dash: all pairs have the same cosine, so there is nothing to rank. [CLS] of layer 0 has read no other token and is the "
    "same for every sentence."
)
Scores = dict[str, list[float | None]]
"""By pooling, a score for each layer; None where there is none."""


class Layers(Study):
    """Layer × pooling before tuning, and methods as level lines."""

    small = replace(SMALL, values={"methods": ("sg-opt",)})
    full = replace(FULL, values={"methods": ("sg-opt",)})

    def plan(self, setup: Setup) -> Plan:
        if setup.depth is None:
            raise UsageError(f"{setup.encoder} has no layers to compare; choose a BERT-like encoder.")
        before = Measurement(BEFORE, "selfguide.studies.layers:probed")
        return Plan((Grid(GRID, tuple(setup.values("methods")), "the tuned encoders"),), (before,))

    def outcome(self, found: Found) -> Outcome:
        summary = found.summary(GRID)
        probes = (found.results[BEFORE] or {"tasks": {}})["tasks"]
        by_task = {task: dict(zip(made["poolings"], made["scores"], strict=True)) for task, made in probes.items()}
        average = _average(list(by_task.values()))
        tasks = list(by_task)
        tables = (_layer_table(average, _title(summary, tasks)), _task_table(by_task, average, summary))
        return Outcome(tables, _figures(average, summary, tasks) if average else ())


def probed(place: Place) -> dict[str, Any]:
    """The untuned encoder's score for every layer and pooling on every task, from one pass over each task's sentences."""
    from selfguide.evaluation.probe import probe

    encoder = place.load_encoder()
    kept = ("task", "rows", "sentences", "digest", "metric", "layers", "poolings", "scores", "notes")
    found = {}
    for rows in graded_rows(place):
        made = probe(encoder, rows, poolings=tuple(_POOLINGS), batch_size=place.batch_size).to_dict()
        found[rows.task.name] = {name: made[name] for name in kept}
    return {"tasks": found}


def _average(of_tasks: Sequence[Scores]) -> Scores:
    """Over the tasks; a layer without a score on one of them has none."""
    if not of_tasks:
        return {}
    return {
        pooling: [_mean(values) for values in zip(*(scores[pooling] for scores in of_tasks), strict=True)]
        for pooling in _POOLINGS
    }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if len(known) == len(values) else None


def _layer_table(average: Scores, score: str) -> Table:
    depth = len(next(iter(average.values()), ()))
    rows: list[dict[str, Entry]] = [
        {"layer": layer, **{pooling: average[pooling][layer] for pooling in _POOLINGS}} for layer in range(depth)
    ]
    columns = (Column("layer", "layer"), *(Column(key, title, better="high") for key, title in _POOLINGS.items()))
    notes = (_NO_SCORE,) if any(value is None for values in average.values() for value in values) else ()
    return Table("layers", f"{score} by layer, before tuning", columns, tuple(rows), notes)


def _task_table(by_task: Mapping[str, Scores], average: Scores, summary: Summary) -> Table:
    """The best layer of every task beside the vectors that one would take, and the tuned ones."""
    columns = [Column("task", "task"), Column("best", "best layer, untuned"), Column("best score", "its score")]
    columns += [Column("cls", "[CLS], untuned"), Column("mean", "mean, untuned")]
    columns += [Column(f"tuned {row.label}", row.label) for row in summary.rows]
    titles = {column.key: column.title for column in summary.columns}
    rows: list[dict[str, Entry]] = []
    everything = dict(by_task)
    if len(by_task) > 1:
        everything[_MEAN_OF_TASKS] = average
    for task, scores in everything.items():
        meant = list(by_task) if task == _MEAN_OF_TASKS else [task]
        row: dict[str, Entry] = {"task": titles.get(task, task), **_best(scores)}
        row |= {f"tuned {tuned.label}": _tuned(tuned, meant) for tuned in summary.rows}
        rows.append(row)
    return Table("tasks", "The best layer, the last layer and the tuned vector", tuple(columns), tuple(rows))


def _title(summary: Summary, tasks: Sequence[str]) -> str:
    """What the mean over the probed tasks is called."""
    titles = {column.key: column.title for column in summary.columns}
    return (
        f"mean of {len(tasks)} tasks" if len(tasks) > 1 else titles.get(tasks[0], "") if tasks else summary.main.title
    )


def _best(scores: Scores) -> dict[str, Entry]:
    known = [
        (score, layer, pooling)
        for pooling, by_layer in scores.items()
        for layer, score in enumerate(by_layer)
        if score is not None
    ]
    if not known:
        return {}
    score, layer, pooling = max(known, key=lambda item: item[0])
    last: dict[str, Entry] = {name: scores[name][-1] for name in ("cls", "mean")}
    return {"best": f"{_POOLINGS[pooling]} of layer {layer}", "best score": score, **last}


def _tuned(row: Row, tasks: Sequence[str]) -> Value | None:
    """A method's mean over the tasks that were probed, seed by seed; other tasks have no layers to compare with."""
    if not row.values or not tasks:
        return None
    seeds = row.values[tasks[0]].by_seed
    return over_seeds({seed: fmean(row.values[task].by_seed[seed] for task in tasks) for seed in seeds})


def _figures(average: Scores, summary: Summary, tasks: Sequence[str]) -> tuple[Figure, ...]:
    tuned = {row.label: _tuned(row, tasks) for row in summary.rows}
    levels = {f"{label}, tuned": value.mean for label, value in tuned.items() if value is not None}
    series = tuple(Series(title, _points(average[pooling])) for pooling, title in _POOLINGS.items())
    score = _title(summary, tasks)
    layers = range(len(average["mean"]))
    fields = tuple(tuple(_value(average[pooling][layer]) for pooling in _POOLINGS) for layer in layers)
    return (
        Lines(
            "layers",
            f"{score} by layer and pooling",
            "Untuned: a point is the pooled output of a layer, 0 being the embedding layer. The dotted line is the tuned "
            "encoder's own vector, its mean over seeds.",
            "layer",
            score,
            series,
            levels,
        ),
        Matrix(
            "layer-matrix",
            f"{score} of every layer and pooling, before tuning",
            "The same numbers as the lines: the brighter the field, or on the page the darker, the better.",
            "pooling",
            "layer",
            tuple(_POOLINGS.values()),
            tuple(str(layer) for layer in layers),
            fields,
        ),
    )


def _points(by_layer: Sequence[float | None]) -> tuple[tuple[int, Value], ...]:
    return tuple((layer, value) for layer, score in enumerate(by_layer) if (value := _value(score)) is not None)


def _value(score: float | None) -> Value | None:
    return None if score is None else over_seeds({None: score})
