"""Pairs of augmentations: ConSERT compares two changed copies of each sentence; which two changes are best?

A field of the matrix is ConSERT with one change for the first copy and one for the second. The loss does not know which
copy is the first, so each pair is run once and stands in the matrix twice.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations_with_replacement

from selfguide.comparison.summary import Row, Summary
from selfguide.studies.base import FULL, SMALL, Found, Grid, Plan, Setup, Study
from selfguide.studies.outcome import Column, Entry, Matrix, Outcome, Table, main_value
from selfguide.studies.sweeps import row_columns, row_entries

_AUGMENTATIONS = ("none", "shuffle", "token-cutoff", "feature-cutoff", "dropout")
_NOTE = (
    "Each pair is run once and stands in the matrix twice: the loss treats both copies alike. The encoder's own dropout is "
    "off, so with none and none the two copies are the same."
)


class Augmentations(Study):
    """Every pair of augmentations."""

    # The published learning rate, 5e-7, goes with BERT-base and more text: here it would hardly move the weights.
    small = replace(
        SMALL,
        settings=("max_steps=8", "batch_size=16", "learning_rate=5e-5", "dev_every=8"),
        values={"augmentations": _AUGMENTATIONS},
    )
    full = replace(FULL, settings=("learning_rate=2e-5",), values={"augmentations": _AUGMENTATIONS})

    def plan(self, setup: Setup) -> Plan:
        specs = [
            f"{_label(first, second)}=consert:first={first}:second={second}"
            for first, second in combinations_with_replacement(setup.values("augmentations"), 2)
        ]
        return Plan((Grid("augmentations", (*specs, "cls", "mean")),))

    def outcome(self, found: Found) -> Outcome:
        summary = found.summary("augmentations")
        names = found.setup.values("augmentations")
        rows = [
            _entries(summary[_label(first, second)], summary, first, second)
            for first, second in combinations_with_replacement(names, 2)
        ]
        rows += [
            _entries(summary["cls"], summary, "[CLS], untuned", ""),
            _entries(summary["mean"], summary, "mean, untuned", ""),
        ]
        columns = (Column("first", "one copy"), Column("second", "the other"), *row_columns(summary))
        values = tuple(
            tuple(main_value(summary[_label(*sorted((one, other), key=names.index))], summary) for other in names)
            for one in names
        )
        figure = Matrix(
            "augmentations",
            f"{summary.main.title} of every pair of augmentations",
            "The change to one copy down, to the other across; the brighter the field, or on the page the darker, the "
            "higher the score.",
            "the other copy",
            "one copy",
            tuple(names),
            tuple(names),
            values,
        )
        table = Table("scores", "Scores of every pair", columns, tuple(rows))
        return Outcome((table,), (figure,), (_NOTE,))


def _label(first: str, second: str) -> str:
    return f"{first} and {second}"


def _entries(row: Row, summary: Summary, first: str, second: str) -> dict[str, Entry]:
    return {"first": first, "second": second, **row_entries(row, summary)}
