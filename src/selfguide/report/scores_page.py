"""The page of a folder of scores that `selfguide eval` wrote."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from selfguide.evaluation.results import Evaluation, TaskScore
from selfguide.evaluation.results import table as values_of
from selfguide.report.charts import Dot, dot_chart
from selfguide.report.markup import (
    Cell,
    Heading,
    bullets,
    facts,
    figure,
    number,
    paragraph,
    plain,
    settings_table,
    table,
)
from selfguide.report.page import Section, page


def scores_page(scores: Sequence[TaskScore]) -> str:
    """Encoders × tasks, each score with its interval, rows and data, and what must be known about them."""
    evaluations = _evaluations(scores)
    names = list(dict.fromkeys(score.encoder.name for score in scores))
    tasks = list(dict.fromkeys(score.title for score in scores))
    notes = dict.fromkeys(f"{item.encoder.name}, {note}" for item in evaluations for note in item.notes())
    dates = sorted({score.date[:10] for score in scores})
    counts = {"encoders": str(len(names)), "tasks": str(len(tasks)), "scores": str(len(scores)), "newest": dates[-1]}
    return page(
        title=names[0] if len(names) == 1 else f"{len(names)} encoders",
        kicker="Report of an evaluation",
        lead=f"Scored on {', '.join(tasks)}. All scores × 100.",
        head=facts(counts),
        sections=[
            Section("scores", "Scores", _overview(evaluations) + _chart(evaluations)),
            Section("notes", "Notes", bullets(notes)),
            Section("details", "Score by score", _details(scores)),
            Section("protocol", "Protocol and versions", _protocols(scores)),
        ],
    )


def _evaluations(scores: Sequence[TaskScore]) -> list[Evaluation]:
    """A row for each encoder and protocol; of a task scored on several data, the newest score."""
    rows: dict[tuple[str, str, str], dict[str, TaskScore]] = {}
    for score in scores:
        key = (score.encoder.name, score.encoder.digest, json.dumps(score.protocol, sort_keys=True))
        rows.setdefault(key, {})[score.task] = score
    return [Evaluation(next(iter(row.values())).encoder, tuple(row.values())) for row in rows.values()]


def _labels(evaluations: Sequence[Evaluation]) -> list[str]:
    """The encoders' names; to those that come twice, what tells them apart is added."""
    names = [item.encoder.name for item in evaluations]
    labels = []
    for item in evaluations:
        twins = [other for other in evaluations if other.encoder.name == item.encoder.name]
        own = item.scores[0].protocol
        different = [
            f"{name} {plain(value)}"
            for name, value in own.items()
            if any(twin.scores[0].protocol.get(name) != value for twin in twins)
        ]
        if len({twin.encoder.digest for twin in twins}) > 1:
            different.append(f"weights {item.encoder.digest[:8]}")
        labels.append(
            ", ".join([item.encoder.name, *different]) if names.count(item.encoder.name) > 1 else item.encoder.name
        )
    return labels


def _overview(evaluations: Sequence[Evaluation]) -> str:
    titles, rows = values_of(evaluations)
    tops = [_top([row[place] for row in rows]) for place in range(len(titles))]
    shown = [
        [Cell(label), *(_cell(value, top) for value, top in zip(row, tops, strict=True))]
        for label, row in zip(_labels(evaluations), rows, strict=True)
    ]
    return table("Scores, the best of each column in bold", [Heading("encoder", False), *map(Heading, titles)], shown)


def _chart(evaluations: Sequence[Evaluation]) -> str:
    """The last column, which is an average where there is one."""
    titles, rows = values_of(evaluations)
    place = titles.index("sts avg") if "sts avg" in titles else len(titles) - 1
    pairs = [(label, row[place]) for label, row in zip(_labels(evaluations), rows, strict=True)]
    finite = [(label, value) for label, value in pairs if value is not None and math.isfinite(value)]
    if len(finite) < 2:
        return ""
    finite.sort(key=lambda pair: -pair[1])
    dots = [Dot(label, value, best=number(value) == number(finite[0][1])) for label, value in finite]
    description = "; ".join(f"{dot.label} {number(dot.mean)}" for dot in dots)
    return figure(dot_chart(f"{titles[place]} of each encoder", f"{description}.", dots), f"{titles[place]}.")


def _details(scores: Sequence[TaskScore]) -> str:
    headings = [Heading("encoder", False), Heading("task", False), Heading("metric", False), Heading("score")]
    headings += [Heading("95 % interval"), Heading("rows"), Heading("data", False), Heading("date", False)]
    rows = []
    for score in scores:
        interval = " to ".join(number(end) for end in score.interval) if score.interval else ""
        rows.append([
            Cell(f"{score.encoder.name}"), Cell(score.title), Cell(score.metric), _cell(score.value, None), Cell(interval),
            Cell(f"{score.data.rows:,}", value=score.data.rows), Cell(f"{score.data.text}, {score.data.digest}"),
            Cell(score.date[:10]),
        ])  # fmt: skip
    return table("Every score with what it was computed on", headings, rows)


def _protocols(scores: Sequence[TaskScore]) -> str:
    different = {json.dumps(score.protocol, sort_keys=True): score.protocol for score in scores}
    tables = [settings_table("Protocol", protocol) for protocol in different.values()]
    versions = dict.fromkeys(
        ", ".join(f"{name} {version}" for name, version in score.versions.items()) for score in scores
    )
    encoders = {f"weights of {score.encoder.name}": score.encoder.digest for score in scores}
    lines = "".join(paragraph(f"Versions: {line}.") for line in versions)
    return "".join(tables) + settings_table("Encoders", encoders) + lines


def _cell(value: float | None, top: str | None) -> Cell:
    if value is None:
        return Cell("")
    return Cell(number(value), value=value, best=number(value) == top) if math.isfinite(value) else Cell("none")


def _top(column: Sequence[float | None]) -> str | None:
    finite = [value for value in column if value is not None and math.isfinite(value)]
    return number(max(finite)) if len(column) > 1 and finite else None
