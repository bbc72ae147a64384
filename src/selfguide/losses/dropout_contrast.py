"""SimCSE's loss: contrast two forward passes over the same sentences, which differ by dropout alone.

Each sentence of a batch passes through the encoder twice in training mode. Dropout makes two slightly different embeddings of
it; the second is the positive of the first, and the second embeddings of the other sentences are its negatives. Only the first
versions are anchors and only the second ones are candidates: N terms of N candidates each, not the 2N of NT-Xent. Embeddings
are compared through a head (Linear, Tanh) that is trained with the encoder and not saved. Both passes run as one pass over the
doubled batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

from selfguide.augment.dropout import KEEP_DROPOUT, highest_dropout
from selfguide.augment.encoding import Features, twice
from selfguide.engine.gradient_cache import cached_embeddings, chunks_of
from selfguide.errors import UsageError
from selfguide.losses import functional
from selfguide.losses.base import HeadedLoss, full_precision, single
from selfguide.losses.rules import GRADIENT_CACHE, TEMPERATURE
from selfguide.models.encoders import backbone
from selfguide.options import check

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
    """Contrast two embeddings of each sentence under two draws of dropout (unsupervised SimCSE).

    Formula:
        With c_i and c'_i the two embeddings of sentence i, f the head (or nothing) and φ(u, v) = exp(cos(f(u), f(v)) / τ):

            loss = mean over i of −log φ(c_i, c'_i) / Σ_j φ(c_i, c'_j)

    Args:
        model: The SentenceTransformer to be trained.
        temperature: τ.
        head: Compare through a Linear and Tanh head, which lives in the loss and is not saved with the model.
        dropout: Rate of every dropout in the Transformer during training; −1 keeps the encoder's own.
        freeze_layer_0: Do not train the embedding layer.
        gradient_cache: Sentences that pass through the encoder at a time, for batches larger than memory; 0 for all.

    Raises:
        UsageError: An argument is out of range, or the encoder has no dropout.

    Inputs:
        | Texts    | Labels |
        |----------|--------|
        | sentence | none   |

    Relations:
        ``MultipleNegativesRankingLoss`` on every sentence paired with itself gives the same objective without a head, with two
        separate passes. :class:`~selfguide.losses.MirrorLoss` adds a masked span and takes all 2N embeddings as anchors.

    Example:
        ```python
        from datasets import Dataset
        from sentence_transformers import SentenceTransformerTrainer

        import selfguide
        from selfguide.losses import DropoutContrastLoss

        model = selfguide.load_encoder("mini", pooling="cls")
        loss = DropoutContrastLoss(model, dropout=0.05)
        text = Dataset.from_dict({"sentence": ["It rains.", "The train is late.", "She plays the cello."]})
        SentenceTransformerTrainer(model=model, train_dataset=text, loss=loss).train()
        ```

    Reference:
        Gao, Yao and Chen, SimCSE: Simple Contrastive Learning of Sentence Embeddings, EMNLP 2021:
        https://arxiv.org/abs/2104.08821
    """

    citation = CITATION
    config_names: ClassVar[tuple[str, ...]] = ("temperature", "dropout", "freeze_layer_0", "head")

    def __init__(
        self,
        model: SentenceTransformer,
        temperature: float = 0.05,
        head: bool = True,
        dropout: float = KEEP_DROPOUT,
        freeze_layer_0: bool = False,
        gradient_cache: int = 0,
    ) -> None:
        check("temperature", temperature, TEMPERATURE)
        check("gradient_cache", gradient_cache, GRADIENT_CACHE)
        super().__init__(model, dropout, freeze_layer_0)
        if highest_dropout(model) == 0:
            raise UsageError(
                "Without dropout the two passes over a sentence are equal, and there is nothing to learn: this encoder's own "
                "dropout is 0, or 0 was asked for. Set one, such as --dropout 0.1."
            )
        self.temperature, self.gradient_cache = temperature, gradient_cache
        self.head = _head(model) if head else nn.Identity()
        self.share_over_processes()

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        """Return the loss of a batch; see the class."""
        self.begin_step()
        pairs = self.pairs(next(iter(sentence_features)))
        return self.contrast(torch.cat(pairs.unbind(dim=1)))

    def contrast(self, embeddings: Tensor) -> Tensor:
        """Compute the loss of 2N embeddings, the second N of them the second versions of the first N.

        Args:
            embeddings: (2N, dim).

        Returns:
            The loss.
        """
        with full_precision(embeddings):
            first, second = self.head(single(embeddings)).chunk(2)
            return self.over_processes(functional.info_nce, first, second, self.temperature)

    def pairs(self, features: Features) -> Tensor:
        """Return both embeddings of each sentence (batch, 2, dim), with the gradient cache where it is asked for."""
        if self.gradient_cache and torch.is_grad_enabled():
            return cached_embeddings(self._pairs, chunks_of(features, self.gradient_cache), self.model)
        return self._pairs(features)

    def _pairs(self, features: Features) -> Tensor:
        embeddings = self.encode(twice(features))["sentence_embedding"]
        return torch.stack(embeddings.chunk(2), dim=1)


def _head(model: SentenceTransformer) -> nn.Module:
    """Make a Linear and Tanh head of the embedding dimension, initialised like the encoder's own layers."""
    width = int(model.get_embedding_dimension() or 0)
    linear = nn.Linear(width, width)
    nn.init.normal_(linear.weight, std=float(getattr(backbone(model).config, "initializer_range", 0.02)))
    nn.init.zeros_(linear.bias)
    return nn.Sequential(linear, nn.Tanh()).to(model.device)
