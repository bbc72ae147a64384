"""What a study leaves: ``study.json`` with every number, and tables made of it for the terminal, in Markdown and CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfguide.comparison.cells import CellRecord
from selfguide.comparison.tables import as_dict
from selfguide.errors import SelfguideError
from selfguide.files import write_text
from selfguide.report.folders import STUDY_FILE
from selfguide.studies.base import Found, Plan, Setup
from selfguide.studies.measuring import MeasurementRecord
from selfguide.studies.outcome import Outcome, plain
from selfguide.studies.registry import StudyEntry

if TYPE_CHECKING:
    from rich.console import Console

FIGURES = "figures"
_DEMONSTRATION = (
    "This is the small setting: a demonstration of the study on few sentences, few steps and few seeds. It says little "
    "about the question; `--full` is the setting that does."
)


@dataclass(frozen=True)
class StudyResult:
    """What a study came to; ``results`` is what ``study.json`` holds."""

    results: dict[str, Any]

    @property
    def failed(self) -> list[str]:
        """Cells and measurements without a result, a sentence each."""
        return list(self.results["failed"])

    def table(self, key: str) -> dict[str, Any]:
        """One of the tables."""
        return next(table for table in self.results["tables"] if table["key"] == key)

    def markdown(self) -> str:
        """Question, tables and notes."""
        return as_markdown(self.results)


def results_of(
    entry: StudyEntry,
    setup: Setup,
    plan: Plan,
    found: Found,
    measured: Sequence[MeasurementRecord],
    outcome: Outcome,
    provenance: Mapping[str, Any],
) -> dict[str, Any]:
    """Everything, as JSON can hold it."""
    grids = {key: as_dict(item.summary, item.records) for key, item in found.comparisons.items()}
    cells = [record for item in found.comparisons.values() for record in item.records]
    every: list[CellRecord | MeasurementRecord] = [*cells, *measured]
    known = {**provenance}
    command = known.pop("command")
    commands = [*(record.command for record in every), command]
    used = [record.versions for record in every]
    failed = [
        f"{key}: {_named(record)} failed: {record.error}"
        for key, item in found.comparisons.items()
        for record in item.failed
    ]
    failed += [f"{record.key} failed: {record.error}" for record in measured if record.error is not None]
    warned = [(record.label, warning) for record in cells for warning in record.warnings]
    warned += [(record.key, warning) for record in measured for warning in record.warnings]
    devices = {f"{record.device}, threads: {record.threads}" for record in every if record.device}
    return plain({
        "study": entry.name,
        "title": entry.title,
        "question": entry.question,
        "reference": entry.reference,
        "full": setup.full,
        "commands": list(dict.fromkeys(item for item in commands if item)),
        "date": max((record.finished for record in every), default="")[:10],
        "versions": {
            name: ", ".join(sorted({each[name] for each in used if name in each}))
            for name in sorted({name for each in used for name in each})
        },
        "devices": sorted(devices),
        "seconds": round(sum(sum(record.seconds.values()) for record in cells) + sum(r.seconds for r in measured), 1),
        "setting": {
            **known,
            "seeds": setup.scale.seeds,
            "settings": (*setup.scale.settings, *setup.scale.asked),
            "values": setup.scale.values,
        },
        "tables": outcome.tables,
        "figures": outcome.figures,
        "notes": [*([] if setup.full else [_DEMONSTRATION]), *outcome.notes],
        "warnings": _gathered(warned),
        "failed": failed,
        "plan": {grid.key: {"specs": grid.specs, "title": grid.title} for grid in plan.grids},
        "grids": grids,
        "measurements": {record.key: asdict(record) for record in measured},
    })  # fmt: skip


def _gathered(warned: Sequence[tuple[str, str]]) -> list[str]:
    """A line for each warning, with whom it is about: rows that are alike are warned alike."""
    whom: dict[str, list[str]] = {}
    for name, warning in warned:
        names = whom.setdefault(warning, [])
        if name not in names:
            names.append(name)
    return [
        f"{', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}: {warning}"
        for warning, names in whom.items()
    ]


def _named(record: CellRecord) -> str:
    return record.label if record.seed is None else f"{record.label}, seed {record.seed}"


def write_study(result: StudyResult, folder: Path) -> list[Path]:
    """Write ``study.json``, ``study.md`` and a CSV file for each table; returns their paths."""
    results = result.results
    contents = {
        STUDY_FILE: json.dumps(results, indent=1, ensure_ascii=False, allow_nan=False) + "\n",
        "study.md": as_markdown(results),
        **{f"{table['key']}.csv": as_csv(table) for table in results["tables"]},
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            write_text(folder / name, content)
    except OSError as error:
        raise SelfguideError(f"The results cannot be written to {folder}: {error.strerror or error}.") from None
    return [folder / name for name in contents]


# -- entries -------------------------------------------------------------------------------------------------------------


def mean_of(entry: Any) -> float | None:
    """The number of an entry, which may be a mean over seeds; None for words and where there is none."""
    if isinstance(entry, Mapping):
        entry = entry["mean"]
    return entry if isinstance(entry, int | float) and not isinstance(entry, bool) else None


def shown(entry: Any, column: Mapping[str, Any]) -> tuple[str, str]:
    """An entry as a person reads it, and its deviation; nothing stands as a dash."""
    if isinstance(entry, str):
        return entry, ""
    number = mean_of(entry)
    if number is None:
        return "–", ""
    deviation = entry["deviation"] if isinstance(entry, Mapping) else None
    form = ",.0f" if isinstance(number, int) else "g" if column["decimals"] is None else f",.{column['decimals']}f"
    text = f"{number:{'+' if column['sign'] else ''}{form}}".replace("-", "−")
    return text, "" if deviation is None else f"± {deviation:{form}}"


def best_of(table: Mapping[str, Any]) -> dict[str, str | None]:
    """By column, the best number as it is shown: what looks the same is equally good."""
    found: dict[str, str | None] = {}
    for column in table["columns"]:
        entries = [row.get(column["key"]) for row in table["rows"]]
        numbered = [entry for entry in entries if mean_of(entry) is not None]
        choose = {"high": max, "low": min}.get(column["better"])
        found[column["key"]] = shown(choose(numbered, key=mean_of), column)[0] if choose and numbered else None  # type: ignore[arg-type]
    return found


# -- forms ---------------------------------------------------------------------------------------------------------------


def as_markdown(results: Mapping[str, Any]) -> str:
    """Question, tables, figures with their alt texts, and notes."""
    parts = [f"# {results['title']}", results["question"], _told(results)]
    for table in results["tables"]:
        parts += [f"## {table['title']}", _markdown_table(table), *table["notes"]]
    for figure in results["figures"]:
        alt = figure["alt"].replace("[", "\\[").replace("]", "\\]")
        parts += [f"## {figure['title']}", f"![{alt}]({FIGURES}/{figure['key']}.png)", figure["caption"]]
    parts += [*results["notes"], *results["failed"]]
    if results["commands"]:
        parts.append("```bash\n" + "\n".join(results["commands"]) + "\n```")
    return "\n\n".join(parts) + "\n"


def _told(results: Mapping[str, Any]) -> str:
    setting = results["setting"]
    seeds = ", ".join(map(str, setting["seeds"]))
    dev = f"; checkpoints of tuned methods chosen by {setting['dev']}" if setting["dev"] else ""
    return (
        f"Encoder {setting['encoder']} (`{setting['encoder_digest']}`); text {setting['text']} "
        f"({setting['sentences']:,} sentences){dev}; seeds {seeds}; {results['date']}."
    )


def _markdown_table(table: Mapping[str, Any]) -> str:
    best = best_of(table)
    lines = [[column["title"] for column in table["columns"]]]
    for row in table["rows"]:
        line = []
        for column in table["columns"]:
            text, spread = shown(row.get(column["key"]), column)
            text = f"**{text}**" if text == best[column["key"]] else text
            line.append(f"{text} {spread}".strip())
        lines.append(line)
    rule = ["---", *["--:"] * (len(table["columns"]) - 1)]
    written = [" | ".join(word.replace("|", "\\|") for word in line) for line in lines]
    return "\n".join(f"| {line} |" for line in [written[0], " | ".join(rule), *written[1:]])


def as_csv(table: Mapping[str, Any]) -> str:
    """A line for each row; numbers in full, and a column for the deviation where there is one."""
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    spread = {
        column["key"]
        for column in table["columns"]
        if any(isinstance(row.get(column["key"]), Mapping) for row in table["rows"])
    }
    heading = []
    for column in table["columns"]:
        heading += [column["key"], f"{column['key']} sd"] if column["key"] in spread else [column["key"]]
    writer.writerow(heading)
    for row in table["rows"]:
        line: list[Any] = []
        for column in table["columns"]:
            entry = row.get(column["key"])
            line.append(entry if isinstance(entry, str) else mean_of(entry))
            if column["key"] in spread:
                line.append(entry["deviation"] if isinstance(entry, Mapping) else None)
        writer.writerow(["" if item is None else item for item in line])
    return target.getvalue()


def show(results: Mapping[str, Any], console: Console) -> None:
    """The tables on the terminal."""
    from rich.markup import escape
    from rich.table import Table

    for content in results["tables"]:
        best = best_of(content)
        columns = content["columns"]
        table = Table(escape(columns[0]["title"]), box=None, padding=(0, 2, 0, 0))
        table.title, table.title_justify = escape(content["title"]), "left"
        for column in columns[1:]:
            table.add_column(escape(column["title"]), justify="right", no_wrap=True)
        for row in content["rows"]:
            line = []
            for column in columns:
                text, spread = shown(row.get(column["key"]), column)
                marked = f"[bold]{escape(text)}[/bold]" if text == best[column["key"]] else escape(text)
                line.append(f"{marked} {spread}".strip())
            table.add_row(*line)
        # A table that is wider than the terminal runs over its lines: numbers cut short would be worse.
        needed = console.measure(table, options=console.options.update(width=10_000)).maximum
        console.width = max(console.width, needed)
        console.print(table)
        for note in content["notes"]:
            console.print(note, markup=False)
