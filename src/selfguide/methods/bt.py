"""Back-translation contrast: a sentence and its translation to another language and back mean the same.

The text is back-translated beforehand (:mod:`selfguide.augment.back_translation`); a sentence that comes back unchanged is
left out. The loss is :class:`~selfguide.losses.BackTranslationLoss`.

``bt`` is the baseline of the SG-OPT paper, with the settings that the authors' released script has when it is configured to
train BT: those of SG-OPT, with the translation's embedding in place of the guide's view. ``bt-cert`` is CERT: a moving
average, a
queue, a smaller head, SGD (momentum 0.9, weight decay 1e-5) whose learning rate follows a cosine over the epochs, no
clipping, no early stopping. Its 50 epochs at a rate of 4e-5 are the defaults of CERT's released code, made for a large
corpus: on a small one SGD hardly moves at that rate, so ``optimiser="adamw"`` is offered, with the settings of the run.

References: Fang and Xie, CERT: Contrastive Self-supervised Learning for Language Understanding, 2020; Kim, Yoo and Lee, ACL
2021 (BT as a baseline).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import torch
from torch import nn

from selfguide.augment.back_translation import TranslationOptions
from selfguide.augment.dropout import DROPOUT_RATE, KEEP_DROPOUT
from selfguide.losses.back_translation import CITATION, MOMENTUM, OBJECTIVE, QUEUE_SIZE, BackTranslationLoss
from selfguide.losses.rules import HEAD_SIZE, TEMPERATURE, WEIGHT
from selfguide.methods.base import TuningMethod
from selfguide.methods.search import BATCHES, DROPOUTS, POOLED, RATES, SWITCH
from selfguide.models.encoders import POOLINGS
from selfguide.options import OneOf
from selfguide.training.checkpointed_trainer import Optimiser, Scheduler
from selfguide.training.settings import TrainingSettings
from selfguide.training.translated_text import translated_dataset

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer

OF_TEXT = ("pairs", "forward_model", "back_model", "apertium", "pooling")
"""Options that the loss does not take."""


@dataclass(frozen=True)
class BackTranslationOptions(TranslationOptions):
    """Options of back-translation contrast; the defaults are those of the SG-OPT authors' released script."""

    temperature: Annotated[float, TEMPERATURE] = 0.01
    """τ: the smaller, the more the hardest negatives count."""
    head_size: Annotated[int, HEAD_SIZE] = 4096
    """Width of the projection head; 0: no head."""
    stay_close: Annotated[float, WEIGHT] = 0.1
    """λ: weight of the squared distance from the initial weights; 0 switches it off."""
    freeze_layer_0: bool = True
    """Do not train the embedding layer."""
    dropout: Annotated[float, DROPOUT_RATE] = KEEP_DROPOUT
    """Rate of every dropout during training; -1: the encoder's own."""
    pooling: Annotated[str, OneOf(*POOLINGS)] = "cls"
    """Pooling: cls, mean, max, last2 or first-last."""


@dataclass(frozen=True)
class CertOptions(TranslationOptions):
    """Options of CERT; the defaults are those of its released code."""

    objective: Annotated[str, OBJECTIVE] = "moco"
    """moco (negatives from a queue as well) or nt-xent (negatives from the batch alone)."""
    temperature: Annotated[float, TEMPERATURE] = 0.07
    """τ: the smaller, the more the hardest negatives count."""
    head_size: Annotated[int, HEAD_SIZE] = 128
    """Output dimension of the head; 0: no head."""
    queue_size: Annotated[int, QUEUE_SIZE] = 6720
    """moco: keys of past batches that serve as negatives; at most half as many as there are pairs."""
    momentum: Annotated[float, MOMENTUM] = 0.999
    """moco: m of the moving average that makes the keys."""
    optimiser: Annotated[str, OneOf("sgd", "adamw")] = "sgd"
    """sgd, with a cosine over the epochs, or adamw, with the schedule of the training settings."""
    dropout: Annotated[float, DROPOUT_RATE] = KEEP_DROPOUT
    """Rate of every dropout during training; -1: the encoder's own."""
    pooling: Annotated[str, OneOf(*POOLINGS)] = "cls"
    """Pooling: cls, mean, max, last2 or first-last."""


class BackTranslation(TuningMethod):
    """``--method bt``."""

    name = "bt"
    summary = "a sentence and its back-translation, from a file, two models or Apertium (NT-Xent)"
    reference = "Kim, Yoo and Lee, ACL 2021 (a baseline there)"
    made_for = "raw language model"
    Options: ClassVar[type[Any]] = BackTranslationOptions
    options: Any
    defaults = TrainingSettings(beta2=0.9, patience=10)
    citation = CITATION
    search: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "learning_rate": RATES,
        "batch_size": BATCHES,
        "temperature": (0.01, 0.05, 0.07, 0.1),
        "head_size": (0, 4096),
        "stay_close": (0.0, 0.01, 0.1),
        "freeze_layer_0": SWITCH,
        "dropout": DROPOUTS,
        "pooling": POOLED,
    }
    _pairs = 0

    def check(self) -> None:
        """See :meth:`Method.check`."""
        self.options.source()

    def dataset(self, text: Dataset) -> Dataset:
        """See :meth:`TuningMethod.dataset`."""
        pairs = translated_dataset(text, self.options.source(), self.context)
        self._pairs = len(pairs)
        return pairs

    def loss(self, student: SentenceTransformer) -> BackTranslationLoss:
        """See :meth:`TuningMethod.loss`."""
        return BackTranslationLoss(student, **self.options.without(*OF_TEXT))


class Cert(BackTranslation):
    """``--method bt-cert``."""

    name = "bt-cert"
    summary = "as bt, with a queue of keys, a smaller head and SGD (CERT)"
    reference = "Fang and Xie, 2020"
    Options = CertOptions
    options: CertOptions
    defaults = TrainingSettings(
        batch_size=32, learning_rate=4e-5, weight_decay=1e-5, epochs=50.0, warmup=0.0, gradient_clip=0.0, patience=0
    )

    search = {
        "learning_rate": RATES,
        "batch_size": BATCHES,
        "temperature": (0.05, 0.07, 0.1),
        "head_size": (0, 128),
        "objective": ("moco", "nt-xent"),
        "momentum": (0.9, 0.99, 0.999),
        "optimiser": ("adamw",),  # SGD moves too little for this many steps
        "dropout": DROPOUTS,
        "pooling": POOLED,
    }

    def unused_settings(self) -> frozenset[str]:
        """See :meth:`Method.unused_settings`: SGD has a schedule of its own."""
        return frozenset({"warmup", "schedule", "beta2"}) if self.options.optimiser == "sgd" else frozenset()

    def loss(self, student: SentenceTransformer) -> BackTranslationLoss:
        """See :meth:`TuningMethod.loss`."""
        settings = self.options.without(*OF_TEXT, "optimiser")
        # A longer queue would hold a sentence's own key from the pass before, as a negative.
        settings["queue_size"] = max(1, min(self.options.queue_size, self._pairs // 2))
        return BackTranslationLoss(student, head="relu", stay_close=0.0, freeze_layer_0=False, **settings)

    def optimiser(self, loss: nn.Module) -> Optimiser | None:
        """See :meth:`TuningMethod.optimiser`: SGD with a momentum of 0.9, unless AdamW is asked for."""
        if self.options.optimiser == "adamw":
            return None
        settings = self.context.settings
        moving = [parameter for parameter in loss.parameters() if parameter.requires_grad]
        return torch.optim.SGD(moving, settings.learning_rate, momentum=0.9, weight_decay=settings.weight_decay)

    def scheduler(self, optimiser: Optimiser, steps: int) -> Scheduler | None:
        """See :meth:`TuningMethod.scheduler`: half a cosine, one value for each epoch."""
        if self.options.optimiser == "adamw":
            return None
        epochs = max(1, math.ceil(self.context.settings.epochs))

        def factor(step: int) -> float:
            return 0.5 * (1 + math.cos(math.pi * (step * epochs // steps) / epochs))

        return torch.optim.lr_scheduler.LambdaLR(optimiser, factor)
