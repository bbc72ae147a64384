"""Back-translation contrast: a sentence and its translation to another language and back mean the same.

The text is back-translated beforehand (:mod:`selfguide.augment.back_translation`); a sentence that comes back unchanged is
left out. The loss is :class:`~selfguide.losses.BackTranslationLoss`.

Difference from CERT's released code: AdamW with warm-up and decay (theirs is SGD with a cosine schedule).

References: Fang and Xie, CERT: Contrastive Self-supervised Learning for Language Understanding, 2020; Kim, Yoo and Lee, ACL
2021 (BT as a baseline).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from selfguide.augment.back_translation import TranslationOptions
from selfguide.augment.dropout import DROPOUT_RATE, KEEP_DROPOUT
from selfguide.losses.back_translation import CITATION, MOMENTUM, OBJECTIVE, QUEUE_SIZE, BackTranslationLoss
from selfguide.losses.rules import HEAD_SIZE, TEMPERATURE
from selfguide.methods.base import TuningMethod
from selfguide.models.encoders import POOLINGS, with_pooling
from selfguide.options import OneOf
from selfguide.training.settings import TrainingSettings
from selfguide.training.translated_text import translated_dataset

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer


@dataclass(frozen=True)
class BackTranslationOptions(TranslationOptions):
    """Options of back-translation contrast; the defaults are those of CERT's released code."""

    objective: Annotated[str, OBJECTIVE] = "nt-xent"
    """nt-xent (negatives from the batch) or moco (negatives from a queue as well)."""
    temperature: Annotated[float, TEMPERATURE] = 0.07
    """τ: the smaller, the more the hardest negatives count."""
    head_size: Annotated[int, HEAD_SIZE] = 128
    """Output dimension of the head; 0: no head."""
    queue_size: Annotated[int, QUEUE_SIZE] = 6720
    """moco: keys of past batches that serve as negatives; at most half as many as there are pairs."""
    momentum: Annotated[float, MOMENTUM] = 0.999
    """moco: m of the moving average that makes the keys."""
    dropout: Annotated[float, DROPOUT_RATE] = KEEP_DROPOUT
    """Rate of every dropout during training; -1: the encoder's own."""
    pooling: Annotated[str, OneOf(*POOLINGS)] = "cls"
    """Pooling: cls, mean, max, last2 or first-last."""


class BackTranslation(TuningMethod):
    """``--method bt``."""

    name = "bt"
    summary = "a sentence and its back-translation, from a file, two models or Apertium (NT-Xent, or CERT's queue)"
    reference = "Fang and Xie, 2020; Kim, Yoo and Lee, ACL 2021"
    made_for = "raw language model"
    Options = BackTranslationOptions
    options: BackTranslationOptions
    defaults = TrainingSettings(batch_size=32, learning_rate=4e-5, weight_decay=1e-5)
    citation = CITATION
    _pairs = 0

    def check(self) -> None:
        """See :meth:`Method.check`."""
        self.options.source()

    def dataset(self, text: Dataset) -> Dataset:
        """See :meth:`TuningMethod.dataset`."""
        pairs = translated_dataset(text, self.options.source(), self.context)
        self._pairs = len(pairs)
        return pairs

    def student(self, encoder: SentenceTransformer) -> SentenceTransformer:
        """See :meth:`TuningMethod.student`."""
        return with_pooling(encoder, self.options.pooling)

    def loss(self, student: SentenceTransformer) -> BackTranslationLoss:
        """See :meth:`TuningMethod.loss`."""
        settings = self.options.without("pairs", "forward_model", "back_model", "apertium", "pooling")
        # A longer queue would hold a sentence's own key from the pass before, as a negative.
        settings["queue_size"] = max(1, min(self.options.queue_size, self._pairs // 2))
        return BackTranslationLoss(student, **settings)
