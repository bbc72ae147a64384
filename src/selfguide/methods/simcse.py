"""SimCSE without labels: dropout is the only augmentation.

Each sentence of a batch goes through the encoder twice, in training mode. Dropout makes two slightly different vectors
c_i and c'_i of it, the [CLS] vectors of the last layer. A head f (Linear, Tanh), which is there while training only, takes
them to where they are compared:

    loss = mean over i of −log exp(cos(f(c_i), f(c'_i)) / τ) / Σ_j exp(cos(f(c_i), f(c'_j)) / τ)

Only the first versions are anchors and only the second ones are candidates: N terms of N candidates each, not the 2N of
NT-Xent. The two passes are one pass over the batch doubled. The loss itself is in :mod:`selfguide.losses.dropout_contrast`.

Differences from the authors' released script: the learning rate climbs over the first tenth of the steps before it falls
(theirs only falls), and repeated sentences are dropped before training. The published run used one million sentences of
Wikipedia; a small text has few steps at batch 64, and may want a smaller batch or a higher rate.

Reference: Gao, Yao and Chen, SimCSE: Simple Contrastive Learning of Sentence Embeddings, EMNLP 2021.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from selfguide.augment.dropout import OWN, check_dropout
from selfguide.errors import UsageError
from selfguide.losses.dropout_contrast import CITATION, DropoutContrastLoss
from selfguide.methods.base import TuningMethod
from selfguide.models.encoders import POOLINGS, with_pooling
from selfguide.options import require_types
from selfguide.training.settings import TrainingSettings

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


@dataclass(frozen=True)
class SimCSEOptions:
    """Options of SimCSE; the defaults are the paper's."""

    temperature: float = 0.05
    """τ: the smaller, the more the hardest negatives count."""
    head: bool = True
    """Compare through a Linear and Tanh head, which is dropped after training."""
    dropout: float = OWN
    """Rate of every dropout while training; -1: the encoder's own (0.1 for most)."""
    freeze_layer_0: bool = False
    """Leave the embedding layer as it is."""
    pooling: str = "cls"
    """The sentence vector: cls, mean, max, last2 or first-last."""
    gradient_cache: int = 0
    """Sentences that go through the encoder at a time, for batches larger than memory; 0: all. The price is a second
    forward pass."""

    def __post_init__(self) -> None:
        require_types(self)
        check_dropout(self.dropout)
        if not self.temperature > 0:
            raise UsageError(f"temperature must be above 0, got {self.temperature}.")
        if self.pooling not in POOLINGS:
            raise UsageError(f"There is no pooling {self.pooling!r}; choose one of {', '.join(POOLINGS)}.")
        if self.gradient_cache < 0:
            raise UsageError(f"gradient_cache must be at least 0, got {self.gradient_cache}.")


class SimCSE(TuningMethod):
    """``--method simcse``."""

    name = "simcse"
    summary = "the same sentence twice through dropout (contrast over the batch)"
    reference = "Gao, Yao and Chen, EMNLP 2021"
    Options = SimCSEOptions
    options: SimCSEOptions
    defaults = TrainingSettings(batch_size=64, learning_rate=3e-5, max_length=32)
    citation = CITATION

    def student(self, encoder: SentenceTransformer) -> SentenceTransformer:
        return with_pooling(encoder, self.options.pooling)

    def loss(self, student: SentenceTransformer) -> DropoutContrastLoss:
        options = self.options
        return DropoutContrastLoss(
            student,
            temperature=options.temperature,
            head=options.head,
            dropout=options.dropout,
            freeze_layer_0=options.freeze_layer_0,
            gradient_cache=options.gradient_cache,
        )
