"""SG-OPT with back-translation: the guide's views of a sentence and its back-translation are positives together.

The loss is :class:`~selfguide.losses.SelfGuidedTranslationLoss`. The method trains on the same sentences as ``bt``: those whose
back-translation differs from them.

Reference: Kim, Yoo and Lee, Self-Guided Contrastive Learning for BERT Sentence Representations, ACL 2021.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from selfguide.augment.back_translation import TranslationOptions
from selfguide.errors import UsageError
from selfguide.losses.rules import WEIGHT
from selfguide.losses.self_guided import CITATION, SelfGuidedOptions
from selfguide.losses.self_guided_translation import SelfGuidedTranslationLoss
from selfguide.methods.base import TuningMethod
from selfguide.methods.search import SELF_GUIDED
from selfguide.training.settings import TrainingSettings
from selfguide.training.translated_text import translated_dataset

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer


@dataclass(frozen=True)
class SelfGuidedTranslationOptions(SelfGuidedOptions, TranslationOptions):
    """The options of SG-OPT, a weight, and where the translations come from."""

    translation_weight: Annotated[float, WEIGHT] = 1.0
    """w: weight of the contrast between a sentence and its back-translation."""

    def __post_init__(self) -> None:
        """Check the combination too."""
        super().__post_init__()
        if self.gradient_cache:
            raise UsageError(
                "gradient_cache is not for sg-opt+bt, which has two contrasts; lower the batch size instead."
            )


class SelfGuidedTranslation(TuningMethod):
    """``--method sg-opt+bt``."""

    name = "sg-opt+bt"
    summary = "sg-opt with the sentence's back-translation as a further positive"
    reference = "Kim, Yoo and Lee, ACL 2021"
    preset = {"objective": "sg-opt"}
    made_for = "raw language model"
    Options = SelfGuidedTranslationOptions
    options: SelfGuidedTranslationOptions
    citation = CITATION
    search = SELF_GUIDED | {"translation_weight": (0.3, 1.0, 3.0)}
    defaults = TrainingSettings(beta2=0.9, patience=10)

    def check(self) -> None:
        """See :meth:`Method.check`."""
        self.options.source()

    def dataset(self, text: Dataset) -> Dataset:
        """See :meth:`TuningMethod.dataset`."""
        return translated_dataset(text, self.options.source(), self.context)

    def loss(self, student: SentenceTransformer) -> SelfGuidedTranslationLoss:
        """See :meth:`TuningMethod.loss`."""
        return SelfGuidedTranslationLoss(student, self.options.translation_weight, **self.options.loss_settings())
