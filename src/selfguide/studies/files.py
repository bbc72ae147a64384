"""The files of a study: ``study.json`` with every number, its tables in Markdown and CSV, and its figures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfguide.comparison.cells import CellRecord
from selfguide.comparison.tables import as_dict
from selfguide.errors import SelfguideError
from selfguide.escaping import markdown_text
from selfguide.files import write_text
from selfguide.progress import counted
from selfguide.report.figures import write_figure
from selfguide.report.folders import STUDY_FILE
from selfguide.report.plots import figure_from_dict
from selfguide.report.study_table import study_table
from selfguide.report.table import print_table, to_csv, to_markdown
from selfguide.studies.base import Findings, Plan, Setup, Study
from selfguide.studies.measuring import MeasurementRecord
from selfguide.studies.outcome import Outcome, plain

if TYPE_CHECKING:
    from rich.console import Console

FIGURES = "figures"
_DEMONSTRATION = (
    "This is the small setting: a demonstration of the study on few sentences, few steps and few seeds. It says little "
    "about the question; `--full` is the setting that does."
)


@dataclass(frozen=True)
class StudyResult:
    """The results of a study."""

    results: dict[str, Any]
    """What ``study.json`` holds."""

    @property
    def failed(self) -> list[str]:
        """Cells and measurements without a result, a sentence each."""
        return list(self.results["failed"])

    def table(self, key: str) -> dict[str, Any]:
        """Return one of the tables as ``study.json`` holds it.

        Args:
            key: The table's key, such as ``"scores"``.
        """
        return next(table for table in self.results["tables"] if table["key"] == key)

    def markdown(self) -> str:
        """Return the question, the tables and the notes in Markdown."""
        return as_markdown(self.results)


def results_of(
    study: Study,
    setup: Setup,
    plan: Plan,
    found: Findings,
    measured: Sequence[MeasurementRecord],
    outcome: Outcome,
    provenance: Mapping[str, Any],
) -> dict[str, Any]:
    """Gather what ``study.json`` holds.

    Args:
        study: The study.
        setup: Its setting.
        plan: What was to be run.
        found: What was run.
        measured: The records of the measurements.
        outcome: The study's tables, figures and notes.
        provenance: Digests and names of encoder, text and tasks, and the command.

    Returns:
        Plain values only; a number that is not finite is None.
    """
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
        "study": study.name,
        "title": study.title,
        "question": study.question,
        "reference": study.reference,
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
            "settings": (*setup.scale.settings, *setup.scale.user_settings),
            "values": setup.scale.values,
        },
        "tables": outcome.tables,
        "figures": outcome.figures,
        "notes": [*([] if setup.full else [_DEMONSTRATION]), *outcome.notes],
        "warnings": _grouped(warned),
        "failed": failed,
        "plan": {grid.key: {"specs": grid.specs, "title": grid.title} for grid in plan.grids},
        "grids": grids,
        "measurements": {record.key: asdict(record) for record in measured},
    })  # fmt: skip


def _grouped(warned: Sequence[tuple[str, str]]) -> list[str]:
    """Write each warning once, with the first of the rows that it is about."""
    names_of: dict[str, dict[str, None]] = {}
    for name, warning in warned:
        names_of.setdefault(warning, {})[name] = None
    return [
        f"{', '.join([*names][:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}: {warning}"
        for warning, names in names_of.items()
    ]


def _named(record: CellRecord) -> str:
    return record.label if record.seed is None else f"{record.label}, seed {record.seed}"


def write_study(result: StudyResult, folder: Path) -> list[Path]:
    """Write ``study.json``, ``study.md``, a CSV file for each table, and the figures.

    Args:
        result: The study's results.
        folder: Where to write; it is created if need be.

    Returns:
        The paths of the files.

    Raises:
        SelfguideError: The folder cannot be written to.
    """
    results = result.results
    contents = {
        STUDY_FILE: json.dumps(results, indent=1, ensure_ascii=False, allow_nan=False) + "\n",
        "study.md": as_markdown(results),
        **{f"{table['key']}.csv": to_csv(study_table(table)) for table in results["tables"]},
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            write_text(folder / name, content)
    except OSError as error:
        raise SelfguideError(f"The results cannot be written to {folder}: {error.strerror or error}.") from None
    return [folder / name for name in contents] + write_figures(results, folder)


def write_figures(results: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw every figure into ``figures`` as PNG and SVG.

    Args:
        results: What ``study.json`` holds.
        folder: The study's folder.

    Returns:
        The paths of the files.
    """
    written = []
    for content in results["figures"]:
        paths = [folder / FIGURES / f"{content['key']}.{suffix}" for suffix in ("png", "svg")]
        write_figure(figure_from_dict(content), *paths)
        written += paths
    return written


def as_markdown(results: Mapping[str, Any]) -> str:
    """Return ``study.md``: the question, the tables, the figures with their alternative texts, and the notes.

    Args:
        results: What ``study.json`` holds.
    """
    parts = [f"# {results['title']}", results["question"], _provenance(results)]
    for table in results["tables"]:
        parts += [f"## {table['title']}", to_markdown(study_table(table))]
    for figure in results["figures"]:
        alt = figure["alt"].replace("[", "\\[").replace("]", "\\]")
        parts += [f"## {figure['title']}", f"![{alt}]({FIGURES}/{figure['key']}.png)", figure["caption"]]
    parts += [*results["notes"], *map(markdown_text, results["failed"])]
    if results["commands"]:
        parts.append("```bash\n" + "\n".join(results["commands"]) + "\n```")
    return "\n\n".join(parts) + "\n"


def show(results: Mapping[str, Any], console: Console) -> None:
    """Print the tables with their notes on a terminal."""
    for table in results["tables"]:
        print_table(study_table(table), console)


def _provenance(results: Mapping[str, Any]) -> str:
    setting = results["setting"]
    seeds = ", ".join(map(str, setting["seeds"]))
    dev = f"; checkpoints of tuned methods chosen by {setting['dev']}" if setting["dev"] else ""
    return (
        f"Encoder {setting['encoder']} (`{setting['encoder_digest']}`); text {setting['text']} "
        f"({counted(setting['sentences'], 'sentence')}){dev}; seeds {seeds}; {results['date']}."
    )
