"""Classifying a pair of sentences from its two vectors, as a loss.

With u and v the vectors of premise and hypothesis:

    loss = mean over pairs of −log softmax(W (u, v, |u − v|))[label]            SBERT, ConSERT
    loss = mean over pairs of −log softmax(g(u, v, |u − v|, u ∘ v))[label]      InferSent; g: linear maps one after the other

The classifier lives in the loss and is dropped after training: what is kept is an encoder whose vectors tell the labels apart.
sentence-transformers has such a loss (``SoftmaxLoss``). This one is written anew so that a distributed run keeps its
classifier the same everywhere, its gradients are cleared with the model's, and premises and hypotheses share one pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from sentence_transformers.sentence_transformer.modules import Transformer
from torch import Tensor, nn

from selfguide.augment.encoding import Features, embed, stacked
from selfguide.data.nli import LABELS
from selfguide.losses.base import HeadedLoss, single
from selfguide.models.encoders import backbone, freeze_unused

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def pair_features(u: Tensor, v: Tensor, product: bool = False) -> Tensor:
    """(u, v, |u − v|), and u ∘ v behind it with ``product``: what the classifier sees of each pair."""
    return torch.cat([u, v, (u - v).abs(), *([u * v] if product else [])], dim=-1)


class PairLoss(HeadedLoss):
    """A sentence-transformers loss over two columns of sentences and a label from 0 to 2.

    Args:
        model: the SentenceTransformer to be tuned; a Transformer, or anything else that gives sentence vectors.
        product: show the classifier u ∘ v too.
        hidden: width of two linear maps before the last one (InferSent); 0: one map from features to labels (SBERT).
    """

    def __init__(self, model: SentenceTransformer, product: bool = False, hidden: int = 0) -> None:
        super().__init__()
        self.product, self.hidden = product, hidden
        self.model = model
        self._encoders = (model,)  # in a tuple: in a distributed run another module takes the place of self.model
        if isinstance(model[0], Transformer):
            freeze_unused(model)
        width = int(model.get_embedding_dimension() or 0) * (4 if product else 3)
        self.classifier = _classifier(width, hidden).to(model.device)
        self.share_over_processes()

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        self.begin_step()
        u, v = self.pair_vectors(sentence_features)
        return self.classify(u, v, labels)

    def pair_vectors(self, sentence_features: Iterable[dict[str, Tensor]]) -> tuple[Tensor, Tensor]:
        """The vectors of premises and hypotheses; a Transformer reads both in one pass."""
        premises, hypotheses = tuple(sentence_features)
        if not isinstance(self._encoders[0][0], Transformer):
            u, v = (self.model(dict(features))["sentence_embedding"] for features in (premises, hypotheses))
            return u, v
        batch = self.both(premises, hypotheses)
        u, v = embed(self.model, backbone(self._encoders[0]), batch)["sentence_embedding"].chunk(2)
        return u, v

    def both(self, premises: Features, hypotheses: Features) -> Features:
        """Premises and, below them, hypotheses as one batch of tokens."""
        return stacked([premises, hypotheses], padding=int(self._encoders[0].tokenizer.pad_token_id))

    def classify(self, u: Tensor, v: Tensor, labels: Tensor | None) -> Tensor:
        """The cross-entropy of the labels."""
        if labels is None:
            raise ValueError("This loss needs labels: a dataset with the columns premise, hypothesis and label.")
        with torch.autocast(u.device.type, enabled=False):  # logits are too coarse in bfloat16
            return F.cross_entropy(self.classifier(pair_features(single(u), single(v), self.product)), labels.view(-1))

    def get_config_dict(self) -> dict[str, Any]:
        """The loss's settings, as sentence-transformers' model cards show them."""
        return {"product": self.product, "hidden": self.hidden}


def _classifier(width: int, hidden: int) -> nn.Module:
    if not hidden:
        return nn.Linear(width, len(LABELS))
    return nn.Sequential(nn.Linear(width, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, len(LABELS)))
