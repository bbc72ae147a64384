"""The page of a study, from ``study.json`` alone: every number on it is one of that file's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from selfguide.report.markup import (
    Cell,
    Heading,
    bullets,
    code,
    duration,
    escape,
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
from selfguide.report.study_charts import drawing


def study_page(found: dict[str, Any]) -> str:
    """``found`` is what ``study.json`` holds."""
    setting = found["setting"]
    tables = "".join(_table(content) for content in found["tables"])
    sections = [
        Section("figures", "Figures" if len(found["figures"]) > 1 else "Figure", _figures(found)),
        Section("tables", "Tables" if len(found["tables"]) > 1 else "Table", tables + bullets(found["notes"])),
        Section("failures", "Failed", bullets(found["failed"])),
        Section("warnings", "Warnings", bullets(found["warnings"])),
        Section("configuration", "Configuration", _configuration(found)),
        Section("repeat", "Do it again", _repeat(found)),
    ]
    dev = f" Checkpoints of tuned methods were chosen by {setting['dev']}." if setting["dev"] else ""
    small = "" if found["full"] else " A demonstration in the small setting, not a result."
    reference = f" After {found['reference']}." if found["reference"] else ""
    head = {
        "encoder": setting["encoder"],
        "seeds": str(len(setting["seeds"])),
        "computing": duration(found["seconds"]),
        "date": found["date"],
    }
    return page(
        title=found["title"],
        kicker="Report of a study",
        lead=f"{found['question']}{small}{reference} Text: {setting['text']} ({setting['sentences']:,} sentences).{dev}",
        head=facts(head),
        sections=sections,
    )


def _figures(found: dict[str, Any]) -> str:
    drawn = [(content, drawing(content)) for content in found["figures"]]
    several = len(drawn) > 1
    return "".join(
        (f"<h3>{escape(content['title'])}</h3>" if several else "") + figure(shape, content["caption"])
        for content, shape in drawn
        if shape
    )


def _table(content: dict[str, Any]) -> str:
    columns = content["columns"]
    numeric = {
        column["key"]: any(not isinstance(row.get(column["key"]), str | None) for row in content["rows"])
        for column in columns
    }
    tops = {column["key"]: _top(content, column) for column in columns}
    headings = [Heading(column["title"], numeric[column["key"]]) for column in columns]
    rows = [
        [_cell(row.get(column["key"]), column, tops[column["key"]]) for column in columns] for row in content["rows"]
    ]
    return table(content["title"], headings, rows) + "".join(paragraph(note, "aside") for note in content["notes"])


def _cell(entry: Any, column: Mapping[str, Any], top: str | None) -> Cell:
    """A number over seeds, a number, a word, or nothing."""
    if isinstance(entry, str):
        return Cell(entry)
    mean = entry["mean"] if isinstance(entry, dict) else entry
    if mean is None:
        return Cell("–")
    deviation = entry["deviation"] if isinstance(entry, dict) else None
    digits = 0 if isinstance(mean, int) else column["decimals"]
    if digits is None:
        return Cell(f"{mean:g}", value=mean)
    text = number(mean, digits, column["sign"])
    return Cell(text, "" if deviation is None else f"± {number(deviation, digits)}", mean, deviation, text == top)


def _top(content: Mapping[str, Any], column: Mapping[str, Any]) -> str | None:
    """The best number as it is shown: what looks the same is equally good."""
    choose = {"high": max, "low": min}.get(column["better"])
    cells = [_cell(row.get(column["key"]), column, None) for row in content["rows"]]
    known = [cell for cell in cells if cell.value is not None]
    return choose(known, key=lambda cell: cell.value or 0.0).text if choose and known else None


def _configuration(found: dict[str, Any]) -> str:
    setting = found["setting"]
    data = {
        "encoder": f"{setting['encoder']} ({setting['encoder_digest']})",
        "text": f"{setting['text']} ({setting['text_digest'][:16]})",
        "dev pairs": f"{setting['dev']} ({setting['dev_digest']})" if setting["dev"] else None,
        **{f"task {name}": digest for name, digest in setting["tasks"].items()},
        **{f"protocol: {name}": value for name, value in setting["protocol"].items()},
    }
    varied = {name: ", ".join(map(plain, values)) for name, values in setting["values"].items()}
    told = {
        "setting": "full" if found["full"] else "small, a demonstration",
        "seeds": ", ".join(map(str, setting["seeds"])),
        "settings of the methods": ", ".join(setting["settings"]) or "their defaults",
        **varied,
    }
    specs = {key: "\n".join(part["specs"]) for key, part in found["plan"].items()}
    shown = settings_table("What was varied, and what was set", told)
    shown += folded("Data and protocol, with digests", settings_table("Data and protocol, with digests", data))
    for key, words in specs.items():
        title = found["plan"][key]["title"] or key
        shown += folded(f"Rows of {title}, as `selfguide compare` takes them", code(words))
    measured = {key: {"function": item["identity"]["function"], "arguments": item["identity"]["arguments"]}
                for key, item in found["measurements"].items()}  # fmt: skip
    if measured:
        shown += folded("Measurements, as JSON", code(json.dumps(measured, indent=1, ensure_ascii=False)))
    return shown


def _repeat(found: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    commands = code("\n".join(found["commands"])) if found["commands"] else paragraph("It was started from Python.")
    devices = f" Run on {'; '.join(found['devices'])}." if found["devices"] else ""
    return commands + paragraph(f"Versions: {versions}.{devices}")
