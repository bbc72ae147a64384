"""The summary as a paper prints it: on the terminal, in Markdown, LaTeX and CSV, and whole, with its provenance, in JSON."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfguide.comparison.cells import CellRecord
from selfguide.comparison.summary import FEWEST_SEEDS, Row, Summary, Value, Versus
from selfguide.errors import SelfguideError
from selfguide.files import write_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

STEM = "comparison"
_MARK = "†"
_TEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "−": "$-$"}
_TEX |= {character: "\\" + character for character in "&%$#_{}"} | {"<": "$<$", ">": "$>$", _MARK: r"$^\dagger$"}


@dataclass(frozen=True)
class Entry:
    """What stands in one place of a table."""

    text: str
    spread: str = ""
    best: bool = False


def write_tables(summary: Summary, records: Sequence[CellRecord], folder: Path) -> list[Path]:
    """Write every form of the table; returns their paths."""
    contents = {
        "csv": as_csv(summary),
        "md": as_markdown(summary),
        "tex": as_latex(summary),
        "json": json.dumps(as_dict(summary, records), indent=1, ensure_ascii=False) + "\n",
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for suffix, content in contents.items():
            write_text(folder / f"{STEM}.{suffix}", content)
    except OSError as error:
        raise SelfguideError(f"The tables cannot be written to {folder}: {error.strerror or error}.") from None
    return [folder / f"{STEM}.{suffix}" for suffix in contents]


# -- one grid for all of them ------------------------------------------------------------------------------------------


def grid(summary: Summary) -> tuple[list[str], list[list[Entry]]]:
    """Headings, and the entries of each row."""
    dev = any(row.dev for row in summary.rows)
    against = _against(summary)
    headings = ["method", "seeds", *(column.title for column in summary.columns), *(["dev"] if dev else [])]
    tops = {column.key: _top(summary, column.key) for column in summary.columns}
    rows = []
    for row in summary.rows:
        entries = [Entry(row.label + (_MARK if row.below_floor else "")), Entry(_seeds(row))]
        entries += [_entry(row.values.get(column.key), tops[column.key]) for column in summary.columns]
        entries += [_entry(row.dev, None) if row.dev else Entry("")] if dev else []
        entries += [Entry(_difference(getattr(row, name))) for name in against]
        rows.append(entries)
    return [*headings, *against.values()], rows


def _against(summary: Summary) -> dict[str, str]:
    """The columns of differences: against the baseline, and against the best row where that is another one."""
    columns = {"versus_baseline": f"vs {summary.baseline}"}
    if summary.best not in (None, summary.baseline):
        columns["versus_best"] = f"vs {summary.best}"
    return columns if len(summary.rows) > 1 else {}


def _top(summary: Summary, key: str) -> str | None:
    """The best score as it is shown: what looks the same is equally good."""
    means = [row.values[key].mean for row in summary.rows if row.values]
    finite = [value for value in means if not math.isnan(value)]
    return f"{max(finite):.2f}" if finite else None


def _entry(value: Value | None, top: str | None) -> Entry:
    if value is None:
        return Entry("failed")
    if math.isnan(value.mean):
        return Entry("none")
    shown = f"{value.mean:.2f}"
    return Entry(shown, "" if value.deviation is None else f"± {value.deviation:.2f}", shown == top)


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


def notes(summary: Summary) -> list[str]:
    """What a reader must know, a sentence each."""
    setting = summary.setting
    text = f"{', '.join(setting.text)} ({setting.sentences:,} sentences)"
    chosen = f"; checkpoints of tuned methods chosen by {setting.dev}" if setting.dev else ""
    told = [
        f"Encoder {setting.encoder}; text {text}{chosen}.",
        f"Scores: {', '.join(dict.fromkeys(summary.metrics.values())) or 'none'} (× 100), text {setting.protocol['text']}; "
        "mean ± sample standard deviation over seeds. Methods that draw nothing at random are run once.",
    ]
    if _against(summary):
        told.append(
            f"vs: difference in {summary.main.title}; p by a paired t-test over seeds, where there are at least {FEWEST_SEEDS}."
        )
    if any(row.below_floor for row in summary.rows):
        told.append(f"{_MARK} below the bag of words ({summary.floor}) in {summary.main.title}.")
    for row in summary.rows:
        for seed, error in row.errors.items():
            told.append(f"{row.label}{'' if seed is None else f', seed {seed}'} failed: {error}")
    return told


# -- the forms ---------------------------------------------------------------------------------------------------------


def as_markdown(summary: Summary) -> str:
    """A table, the best of each column in bold, and the notes."""

    def shown(entry: Entry) -> str:
        text = f"**{entry.text}**" if entry.best else entry.text
        return " ".join([text, entry.spread]).strip().replace("|", "\\|")

    headings, rows = grid(summary)
    lines = [
        " | ".join(heading.replace("|", "\\|") for heading in headings),
        "|".join(["---", *["--:"] * (len(headings) - 1)]),
    ]
    lines += [" | ".join(map(shown, row)) for row in rows]
    return "\n".join(f"| {line} |" for line in lines) + "\n\n" + "\n\n".join(notes(summary)) + "\n"


def as_latex(summary: Summary) -> str:
    """A tabular for booktabs; the notes are comments above it."""

    def shown(entry: Entry) -> str:
        text = rf"\textbf{{{_tex(entry.text)}}}" if entry.best else _tex(entry.text)
        return text + (rf" {{\scriptsize {_tex(entry.spread)}}}" if entry.spread else "")

    headings, rows = grid(summary)
    lines = [*(f"% {' '.join(note.split())}" for note in notes(summary)), "% needs \\usepackage{booktabs}"]
    lines += [rf"\begin{{tabular}}{{l{'r' * (len(headings) - 1)}}}", r"\toprule"]
    lines += [" & ".join(map(_tex, headings)) + r" \\", r"\midrule"]
    lines += [" & ".join(map(shown, row)) + r" \\" for row in rows]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _tex(text: str) -> str:
    return "".join(_TEX.get(character, character) for character in text)


def as_csv(summary: Summary) -> str:
    """A line for each method, numbers with four decimals."""
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    scores = [name for column in summary.columns for name in (column.key, f"{column.key} sd")]
    tests = [f"{which} {what}" for which in ("baseline", "best") for what in ("difference", "p")]
    writer.writerow(["method", "spec", "seeds", "failed", *scores, "dev", "dev sd", *tests, "below bow", "seconds"])
    for row in summary.rows:
        values = [row.values.get(column.key) for column in summary.columns] + [row.dev]
        numbers = [number for value in values for number in _numbers(value)]
        for versus in (row.versus_baseline, row.versus_best):
            numbers += [_rounded(versus.difference), _rounded(versus.p_value)] if versus else ["", ""]
        head = [row.label, row.words, str(row.runs), str(len(row.errors))]
        writer.writerow([*head, *numbers, "yes" if row.below_floor else "", f"{row.seconds:.2f}"])
    return target.getvalue()


def _numbers(value: Value | None) -> list[str]:
    return [_rounded(value.mean), _rounded(value.deviation)] if value else ["", ""]


def _rounded(number: float | None) -> str:
    return "" if number is None or math.isnan(number) else f"{number:.4f}"


def as_dict(summary: Summary, records: Sequence[CellRecord]) -> dict[str, Any]:
    """Everything, as JSON can hold it: the summary, each seed's scores, and where they come from."""
    used = {name for record in records for name in record.versions}
    whole = asdict(summary)
    whole["rows"] = {row["label"]: row for row in whole["rows"]}
    return _plain({
        "commands": list(dict.fromkeys(record.command for record in records if record.command)),
        "date": max(record.finished for record in records)[:10],
        "versions": {
            name: ", ".join(sorted({record.versions[name] for record in records if name in record.versions}))
            for name in sorted(used)
        },
        "devices": sorted({f"{record.device}, threads: {record.threads}" for record in records if record.device}),
        "notes": notes(summary),
        **whole,
    })  # fmt: skip


def _plain(value: Any) -> Any:
    """JSON has no NaN, and no keys but text: a method without a seed is run ``once``."""
    if isinstance(value, dict):
        return {"once" if key is None else str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def show(summary: Summary, console: Console) -> None:
    """On the terminal; where it is too narrow for every deviation, those of the tasks are left to the files."""

    def width(table: Table) -> int:
        return console.measure(table, options=console.options.update(width=10_000)).maximum

    table = _terminal_table(summary, every_spread=True)
    if width(table) > console.width:
        table = _terminal_table(summary, every_spread=False)
    # A table that is wider still runs over its lines: numbers cut short would be worse.
    console.width = max(console.width, width(table))
    console.print(table)


def _terminal_table(summary: Summary, every_spread: bool) -> Table:
    from rich.markup import escape
    from rich.table import Table

    headings, rows = grid(summary)
    averages = {column.title for column in summary.columns if column.average or column == summary.main}
    table = Table(headings[0], box=None, padding=(0, 2, 0, 0))
    for heading in headings[1:]:
        table.add_column(escape(heading), justify="right", no_wrap=True)
    for row in rows:
        cells = []
        for heading, entry in zip(headings, row, strict=True):
            text = f"[bold]{escape(entry.text)}[/bold]" if entry.best else escape(entry.text)
            cells.append(f"{text} {entry.spread}".strip() if every_spread or heading in averages else text)
        table.add_row(*cells)
    return table
