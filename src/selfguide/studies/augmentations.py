"""Pairs of augmentations: ConSERT contrasts two augmented views of each sentence; which two augmentations are best?

The loss treats both views alike, so each pair is run once and stands in the matrix twice.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations_with_replacement

from selfguide.studies.base import FULL, SMALL, Findings, Grid, Plan, Setup, Study
from selfguide.studies.outcome import (
    UNTUNED,
    Column,
    Outcome,
    Table,
    TableRow,
    main_value,
    matrix,
    row_columns,
    row_entries,
)
from selfguide.studies.values import Value

_AUGMENTATIONS = ("none", "shuffle", "token-cutoff", "feature-cutoff", "dropout")
_CAPTION = "The change to one copy down, to the other across; the brighter the cell, the higher the score."
_NOTE = (
    "Each pair is run once and stands in the matrix twice: the loss treats both copies alike. The encoder's own dropout is "
    "off, so with none and none the two copies are the same."
)


class Augmentations(Study):
    """Every pair of augmentations."""

    name = "augmentations"
    title = "Pairs of augmentations"
    question = "Which two changes to a sentence make the best pair for ConSERT?"
    reference = "Yan et al., ACL 2021"
    # The published learning rate, 5e-7, is for BERT-base and more text; here it would hardly move the weights.
    small = replace(
        SMALL,
        settings=("max_steps=8", "batch_size=16", "learning_rate=5e-5", "dev_every=8"),
        values={"augmentations": _AUGMENTATIONS},
    )
    full = replace(FULL, settings=("learning_rate=2e-5",), values={"augmentations": _AUGMENTATIONS})

    def plan(self, setup: Setup) -> Plan:
        """See :meth:`Study.plan`."""
        specs = [f"{label}=consert:first={one}:second={two}" for (one, two), label in _pairs(setup).items()]
        return Plan((Grid("augmentations", (*specs, *UNTUNED)),))

    def outcome(self, findings: Findings) -> Outcome:
        """See :meth:`Study.outcome`."""
        summary, pairs = findings.summary("augmentations"), _pairs(findings.setup)
        named = {**pairs, **{(title, ""): label for label, title in UNTUNED.items()}}
        rows: list[TableRow] = [
            {"first": one, "second": two, **row_entries(summary[label], summary)} for (one, two), label in named.items()
        ]
        columns = [Column("first", "one copy"), Column("second", "the other"), *row_columns(summary)]
        names = findings.setup.values("augmentations")
        fields: dict[str, dict[str, Value | None]] = {name: {} for name in names}
        for (one, two), label in pairs.items():
            fields[one][two] = fields[two][one] = main_value(summary[label], summary)
        title = f"{summary.main.title} of every pair of augmentations"
        titles = dict(zip(names, names, strict=True))
        figure = matrix("augmentations", title, _CAPTION, ("the other copy", "one copy"), titles, fields)
        return Outcome([Table("scores", "Scores of every pair", columns, rows)], [figure], [_NOTE])


def _pairs(setup: Setup) -> dict[tuple[str, str], str]:
    """Return the label of each pair's row."""
    return {pair: " and ".join(pair) for pair in combinations_with_replacement(setup.values("augmentations"), 2)}
