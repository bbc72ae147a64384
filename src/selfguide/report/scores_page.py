"""The page of a folder of scores that ``selfguide eval`` wrote."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from selfguide.evaluation.results import Evaluation, TaskScore
from selfguide.evaluation.results import table as values_of
from selfguide.report.formatting import number, setting
from selfguide.report.page import render
from selfguide.report.plots import Dots, Measured
from selfguide.report.table import Cell, Heading, Table


def scores_page(scores: Sequence[TaskScore]) -> str:
    """Make the page of a folder of scores.

    Args:
        scores: The scores of one or several encoders.

    Returns:
        The HTML file.
    """
    evaluations = _evaluations(scores)
    labels = _labels(evaluations)
    names = list(dict.fromkeys(score.encoder.name for score in scores))
    tasks = list(dict.fromkeys(score.title for score in scores))
    notes = list(dict.fromkeys(f"{item.encoder.name}, {note}" for item in evaluations for note in item.notes()))
    titles, values = values_of(evaluations)
    return render(
        "scores",
        title=names[0] if len(names) == 1 else f"{len(names)} encoders",
        kicker="Report of an evaluation",
        lead=f"Scored on {', '.join(tasks)}. All scores × 100.",
        facts={
            "encoders": str(len(names)),
            "tasks": str(len(tasks)),
            "scores": str(len(scores)),
            "newest": max(score.date[:10] for score in scores),
        },
        sections={
            "scores": ("Scores", True),
            "notes": ("Notes", notes),
            "details": ("Score by score", True),
            "protocol": ("Protocol and versions", True),
        },
        overview=_overview(titles, labels, values),
        chart=_chart(titles, labels, values),
        notes=notes,
        details=_details(scores),
        protocols=_distinct(score.protocol for score in scores),
        weights={f"weights of {score.encoder.name}": score.encoder.digest for score in scores},
        software=_distinct(score.versions for score in scores),
    )


def _evaluations(scores: Sequence[TaskScore]) -> list[Evaluation]:
    """Make a row for each encoder and protocol; of a task scored on several data, the newest score counts."""
    rows: dict[tuple[str, str, str], dict[str, TaskScore]] = {}
    for score in scores:
        key = (score.encoder.name, score.encoder.digest, json.dumps(score.protocol, sort_keys=True))
        rows.setdefault(key, {})[score.task] = score
    return [Evaluation(next(iter(row.values())).encoder, tuple(row.values())) for row in rows.values()]


def _labels(evaluations: Sequence[Evaluation]) -> list[str]:
    """Return the encoders' names; names that occur twice are made distinct."""
    labels = []
    for item in evaluations:
        twins = [other for other in evaluations if other.encoder.name == item.encoder.name]
        different = [
            f"{name} {setting(value)}"
            for name, value in item.scores[0].protocol.items()
            if any(twin.scores[0].protocol.get(name) != value for twin in twins)
        ]
        if len({twin.encoder.digest for twin in twins}) > 1:
            different.append(f"weights {item.encoder.digest[:8]}")
        labels.append(", ".join([item.encoder.name, *different]))
    return labels


def _overview(titles: list[str], labels: list[str], values: list[list[float | None]]) -> Table:
    better: Any = "high" if len(labels) > 1 else ""
    headings = [Heading("encoder", numeric=False), *(Heading(title, better=better) for title in titles)]
    rows = [[Cell(label), *map(_score, row)] for label, row in zip(labels, values, strict=True)]
    return Table(headings, rows, "Scores, the best of each column in bold")


def _chart(titles: list[str], labels: list[str], values: list[list[float | None]]) -> Dots:
    """Draw the average, or the last task where there is none; nothing for a single encoder."""
    place = titles.index("sts avg") if "sts avg" in titles else len(titles) - 1
    known = [(label, row[place]) for label, row in zip(labels, values, strict=True)]
    dots = [(label, Measured(value)) for label, value in known if value is not None and math.isfinite(value)]
    dots = sorted(dots, key=lambda dot: -dot[1].mean) if len(dots) > 1 else []
    alt = "; ".join(f"{label} {number(value.mean)}" for label, value in dots) + "."
    title = titles[place]
    return Dots("scores-chart", f"{title} of each encoder", f"{title}.", title, tuple(dots), alt=alt)


def _details(scores: Sequence[TaskScore]) -> Table:
    headings = [Heading(title, numeric=False) for title in ("encoder", "task", "metric")]
    headings += [Heading("score"), Heading("95 % interval"), Heading("rows")]
    headings += [Heading("data", numeric=False), Heading("date", numeric=False)]
    rows = []
    for score in scores:
        interval = " to ".join(number(end) for end in score.interval) if score.interval else ""
        rows.append([
            Cell(score.encoder.name), Cell(score.title), Cell(score.metric), _score(score.value), Cell(interval),
            Cell(f"{score.data.rows:,}", value=score.data.rows), Cell(f"{score.data.text}, {score.data.digest}"),
            Cell(score.date[:10]),
        ])  # fmt: skip
    return Table(headings, rows, "Every score with what it was computed on")


def _score(value: float | None) -> Cell:
    if value is None:
        return Cell("")
    return Cell(number(value), value=value) if math.isfinite(value) else Cell("none")


def _distinct(items: Any) -> list[dict[str, Any]]:
    return list({json.dumps(item, sort_keys=True): item for item in items}.values())
