"""Contrastive Tension: two encoders that start equal learn to agree on the same sentence and on nothing else.

The encoder to be trained is copied. Both copies are trained and drift apart; u_i is the first one's embedding of sentence i,
v_j the second one's of sentence j. :class:`ContrastiveTensionLoss` reads their dot product as the logit of "same sentence?",
for one positive pair and K negative pairs of each anchor. :class:`ContrastiveTensionInBatchLoss` contrasts each sentence with
the whole batch by scaled cosines. The second encoder is the model; the first lives in the loss and is not saved with it.

The paper writes the loss of a negative pair with the logit z as −log σ(1 − z); the authors' released code computes the binary
cross-entropy, −log (1 − σ(z)). The two differ by a shift of the logit by one, since 1 − σ(z) = σ(−z). Published encoders come
from the code, so that is the default.

Differences from the authors' released code: by default every sentence of a batch is an anchor (``anchors=2`` at batch size 16
gives the published 2 positive and 14 negative pairs), and an anchor is paired with K others of the batch, as in the paper,
where the code draws both sides of a negative pair anew. Dropout is off during training, as in their code. The code saves
whichever of the two encoders is better on dev data; here it is always the second. The in-batch loss is not the authors': it
comes from sentence-transformers. Both losses also exist there; these ones average the first encoder's gradients over the
processes of a distributed run, clear them with the model's, and can be resumed from a checkpoint.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from selfguide.augment.dropout import KEEP_DROPOUT
from selfguide.augment.encoding import Features, embed
from selfguide.losses import functional
from selfguide.losses.base import HeadedLoss, full_precision, single
from selfguide.models.encoders import backbone
from selfguide.options import Above, AtLeast, OneOf, check

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

CITATION = """\
@inproceedings{carlsson-etal-2021-semantic,
    title = "Semantic Re-tuning with Contrastive Tension",
    author = "Carlsson, Fredrik and Gyllensten, Amaru Cuba and Gogoulou, Evangelia and Ylip{\\"a}{\\"a} Hellqvist, Erik and
              Sahlgren, Magnus",
    booktitle = "International Conference on Learning Representations",
    year = "2021",
}"""
NEGATIVES, ANCHORS, SCALE = AtLeast(1), AtLeast(0), Above(0)
NEGATIVE_TERM = OneOf(*functional.NEGATIVE_TERMS)


class _TwoEncoders(HeadedLoss):
    """Base of losses with the model as the second encoder and its trained copy as ``first``."""

    citation = CITATION

    def __init__(self, model: SentenceTransformer, dropout: float) -> None:
        super().__init__(model, dropout)
        self.first = copy.deepcopy(model)

    def encode_both(self, anchors: Features, everything: Features) -> tuple[Tensor, Tensor]:
        """Return the first encoder's embeddings of one batch and the second encoder's of another."""
        u = embed(self.first, backbone(self.first), dict(anchors))["sentence_embedding"]
        v = self.encode(dict(everything))["sentence_embedding"]
        return u, v


class ContrastiveTensionLoss(_TwoEncoders):
    """Classify pairs of embeddings of two encoders as the same sentence or not (Contrastive Tension).

    Formula:
        With u and v the embeddings of the first and the second encoder and σ the logistic function, the mean over pairs of:

            −log σ(u_i · v_i)          for an anchor i and itself
            −log (1 − σ(u_i · v_j))    for each of K other sentences j of the batch

        With ``negative_term="paper"`` a negative pair has −log σ(1 − u_i · v_j) instead.

    Args:
        model: The SentenceTransformer to be trained; it is the second encoder, its copy the first.
        negatives: K; fewer where the batch has fewer other sentences.
        anchors: How many sentences of a batch are anchors; 0 for all.
        negative_term: ``"code"``, as the authors' released code has it, or ``"paper"``.
        dropout: Rate of every dropout in both Transformers during training; −1 keeps the encoder's own.

    Raises:
        UsageError: An argument is out of range.

    Inputs:
        | Texts    | Labels |
        |----------|--------|
        | sentence | none   |

    Relations:
        :class:`ContrastiveTensionInBatchLoss` uses all other sentences of the batch as negatives. The loss of the same name in
        sentence-transformers takes pairs that are drawn beforehand. The paper trains with RMSprop.

    Example:
        ```python
        from datasets import Dataset
        from sentence_transformers import SentenceTransformerTrainer

        import selfguide
        from selfguide.losses import ContrastiveTensionLoss

        model = selfguide.load_encoder("mini", pooling="mean")
        loss = ContrastiveTensionLoss(model, negatives=2)
        text = Dataset.from_dict({"sentence": ["It rains.", "The train is late.", "She plays the cello."]})
        SentenceTransformerTrainer(model=model, train_dataset=text, loss=loss).train()
        ```

    Reference:
        Carlsson et al., Semantic Re-tuning with Contrastive Tension, ICLR 2021: https://openreview.net/forum?id=Ov_sMNau-PF
    """

    config_names = ("negatives", "anchors", "negative_term", "dropout")

    def __init__(
        self,
        model: SentenceTransformer,
        negatives: int = 7,
        anchors: int = 0,
        negative_term: str = "code",
        dropout: float = 0.0,
    ) -> None:
        check("negatives", negatives, NEGATIVES)
        check("anchors", anchors, ANCHORS)
        check("negative_term", negative_term, NEGATIVE_TERM)
        super().__init__(model, dropout)
        self.negatives, self.anchors, self.negative_term = negatives, anchors, negative_term
        self.share_over_processes()

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        """Return the loss of a batch; see the class."""
        self.begin_step()
        features = next(iter(sentence_features))
        batch = len(features["input_ids"])
        # Batches are shuffled, so any rows serve as anchors, and the same distances serve for all of them.
        distances = 1 + torch.randperm(batch - 1)[: self.negatives]
        u, v = self.encode_both(_first_rows(features, self.anchors or batch), features)
        with full_precision(u):
            return functional.contrastive_tension(single(u), single(v), distances.to(u.device), self.negative_term)


class ContrastiveTensionInBatchLoss(_TwoEncoders):
    """Contrast the embeddings of two encoders over the batch (Contrastive Tension with in-batch negatives).

    Formula:
        With u and v the embeddings of the first and the second encoder and s a learned scale:

            loss = ½ mean over i of −log exp(s cos(u_i, v_i)) / Σ_j exp(s cos(u_i, v_j)), and the same with u and v exchanged

    Args:
        model: The SentenceTransformer to be trained; it is the second encoder, its copy the first.
        scale: s at the start.
        dropout: Rate of every dropout in both Transformers during training; −1 keeps the encoder's own.

    Raises:
        UsageError: An argument is out of range.

    Inputs:
        | Texts    | Labels |
        |----------|--------|
        | sentence | none   |

    Relations:
        ``ContrastiveTensionLossInBatchNegatives`` of sentence-transformers has the same formula.
        :class:`ContrastiveTensionLoss` is the published loss.

    Example:
        ```python
        from datasets import Dataset
        from sentence_transformers import SentenceTransformerTrainer

        import selfguide
        from selfguide.losses import ContrastiveTensionInBatchLoss

        model = selfguide.load_encoder("mini", pooling="mean")
        loss = ContrastiveTensionInBatchLoss(model, scale=20.0)
        text = Dataset.from_dict({"sentence": ["It rains.", "The train is late.", "She plays the cello."]})
        SentenceTransformerTrainer(model=model, train_dataset=text, loss=loss).train()
        ```

    Reference:
        Carlsson et al., Semantic Re-tuning with Contrastive Tension, ICLR 2021: https://openreview.net/forum?id=Ov_sMNau-PF
    """

    def __init__(self, model: SentenceTransformer, scale: float = 20.0, dropout: float = KEEP_DROPOUT) -> None:
        check("scale", scale, SCALE)
        super().__init__(model, dropout)
        self.log_scale = nn.Parameter(torch.tensor(math.log(scale), device=model.device))
        self.share_over_processes()

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        """Return the loss of a batch; see the class."""
        self.begin_step()
        features = next(iter(sentence_features))
        u, v = self.encode_both(features, features)
        with full_precision(u):
            scale = self.log_scale.exp()
            return self.over_processes(functional.contrastive_tension_in_batch, single(u), single(v), scale)

    def get_config_dict(self) -> dict[str, Any]:
        """Return the loss's settings, as model cards show them, with the scale as learned so far."""
        return {"scale": float(self.log_scale.detach().exp()), "dropout": self.dropout}


def _first_rows(features: Features, count: int) -> Features:
    return {
        name: value[:count] if isinstance(value, Tensor) and value.dim() == 2 else value
        for name, value in features.items()
    }
