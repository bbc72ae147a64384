"""The page of a comparison, from ``comparison.json`` alone: every number on it is one of that file's."""

from __future__ import annotations

import json
from typing import Any

from selfguide.report.charts import Dot, dot_chart
from selfguide.report.markup import (
    Cell,
    Heading,
    bullets,
    code,
    duration,
    facts,
    figure,
    folded,
    number,
    paragraph,
    plain,
    settings_table,
    table,
)
from selfguide.report.page import Section, page

_BELOW = "†"
_STARS = ((0.001, "***"), (0.01, "**"), (0.05, "*"))


def comparison_page(found: dict[str, Any]) -> str:
    """``found`` is what ``comparison.json`` holds."""
    setting, main = found["setting"], found["main"]
    rows = list(found["rows"].values())
    tasks = [column for column in found["columns"] if not column["average"]]
    failures = [
        f"{row['label']}{_of_seed(seed)} failed: {error}" for row in rows for seed, error in row["errors"].items()
    ]
    notes = [note for note in found["notes"] if note not in failures]  # which have a section of their own
    warnings = [f"{row['label']}: {warning}" for row in rows for warning in row["warnings"]]
    sections = [
        Section("scores", "Scores", _headline_table(found, rows) + _chart(found, rows) + bullets(notes)),
        Section("failures", "Failed", bullets(failures)),
        Section("tasks", "Task by task", _tasks_table(tasks, rows) if len(found["columns"]) > 1 else ""),
        Section("seeds", "Seed by seed", _seeds_table(main, rows)),
        Section("warnings", "Warnings", bullets(warnings)),
        Section("configuration", "Configuration", _configuration(found, rows)),
        Section("repeat", "Do it again", _repeat(found)),
    ]
    dev = f" Checkpoints of tuned methods were chosen by {setting['dev']}." if setting["dev"] else ""
    return page(
        title=f"{len(rows)} method{'s' * (len(rows) != 1)} on {setting['encoder']}",
        kicker="Report of a comparison",
        lead=f"Text: {', '.join(setting['text'])} ({setting['sentences']:,} sentences). Scored on {_list(tasks)}.{dev}",
        head=facts(_headline(found, rows)),
        sections=sections,
    )


def _headline(found: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, str]:
    shown = {}
    if found["best"] is not None:
        best = found["rows"][found["best"]]
        shown["best row"] = best["label"]
        shown[f"its {found['main']['title']}"] = number(best["values"][found["main"]["key"]]["mean"])
    seeds = {seed for row in rows for value in row["values"].values() for seed in value["by_seed"]} - {"once"}
    shown["seeds"] = str(len(seeds)) if seeds else "none needed"
    return shown | {"date": found["date"]}


def _headline_table(found: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """The averages, or the one task; and what the differences are worth."""
    main = found["main"]
    columns = [main, *(column for column in found["columns"] if column["average"] and column["key"] != main["key"])]
    tops = {column["key"]: _top(rows, column["key"]) for column in columns}
    versus = {"versus_baseline": found["baseline"]}
    if found["best"] not in (None, found["baseline"]):
        versus["versus_best"] = found["best"]
    if len(rows) < 2:
        versus = {}
    dev = any(row["dev"] for row in rows)
    headings = [Heading("method", False), *(Heading(column["title"]) for column in columns)]
    headings += [Heading("dev")] if dev else []
    headings += [Heading(f"vs {other}", help=f"Difference in {main['title']}") for other in versus.values()]
    headings += [Heading("seeds"), Heading("time", help="Mean time of a run, scoring included")]
    shown = []
    for row in rows:
        cells = [Cell(row["label"] + (_BELOW if row["below_floor"] else ""))]
        cells += [_score(row["values"].get(column["key"]), tops[column["key"]]) for column in columns]
        cells += [_score(row["dev"], None) if row["dev"] else Cell("")] if dev else []
        cells += [_difference(row[name]) for name in versus]
        shown.append([*cells, _seeds(row), Cell(duration(row["seconds"]), value=row["seconds"])])
    tested = any(row[name] and row[name]["p_value"] is not None for row in rows for name in versus)
    return table("Mean ± deviation over seeds, the best in bold", headings, shown) + (
        paragraph("* p < 0.05, ** p < 0.01, *** p < 0.001; no p where there are too few seeds.", "aside")
        if tested
        else ""
    )


def _chart(found: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """The main column again, to the eye, the best row first."""
    main = found["main"]
    scored = [(row, row["values"][main["key"]]) for row in rows if row["values"]]
    scored = [(row, value) for row, value in scored if value["mean"] is not None]
    if not scored:
        return ""
    scored.sort(key=lambda pair: -pair[1]["mean"])
    dots = [
        Dot(
            label=row["label"],
            mean=value["mean"],
            deviation=value["deviation"],
            points=tuple(point for point in value["by_seed"].values() if point is not None)
            if len(value["by_seed"]) > 1
            else (),
            best=row["label"] == found["best"],
            mark=f" {_BELOW}" if row["below_floor"] else "",
        )
        for row, value in scored
    ]
    description = "; ".join(f"{dot.label} {number(dot.mean)}" for dot in dots)
    drawing = dot_chart(f"{main['title']} of each method", f"{description}.", dots)
    return figure(
        drawing, f"{main['title']}: the mean (large dot), mean ± deviation (bar) and every seed (small dots)."
    )


def _tasks_table(tasks: list[dict[str, Any]], rows: list[dict[str, Any]]) -> str:
    tops = {column["key"]: _top(rows, column["key"]) for column in tasks}
    headings = [Heading("method", False), *(Heading(column["title"]) for column in tasks)]
    shown = [
        [Cell(row["label"]), *(_score(row["values"].get(column["key"]), tops[column["key"]]) for column in tasks)]
        for row in rows
    ]
    return table("Each task: mean ± deviation over seeds", headings, shown)


def _seeds_table(main: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """The single runs behind the means; nothing where every method was run once."""
    runs = {row["label"]: row["values"][main["key"]]["by_seed"] for row in rows if row["values"]}
    seeds = sorted({seed for run in runs.values() for seed in run if seed != "once"}, key=int)
    if not seeds:
        return ""
    shown = [
        [Cell(label), *(_single(run.get(seed)) for seed in seeds)] for label, run in runs.items() if "once" not in run
    ]
    headings = [Heading("method", False), *(Heading(f"seed {seed}") for seed in seeds)]
    return table(f"{main['title']} of every run", headings, shown)


def _configuration(found: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """What all stages share is told once; of each row, what is its own."""
    stages = [stage for row in rows for stage in row["stages"]]
    common = {
        name: value
        for name, value in (stages[0]["training"] if stages else {}).items()
        if all(name in stage["training"] and stage["training"][name] == value for stage in stages)
    }
    headings = [Heading("row", False), Heading("stage", False), Heading("options", False), Heading("settings", False)]
    headings.append(Heading("steps in all"))
    own = [
        [
            Cell(row["label"]),
            Cell(stage["method"]),
            Cell(_settings(stage["options"])),
            Cell(_settings({name: value for name, value in stage["training"].items() if name not in common})),
            Cell(f"{row['steps']:,}", value=row["steps"]),
        ]
        for row in rows
        for stage in row["stages"]
    ]
    setting = found["setting"]
    data = {
        "encoder": f"{setting['encoder']} ({setting['encoder_digest']})",
        "text": f"{', '.join(setting['text'])} ({setting['fingerprint'][:16]})",
        "dev pairs": f"{setting['dev']} ({setting['dev_digest']})" if setting["dev"] else None,
        **{f"task {name}": digest for name, digest in setting["tasks"].items()},
        **{f"protocol: {name}": value for name, value in setting["protocol"].items()},
        **{f"metric of {task}": metric for task, metric in found["metrics"].items()},
    }
    return (
        table("Of each row", headings, own, sortable=False)
        + folded("Training settings of every row", settings_table("Training settings of every row", common))
        + folded("Data and protocol, with digests", settings_table("Data and protocol, with digests", data))
        + folded(
            "Everything, as JSON",
            code(json.dumps([setting, *(row["stages"] for row in rows)], indent=1, ensure_ascii=False)),
        )
    )


def _repeat(found: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    commands = code("\n".join(found["commands"])) if found["commands"] else paragraph("It was started from Python.")
    devices = f" Run on {'; '.join(found['devices'])}." if found["devices"] else ""
    return commands + paragraph(f"Versions: {versions}.{devices}")


# -- cells -------------------------------------------------------------------------------------------------------------


def _score(value: dict[str, Any] | None, top: str | None) -> Cell:
    if value is None:
        return Cell("failed")
    if value["mean"] is None:
        return Cell("none")
    shown, deviation = number(value["mean"]), value["deviation"]
    spread = "" if deviation is None else f"± {number(deviation)}"
    return Cell(shown, spread, value["mean"], deviation, best=shown == top)


def _single(value: float | None) -> Cell:
    return Cell("" if value is None else number(value), value=value)


def _difference(versus: dict[str, Any] | None) -> Cell:
    if versus is None or versus["difference"] is None:
        return Cell("")
    p = versus["p_value"]
    told = "" if p is None else "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
    stars = next((f"{mark} " for limit, mark in _STARS if p is not None and p < limit), "")
    return Cell(number(versus["difference"], sign=True), stars + told, versus["difference"])


def _seeds(row: dict[str, Any]) -> Cell:
    runs = next(iter(row["values"].values()))["by_seed"] if row["values"] else {}
    shown = f"{len(runs)} of {len(runs) + len(row['errors'])}" if row["errors"] else str(len(runs))
    return Cell("once" if "once" in runs else shown, value=float(len(runs)))


def _top(rows: list[dict[str, Any]], key: str) -> str | None:
    """The best score as it is shown: what looks the same is equally good."""
    means = [row["values"][key]["mean"] for row in rows if row["values"] and row["values"][key]["mean"] is not None]
    return number(max(means)) if means else None


def _settings(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} {plain(value)}" for name, value in values.items()) or "none"


def _of_seed(seed: str) -> str:
    return "" if seed == "once" else f", seed {seed}"


def _list(columns: list[dict[str, Any]]) -> str:
    titles = [column["title"] for column in columns]
    return titles[0] if len(titles) == 1 else f"{', '.join(titles[:-1])} and {titles[-1]}"
