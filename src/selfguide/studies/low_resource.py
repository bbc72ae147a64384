"""Few sentences: the same training on 100 sentences, on 300, … on all of them.

Every run has the same number of steps, so few sentences are repeated often: what differs is how much text there is, not how
long the training is. The sentences are sampled once; a smaller sample is a subset of a larger one, and the same for every
seed. Methods that are fitted (whitening) use the same sentences.
"""

from __future__ import annotations

from dataclasses import replace

from selfguide.studies.base import FEW_STEPS, FULL, SMALL, Findings, Grid, Plan, Setup, Study
from selfguide.studies.outcome import UNTUNED, Column, Outcome
from selfguide.studies.sweeps import sweep_outcome

ALL = 0
"""In the list of sizes: the whole text."""
_CAPTION = (
    "The score over the number of sentences (logarithmic), bars are ± one deviation over seeds; the dotted lines are the "
    "untuned encoder."
)
_NOTE = (
    "Every run has the same number of steps, so few sentences are seen often. Sentences are sampled at random; smaller samples "
    "are subsets of larger ones."
)
_METHODS = ("sg-opt", "simcse", "whitening")


class LowResource(Study):
    """Methods × numbers of sentences."""

    name = "low-resource"
    title = "Few sentences"
    question = "How many sentences does tuning need?"
    reference = "Yan et al., ACL 2021"
    small = replace(SMALL, limit=None, settings=FEW_STEPS, values={"sentences": (100, 500, ALL), "methods": _METHODS})
    full = replace(
        FULL,
        settings=("max_steps=1000", "patience=0"),
        values={"sentences": (100, 300, 1000, 3000, 10_000, ALL), "methods": _METHODS},
    )

    def plan(self, setup: Setup) -> Plan:
        """See :meth:`Study.plan`."""
        methods = tuple(setup.values("methods"))
        titles = {count: f"{count:,} sentences" if count else "all sentences" for count in _counts(setup)}
        grids = [Grid(_key(count), methods, title, limit=count or None) for count, title in titles.items()]
        return Plan((Grid("untuned", tuple(UNTUNED), "the untuned encoder"), *grids))

    def outcome(self, findings: Findings) -> Outcome:
        """See :meth:`Study.outcome`."""
        summaries = [findings.summary(_key(count)) for count in _counts(findings.setup)]
        points = [
            (method, summary.setting.sentences, summary[method], summary)
            for method in findings.setup.values("methods")
            for summary in summaries
        ]
        untuned, column = findings.summary("untuned"), Column("sentences", "sentences")
        return sweep_outcome(points, untuned, column, self.name, "number of sentences", _CAPTION, [_NOTE])


def _counts(setup: Setup) -> list[int]:
    """Return the sizes that the text can supply; a larger one would repeat the whole text."""
    return [count for count in setup.values("sentences") if count < setup.sentences]


def _key(count: int) -> str:
    return f"sentences-{count}" if count else "sentences-all"
