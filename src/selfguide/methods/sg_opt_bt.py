"""SG-OPT with back-translation: the views of the guide's layers, and the sentence in other words, are positives together.

The SG-OPT paper finds that SG-OPT and back-translation (BT) complement one another: an ensemble of the two scores higher than
either. Here one encoder learns from both. With c_i the vector of sentence s_i, c'_i that of its back-translation t_i
(:mod:`selfguide.augment.back_translation`) and f the projection head of SG-OPT:

    loss = SG-OPT(c, h) + w · NT-Xent(f(c), f(c')) + λ ‖θ_F − θ_T‖²        all at SG-OPT's temperature τ

The translations are encoded with the sentences in one pass, by the student alone; the guide sees the sentences only. Which
sentences are trained on is as for ``bt``: those that come back in other words.

Difference from the paper: its figure is of an ensemble of two encoders, which costs two passes; this is one encoder. The
paper has no joint loss, so w and all else about it is ours.

Reference: Kim, Yoo and Lee, Self-Guided Contrastive Learning for BERT Sentence Representations, ACL 2021.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from selfguide.augment.back_translation import NOT_GIVEN, TranslationSource, check_source
from selfguide.augment.encoding import Features, embed, stacked
from selfguide.errors import UsageError
from selfguide.losses import functional as losses
from selfguide.losses.base import single
from selfguide.losses.self_guided import CITATION, SelfGuidedLoss, SelfGuidedOptions, loss_settings
from selfguide.methods.base import TuningMethod
from selfguide.models.encoders import with_pooling
from selfguide.training.translated_text import translated_dataset

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer


@dataclass(frozen=True)
class SelfGuidedTranslationOptions(SelfGuidedOptions):
    """The options of SG-OPT, a weight, and where the translations come from."""

    translation_weight: float = 1.0
    """w: weight of the contrast between a sentence and its back-translation."""
    pairs: str = NOT_GIVEN
    """File of back-translations: sentence, tab, translation; a sentence may have several lines."""
    forward_model: str = NOT_GIVEN
    """Translation model there (Marian): a folder or a hub name, such as Helsinki-NLP/opus-mt-en-de."""
    back_model: str = NOT_GIVEN
    """Translation model back, such as Helsinki-NLP/opus-mt-de-en."""
    apertium: str = NOT_GIVEN
    """Languages for Apertium, such as eng-spa, if it is installed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_source(self)
        if self.gradient_cache:
            raise UsageError(
                "gradient_cache is not for sg-opt+bt, which has two contrasts; lower the batch size instead."
            )
        if not self.translation_weight >= 0:
            raise UsageError(f"translation_weight must be at least 0, got {self.translation_weight}.")


class SelfGuidedTranslationLoss(SelfGuidedLoss):
    """The loss above as a sentence-transformers loss over two columns, a sentence and its translation, without labels.

    Args:
        model: the SentenceTransformer to be tuned.
        translation_weight: w.
        **settings: as of :class:`~selfguide.losses.self_guided.SelfGuidedLoss`.
    """

    records_steps = False

    def __init__(self, model: SentenceTransformer, translation_weight: float = 1.0, **settings: Any) -> None:
        super().__init__(model, **settings)
        self.translation_weight = translation_weight
        self._padding = int(model.tokenizer.pad_token_id)

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        self.begin_step()
        columns: list[Features] = [dict(features) for features in sentence_features]
        sentences, translations = columns
        views = self.views(sentences, sentences.pop("plan", None))
        batch = stacked([sentences, translations], padding=self._padding)
        first, second = embed(self.model, self._student, batch)["sentence_embedding"].chunk(2)
        return self.whole(first, views) + self.translation_weight * self.translation_contrast(first, second)

    def translation_contrast(self, first: Tensor, second: Tensor) -> Tensor:
        """NT-Xent between the vectors of the sentences and of their translations, through the head."""
        with torch.autocast(first.device.type, enabled=False):  # logits are too coarse in bfloat16
            return losses.nt_xent_pairs(self.head(single(first)), self.head(single(second)), self.temperature)

    def get_config_dict(self) -> dict[str, Any]:
        """The loss's settings, as sentence-transformers' model cards show them."""
        return {**super().get_config_dict(), "translation_weight": self.translation_weight}


class SelfGuidedTranslation(TuningMethod):
    """``--method sg-opt+bt``."""

    name = "sg-opt+bt"
    summary = "sg-opt with the sentence's back-translation as a further positive"
    reference = "Kim, Yoo and Lee, ACL 2021"
    preset = {"objective": "sg-opt"}
    Options = SelfGuidedTranslationOptions
    options: SelfGuidedTranslationOptions
    citation = CITATION
    few_steps = 150  # for the same reason as SG-OPT alone: the head starts at random

    def check(self) -> None:
        TranslationSource.from_options(self.options)

    def dataset(self, text: Dataset) -> Dataset:
        return translated_dataset(text, TranslationSource.from_options(self.options), self.context)

    def student(self, encoder: SentenceTransformer) -> SentenceTransformer:
        return with_pooling(encoder, self.options.pooling)

    def loss(self, student: SentenceTransformer) -> SelfGuidedTranslationLoss:
        options = self.options
        return SelfGuidedTranslationLoss(
            student,
            translation_weight=options.translation_weight,
            **loss_settings(options),
        )
