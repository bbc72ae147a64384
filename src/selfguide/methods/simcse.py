"""SimCSE without labels: dropout is the only augmentation.

The loss is :class:`~selfguide.losses.DropoutContrastLoss`, on the [CLS] vectors of the last layer.

Training as in the authors' released script: AdamW with betas (0.9, 0.999) and no weight decay, linear decay without a warm-up,
gradients clipped at a norm of 1 (the default of transformers, which the script leaves as it is), no early stopping.

Differences from the script: repeated sentences are dropped before training, and dev pairs are scored every 50 steps, where the
script scores STS-B dev every 125. The published run used one million sentences of Wikipedia; a small corpus has few steps at
batch size 64 and may need a smaller batch or a higher learning rate.

Reference: Gao, Yao and Chen, SimCSE: Simple Contrastive Learning of Sentence Embeddings, EMNLP 2021.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from selfguide.augment.dropout import DROPOUT_RATE, KEEP_DROPOUT
from selfguide.losses.dropout_contrast import CITATION, DropoutContrastLoss
from selfguide.losses.rules import GRADIENT_CACHE, TEMPERATURE
from selfguide.methods.base import TuningMethod
from selfguide.methods.search import BATCHES, LOW_DROPOUTS, POOLED, RATES, SWITCH
from selfguide.models.encoders import POOLINGS
from selfguide.options import CheckedOptions, OneOf
from selfguide.training.settings import TrainingSettings

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


@dataclass(frozen=True)
class SimCSEOptions(CheckedOptions):
    """Options of SimCSE; the defaults are the paper's."""

    temperature: Annotated[float, TEMPERATURE] = 0.05
    """τ: the smaller, the more the hardest negatives count."""
    head: bool = True
    """Compare through a Linear and Tanh head, which is dropped after training."""
    dropout: Annotated[float, DROPOUT_RATE] = KEEP_DROPOUT
    """Rate of every dropout during training; -1: the encoder's own (0.1 for most)."""
    freeze_layer_0: bool = False
    """Do not train the embedding layer."""
    pooling: Annotated[str, OneOf(*POOLINGS)] = "cls"
    """Pooling: cls, mean, max, last2 or first-last."""
    gradient_cache: Annotated[int, GRADIENT_CACHE] = 0
    """Sentences that pass through the encoder at a time, for batches larger than memory; 0: all. It costs a second forward
    pass."""


class SimCSE(TuningMethod):
    """``--method simcse``."""

    name = "simcse"
    summary = "the same sentence twice through dropout (contrast over the batch)"
    reference = "Gao, Yao and Chen, EMNLP 2021"
    made_for = "raw language model"
    Options = SimCSEOptions
    options: SimCSEOptions
    defaults = TrainingSettings(batch_size=64, learning_rate=3e-5, warmup=0.0, patience=0)
    citation = CITATION
    search = {
        "learning_rate": RATES,
        "batch_size": BATCHES,
        "temperature": (0.02, 0.05, 0.1),
        "head": SWITCH,
        "dropout": LOW_DROPOUTS,
        "freeze_layer_0": SWITCH,
        "pooling": POOLED,
    }

    def loss(self, student: SentenceTransformer) -> DropoutContrastLoss:
        """See :meth:`TuningMethod.loss`."""
        return DropoutContrastLoss(student, **self.options.without("pooling"))
