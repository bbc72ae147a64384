"""The table of a comparison, for the terminal and as Markdown, LaTeX, CSV and JSON files."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfguide.comparison.cells import CellRecord
from selfguide.comparison.summary import FEWEST_SEEDS, Row, Summary, Value, Versus
from selfguide.errors import SelfguideError
from selfguide.files import write_text
from selfguide.report.table import Cell, Heading, Table, print_table, to_csv, to_latex, to_markdown

if TYPE_CHECKING:
    from rich.console import Console

STEM = "comparison"
_BELOW_FLOOR = "†"


def write_tables(summary: Summary, records: Sequence[CellRecord], folder: Path) -> list[Path]:
    """Write ``comparison.csv``, ``.md``, ``.tex`` and ``.json``.

    Args:
        summary: The comparison.
        records: The cells that it was made of.
        folder: Where to write; it is created if need be.

    Returns:
        The paths of the files.

    Raises:
        SelfguideError: The folder cannot be written to.
    """
    contents = {
        "csv": as_csv(summary),
        "md": as_markdown(summary),
        "tex": as_latex(summary),
        "json": json.dumps(as_dict(summary, records), indent=1, ensure_ascii=False) + "\n",
    }
    paths = {folder / f"{STEM}.{suffix}": content for suffix, content in contents.items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, content in paths.items():
            write_text(path, content)
    except OSError as error:
        raise SelfguideError(f"The tables cannot be written to {folder}: {error.strerror or error}.") from None
    return list(paths)


def as_markdown(summary: Summary) -> str:
    """Return the table in Markdown with its notes."""
    return to_markdown(summary_table(summary)) + "\n"


def as_latex(summary: Summary) -> str:
    """Return the table as a booktabs tabular, with the notes as comments above it."""
    return to_latex(summary_table(summary))


def show(summary: Summary, console: Console) -> None:
    """Print the table without its notes; a narrow terminal shows the deviations of the averages only."""
    print_table(replace(summary_table(summary), notes=()), console)


def summary_table(summary: Summary) -> Table:
    """Make the table that papers print: a row for each method, with its scores and the differences to other rows.

    Args:
        summary: The comparison.

    Returns:
        The table, with :func:`notes` as its notes.
    """
    dev = any(row.dev for row in summary.rows)
    differences = _differences(summary)
    headings = [Heading("method", numeric=False), Heading("seeds", optional_notes=True)]
    headings += [
        Heading(column.title, better="high", optional_notes=not (column.average or column == summary.main))
        for column in summary.columns
    ]
    headings += [Heading(title, optional_notes=True) for title in [*(["dev"] if dev else []), *differences.values()]]
    rows = []
    for row in summary.rows:
        cells = [Cell(row.label + (_BELOW_FLOOR if row.below_floor else "")), Cell(_seeds(row))]
        cells += [_score(row.values.get(column.key)) for column in summary.columns]
        cells += [_score(row.dev) if row.dev else Cell("")] if dev else []
        cells += [Cell(_difference(getattr(row, name))) for name in differences]
        rows.append(cells)
    return Table(headings, rows, notes=tuple(notes(summary)))


def notes(summary: Summary) -> list[str]:
    """Return the notes of the table, one sentence each."""
    setting = summary.setting
    text = f"{', '.join(setting.text)} ({setting.sentences:,} sentences)"
    chosen = f"; checkpoints of tuned methods chosen by {setting.dev}" if setting.dev else ""
    lines = [
        f"Encoder {setting.encoder}; text {text}{chosen}.",
        f"Scores: {', '.join(dict.fromkeys(summary.metrics.values())) or 'none'} (× 100), text {setting.protocol['text']}; "
        "mean ± sample standard deviation over seeds. Methods that draw nothing at random are run once.",
    ]
    if _differences(summary):
        lines.append(
            f"vs: difference in {summary.main.title}; p by a paired t-test over seeds, where there are at least {FEWEST_SEEDS}."
        )
    if any(row.below_floor for row in summary.rows):
        lines.append(f"{_BELOW_FLOOR} below the bag of words ({summary.floor}) in {summary.main.title}.")
    for row in summary.rows:
        for seed, error in row.errors.items():
            lines.append(f"{row.label}{'' if seed is None else f', seed {seed}'} failed: {error}")
    return lines


def as_csv(summary: Summary) -> str:
    """Return one line for each method, numbers with four decimals."""
    scores = [name for column in summary.columns for name in (column.key, f"{column.key} sd")]
    tests = [f"{which} {what}" for which in ("baseline", "best") for what in ("difference", "p")]
    headings = ["method", "spec", "seeds", "failed", *scores, "dev", "dev sd", *tests, "below bow", "seconds"]
    rows = []
    for row in summary.rows:
        texts = [row.label, row.words, str(row.runs), str(len(row.errors))]
        for value in (*(row.values.get(column.key) for column in summary.columns), row.dev):
            texts += [_rounded(value.mean), _rounded(value.deviation)] if value else ["", ""]
        for versus in (row.versus_baseline, row.versus_best):
            texts += [_rounded(versus.difference), _rounded(versus.p_value)] if versus else ["", ""]
        rows.append([Cell(text) for text in (*texts, "yes" if row.below_floor else "", f"{row.seconds:.2f}")])
    return to_csv(Table([Heading(name) for name in headings], rows))


def as_dict(summary: Summary, records: Sequence[CellRecord]) -> dict[str, Any]:
    """Return what ``comparison.json`` holds: the summary, each seed's scores, and where they come from.

    Args:
        summary: The comparison.
        records: The cells that it was made of.

    Returns:
        Plain values only; a number that is not finite is None.
    """
    used = {name for record in records for name in record.versions}
    summary_values = asdict(summary)
    summary_values["rows"] = {row["label"]: row for row in summary_values["rows"]}
    return _plain({
        "commands": list(dict.fromkeys(record.command for record in records if record.command)),
        "date": max(record.finished for record in records)[:10],
        "versions": {
            name: ", ".join(sorted({record.versions[name] for record in records if name in record.versions}))
            for name in sorted(used)
        },
        "devices": sorted({f"{record.device}, threads: {record.threads}" for record in records if record.device}),
        "notes": notes(summary),
        **summary_values,
    })  # fmt: skip


def _differences(summary: Summary) -> dict[str, str]:
    """Return the columns of differences: to the baseline, and to the best row where that is another one."""
    columns = {"versus_baseline": f"vs {summary.baseline}"}
    if summary.best not in (None, summary.baseline):
        columns["versus_best"] = f"vs {summary.best}"
    return columns if len(summary.rows) > 1 else {}


def _score(value: Value | None) -> Cell:
    if value is None:
        return Cell("failed")
    if math.isnan(value.mean):
        return Cell("none")
    spread = "" if value.deviation is None else f"± {value.deviation:.2f}"
    return Cell(f"{value.mean:.2f}", spread, value.mean, value.deviation)


def _seeds(row: Row) -> str:
    once = row.values and None in next(iter(row.values.values())).by_seed
    return ("once" if once else f"{row.runs}") + (f" ({len(row.errors)} failed)" if row.errors else "")


def _difference(versus: Versus | None) -> str:
    if versus is None or math.isnan(versus.difference):
        return ""
    shown = f"{versus.difference:+.2f}".replace("-", "−")
    if versus.p_value is None:
        return shown
    return f"{shown} (p < 0.001)" if versus.p_value < 0.001 else f"{shown} (p = {versus.p_value:.3f})"


def _rounded(number: float | None) -> str:
    return "" if number is None or math.isnan(number) else f"{number:.4f}"


def _plain(value: Any) -> Any:
    """Replace what JSON does not have: NaN, and keys other than text (``once`` is the key of a run without a seed)."""
    if isinstance(value, dict):
        return {"once" if key is None else str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
