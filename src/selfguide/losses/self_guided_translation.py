"""SG-OPT with back-translation: the guide's views of a sentence and its back-translation are positives together.

The SG-OPT paper finds that SG-OPT and back-translation complement one another: an ensemble of the two scores higher than either.
Here one encoder learns from both. The translations are encoded with the sentences in one pass, by the student alone; the guide
sees the sentences only.

Difference from the paper: its figure is of an ensemble of two encoders, which costs two passes; this is one encoder. The paper
has no joint loss, so w and everything else about it is this package's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from torch import Tensor

from selfguide.augment.encoding import Features, stacked
from selfguide.losses import functional
from selfguide.losses.base import full_precision, single
from selfguide.losses.rules import WEIGHT
from selfguide.losses.self_guided import SelfGuidedLoss
from selfguide.options import check

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


class SelfGuidedTranslationLoss(SelfGuidedLoss):
    """Add a contrast between a sentence and its back-translation to self-guidance (SG-OPT + BT).

    Formula:
        With c_i the student's embedding of sentence i, c'_i that of its back-translation, h_i the guide's views and f the
        projection head:

            loss = SG-OPT(c, h) + w · NT-Xent(f(c), f(c')) + λ ‖θ_F − θ_T‖²        all at the temperature τ

    Args:
        model: The SentenceTransformer to be trained.
        translation_weight: w.
        **settings: Arguments of :class:`~selfguide.losses.SelfGuidedLoss`.

    Raises:
        UsageError: An argument is out of range.

    Inputs:
        | Texts                      | Labels |
        |----------------------------|--------|
        | (sentence, translation)    | none   |

    Relations:
        :class:`~selfguide.losses.SelfGuidedLoss` and :class:`~selfguide.losses.BackTranslationLoss` are its two parts.

    Example:
        ```python
        from datasets import Dataset
        from sentence_transformers import SentenceTransformerTrainer

        import selfguide
        from selfguide.losses import SelfGuidedTranslationLoss

        model = selfguide.load_encoder("mini", pooling="cls")
        loss = SelfGuidedTranslationLoss(model, translation_weight=1.0, temperature=0.01)
        sentences = ["It rains.", "The train is late.", "She plays the cello."]
        translations = ["It is raining.", "The train has a delay.", "She performs on the cello."]
        pairs = Dataset.from_dict({"sentence": sentences, "translation": translations})
        SentenceTransformerTrainer(model=model, train_dataset=pairs, loss=loss).train()
        ```

    Reference:
        Kim, Yoo and Lee, Self-Guided Contrastive Learning for BERT Sentence Representations, ACL 2021:
        https://arxiv.org/abs/2106.07345
    """

    config_names = (*SelfGuidedLoss.config_names, "translation_weight")
    records_steps = False

    def __init__(self, model: SentenceTransformer, translation_weight: float = 1.0, **settings: Any) -> None:
        check("translation_weight", translation_weight, WEIGHT)
        super().__init__(model, **settings)
        self.translation_weight = translation_weight

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        """Return the loss of a batch; see the class."""
        self.begin_step()
        sentences, translations = (dict(features) for features in sentence_features)
        views = self.views(sentences, sentences.pop("plan", None))
        batch = stacked([sentences, translations], padding=self.padding_id)
        first, second = self.encode(batch)["sentence_embedding"].chunk(2)
        return self.whole(first, views) + self.translation_weight * self.translation_contrast(first, second)

    def translation_contrast(self, first: Tensor, second: Tensor) -> Tensor:
        """Compute NT-Xent between the embeddings of sentences and of their translations, through the head.

        Args:
            first: Embeddings of the sentences, (batch, dim).
            second: Of their translations.

        Returns:
            The loss.
        """
        with full_precision(first):
            one, other = self.head(single(first)), self.head(single(second))
            return self.over_processes(functional.nt_xent_pairs, one, other, self.temperature)
