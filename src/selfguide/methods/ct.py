"""Contrastive Tension: two encoders from one start learn to agree about the same sentence, and about nothing else.

The encoder to be tuned is copied. Both copies are trained and drift apart; u_i is the first one's vector of sentence i, v_j
the second one's of sentence j, each a mean of the last layer's tokens. Their plain dot product is a logit: "same sentence?"

    ct           mean over pairs of  −log σ(u_i · v_i)        for a sentence and itself, 1 pair for each anchor i
                                     −log (1 − σ(u_i · v_j))  for j among K = 7 others of the batch
    ct-in-batch  ½ mean over i of −log exp(s cos(u_i, v_i)) / Σ_j exp(s cos(u_i, v_j)), and the same with u and v exchanged

s is a learnt scale that starts at 20. The second encoder is handed out; the first lives in the loss and is dropped.
``ct`` goes with RMSprop, whose rate falls every 500 steps by a fifth of its start, down to a fifth.

Differences from the authors' released code: by default every sentence of a batch is an anchor (``anchors 2`` at batch 16
gives the published 2 positive and 14 negative pairs), and an anchor is paired with K others of the batch, as the paper has
it, where the code draws both sides of a negative pair anew. Dropout is off while training, as in their code. The code saves
whichever of the two encoders is better on dev data; here it is always the second. ``ct-in-batch`` is not the authors': it
comes from sentence-transformers, whose loss is written again here because ours has to work with checkpoints and clearing of
gradients.

Reference: Carlsson et al., Semantic Re-tuning with Contrastive Tension, ICLR 2021.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from selfguide.augment.dropout import OWN, check_dropout, set_dropout
from selfguide.augment.encoding import Features, embed
from selfguide.errors import UsageError
from selfguide.losses.base import HeadedLoss, single
from selfguide.methods.base import TuningMethod
from selfguide.models.encoders import POOLINGS, backbone, freeze_unused, with_pooling
from selfguide.options import require_types
from selfguide.training.settings import TrainingSettings
from selfguide.training.trainer import Optimisers

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

_FALL, _LOWEST = 0.2, 0.2
"""RMSprop's rate loses a fifth of its start at each step of its stairs, and ends at a fifth."""


@dataclass(frozen=True)
class TensionOptions:
    """Options of Contrastive Tension; the defaults are the paper's, but for ``anchors``."""

    negatives: int = 7
    """K: others that each anchor is told apart from; fewer where the batch has fewer."""
    anchors: int = 0
    """Sentences of a batch that are anchors; 0: all of them. The paper has 2 in a batch of 16."""
    rate_step: int = 500
    """Steps after which the learning rate loses a fifth of its start, until a fifth is left."""
    dropout: float = 0.0
    """Rate of every dropout while training; -1: the encoder's own."""
    pooling: str = "mean"
    """The sentence vector: cls, mean, max, last2 or first-last."""

    def __post_init__(self) -> None:
        require_types(self)
        check_dropout(self.dropout)
        _check_pooling(self.pooling)
        for name, least in (("negatives", 1), ("anchors", 0), ("rate_step", 1)):
            if getattr(self, name) < least:
                raise UsageError(f"{name} must be at least {least}, got {getattr(self, name)}.")


@dataclass(frozen=True)
class InBatchOptions:
    """Options of Contrastive Tension with in-batch negatives; the defaults are sentence-transformers'."""

    scale: float = 20.0
    """s at the start of training; it is learnt."""
    dropout: float = OWN
    """Rate of every dropout while training; -1: the encoder's own."""
    pooling: str = "mean"
    """The sentence vector: cls, mean, max, last2 or first-last."""

    def __post_init__(self) -> None:
        require_types(self)
        check_dropout(self.dropout)
        _check_pooling(self.pooling)
        if not self.scale > 0:
            raise UsageError(f"scale must be above 0, got {self.scale}.")


class _TwoEncoders(HeadedLoss):
    """The encoder to be handed out as ``model``, and its copy as ``first``, a weight of the loss's own."""

    def __init__(self, model: SentenceTransformer, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        set_dropout(model, dropout)
        freeze_unused(model)
        self.model = model
        self.first = copy.deepcopy(model)
        self._transformers = (
            backbone(self.first),
            backbone(model),
        )  # in a tuple, so that they are not registered again

    def encode_both(self, anchors: Features, everything: Features) -> tuple[Tensor, Tensor]:
        """The first encoder's vectors of the one batch, and the second's of the other; each gets a dictionary to fill."""
        first, second = self._transformers
        u = embed(self.first, first, dict(anchors))["sentence_embedding"]
        v = embed(self.model, second, dict(everything))["sentence_embedding"]
        return u, v

    @property
    def citation(self) -> str:
        return CITATION


class ContrastiveTensionLoss(_TwoEncoders):
    """``ct`` as an ordinary sentence-transformers loss over one column of sentences, without labels.

    Args:
        model: the SentenceTransformer to be tuned; it becomes the second encoder, its copy the first.
        negatives: K.
        anchors: how many sentences of a batch are anchors; 0: all.
        dropout: rate of every dropout in both Transformers while they are trained; −1 keeps the encoder's own.
    """

    def __init__(self, model: SentenceTransformer, negatives: int = 7, anchors: int = 0, dropout: float = 0.0) -> None:
        TensionOptions(negatives, anchors, dropout=dropout)  # refuses in words
        super().__init__(model, dropout)
        self.negatives, self.anchors = negatives, anchors
        self.share_over_processes()

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        self.begin_step()
        features = next(iter(sentence_features))
        batch = len(features["input_ids"])
        # Batches come shuffled, so the first rows are as good as any, and so are the same distances for all anchors.
        distances = 1 + torch.randperm(batch - 1)[: self.negatives]
        u, v = self.encode_both(_first_rows(features, self.anchors or batch), features)
        with torch.autocast(u.device.type, enabled=False):  # a dot product of long vectors is too coarse in bfloat16
            return tension(single(u), single(v), distances.to(u.device))

    def get_config_dict(self) -> dict[str, Any]:
        """The loss's settings, as sentence-transformers' model cards show them."""
        return {"negatives": self.negatives, "anchors": self.anchors, "dropout": self.dropout}


class TensionInBatchLoss(_TwoEncoders):
    """``ct-in-batch`` as an ordinary sentence-transformers loss over one column of sentences, without labels.

    Args:
        model: the SentenceTransformer to be tuned; it becomes the second encoder, its copy the first.
        scale: s at the start.
        dropout: rate of every dropout in both Transformers while they are trained; −1 keeps the encoder's own.
    """

    def __init__(self, model: SentenceTransformer, scale: float = 20.0, dropout: float = OWN) -> None:
        InBatchOptions(scale, dropout)  # refuses in words
        super().__init__(model, dropout)
        self.log_scale = nn.Parameter(torch.tensor(math.log(scale), device=model.device))
        self.share_over_processes()

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        self.begin_step()
        features = next(iter(sentence_features))
        u, v = self.encode_both(features, features)
        with torch.autocast(u.device.type, enabled=False):
            return in_batch(single(u), single(v), self.log_scale.exp())

    def get_config_dict(self) -> dict[str, Any]:
        """The loss's settings, as sentence-transformers' model cards show them."""
        return {"scale": float(self.log_scale.detach().exp()), "dropout": self.dropout}


class ContrastiveTension(TuningMethod):
    """``--method ct``."""

    name = "ct"
    summary = "two encoders from one start agree about the same sentence, and about no other (Contrastive Tension)"
    reference = "Carlsson et al., ICLR 2021"
    Options = TensionOptions
    options: TensionOptions
    defaults = TrainingSettings(batch_size=16, learning_rate=1e-5, max_length=75, gradient_clip=0.0, warmup=0.0)
    citation = CITATION

    def student(self, encoder: SentenceTransformer) -> SentenceTransformer:
        return with_pooling(encoder, self.options.pooling)

    def loss(self, student: SentenceTransformer) -> ContrastiveTensionLoss:
        options = self.options
        return ContrastiveTensionLoss(student, options.negatives, options.anchors, options.dropout)

    def optimiser(self, loss: nn.Module, steps: int) -> Optimisers:
        """RMSprop over both encoders, with the constants of the authors' framework, and the rate's stairs."""
        settings, length = self.context.settings, self.options.rate_step
        moving = [parameter for parameter in loss.parameters() if parameter.requires_grad]
        rmsprop = torch.optim.RMSprop(
            moving, lr=settings.learning_rate, alpha=0.9, eps=1e-7, weight_decay=settings.weight_decay
        )
        stairs = torch.optim.lr_scheduler.LambdaLR(rmsprop, lambda step: max(_LOWEST, 1 - _FALL * (step // length)))
        return rmsprop, stairs


class ContrastiveTensionInBatch(TuningMethod):
    """``--method ct-in-batch``."""

    name = "ct-in-batch"
    summary = "as ct, with the whole batch as negatives and a learnt scale"
    reference = "Carlsson et al., ICLR 2021; sentence-transformers"
    Options = InBatchOptions
    options: InBatchOptions
    defaults = TrainingSettings(batch_size=128, learning_rate=5e-5, max_length=75, weight_decay=0.01)
    citation = CITATION

    def student(self, encoder: SentenceTransformer) -> SentenceTransformer:
        return with_pooling(encoder, self.options.pooling)

    def loss(self, student: SentenceTransformer) -> TensionInBatchLoss:
        return TensionInBatchLoss(student, self.options.scale, self.options.dropout)


def tension(u: Tensor, v: Tensor, distances: Tensor) -> Tensor:
    """The loss of ``ct``: u (anchors, dim), v (batch, dim); anchor i meets v_i and the rows at the given distances from i."""
    rows = torch.arange(len(u), device=u.device)
    partners = (rows.unsqueeze(1) + distances) % len(v)
    same = (u * v[rows]).sum(dim=-1, keepdim=True)
    other = torch.einsum("ad,akd->ak", u, v[partners])
    return torch.cat([F.softplus(-same), F.softplus(other)], dim=1).mean()  # softplus(−x) = −log σ(x)


def in_batch(u: Tensor, v: Tensor, scale: Tensor) -> Tensor:
    """The loss of ``ct-in-batch`` on u and v, both (batch, dim)."""
    logits = scale * F.normalize(u, dim=-1) @ F.normalize(v, dim=-1).T
    own = torch.arange(len(u), device=u.device)
    return (F.cross_entropy(logits, own) + F.cross_entropy(logits.T, own)) / 2


def _first_rows(features: Features, count: int) -> Features:
    return {
        name: value[:count] if isinstance(value, Tensor) and value.dim() == 2 else value
        for name, value in features.items()
    }


def _check_pooling(pooling: str) -> None:
    if pooling not in POOLINGS:
        raise UsageError(f"There is no pooling {pooling!r}; choose one of {', '.join(POOLINGS)}.")
