"""ConSERT's contrast as a loss, and its options: for the method itself and for those that go on from labelled pairs.

The formula is at the head of :mod:`selfguide.methods.consert`.

Reference: Yan et al., ConSERT: A Contrastive Framework for Self-Supervised Sentence Representation Transfer, ACL 2021.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from selfguide.augment.dropout import check_dropout, set_dropout
from selfguide.augment.embeddings import DEFAULT_RATES, frame_ids, parse_augmentation
from selfguide.augment.encoding import augmented, embedding_layer
from selfguide.errors import UsageError
from selfguide.losses import functional as losses
from selfguide.losses.base import HeadedLoss, single
from selfguide.models.encoders import POOLINGS, backbone, freeze_layer_zero, freeze_unused
from selfguide.options import require_types

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

CITATION = """\
@inproceedings{yan-etal-2021-consert,
    title = "{ConSERT}: A Contrastive Framework for Self-Supervised Sentence Representation Transfer",
    author = "Yan, Yuanmeng and Li, Rumei and Wang, Sirui and Zhang, Fuzheng and Wu, Wei and Xu, Weiran",
    booktitle = "Proceedings of ACL-IJCNLP 2021",
    year = "2021",
}"""


@dataclass(frozen=True)
class ConsertOptions:
    """Options of ConSERT; the defaults are the paper's."""

    first: str = "shuffle"
    """What is done to the first copy: none, shuffle, token-cutoff, feature-cutoff, dropout, or several joined by +."""
    second: str = "feature-cutoff"
    """What is done to the second copy."""
    temperature: float = 0.1
    """τ: the smaller, the more the hardest negatives count."""
    token_cutoff_rate: float = 0.15
    """Share of the tokens that token-cutoff sets to zero."""
    feature_cutoff_rate: float = 0.2
    """Share of the dimensions that feature-cutoff sets to zero."""
    dropout_rate: float = 0.2
    """Share of the numbers that the augmentation called dropout sets to zero."""
    dropout: float = 0.0
    """Rate of the encoder's own dropout while training; -1: as it is."""
    freeze_layer_0: bool = False
    """Leave the embedding layer as it is."""
    pooling: str = "mean"
    """The sentence vector while training: cls, mean, max, last2 or first-last."""
    eval_pooling: str = "last2"
    """The sentence vector of the finished encoder; cls, mean, max, last2 or first-last."""

    def __post_init__(self) -> None:
        require_types(self)
        check_dropout(self.dropout)
        if not self.temperature > 0:
            raise UsageError(f"temperature must be above 0, got {self.temperature}.")
        for words in (self.first, self.second):
            self.check_copy(words)
        for pooling in (self.pooling, self.eval_pooling):
            if pooling not in POOLINGS:
                raise UsageError(f"There is no pooling {pooling!r}; choose one of {', '.join(POOLINGS)}.")

    def check_copy(self, words: str) -> None:
        """Refuse in words what is no augmentation."""
        parse_augmentation(words, self.rates)

    @property
    def rates(self) -> dict[str, float]:
        """The rates by the augmentations' names."""
        return {
            "token-cutoff": self.token_cutoff_rate,
            "feature-cutoff": self.feature_cutoff_rate,
            "dropout": self.dropout_rate,
        }


class ConsertLoss(HeadedLoss):
    """ConSERT's contrast as an ordinary sentence-transformers loss over one column of sentences, without labels.

    Args:
        model: the SentenceTransformer to be tuned, with the pooling to be trained.
        first, second: the augmentations of the two copies, see :mod:`selfguide.augment.embeddings`.
        temperature: τ.
        rates: of the augmentations, by their names.
        dropout: rate of the Transformer's own dropout while training; −1 keeps the encoder's own.
        freeze_layer_0: take the embedding layer out of training.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        first: str = "shuffle",
        second: str = "feature-cutoff",
        temperature: float = 0.1,
        rates: Mapping[str, float] = DEFAULT_RATES,
        dropout: float = 0.0,
        freeze_layer_0: bool = False,
    ) -> None:
        super().__init__()
        if not temperature > 0:
            raise UsageError(f"temperature must be above 0, got {temperature}.")
        self.names, self.rates = (first, second), dict(rates)
        self.augmentations = [parse_augmentation(words, rates) for words in self.names]
        self.temperature, self.dropout, self.freeze_layer_0 = temperature, dropout, freeze_layer_0
        embedding_layer(backbone(model))  # refuses in words an encoder that cannot be augmented
        set_dropout(model, dropout)
        if freeze_layer_0:
            freeze_layer_zero(model)
        freeze_unused(model)
        self.model = model
        self._transformers = (backbone(model),)  # in a tuple, so that it is not registered a second time
        self._frame = frame_ids(model.tokenizer)

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        features = next(iter(sentence_features))
        first, second = augmented(self.model, self._transformers[0], features, self.augmentations, self._frame)
        with torch.autocast(first.device.type, enabled=False):  # logits are too coarse in bfloat16
            return losses.nt_xent_pairs(single(first), single(second), self.temperature)

    def get_config_dict(self) -> dict[str, Any]:
        """The loss's settings, as sentence-transformers' model cards show them."""
        return {
            "first": self.names[0],
            "second": self.names[1],
            "temperature": self.temperature,
            "rates": self.rates,
            "dropout": self.dropout,
            "freeze_layer_0": self.freeze_layer_0,
        }

    @property
    def citation(self) -> str:
        return CITATION


def consert_loss(student: SentenceTransformer, options: ConsertOptions) -> ConsertLoss:
    """The loss that the options describe."""
    return ConsertLoss(
        student,
        first=options.first,
        second=options.second,
        temperature=options.temperature,
        rates=options.rates,
        dropout=options.dropout,
        freeze_layer_0=options.freeze_layer_0,
    )
