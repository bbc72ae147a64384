"""Contrast through dropout alone: the same sentence twice through the encoder, and its two vectors should meet.

With z_i = f(c_i) and z'_i = f(c'_i), where c_i and c'_i are the vectors of sentence i under two draws of dropout and f is
the head (or nothing):

    loss = mean over i of −log exp(cos(z_i, z'_i) / τ) / Σ_j exp(cos(z_i, z'_j) / τ)

It is the loss of SimCSE, kept apart from that method because others build on it.

Reference: Gao, Yao and Chen, SimCSE: Simple Contrastive Learning of Sentence Embeddings, EMNLP 2021.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from selfguide.augment.dropout import OWN, highest_dropout, set_dropout
from selfguide.augment.encoding import Features, embed, twice
from selfguide.engine.gradient_cache import cached_embeddings, chunks_of
from selfguide.errors import UsageError
from selfguide.losses import functional as losses
from selfguide.losses.base import HeadedLoss, single
from selfguide.models.encoders import backbone, freeze_layer_zero, freeze_unused

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

CITATION = """\
@inproceedings{gao-etal-2021-simcse,
    title = "{SimCSE}: Simple Contrastive Learning of Sentence Embeddings",
    author = "Gao, Tianyu and Yao, Xingcheng and Chen, Danqi",
    booktitle = "Proceedings of EMNLP 2021",
    year = "2021",
}"""


class DropoutContrastLoss(HeadedLoss):
    """The loss above as an ordinary sentence-transformers loss over one column of sentences, without labels.

    Args:
        model: the SentenceTransformer to be tuned.
        temperature: τ.
        head: pass the vectors through Linear and Tanh before they are compared. The head lives in the loss.
        dropout: rate of every dropout in the Transformer while it is trained; −1 keeps the encoder's own.
        freeze_layer_0: take the embedding layer out of training.
        gradient_cache: sentences that go through the encoder at a time, for batches larger than memory; 0 for all.

    Example::

        model = selfguide.load_encoder("mini", pooling="cls")
        loss = DropoutContrastLoss(model, dropout=0.05)
        text = Dataset.from_dict({"sentence": ["It rains.", "The train is late.", "She plays the cello."]})
        SentenceTransformerTrainer(model=model, train_dataset=text, loss=loss).train()
    """

    def __init__(
        self,
        model: SentenceTransformer,
        temperature: float = 0.05,
        head: bool = True,
        dropout: float = OWN,
        freeze_layer_0: bool = False,
        gradient_cache: int = 0,
    ) -> None:
        super().__init__()
        self.gradient_cache = gradient_cache
        if not temperature > 0:
            raise UsageError(f"temperature must be above 0, got {temperature}.")
        set_dropout(model, dropout)
        if highest_dropout(model) == 0:
            raise UsageError(
                "Without dropout the two passes over a sentence are equal, and there is nothing to learn: this encoder's own "
                "dropout is 0, or 0 was asked for. Set one, such as --dropout 0.1."
            )
        self.temperature, self.dropout, self.freeze_layer_0 = temperature, dropout, freeze_layer_0
        if freeze_layer_0:
            freeze_layer_zero(model)
        freeze_unused(model)
        self.model = model
        self._transformers = (backbone(model),)  # in a tuple, so that it is not registered a second time
        self.head = _head(model) if head else nn.Identity()
        self.share_over_processes()

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        self.begin_step()
        features = next(iter(sentence_features))
        if self.gradient_cache and torch.is_grad_enabled():
            pairs = cached_embeddings(self._pairs, chunks_of(features, self.gradient_cache))
        else:
            pairs = self._pairs(features)
        return self.contrast(torch.cat(pairs.unbind(dim=1)))

    def _pairs(self, features: Features) -> Tensor:
        """Both vectors of each sentence, (batch, 2, dim)."""
        vectors = embed(self.model, self._transformers[0], twice(features))["sentence_embedding"]
        return torch.stack(vectors.chunk(2), dim=1)

    def contrast(self, vectors: Tensor) -> Tensor:
        """The loss on 2N vectors, the second N of them the second versions of the first N."""
        # In single precision whatever the encoder runs in: logits reach 1/τ, too coarse in bfloat16.
        with torch.autocast(vectors.device.type, enabled=False):
            first, second = self.head(single(vectors)).chunk(2)
            return losses.info_nce(first, second, self.temperature)

    def get_config_dict(self) -> dict[str, Any]:
        """The loss's settings, as sentence-transformers' model cards show them."""
        return {
            "temperature": self.temperature,
            "head": not isinstance(self.head, nn.Identity),
            "dropout": self.dropout,
            "freeze_layer_0": self.freeze_layer_0,
        }

    @property
    def citation(self) -> str:
        return CITATION


def _head(model: SentenceTransformer) -> nn.Module:
    """Linear and Tanh of the vector's own width, started as the encoder's own layers were."""
    width = int(model.get_embedding_dimension() or 0)
    linear = nn.Linear(width, width)
    nn.init.normal_(linear.weight, std=float(getattr(backbone(model).config, "initializer_range", 0.02)))
    nn.init.zeros_(linear.bias)
    return nn.Sequential(linear, nn.Tanh()).to(model.device)
