"""The generated parts of docs/results/main-table.md: our scores, the published ones beside them, and our expectations.

Every number comes from ``comparison.json`` of the given folders and from ``published.json``; ``python -m experiments.pages`` puts
the parts into the page.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scipy.stats import spearmanr

from experiments.main_table.rows import (
    CALIBRATED,
    LABEL_FREE,
    ON_SUPERVISED,
    ROWS,
    SUPERVISED,
    TUNED,
    UNTRAINED,
    label_of,
)
from selfguide.report.table import Cell, Heading, Table, to_markdown

PUBLISHED = Path(__file__).with_name("published.json")
AVERAGE, FLOOR, BELOW = "sts avg", "bow", "†"
LABELS = tuple(map(label_of, ROWS))
GROUPS = {
    "nothing tuned": UNTRAINED,
    "tuned on the text": TUNED,
    "tuned, then whitened on the text": CALIBRATED,
    "with labelled pairs": SUPERVISED + ON_SUPERVISED,
}


@dataclass(frozen=True)
class Results:
    """The comparison's rows by label, and what they share."""

    comparison: dict[str, Any]
    rows: dict[str, dict[str, Any]]
    manifest: dict[str, Any]

    def average(self, label: str) -> float:
        """Return a row's average over the seven sets; NaN if it has none."""
        row = self.rows.get(label)
        value = row["values"].get(AVERAGE, {}).get("mean") if row else None
        return math.nan if value is None else float(value)

    def below_floor(self, label: str) -> bool:
        """Return whether a row is below the bag of words, which only counts words."""
        return label != FLOOR and self.average(label) < self.average(FLOOR)

    def marked(self, label: str) -> str:
        """Return a row's name, with a mark if it is below the bag of words."""
        return f"`{label}`" + (BELOW if self.below_floor(label) else "")


def read_results(folders: Sequence[Path]) -> Results:
    """Read the comparisons of one or several folders as one.

    Args:
        folders: Folders of ``selfguide compare``.

    Returns:
        All their rows.

    Raises:
        SystemExit: They differ in the encoder, the text, the tasks or the protocol.
    """
    found = [json.loads((folder / "comparison.json").read_text(encoding="utf-8")) for folder in folders]
    keys = ("encoder_digest", "fingerprint", "dev_digest", "tasks", "protocol")
    for other in found[1:]:
        if any(other["setting"][key] != found[0]["setting"][key] for key in keys):
            raise SystemExit("The folders hold comparisons of different encoders, texts, tasks or protocols.")
    rows = {label: row for comparison in found for label, row in comparison["rows"].items()}
    manifests = [folder / "manifest.json" for folder in folders if (folder / "manifest.json").is_file()]
    manifest = json.loads(manifests[0].read_text(encoding="utf-8")) if manifests else {}
    return Results(found[0], rows, manifest)


def read_published() -> dict[str, Any]:
    """Read the published scores, with their sources."""
    published: dict[str, Any] = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    return published


def described(results: Results) -> str:
    """Describe what was run."""
    comparison, manifest = results.comparison, results.manifest
    setting, versions = comparison["setting"], comparison["versions"]
    used = ", ".join(f"{name} {versions[name]}" for name in ("torch", "transformers", "sentence-transformers"))
    protocol = setting["protocol"]
    paragraphs = [
        f"Encoder `{setting['encoder']}` (weights `{setting['encoder_digest']}`). Text: STS-B's {setting['sentences']:,} "
        f"different sentences, no grades. Checkpoints of tuned methods are chosen by {setting['dev']}. Scores are Spearman × "
        f"100 of the {protocol['similarity']} and the grade, '{protocol['aggregation']}' setting, text as released.",
        f"{comparison['date']}, {', '.join(comparison['devices'])}; {used}.",
    ]
    if pairs := manifest.get("nli"):
        paragraphs.append(
            f"Methods with labels learn from {pairs['rows']:,} pairs, all that we have of SNLI, MultiNLI and XNLI in "
            "English; the published figures come from about 940,000."
        )
    if words := manifest.get("vectors"):
        paragraphs.append(
            f"Word vectors: {words['words']:,} words of {words['file']}, {words['numbers each']} numbers each, rounded to "
            f"{words['decimals']} decimals; words that occur in none of the texts are left out."
        )
    if pairs := manifest.get("back-translations"):
        paragraphs.append(
            f"Back-translations: Apertium, English to Spanish and back; {pairs['in other words']:,} of "
            f"{pairs['sentences']:,} sentences come back in other words."
        )
    return "\n\n".join(paragraphs)


def scores_table(results: Results) -> str:
    """Tabulate mean ± deviation on each set, and mark rows below the bag of words."""
    columns = results.comparison["columns"]
    rows: list[list[Cell]] = []
    for group, specs in GROUPS.items():
        present = [label for label in map(label_of, specs) if label in results.rows]
        if present:
            rows.append([Cell(f"*{group}*"), *[Cell("")] * (len(columns) + 1)])
        for label in present:
            row = results.rows[label]
            values = [_score(row["values"].get(column["key"])) for column in columns]
            rows.append([Cell(results.marked(label)), Cell(_seeds(row)), *values])
    headings = [Heading("method"), Heading("seeds"), *(Heading(column["title"], better="high") for column in columns)]
    notes: tuple[str, ...] = (
        f"Mean ± sample standard deviation over seeds. Bold: the best of a column. {BELOW}: below `{FLOOR}`, which\n"
        "only counts words, in the average.",
    )
    if missing := [label for label in LABELS if label not in results.rows]:
        notes += (f"Not run: {', '.join(missing)}.",)
    return to_markdown(Table(headings, rows, notes=notes), markup=True)


def published_section(results: Results, published: dict[str, Any]) -> str:
    """Tabulate our averages beside the published ones, and correlate the two rankings.

    Args:
        results: Our results.
        published: The published scores.

    Returns:
        The section in Markdown.
    """
    theirs = {label: row["average"] for label, row in published["rows"].items()}
    ours = {label: results.average(label) for label in LABELS if label in theirs}
    ours = {label: average for label, average in ours.items() if not math.isnan(average)}
    lines = [
        "Published figures are for BERT-base. Encoder, text and number of seeds differ, so the lines are not to be compared as",
        "such; the order may be.",
        "",
    ]
    unlabelled = [label for label in map(label_of, LABEL_FREE) if label in ours]
    for name, labels in (("without labels", unlabelled), ("all", list(ours))):
        if len(labels) > 2:
            rho = spearmanr([ours[label] for label in labels], [theirs[label] for label in labels]).statistic
            lines.append(f"- Rank correlation of the two orders, rows {name} ({len(labels)}): {rho:.2f}")
    our_rank, their_rank = _ranks(ours), _ranks({label: theirs[label] for label in ours})
    rows = []
    for label in sorted(ours, key=lambda name: their_rank[name]):
        row = published["rows"][label]
        moved = their_rank[label] - our_rank[label]
        rows.append(
            [
                results.marked(label),
                f"{ours[label]:.2f}",
                f"{theirs[label]:.2f}",
                str(our_rank[label]),
                str(their_rank[label]),
                f"{moved:+d}".replace("-", "−") if moved else "0",
                f"{row['source']} ({published['read in'][row['read']]})",
            ]
        )
    head = ["method", "ours", "published", "our place", "their place", "moved", "published figure: what, and read in"]
    note = "moved: places up (+) or down (−) in our table, among these rows."
    return "\n".join([*lines, "", _table(head, rows), "", note])


def bars(results: Results) -> dict[str, tuple[str, bool | None]]:
    """Compare the table with what we expected of it.

    Args:
        results: Our results.

    Returns:
        What was found and whether it is as expected, or None if a row is missing, by expectation.
    """
    mean, whitening = results.average("mean"), results.average("whitening")
    expected = [
        ("`whitening` at least `mean` + 3", whitening - mean, 3.0, "+.2f"),
        ("`flow` within 2 of `whitening`, or better", results.average("flow") - whitening, -2.0, "+.2f"),
        ("`simcse` at least 67", results.average("simcse"), 67.0, ".2f"),
    ]
    for label in ("consert", "ct", "mirror", "bt"):
        expected.append((f"`{label}` above `mean`", results.average(label) - mean, 1e-9, "+.2f"))
    return {
        name: ("", None) if math.isnan(value) else (format(value, form).replace("-", "−"), value >= least)
        for name, value, least, form in expected
    }


def bars_table(results: Results) -> str:
    words = {True: "yes", False: "**no**", None: "not run"}
    table = _table(
        ["bar", "found", "reached"], [[name, found, words[passed]] for name, (found, passed) in bars(results).items()]
    )
    below = [f"`{label}`" for label in LABELS if results.below_floor(label)]
    floor = results.average(FLOOR)
    return (
        table if math.isnan(floor) else f"{table}\n\nRows below `{FLOOR}` ({floor:.2f}): {', '.join(below) or 'none'}."
    )


def training_table(results: Results) -> str:
    """Tabulate the settings of each trained row, its cost and its dev score."""
    rows = []
    for label in LABELS:
        row = results.rows.get(label)
        if row and row["steps"]:
            stages = [stage["training"] for stage in row["stages"] if stage["method"] != "whitening"]
            names = ("learning_rate", "batch_size", "epochs")
            shown = [" / ".join(f"{stage[name]:g}" for stage in stages) for name in names]
            dev = f"{row['dev']['mean']:.2f}" if row["dev"] else ""
            rows.append([f"`{label}`", *shown, str(row["steps"]), f"{row['seconds']:.0f}", dev])
    return _table(["method", "rate", "batch", "epochs", "steps", "seconds a cell", "STS-B dev"], rows)


def commands(results: Results) -> str:
    """Return the commands that made the rows, as blocks of code."""
    return "\n\n".join(f"```bash\n{command}\n```" for command in fullest(results.comparison["commands"]))


def failures(results: Results) -> str:
    """List the cells that have no score, or say that there are none."""
    lines = [
        f"- `{label}`, {'run once' if seed == 'once' else f'seed {seed}'}: {error}"
        for label, row in results.rows.items()
        for seed, error in row["errors"].items()
    ]
    return "\n".join(lines) or "Every cell has a score."


def fullest(commands: list[str]) -> list[str]:
    """Return the commands whose rows are not part of another's; of several with the same rows, the last."""

    def rows(command: str) -> set[str]:
        words = command.split()
        return set(words[words.index("--methods") + 1].split(","))

    return [
        command
        for number, command in enumerate(commands)
        if not any(
            rows(command) < rows(other) or (rows(command) == rows(other) and later > number)
            for later, other in enumerate(commands)
        )
    ]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return to_markdown(
        Table([Heading(title) for title in head], [[Cell(text) for text in row] for row in rows]), markup=True
    )


def _score(value: dict[str, Any] | None) -> Cell:
    if value is None or value["mean"] is None:
        return Cell("failed")
    note = "" if value["deviation"] is None else f"± {value['deviation']:.2f}"
    return Cell(f"{value['mean']:.2f}", note, value["mean"])


def _seeds(row: dict[str, Any]) -> str:
    by_seed = row["values"].get(AVERAGE, {}).get("by_seed", {})
    failed = f" ({len(row['errors'])} failed)" if row["errors"] else ""
    return ("once" if "once" in by_seed else str(len(by_seed))) + failed


def _ranks(values: dict[str, float]) -> dict[str, int]:
    ordered = sorted(values, key=lambda label: -values[label])
    return {label: place for place, label in enumerate(ordered, 1)}
