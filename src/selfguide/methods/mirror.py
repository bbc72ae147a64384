"""Mirror-BERT: a sentence and its mirror image, in which a few characters are masked; dropout does the rest.

The second copy of each sentence has a span of five characters replaced by [MASK], wherever it falls (sentences below 30
characters stay whole). Both copies go through the encoder in training mode, so that dropout adds to the difference, and
NT-Xent over the 2N vectors x_1 … x_2N of the batch, with a low temperature, pulls the copies together:

    loss = mean over m of −log exp(cos(x_m, x_μ(m)) / τ) / Σ_{n≠m} exp(cos(x_m, x_n) / τ)        μ(m): the other copy

There is no head. A new span is drawn each time a sentence comes up.

Differences from the authors' released code: the span is cut from the sentence as the tokenizer gives it back (cut to
``max_length``, lower-cased if the encoder is), which keeps the draw inside the training step and so a resumed run equal to
an uninterrupted one; the mean leaves padding out (theirs averages it in); the learning rate climbs and falls (theirs is
constant); DropHead, their other augmentation, is not there.

Reference: Liu, Vulić, Korhonen and Collier, Fast, Effective, and Self-Supervised: Transforming Masked Language Models into
Universal Lexical and Sentence Encoders, EMNLP 2021.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from selfguide.augment.dropout import OWN, check_dropout, highest_dropout, set_dropout
from selfguide.augment.embeddings import frame_ids
from selfguide.augment.encoding import Features, embed, stacked
from selfguide.augment.words import mask_span
from selfguide.errors import UsageError
from selfguide.losses import functional as losses
from selfguide.losses.base import HeadedLoss, single
from selfguide.methods.base import TuningMethod
from selfguide.models.encoders import POOLINGS, backbone, freeze_layer_zero, freeze_unused, with_pooling
from selfguide.options import require_types
from selfguide.training.settings import TrainingSettings

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


@dataclass(frozen=True)
class MirrorOptions:
    """Options of Mirror-BERT; the defaults are those of the authors' script for sentences."""

    temperature: float = 0.04
    """τ: the smaller, the more the hardest negatives count."""
    span: int = 5
    """Characters that are masked in the second copy; 0: none, dropout alone makes the difference."""
    dropout: float = OWN
    """Rate of every dropout while training; -1: the encoder's own (0.1 for most)."""
    freeze_layer_0: bool = False
    """Leave the embedding layer as it is."""
    pooling: str = "mean"
    """The sentence vector: cls, mean, max, last2 or first-last."""

    def __post_init__(self) -> None:
        require_types(self)
        check_dropout(self.dropout)
        if not self.temperature > 0:
            raise UsageError(f"temperature must be above 0, got {self.temperature}.")
        if self.span < 0:
            raise UsageError(f"span must be at least 0, got {self.span}.")
        if self.pooling not in POOLINGS:
            raise UsageError(f"There is no pooling {self.pooling!r}; choose one of {', '.join(POOLINGS)}.")


class MirrorLoss(HeadedLoss):
    """Mirror-BERT's contrast as an ordinary sentence-transformers loss over one column of sentences, without labels.

    Args:
        model: the SentenceTransformer to be tuned.
        temperature: τ.
        span: how many characters of the second copy are masked.
        dropout: rate of every dropout in the Transformer while it is trained; −1 keeps the encoder's own.
        freeze_layer_0: take the embedding layer out of training.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        temperature: float = 0.04,
        span: int = 5,
        dropout: float = OWN,
        freeze_layer_0: bool = False,
    ) -> None:
        super().__init__()
        MirrorOptions(temperature, span, dropout)  # refuses in words
        self.temperature, self.span, self.dropout, self.freeze_layer_0 = temperature, span, dropout, freeze_layer_0
        set_dropout(model, dropout)
        if span == 0 and highest_dropout(model) == 0:
            raise UsageError(
                "With span 0 and no dropout the two copies of a sentence are equal, and there is nothing to learn; "
                "leave --span at 5, or set --dropout 0.1."
            )
        if freeze_layer_0:
            freeze_layer_zero(model)
        freeze_unused(model)
        self.model = model
        self._encoders = (model,)  # in a tuple: in a distributed run another module takes the place of self.model
        self._transformers = (backbone(model),)
        self._frame = frame_ids(model.tokenizer)

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        features = next(iter(sentence_features))
        batch = stacked([features, self.mirrored(features)], padding=int(self._encoders[0].tokenizer.pad_token_id))
        vectors = embed(self.model, self._transformers[0], batch)["sentence_embedding"]
        with torch.autocast(vectors.device.type, enabled=False):  # logits are too coarse in bfloat16
            first, second = single(vectors).chunk(2)
            return losses.nt_xent_pairs(first, second, self.temperature)

    def mirrored(self, features: Features) -> Features:
        """The batch again, each sentence with a span masked."""
        encoder = self._encoders[0]
        tokenizer = encoder.tokenizer
        mask = tokenizer.mask_token or ""  # without a mask token the span is simply gone
        texts = []
        for row in features["input_ids"].tolist():
            words = [token for token in row if token not in self._frame]
            text = tokenizer.decode(words, clean_up_tokenization_spaces=False)
            texts.append(mask_span(text, self.span, mask))
        made = encoder.preprocess(texts)
        device = features["input_ids"].device
        return {name: value.to(device) if isinstance(value, Tensor) else value for name, value in made.items()}

    def get_config_dict(self) -> dict[str, Any]:
        """The loss's settings, as sentence-transformers' model cards show them."""
        return {
            "temperature": self.temperature,
            "span": self.span,
            "dropout": self.dropout,
            "freeze_layer_0": self.freeze_layer_0,
        }

    @property
    def citation(self) -> str:
        return CITATION


class Mirror(TuningMethod):
    """``--method mirror``."""

    name = "mirror"
    summary = "a copy with a few characters masked, and dropout (Mirror-BERT; NT-Xent)"
    reference = "Liu et al., EMNLP 2021"
    Options = MirrorOptions
    options: MirrorOptions
    defaults = TrainingSettings(batch_size=200, learning_rate=2e-5, max_length=50, weight_decay=0.01)
    citation = CITATION

    def student(self, encoder: SentenceTransformer) -> SentenceTransformer:
        return with_pooling(encoder, self.options.pooling)

    def loss(self, student: SentenceTransformer) -> MirrorLoss:
        options = self.options
        return MirrorLoss(
            student,
            temperature=options.temperature,
            span=options.span,
            dropout=options.dropout,
            freeze_layer_0=options.freeze_layer_0,
        )
