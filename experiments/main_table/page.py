"""Write docs/results/main-table.md from results files: ours, the published figures beside them, and the bars we set.

    python -m experiments.main_table.page experiments/results/main-table

Every figure of the page comes from ``comparison.json`` of the folders named and from ``published.json``. What a person
writes into the page between the two marks is kept when the page is made again.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
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
from experiments.provenance import RESULTS

PAGE = RESULTS.parents[1] / "docs" / "results" / "main-table.md"
PUBLISHED = Path(__file__).with_name("published.json")
AVERAGE, FLOOR, BELOW = "sts avg", "bow", "†"
BEGIN, END = "<!-- written by hand: begin -->", "<!-- written by hand: end -->"
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

    @property
    def floor(self) -> float:
        """The bag of words' average; NaN where it was not run."""
        return self.average(FLOOR)

    def average(self, label: str) -> float:
        """A row's average over the seven sets; NaN where it has none."""
        row = self.rows.get(label)
        value = row["values"].get(AVERAGE, {}).get("mean") if row else None
        return math.nan if value is None else float(value)

    def below_floor(self, label: str) -> bool:
        """Whether a row knows less than counting words gives."""
        return label != FLOOR and self.average(label) < self.floor


@dataclass(frozen=True)
class Bar:
    """Something the table must show."""

    words: str
    found: str
    passed: bool | None
    """None: a row is missing."""


# -- reading -----------------------------------------------------------------------------------------------------------


def read_results(folders: Sequence[Path]) -> Results:
    """The comparisons of one or several folders as one; they must be of the same encoder, text, tasks and protocol."""
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
    """The published figures, with where they were read."""
    return json.loads(PUBLISHED.read_text(encoding="utf-8"))


# -- sections ----------------------------------------------------------------------------------------------------------


def setting_section(results: Results) -> list[str]:
    """What was run."""
    comparison = results.comparison
    setting, versions = comparison["setting"], comparison["versions"]
    used = ", ".join(f"{name} {versions[name]}" for name in ("torch", "transformers", "sentence-transformers"))
    protocol = setting["protocol"]
    told = [
        f"Encoder `{setting['encoder']}` (weights `{setting['encoder_digest']}`). Text: STS-B's {setting['sentences']:,} "
        f"different sentences, no grades. Checkpoints of tuned methods are chosen by {setting['dev']}. Scores are Spearman × "
        f"100 of the {protocol['similarity']} and the grade, '{protocol['aggregation']}' setting, text as released.",
        f"{comparison['date']}, {', '.join(comparison['devices'])}; {used}.",
    ]
    if pairs := results.manifest.get("nli"):
        told.append(
            f"Methods with labels learn from {pairs['rows']:,} pairs, all that we have of SNLI, MultiNLI and XNLI in "
            "English; the published figures come from about 940,000."
        )
    if words := results.manifest.get("vectors"):
        told.append(
            f"Word vectors: {words['words']:,} words of {words['file']}, {words['numbers each']} numbers each, rounded to "
            f"{words['decimals']} decimals; words that occur in none of the texts are left out."
        )
    if pairs := results.manifest.get("back-translations"):
        told.append(
            f"Back-translations: Apertium, English to Spanish and back; {pairs['in other words']:,} of "
            f"{pairs['sentences']:,} sentences come back in other words."
        )
    return [line for paragraph in told for line in (paragraph, "")]


def table_section(results: Results) -> list[str]:
    """The table: mean ± deviation on each set, rows below the bag of words marked."""
    columns = results.comparison["columns"]
    best = {column["key"]: _best(results, column["key"]) for column in columns}
    head = ["method", "seeds", *(column["title"] for column in columns)]
    lines = [_line(head), _line(["---", *["--:"] * (len(head) - 1)])]
    for group, specs in GROUPS.items():
        present = [label for label in map(label_of, specs) if label in results.rows]
        if present:
            lines.append(_line([f"*{group}*", *[""] * (len(head) - 1)]))
        for label in present:
            mark = BELOW if results.below_floor(label) else ""
            cells = [_score(results.rows[label]["values"].get(key), top) for key, top in best.items()]
            lines.append(_line([f"`{label}`{mark}", _seeds(results.rows[label]), *cells]))
    missing = [label_of(spec) for spec in ROWS if label_of(spec) not in results.rows]
    lines += [
        "",
        f"Mean ± sample standard deviation over seeds. Bold: the best of a column. {BELOW}: below `{FLOOR}`, which",
    ]
    lines += ["only counts words, in the average."]
    return [*lines, *(["", f"Not run: {', '.join(missing)}."] if missing else [])]


def published_section(results: Results, published: dict[str, Any]) -> list[str]:
    """Ours beside theirs, and how alike the two orders are."""
    theirs = published["rows"]
    shared = [label for label in map(label_of, ROWS) if label in theirs and not math.isnan(results.average(label))]
    lines = [
        "Published figures are for BERT-base. Encoder, text and number of seeds differ, so the lines are not to be compared as",
        "such; the order may be.",
        "",
    ]
    for name, labels in (
        ("without labels", [label for label in shared if label in map(label_of, LABEL_FREE)]),
        ("all", shared),
    ):
        if len(labels) > 2:
            rho = spearmanr([results.average(x) for x in labels], [theirs[x]["average"] for x in labels]).statistic
            lines.append(f"- Rank correlation of the two orders, rows {name} ({len(labels)}): {rho:.2f}")
    ours_rank, theirs_rank = (
        _ranks({label: results.average(label) for label in shared}),
        _ranks({label: theirs[label]["average"] for label in shared}),
    )
    head = ["method", "ours", "published", "our place", "their place", "moved", "published figure: what, and read in"]
    lines += ["", _line(head), _line(["---", *["--:"] * 5, "---"])]
    for label in sorted(shared, key=lambda name: theirs_rank[name]):
        moved = theirs_rank[label] - ours_rank[label]
        source = f"{theirs[label]['source']} ({published['read in'][theirs[label]['read']]})"
        figures = [f"{results.average(label):.2f}", f"{theirs[label]['average']:.2f}"]
        places = [str(ours_rank[label]), str(theirs_rank[label]), _signed(moved)]
        lines.append(_line([f"`{label}`" + (BELOW if results.below_floor(label) else ""), *figures, *places, source]))
    return [*lines, "", "moved: places up (+) or down (−) in our table, among these rows."]


def bars(results: Results) -> list[Bar]:
    """What the table was meant to show."""
    mean, whitening = results.average("mean"), results.average("whitening")
    found = [
        _bar("`whitening` at least `mean` + 3", whitening - mean, 3),
        _bar("`flow` within 2 of `whitening`, or better", results.average("flow") - whitening, -2),
        _bar("`simcse` at least 67", results.average("simcse"), 67, signed=False),
    ]
    for label in ("consert", "ct", "mirror", "bt"):
        difference = results.average(label) - mean
        passed = None if math.isnan(difference) else difference > 0
        found.append(Bar(f"`{label}` above `mean`", _figure(difference), passed))
    return found


def _bar(words: str, value: float, least: float, signed: bool = True) -> Bar:
    if math.isnan(value):
        return Bar(words, "", None)
    return Bar(words, _figure(value) if signed else f"{value:.2f}", value >= least)


def bars_section(results: Results) -> list[str]:
    """The bars as a table."""
    told = {True: "yes", False: "**no**", None: "not run"}
    lines = [_line(["bar", "found", "reached"]), _line(["---", "--:", "---"])]
    lines += [_line([bar.words, bar.found, told[bar.passed]]) for bar in bars(results)]
    below = [f"`{label}`" for label in map(label_of, ROWS) if results.below_floor(label)]
    if not math.isnan(results.floor):
        lines += ["", f"Rows below `{FLOOR}` ({results.floor:.2f}): {', '.join(below) or 'none'}."]
    return lines


def settings_section(results: Results) -> list[str]:
    """How each trained row was set, what it cost, and its dev score."""
    head = ["method", "rate", "batch", "epochs", "steps", "seconds a cell", "STS-B dev"]
    lines = [_line(head), _line(["---", *["--:"] * (len(head) - 1)])]
    for label in map(label_of, ROWS):
        row = results.rows.get(label)
        if row and row["steps"]:
            stages = [stage["training"] for stage in row["stages"] if stage["method"] != "whitening"]
            shown = [" / ".join(f"{stage[name]:g}" for stage in stages) for name in _SHOWN]
            dev = f"{row['dev']['mean']:.2f}" if row["dev"] else ""
            lines.append(_line([f"`{label}`", *shown, str(row["steps"]), f"{row['seconds']:.0f}", dev]))
    return [
        *lines,
        "",
        "Steps are those run: a run stops early when STS-B dev does not rise. Several cells shared the GPU.",
    ]


_SHOWN = ("learning_rate", "batch_size", "epochs")


def troubles_section(results: Results) -> list[str]:
    """What failed."""
    return [
        f"- `{label}`, {'run once' if seed == 'once' else f'seed {seed}'}: {error}"
        for label, row in results.rows.items()
        for seed, error in row["errors"].items()
    ]


# -- the page ----------------------------------------------------------------------------------------------------------


def page(results: Results, published: dict[str, Any], prose: str = "") -> str:
    """The whole page."""
    commands = [f"```bash\n{command}\n```" for command in fullest(results.comparison["commands"])]
    troubles = troubles_section(results)
    parts = [
        "# The main table",
        "",
        f"Written by `python -m experiments.main_table.page` from {_link('experiments/results/main-table')};",
        "change the results, not this page.",
        "",
        *setting_section(results),
        "## Every method, one encoder, one text",
        "",
        *table_section(results),
        "",
        "## What it says",
        "",
        BEGIN,
        prose.strip("\n"),
        END,
        "",
        "## Beside the published figures",
        "",
        *published_section(results, published),
        "",
        "## Bars",
        "",
        *bars_section(results),
        "",
        "## Settings",
        "",
        f"{_link('experiments/main_table/rows.py')} and {_link('experiments/main_table/settings.txt')} say why.",
        "Not named here: the method's default.",
        "",
        *settings_section(results),
        "",
        *(["## Cells without a score", "", *troubles, ""] if troubles else []),
        "## Commands",
        "",
        "`python -m experiments.main_table.run` runs, in the folder of inputs (the results file names all that were given):",
        "",
        *(line for command in commands for line in (command, "")),
    ]
    return "\n".join(parts).rstrip("\n") + "\n"


def fullest(commands: list[str]) -> list[str]:
    """Of commands that were given again with more rows, the last: the cells of the others are found finished by it."""

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


def kept_prose(path: Path) -> str:
    """What a person has written into an earlier page."""
    if not path.is_file():
        return ""
    text = path.read_text(encoding="utf-8")
    return text.partition(BEGIN)[2].partition(END)[0] if BEGIN in text and END in text else ""


def _link(path: str) -> str:
    """A file or folder of the repository, as seen from the page's own folder."""
    return f"[{path}](../../{path})"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _best(results: Results, key: str) -> str:
    means = [row["values"][key]["mean"] for row in results.rows.values() if row["values"].get(key)]
    return f"{max((value for value in means if value is not None), default=math.nan):.2f}"


def _score(value: dict[str, Any] | None, best: str) -> str:
    if value is None or value["mean"] is None:
        return "failed"
    shown = f"{value['mean']:.2f}"
    shown = f"**{shown}**" if shown == best else shown
    return shown if value["deviation"] is None else f"{shown} ± {value['deviation']:.2f}"


def _seeds(row: dict[str, Any]) -> str:
    by_seed = row["values"].get(AVERAGE, {}).get("by_seed", {})
    failed = f" ({len(row['errors'])} failed)" if row["errors"] else ""
    return ("once" if "once" in by_seed else str(len(by_seed))) + failed


def _ranks(values: dict[str, float]) -> dict[str, int]:
    ordered = sorted(values, key=lambda label: -values[label])
    return {label: place for place, label in enumerate(ordered, 1)}


def _signed(number: int) -> str:
    return f"{number:+d}".replace("-", "−") if number else "0"


def _figure(value: float) -> str:
    return "" if math.isnan(value) else f"{value:+.2f}".replace("-", "−")


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the page of the main table.")
    parser.add_argument("folders", nargs="*", type=Path, default=[RESULTS / "main-table"])
    parser.add_argument("--out", type=Path, default=PAGE)
    arguments = parser.parse_args()
    text = page(read_results(arguments.folders), read_published(), kept_prose(arguments.out))
    arguments.out.write_text(text, encoding="utf-8")
    print(f"written: {arguments.out.name}")


if __name__ == "__main__":
    main()
