"""Other objectives for the tuned part of fused, none of them part of the method. Tried in ``experiments.fused_ablation``.

With x_i, x'_i the two vectors of sentence i under dropout, s_ij the cosine of the *views* of sentences i and j (the second part
of fused, which needs no training), and l_ij = cos(x_i, x'_j) / τ, SimCSE's loss is the mean of −log exp(l_ii) / Σ_j exp(l_ij).

    hard-A        negatives weighed by the view: l_ij + A · s_ij for j ≠ i; A > 0 turns up those that the view finds alike
                  (hard negatives), A < 0 turns them down (they may be paraphrases)
    differ-B      a tuned part that is to differ from the view: + B · r², r the correlation of cos(x_i, x_j) and s_ij over i < j
    guided-B      two objectives on one vector: + B · SG-OPT of x_i without a head, by the views of all layers of a fixed copy
    two-parts-B   two objectives in one network, each on a vector of its own: SimCSE on [CLS], + B · SG-OPT without a head on
                  the mean of the last layer; both vectors stand beside the view
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor
from torch.nn import functional

import selfguide
from selfguide.augment.encoding import embed, twice
from selfguide.engine.views import layer_views
from selfguide.losses import functional as losses
from selfguide.losses.base import single
from selfguide.losses.dropout_contrast import DropoutContrastLoss
from selfguide.methods.simcse import SimCSE
from selfguide.models.encoders import backbone, input_names
from selfguide.models.layers import model_inputs, pool

IDEAS = (
    *("hard-5", "hard--5", "hard--20", "differ-0.3", "differ-3"),
    *("guided-0.03", "guided-0.1", "guided-0.5", "two-parts-0.1"),
)
TWO_PARTS = "two-parts"
_SG_TEMPERATURE = 0.01


class ObjectiveLoss(DropoutContrastLoss):
    """SimCSE's loss with one of the ideas above."""

    def __init__(
        self, model: SentenceTransformer, idea: str, amount: float, view: SentenceTransformer, **settings: Any
    ):
        super().__init__(model, **settings)
        self.idea, self.amount = idea, amount
        self._inputs = input_names(model)
        self._view = (view,)  # in a tuple, so that it is neither trained nor saved
        self._guide = (copy.deepcopy(backbone(model)).requires_grad_(False).eval(),)

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        self.begin_step()
        features = next(iter(sentence_features))
        found = embed(self.model, self._transformers[0], twice(features))
        first, second = single(found["sentence_embedding"]).chunk(2)
        with torch.autocast(first.device.type, enabled=False):
            return self._whole(first, second, single(found["token_embeddings"]).chunk(2)[0], features)

    def _whole(self, first: Tensor, second: Tensor, tokens: Tensor, features: dict[str, Any]) -> Tensor:
        logits = functional.cosine_similarity(first[:, None], second[None], dim=-1) / self.temperature
        if self.idea == "hard":
            others = 1 - torch.eye(len(first), device=first.device)
            logits = logits + self.amount * others * self._alike(features)
        own = torch.arange(len(first), device=first.device)
        loss = functional.cross_entropy(logits, own)
        if self.idea == "differ":
            return loss + self.amount * _correlation(_cosines(first), self._alike(features)) ** 2
        if self.idea == "guided":
            return loss + self.amount * self._guided(first, features)
        if self.idea == TWO_PARTS:
            return loss + self.amount * self._guided(pool(tokens, features["attention_mask"], "mean"), features)
        return loss

    @torch.no_grad()
    def _alike(self, features: dict[str, Any]) -> Tensor:
        """Cosines of the views of a batch."""
        view = self._view[0].to(features["input_ids"].device)
        return _cosines(view(dict(features))["sentence_embedding"].float())

    def _guided(self, vectors: Tensor, features: dict[str, Any]) -> Tensor:
        """SG-OPT without a head and without the stay-close term."""
        guide = self._guide[0].to(vectors.device)
        with torch.no_grad():
            views = layer_views(guide, model_inputs(features, self._inputs), "max", range(_depth(guide) + 1))
        return losses.objective("sg-opt")(vectors, single(views), _SG_TEMPERATURE)


@contextmanager
def tuning_by(label: str, text: Sequence[str]) -> Iterator[None]:
    """Within it ``simcse`` tunes by the idea that the label names; any other label changes nothing."""
    if label not in IDEAS:
        yield
        return
    idea = next(name for name in ("hard", "differ", "guided", TWO_PARTS) if label.startswith(f"{name}-"))
    amount = float(label.removeprefix(f"{idea}-"))
    view = selfguide.train("mini", list(text), "fused", tune="none", weight=0.0, quiet=True).requires_grad_(False)

    def loss(method: SimCSE, student: SentenceTransformer) -> DropoutContrastLoss:
        names = ("temperature", "head", "dropout", "freeze_layer_0")
        settings = {name: getattr(method.options, name) for name in names}
        return ObjectiveLoss(student, idea, amount, view.eval(), **settings)

    usual = SimCSE.loss
    SimCSE.loss = loss  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        SimCSE.loss = usual  # type: ignore[method-assign]


def _cosines(vectors: Tensor) -> Tensor:
    unit = functional.normalize(vectors, dim=-1)
    return unit @ unit.T


def _correlation(one: Tensor, two: Tensor) -> Tensor:
    """Pearson's, over the pairs above the diagonal."""
    rows, columns = torch.triu_indices(len(one), len(one), offset=1, device=one.device)
    return torch.corrcoef(torch.stack([one[rows, columns], two[rows, columns]]))[0, 1]


def _depth(model: Any) -> int:
    return int(model.config.num_hidden_layers)
