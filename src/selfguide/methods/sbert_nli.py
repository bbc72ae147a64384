"""SBERT-NLI: an encoder learns sentence embeddings by telling entailment, neutral and contradiction apart.

The loss is :class:`~selfguide.losses.NLISoftmaxLoss`, on the means of the last layer's tokens, in one epoch over the labelled
pairs that the option ``nli`` names; the run's text is not trained on. The method needs labels, unlike most here: it serves
for comparison, and as a starting point for others (``--encoder`` with its folder and any method).

Training as in the authors' released code: AdamW with betas (0.9, 0.999) and a weight decay of 0.01 (not of biases and norms), a
warm-up over a tenth of the steps and linear decay, gradients clipped at a norm of 1, no early stopping.

Differences: with dev pairs the best checkpoint is kept by cosine, scored every 50 steps (theirs: 1,000). The published
encoder was trained on all of SNLI and MultiNLI (about 940,000 pairs).

Reference: Reimers and Gurevych, Sentence-BERT: Sentence Embeddings using Siamese BERT-Networks, EMNLP 2019.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from selfguide.data.nli import NO_FILE, check_option, read_nli
from selfguide.losses.nli import CITATION, NLISoftmaxLoss
from selfguide.methods.base import TuningMethod
from selfguide.methods.search import BATCHES, POOLED, RATES
from selfguide.models.encoders import POOLINGS
from selfguide.options import CheckedOptions, OneOf
from selfguide.training.settings import TrainingSettings

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer


@dataclass(frozen=True)
class SbertNliOptions(CheckedOptions):
    """Options of SBERT-NLI."""

    nli: str = NO_FILE
    """Labelled pairs (a file must be named): label, premise, hypothesis, with tabs; patterns and commas make it several."""
    pooling: Annotated[str, OneOf(*POOLINGS)] = "mean"
    """Pooling: cls, mean, max, last2 or first-last."""


class SbertNli(TuningMethod):
    """``--method sbert-nli``."""

    name = "sbert-nli"
    summary = "classification of labelled pairs: entailment, neutral or contradiction (SBERT)"
    reference = "Reimers and Gurevych, EMNLP 2019"
    needs_labels = True
    made_for = "raw language model"
    Options = SbertNliOptions
    options: SbertNliOptions
    defaults = TrainingSettings(batch_size=16, learning_rate=2e-5, epochs=1.0, weight_decay=0.01, patience=0)
    citation = CITATION
    search = {"learning_rate": RATES, "batch_size": BATCHES, "pooling": (*POOLED, "max")}

    def check(self) -> None:
        """See :meth:`Method.check`."""
        check_option(self.options.nli, self.name)

    def dataset(self, text: Dataset) -> Dataset:
        """See :meth:`TuningMethod.dataset`."""
        return read_nli(self.options.nli, self.context.reporter)

    def loss(self, student: SentenceTransformer) -> NLISoftmaxLoss:
        """See :meth:`TuningMethod.loss`."""
        return NLISoftmaxLoss(student)
