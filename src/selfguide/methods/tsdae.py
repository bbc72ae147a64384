"""TSDAE: a decoder reconstructs a sentence from nothing but the embedding of a damaged copy.

The loss is :class:`~selfguide.losses.DenoisingLoss`, on the [CLS] vectors of the last layer. Training as in the paper: AdamW
with a constant learning rate of 3e-5 without a warm-up and no weight decay; gradients clipped at a norm of 1 (the framework's
default then), no early stopping.

Reference: Wang, Reimers and Gurevych, TSDAE: Using Transformer-based Sequential Denoising Auto-Encoder for Unsupervised
Sentence Embedding Learning, Findings of EMNLP 2021.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from selfguide.losses.denoising import CITATION, DELETE_RATE, DenoisingLoss
from selfguide.methods.base import TuningMethod
from selfguide.methods.search import BATCHES, POOLED, RATES
from selfguide.models.encoders import POOLINGS
from selfguide.options import CheckedOptions, OneOf
from selfguide.training.settings import TrainingSettings

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


@dataclass(frozen=True)
class TsdaeOptions(CheckedOptions):
    """Options of TSDAE; the defaults are the paper's."""

    delete_rate: Annotated[float, DELETE_RATE] = 0.6
    """Fraction of the words that are deleted; one always stays."""
    pooling: Annotated[str, OneOf(*POOLINGS)] = "cls"
    """Pooling: cls, mean, max, last2 or first-last."""


class Tsdae(TuningMethod):
    """``--method tsdae``."""

    name = "tsdae"
    summary = "a decoder reconstructs the sentence from the embedding of a damaged copy"
    reference = "Wang, Reimers and Gurevych, Findings of EMNLP 2021"
    made_for = "raw language model"
    Options = TsdaeOptions
    options: TsdaeOptions
    defaults = TrainingSettings(batch_size=8, learning_rate=3e-5, warmup=0.0, schedule="constant", patience=0)
    citation = CITATION
    search = {
        "learning_rate": RATES,
        "batch_size": (8, *BATCHES),
        "delete_rate": (0.4, 0.6, 0.8),
        "schedule": ("linear", "constant"),
        "pooling": POOLED,
    }

    def loss(self, student: SentenceTransformer) -> DenoisingLoss:
        """See :meth:`TuningMethod.loss`."""
        return DenoisingLoss(student, self.options.delete_rate)
