"""Few sentences: the same training on 100 sentences, on 300, … on all of them.

Every run has the same number of steps, however few the sentences, which then come round again and again: what differs is
how much there is to see, not how long one looks. The sentences are drawn at random once; a smaller draw is a part of a
larger one, and the same for every seed. Methods that are fitted (whitening) use the same sentences.
"""

from __future__ import annotations

from dataclasses import replace

from selfguide.studies.base import FEW_STEPS, FULL, SMALL, Found, Grid, Plan, Setup, Study
from selfguide.studies.outcome import Column, Entry, Lines, Outcome, Series, Table, main_value
from selfguide.studies.sweeps import row_columns, row_entries

ALL = 0
"""In the list of numbers of sentences: all there are."""
_NOTE = (
    "Every run has the same number of steps, so few sentences are seen often. Sentences are drawn at random, the smaller "
    "draws being parts of the larger ones."
)


class LowResource(Study):
    """Methods × numbers of sentences."""

    small = replace(
        SMALL,
        limit=None,
        settings=FEW_STEPS,
        values={"sentences": (100, 500, ALL), "methods": ("sg-opt", "simcse", "whitening")},
    )
    full = replace(
        FULL,
        settings=("max_steps=1000", "patience=0"),
        values={
            "sentences": (100, 300, 1000, 3000, 10_000, ALL),
            "methods": ("sg-opt", "simcse", "whitening"),
        },
    )

    def plan(self, setup: Setup) -> Plan:
        grids = [
            Grid(_key(count), tuple(setup.values("methods")), _title(count), limit=count or None)
            for count in _counts(setup)
        ]
        return Plan((Grid("untuned", ("cls", "mean"), "the untuned encoder"), *grids))

    def outcome(self, found: Found) -> Outcome:
        untuned = found.summary("untuned")
        levels = {f"{label}, untuned".replace("cls", "[CLS]"): untuned[label] for label in ("cls", "mean")}
        rows: list[dict[str, Entry]] = []
        series = []
        for method in found.setup.values("methods"):
            points = []
            for count in _counts(found.setup):
                summary = found.summary(_key(count))
                row, sentences = summary[method], summary.setting.sentences
                rows.append({"method": method, "sentences": sentences, **row_entries(row, summary)})
                value = main_value(row, summary)
                if value is not None:
                    points.append((sentences, value))
            series.append(Series(method, tuple(points)))
        rows += [{"method": name, "sentences": None, **row_entries(row, untuned)} for name, row in levels.items()]
        known = {name: main_value(row, untuned) for name, row in levels.items()}
        columns = (Column("method", "method"), Column("sentences", "sentences"), *row_columns(untuned))
        figure = Lines(
            "low-resource",
            f"{untuned.main.title} by number of sentences",
            "The score over the number of sentences (logarithmic), bars are ± one deviation over seeds; the dotted lines are "
            "the untuned encoder.",
            "sentences",
            untuned.main.title,
            tuple(series),
            {name: value.mean for name, value in known.items() if value is not None},
            log=True,
        )
        return Outcome((Table("scores", "Scores by number of sentences", columns, tuple(rows)),), (figure,), (_NOTE,))


def _counts(setup: Setup) -> list[int]:
    """Those that the text has; a number that it has not would be all of it once more."""
    return [count for count in setup.values("sentences") if count < setup.sentences]


def _key(count: int) -> str:
    return f"sentences-{count}" if count else "sentences-all"


def _title(count: int) -> str:
    return f"{count:,} sentences" if count else "all sentences"
