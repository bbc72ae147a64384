"""Contrastive Tension: two encoders that start equal learn to agree on the same sentence and on nothing else.

The losses are :class:`~selfguide.losses.ContrastiveTensionLoss` (``ct``) and
:class:`~selfguide.losses.ContrastiveTensionInBatchLoss` (``ct-in-batch``), on the mean of the last layer's tokens. ``ct``
trains with RMSprop, whose learning rate falls every 500 steps by a fifth of its initial value, down to a fifth, without clipping
or early stopping. ``ct-in-batch`` trains as the example of sentence-transformers does.

Reference: Carlsson et al., Semantic Re-tuning with Contrastive Tension, ICLR 2021.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import torch
from torch import nn

from selfguide.augment.dropout import DROPOUT_RATE, KEEP_DROPOUT
from selfguide.losses.contrastive_tension import (
    ANCHORS,
    CITATION,
    NEGATIVE_TERM,
    NEGATIVES,
    SCALE,
    ContrastiveTensionInBatchLoss,
    ContrastiveTensionLoss,
)
from selfguide.methods.base import TuningMethod
from selfguide.methods.search import BATCHES, DROPOUTS, POOLED, RATES
from selfguide.models.encoders import POOLINGS
from selfguide.options import AtLeast, CheckedOptions, OneOf
from selfguide.training.checkpointed_trainer import Optimiser, Scheduler
from selfguide.training.settings import TrainingSettings

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_FALL, _LOWEST = 0.2, 0.2
"""The learning rate loses a fifth of its initial value at each step of its schedule, and ends at a fifth."""


@dataclass(frozen=True)
class TensionOptions(CheckedOptions):
    """Options of Contrastive Tension; the defaults are the paper's, except for ``anchors``."""

    negatives: Annotated[int, NEGATIVES] = 7
    """K: negatives of each anchor; fewer where the batch has fewer."""
    anchors: Annotated[int, ANCHORS] = 0
    """Sentences of a batch that are anchors; 0: all of them. The paper has 2 in a batch of 16."""
    negative_term: Annotated[str, NEGATIVE_TERM] = "code"
    """Loss of a negative pair with the logit z: code, −log (1 − σ(z)), or paper, −log σ(1 − z)."""
    rate_step: Annotated[int, AtLeast(1)] = 500
    """Steps after which the learning rate loses a fifth of its initial value, until a fifth is left."""
    dropout: Annotated[float, DROPOUT_RATE] = 0.0
    """Rate of every dropout during training; -1: the encoder's own."""
    pooling: Annotated[str, OneOf(*POOLINGS)] = "mean"
    """Pooling: cls, mean, max, last2 or first-last."""


@dataclass(frozen=True)
class InBatchOptions(CheckedOptions):
    """Options of Contrastive Tension with in-batch negatives; the defaults are sentence-transformers'."""

    scale: Annotated[float, SCALE] = 20.0
    """s at the start of training; it is learned."""
    dropout: Annotated[float, DROPOUT_RATE] = KEEP_DROPOUT
    """Rate of every dropout during training; -1: the encoder's own."""
    pooling: Annotated[str, OneOf(*POOLINGS)] = "mean"
    """Pooling: cls, mean, max, last2 or first-last."""


class ContrastiveTension(TuningMethod):
    """``--method ct``."""

    name = "ct"
    summary = "two copies of the encoder learn to agree on the same sentence only (Contrastive Tension)"
    reference = "Carlsson et al., ICLR 2021"
    made_for = "raw language model"
    Options = TensionOptions
    options: TensionOptions
    defaults = TrainingSettings(batch_size=16, learning_rate=1e-5, gradient_clip=0.0, warmup=0.0, patience=0)
    without_effect = frozenset({"warmup", "schedule", "beta2"})  # RMSprop has a schedule of its own
    citation = CITATION
    search = {
        "learning_rate": RATES,
        "batch_size": BATCHES,
        "negatives": (3, 7, 15),
        "negative_term": ("code", "paper"),
        "rate_step": (100, 500),
        "dropout": DROPOUTS,
        "pooling": POOLED,
    }

    def loss(self, student: SentenceTransformer) -> ContrastiveTensionLoss:
        """See :meth:`TuningMethod.loss`."""
        return ContrastiveTensionLoss(student, **self.options.without("rate_step", "pooling"))

    def optimiser(self, loss: nn.Module) -> Optimiser:
        """See :meth:`TuningMethod.optimiser`: RMSprop with the constants of the authors' framework."""
        settings = self.context.settings
        moving = [parameter for parameter in loss.parameters() if parameter.requires_grad]
        return torch.optim.RMSprop(
            moving, lr=settings.learning_rate, alpha=0.9, eps=1e-7, weight_decay=settings.weight_decay
        )

    def scheduler(self, optimiser: Optimiser, steps: int) -> Scheduler:
        """See :meth:`TuningMethod.scheduler`: the rate falls in steps of ``rate_step``, down to a fifth."""
        length = self.options.rate_step
        return torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: max(_LOWEST, 1 - _FALL * (step // length)))


class ContrastiveTensionInBatch(TuningMethod):
    """``--method ct-in-batch``."""

    name = "ct-in-batch"
    summary = "as ct, with the whole batch as negatives and a learnt scale"
    reference = "Carlsson et al., ICLR 2021; sentence-transformers"
    made_for = "raw language model"
    Options = InBatchOptions
    options: InBatchOptions
    defaults = TrainingSettings(batch_size=128, learning_rate=5e-5, weight_decay=0.01, patience=0)
    citation = CITATION
    search = {
        "learning_rate": RATES,
        "batch_size": BATCHES,
        "scale": (10.0, 20.0, 50.0),
        "dropout": DROPOUTS,
        "pooling": POOLED,
    }

    def loss(self, student: SentenceTransformer) -> ContrastiveTensionInBatchLoss:
        """See :meth:`TuningMethod.loss`."""
        return ContrastiveTensionInBatchLoss(student, **self.options.without("pooling"))
