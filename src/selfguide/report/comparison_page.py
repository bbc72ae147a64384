"""The page of a comparison, from ``comparison.json`` alone: every number on it comes from that file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from selfguide.report.formatting import duration, listed, number
from selfguide.report.page import render
from selfguide.report.plots import Dots, Measured
from selfguide.report.table import Cell, Heading, Table

_BELOW_FLOOR = "†"
_STARS = ((0.001, "***"), (0.01, "**"), (0.05, "*"))
_STARS_NOTE = "* p < 0.05, ** p < 0.01, *** p < 0.001; no p where there are too few seeds."
Row = Mapping[str, Any]


def comparison_page(found: dict[str, Any]) -> str:
    """Make the page of a comparison.

    Args:
        found: What ``comparison.json`` holds.

    Returns:
        The HTML file.
    """
    setting, main = found["setting"], found["main"]
    rows = list(found["rows"].values())
    tasks = [column for column in found["columns"] if not column["average"]]
    failures = [
        f"{row['label']}{'' if seed == 'once' else f', seed {seed}'} failed: {error}"
        for row in rows
        for seed, error in row["errors"].items()
    ]
    warnings = [f"{row['label']}: {warning}" for row in rows for warning in row["warnings"]]
    seeds = _seeds_table(main, rows)
    stages = [stage for row in rows for stage in row["stages"]]
    common = _common_settings(stages)
    dev = f" Checkpoints of tuned methods were chosen by {setting['dev']}." if setting["dev"] else ""
    return render(
        "comparison",
        title=f"{len(rows)} method{'s' * (len(rows) != 1)} on {setting['encoder']}",
        kicker="Report of a comparison",
        lead=f"Text: {', '.join(setting['text'])} ({setting['sentences']:,} sentences). Scored on {_enumerated(tasks)}.{dev}",
        facts=_facts(found, rows),
        sections={
            "scores": ("Scores", True),
            "failures": ("Failed", failures),
            "tasks": ("Task by task", len(found["columns"]) > 1),
            "seeds": ("Seed by seed", seeds.rows),
            "warnings": ("Warnings", warnings),
            "configuration": ("Configuration", True),
            "repeat": ("Reproduce", True),
        },
        found=found,
        headline=_headline(found, rows),
        chart=_chart(found, rows),
        notes=[note for note in found["notes"] if note not in failures],  # failures have a section of their own
        failures=failures,
        tasks=_tasks_table(tasks, rows),
        seeds=seeds,
        warnings=warnings,
        stages=_stages_table(rows, common),
        common=common,
        data_settings=_data_settings(found),
        everything=[setting, *(row["stages"] for row in rows)],
    )


def _facts(found: dict[str, Any], rows: Sequence[Row]) -> dict[str, str]:
    facts = {}
    if found["best"] is not None:
        best = found["rows"][found["best"]]
        facts["best row"] = best["label"]
        facts[f"its {found['main']['title']}"] = number(best["values"][found["main"]["key"]]["mean"])
    seeds = {seed for row in rows for value in row["values"].values() for seed in value["by_seed"]} - {"once"}
    facts["seeds"] = str(len(seeds)) if seeds else "none needed"
    return facts | {"date": found["date"]}


def _headline(found: dict[str, Any], rows: Sequence[Row]) -> Table:
    """Show the averages, or the one task, and how significant the differences between rows are."""
    main = found["main"]
    columns = [main, *(column for column in found["columns"] if column["average"] and column["key"] != main["key"])]
    versus = {"versus_baseline": found["baseline"]}
    if found["best"] not in (None, found["baseline"]):
        versus["versus_best"] = found["best"]
    if len(rows) < 2:
        versus = {}
    dev = any(row["dev"] for row in rows)
    headings = [Heading("method", numeric=False), *(Heading(column["title"], better="high") for column in columns)]
    headings += [Heading("dev")] if dev else []
    headings += [Heading(f"vs {other}", help=f"Difference in {main['title']}") for other in versus.values()]
    headings += [Heading("seeds"), Heading("time", help="Mean time of a run, scoring included")]
    cells = []
    for row in rows:
        line = [Cell(row["label"] + (_BELOW_FLOOR if row["below_floor"] else ""))]
        line += [_score(row["values"].get(column["key"])) for column in columns]
        line += [_score(row["dev"]) if row["dev"] else Cell("")] if dev else []
        line += [_difference(row[name]) for name in versus]
        cells.append([*line, _seeds(row), Cell(duration(row["seconds"]), value=row["seconds"])])
    tested = any(row[name] and row[name]["p_value"] is not None for row in rows for name in versus)
    caption = "Mean ± deviation over seeds, the best in bold"
    return Table(headings, cells, caption, (_STARS_NOTE,) if tested else ())


def _chart(found: dict[str, Any], rows: Sequence[Row]) -> Dots:
    """Draw the main column, the best row first."""
    main, floor = found["main"], found["floor"]
    values = {row["label"]: Measured.from_dict(row["values"].get(main["key"])) for row in rows}
    dots = sorted(((label, value) for label, value in values.items() if value), key=lambda dot: -dot[1].mean)
    levels = {floor: value.mean} if floor is not None and (value := values[floor]) else {}
    return Dots(
        "scores-chart",
        f"{main['title']} of each method",
        f"{main['title']}: the mean (large dot), mean ± deviation (bar) and every seed (small dots)"
        + (f"; the dotted line is {floor}." if levels else "."),
        main["title"],
        tuple(dots),
        levels,
        alt="; ".join(f"{label} {number(value.mean)}" for label, value in dots) + ".",
    )


def _tasks_table(tasks: Sequence[Mapping[str, Any]], rows: Sequence[Row]) -> Table:
    headings = [Heading("method", numeric=False), *(Heading(column["title"], better="high") for column in tasks)]
    cells = [[Cell(row["label"]), *(_score(row["values"].get(column["key"])) for column in tasks)] for row in rows]
    return Table(headings, cells, "Each task: mean ± deviation over seeds")


def _seeds_table(main: Mapping[str, Any], rows: Sequence[Row]) -> Table:
    """Show the single runs behind the means; no rows where every method was run once."""
    runs = {row["label"]: row["values"][main["key"]]["by_seed"] for row in rows if row["values"]}
    runs = {label: run for label, run in runs.items() if "once" not in run}
    seeds = sorted({seed for run in runs.values() for seed in run}, key=int)
    cells = [
        [Cell(label), *(Cell(number(run.get(seed)), value=run.get(seed)) for seed in seeds)]
        for label, run in runs.items()
    ]
    headings = [Heading("method", numeric=False), *(Heading(f"seed {seed}") for seed in seeds)]
    return Table(headings, cells, f"{main['title']} of every run")


def _common_settings(stages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the training settings that all stages share."""
    return {
        name: value
        for name, value in (stages[0]["training"] if stages else {}).items()
        if all(name in stage["training"] and stage["training"][name] == value for stage in stages)
    }


def _stages_table(rows: Sequence[Row], common: Mapping[str, Any]) -> Table:
    headings = [Heading(title, numeric=False) for title in ("row", "stage", "options", "settings")]
    cells = [
        [
            Cell(row["label"]),
            Cell(stage["method"]),
            Cell(listed(stage["options"]) or "none"),
            Cell(listed({name: value for name, value in stage["training"].items() if name not in common}) or "none"),
            Cell(f"{row['steps']:,}", value=row["steps"]),
        ]
        for row in rows
        for stage in row["stages"]
    ]
    return Table([*headings, Heading("steps in all")], cells, "Of each row", sortable=False)


def _data_settings(found: dict[str, Any]) -> dict[str, Any]:
    setting = found["setting"]
    return {
        "encoder": f"{setting['encoder']} ({setting['encoder_digest']})",
        "text": f"{', '.join(setting['text'])} ({setting['fingerprint'][:16]})",
        "dev pairs": f"{setting['dev']} ({setting['dev_digest']})" if setting["dev"] else None,
        **{f"task {name}": digest for name, digest in setting["tasks"].items()},
        **{f"protocol: {name}": value for name, value in setting["protocol"].items()},
        **{f"metric of {task}": metric for task, metric in found["metrics"].items()},
    }


def _score(value: Mapping[str, Any] | None) -> Cell:
    if value is None:
        return Cell("failed")
    mean, deviation = value["mean"], value["deviation"]
    if mean is None:
        return Cell("none")
    return Cell(number(mean), "" if deviation is None else f"± {number(deviation)}", mean, deviation)


def _difference(versus: Mapping[str, Any] | None) -> Cell:
    if versus is None or versus["difference"] is None:
        return Cell("")
    cell = Cell(number(versus["difference"], sign=True), value=versus["difference"])
    p = versus["p_value"]
    if p is None:
        return cell
    stars = next((f"{mark} " for limit, mark in _STARS if p < limit), "")
    return replace(cell, note=stars + ("p < 0.001" if p < 0.001 else f"p = {p:.3f}"))


def _seeds(row: Row) -> Cell:
    runs = next(iter(row["values"].values()))["by_seed"] if row["values"] else {}
    shown = f"{len(runs)} of {len(runs) + len(row['errors'])}" if row["errors"] else str(len(runs))
    return Cell("once" if "once" in runs else shown, value=float(len(runs)))


def _enumerated(columns: Sequence[Mapping[str, Any]]) -> str:
    titles = [column["title"] for column in columns]
    return titles[0] if len(titles) == 1 else f"{', '.join(titles[:-1])} and {titles[-1]}"
