"""The main table and what stands beside it."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from experiments.main_table import page
from experiments.main_table.rows import GRID, ROWS, label_of
from experiments.pages.figures import figure
from experiments.pages.sources import lookup
from experiments.pages.tables.markdown import SET_TITLES, bold, seven, table
from experiments.provenance import RESULTS

README_ROWS = {
    "[CLS], untuned": "cls",
    "mean, untuned": "mean",
    "mean, whitened": "whitening",
    "`bow`: words counted, random vectors": "bow",
    "[CLS], tuned with SG-OPT": "sg-opt",
    "SimCSE": "simcse",
    "ConSERT": "consert",
    "BT: contrast with back-translations": "bt",
    "`fused` (ours, not in the papers)": "fused",
}


@lru_cache(maxsize=1)
def _results() -> page.Results:
    return page.read_results([RESULTS / "main-table"])


def readme() -> str:
    """The rows that the README shows; the row of the project's own subject is marked, not the best one."""
    rows = [seven(label, f"main:{row}", 1) for label, row in README_ROWS.items()]
    for row in rows:
        if "SG-OPT" in row[0]:
            row[0], row[-1] = bold(row[0]), bold(row[-1])
    return table(" | ".join(["`mini`, sentence vector", *SET_TITLES, "average"]), rows)


def trials() -> str:
    """How often each tuned row could choose, what it ran, and how many sentences it saw."""
    tried = {choice.method: choice for choice in GRID}
    rows = []
    for label in map(label_of, ROWS):
        row = lookup(f"main:{label}")
        if not row["steps"]:
            continue
        stages = [stage for stage in row["stages"] if stage["method"] != "whitening"]
        own = tried.get(label)
        settings = (
            "; ".join(" ".join(words).replace("learning_rate=", "") for words in own.tried)
            if own
            else "none of its own"
        )
        seen = f"{row['steps'] * stages[-1]['training']['batch_size']:,}" if len(stages) == 1 else "–"
        rows.append(
            [f"`{label}`", str(len(own.tried)) if own else "0", settings, figure(f"main:{label}/steps", 0), seen]
        )
    return table(
        "row | settings tried | which (rate, and what differs) | steps, mean of seeds | sentences seen: steps × batch",
        rows,
    )


TABLES: dict[str, Callable[[], str]] = {
    "readme": readme,
    "trials": trials,
    "main-setting": lambda: page.described(_results()),
    "main-scores": lambda: page.scores_table(_results()),
    "main-published": lambda: page.published_section(_results(), page.read_published()),
    "main-bars": lambda: page.bars_table(_results()),
    "main-training": lambda: page.training_table(_results()),
    "main-failures": lambda: page.failures(_results()),
    "main-commands": lambda: page.commands(_results()),
}
