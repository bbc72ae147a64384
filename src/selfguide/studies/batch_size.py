"""Batch size: the other sentences of a batch are the negatives of a contrastive loss, so a larger batch has more of them.

Every row sees each sentence equally often, so a larger batch also means fewer steps; the table shows how many.
"""

from __future__ import annotations

from dataclasses import replace

from selfguide.studies.base import FULL, SMALL
from selfguide.studies.sweeps import OptionSweep


class BatchSize(OptionSweep):
    """Methods × batch sizes."""

    name = "batch-size"
    title = "Batch size"
    question = "Do more sentences in a batch, and so more negatives, help?"
    reference = "Yan et al., ACL 2021"
    option = "batch_size"
    values_name = "batch_sizes"
    axis = "sentences in a batch"
    caption = "The score over the size of a batch, bars are ± one deviation over seeds; the dotted lines are untuned."
    notes = (
        "Every run passes over the text equally often, unless early stopping ends it, so a larger batch means fewer steps. "
        "The learning rate is the same for all.",
    )
    # One pass over few sentences: the steps follow from the batch size.
    small = replace(
        SMALL,
        limit=256,
        settings=("head_size=512", "dev_every=40"),
        values={"batch_sizes": (8, 16, 32, 64), "methods": ("sg-opt", "simcse")},
    )
    # ConSERT's published learning rate is for BERT-base and more text; here it would hardly move the weights.
    full = replace(
        FULL,
        settings=("consert.learning_rate=2e-5",),
        values={"batch_sizes": (4, 8, 16, 32, 64, 128, 256), "methods": ("sg-opt", "simcse", "consert")},
    )
