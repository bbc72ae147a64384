"""Mirror-BERT's loss: contrast a sentence with a copy in which a few characters are masked.

The second copy of each sentence has a random span of characters replaced by [MASK]; sentences below 30 characters stay whole. A
new span is drawn each time a sentence comes up. Both copies pass through the encoder in training mode, so that dropout adds to
their difference, and NT-Xent with a low temperature pulls them together. There is no head.

Differences from the authors' released code: the span is cut from the sentence as the tokenizer decodes it (truncated,
lower-cased if the encoder is), which keeps the draw inside the training step, so that a resumed run equals an uninterrupted
one; mean pooling leaves padding out (theirs averages it in); DropHead, their other augmentation, is not implemented.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from torch import Tensor

from selfguide.augment.dropout import KEEP_DROPOUT, highest_dropout
from selfguide.augment.encoding import Features, rewritten, stacked
from selfguide.augment.words import mask_span
from selfguide.errors import UsageError
from selfguide.losses import functional
from selfguide.losses.base import HeadedLoss, full_precision, single
from selfguide.losses.rules import TEMPERATURE
from selfguide.options import AtLeast, check

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

CITATION = """\
@inproceedings{liu-etal-2021-fast,
    title = "Fast, Effective, and Self-Supervised: Transforming Masked Language Models into Universal Lexical and
             Sentence Encoders",
    author = "Liu, Fangyu and Vuli{\\'c}, Ivan and Korhonen, Anna and Collier, Nigel",
    booktitle = "Proceedings of EMNLP 2021",
    year = "2021",
}"""
SPAN = AtLeast(0)


class MirrorLoss(HeadedLoss):
    """Contrast each sentence with a copy that has a span of characters masked (Mirror-BERT).

    Formula:
        With x_1 … x_2N the embeddings of the sentences and of their copies, and μ(m) the other copy of the sentence of x_m:

            loss = mean over m of −log exp(cos(x_m, x_μ(m)) / τ) / Σ_{n≠m} exp(cos(x_m, x_n) / τ)

    Args:
        model: The SentenceTransformer to be trained.
        temperature: τ.
        span: Characters masked in the second copy; 0 for none.
        dropout: Rate of every dropout in the Transformer during training; −1 keeps the encoder's own.
        freeze_layer_0: Do not train the embedding layer.

    Raises:
        UsageError: An argument is out of range, or both copies would be equal.

    Inputs:
        | Texts    | Labels |
        |----------|--------|
        | sentence | none   |

    Relations:
        With ``span=0`` it is :class:`~selfguide.losses.DropoutContrastLoss` without a head and with 2N anchors instead of N.

    Example:
        ```python
        from datasets import Dataset
        from sentence_transformers import SentenceTransformerTrainer

        import selfguide
        from selfguide.losses import MirrorLoss

        model = selfguide.load_encoder("mini", pooling="mean")
        loss = MirrorLoss(model, span=5, dropout=0.1)
        text = Dataset.from_dict({"sentence": ["It rains.", "The train is late.", "She plays the cello."]})
        SentenceTransformerTrainer(model=model, train_dataset=text, loss=loss).train()
        ```

    Reference:
        Liu, Vulić, Korhonen and Collier, Fast, Effective, and Self-Supervised: Transforming Masked Language Models into
        Universal Lexical and Sentence Encoders, EMNLP 2021: https://arxiv.org/abs/2104.08027
    """

    citation = CITATION
    config_names = ("temperature", "span", "dropout", "freeze_layer_0")

    def __init__(
        self,
        model: SentenceTransformer,
        temperature: float = 0.04,
        span: int = 5,
        dropout: float = KEEP_DROPOUT,
        freeze_layer_0: bool = False,
    ) -> None:
        check("temperature", temperature, TEMPERATURE)
        check("span", span, SPAN)
        super().__init__(model, dropout, freeze_layer_0)
        if span == 0 and highest_dropout(model) == 0:
            raise UsageError(
                "With span 0 and no dropout the two copies of a sentence are equal, and there is nothing to learn; "
                "leave --span at 5, or set --dropout 0.1."
            )
        self.temperature, self.span = temperature, span

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        """Return the loss of a batch; see the class."""
        features = next(iter(sentence_features))
        batch = stacked([features, self.mirrored(features)], padding=self.padding_id)
        embeddings = self.encode(batch)["sentence_embedding"]
        with full_precision(embeddings):
            first, second = single(embeddings).chunk(2)
            return self.over_processes(functional.nt_xent_pairs, first, second, self.temperature)

    def mirrored(self, features: Features) -> Features:
        """Return a copy of the batch with a span of each sentence masked, or deleted if the tokenizer has no mask token."""
        mask = self.encoder.tokenizer.mask_token or ""
        return rewritten(self.encoder, features, self.frame_ids, lambda text: mask_span(text, self.span, mask))
