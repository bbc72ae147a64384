"""Batch size: the other sentences of a batch are the negatives of a contrastive loss, so a larger batch has more of them.

Every row sees each sentence equally often, so a larger batch also means fewer steps; the table tells how many.
"""

from __future__ import annotations

from dataclasses import replace

from selfguide.studies.base import FULL, SMALL, Found, Grid, Plan, Setup, Study
from selfguide.studies.outcome import Outcome
from selfguide.studies.sweeps import labelled, sweep_outcome

_NOTE = (
    "Every run passes over the text equally often, unless it stops early for want of gains on the dev pairs; so the larger the "
    "batch, the fewer the steps. The learning rate is the same for all."
)


class BatchSize(Study):
    """Methods × batch sizes."""

    # One pass over few sentences: the steps follow from the batch size.
    small = replace(
        SMALL,
        limit=256,
        settings=("head_size=512", "dev_every=40"),
        values={"batch_sizes": (8, 16, 32, 64), "methods": ("sg-opt", "simcse")},
    )
    # ConSERT's published learning rate goes with BERT-base and more text: here it would hardly move the weights.
    full = replace(
        FULL,
        settings=("consert.learning_rate=2e-5",),
        values={"batch_sizes": (4, 8, 16, 32, 64, 128, 256), "methods": ("sg-opt", "simcse", "consert")},
    )

    def plan(self, setup: Setup) -> Plan:
        specs = [
            labelled(method, size, f"{method}:batch_size={size}")
            for method in setup.values("methods")
            for size in setup.values("batch_sizes")
        ]
        return Plan((Grid("batch-size", ("cls", "mean", *specs)),))

    def outcome(self, found: Found) -> Outcome:
        return sweep_outcome(
            found,
            grid="batch-size",
            name="batch_size",
            title="sentences in a batch",
            values=found.setup.values("batch_sizes"),
            methods=found.setup.values("methods"),
            levels={"cls": "[CLS], untuned", "mean": "mean, untuned"},
            caption="The score over the size of a batch, bars are ± one deviation over seeds; the dotted lines are untuned.",
            log=True,
            notes=(_NOTE,),
        )
