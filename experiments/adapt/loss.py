"""The contrast of two dropout passes, with the original encoder's in-batch similarities as soft targets beside it.

The guide is the encoder as it was before training. It does not move, so its embeddings of the text are computed once, before the
first step, by the fast inference path; a step then costs what it costs without a guide.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from experiments.adapt.matching import guide_targets
from selfguide.augment.dropout import KEEP_DROPOUT
from selfguide.augment.encoding import Features, stacked
from selfguide.engine.encode import sentence_vectors
from selfguide.errors import UsageError
from selfguide.losses import functional
from selfguide.losses.base import Preparation, full_precision, single
from selfguide.losses.dropout_contrast import DropoutContrastLoss

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sentence_transformers import SentenceTransformer

GUIDE = "guide"
"""The field of a batch that holds the guide's embeddings."""


def relational(first: Tensor, second: Tensor, guide: Tensor, temperature: float, guide_temperature: float) -> Tensor:
    """Compute the mean over i of KL(P_i ‖ Q_i) between the guide's and the student's in-batch similarity distributions.

    P_ij ∝ exp(s_ij / τ_g) with s the guide's similarities, and Q_ij ∝ exp(cos(c_i, c'_j) / τ) over j ≠ i.

    Args:
        first: Student embeddings c (batch, dim).
        second: Student embeddings c' of another pass (batch, dim).
        guide: The guide's similarities s (batch, batch).
        temperature: τ.
        guide_temperature: τ_g.

    Returns:
        The divergence, a scalar; 0 for fewer than three sentences, whose distributions are all equal.
    """
    count = len(first)
    if count < 3:
        return (first * 0.0).sum()
    others = ~torch.eye(count, dtype=torch.bool, device=first.device)
    targets = guide[others].view(count, count - 1) / guide_temperature
    logits = _cosines(first, second)[others].view(count, count - 1) / temperature
    return F.kl_div(logits.log_softmax(dim=1), targets.log_softmax(dim=1), reduction="batchmean", log_target=True)


class GuidedContrastLoss(DropoutContrastLoss):
    """SimCSE's loss without a head, plus terms that the original encoder guides.

    Formula:
        With c, c' the embeddings of a sentence under two draws of dropout (c' of the sentence without a part of its tokens, if
        asked for), g the original encoder's, and P and Q the distributions of :func:`relational`:

            loss = contrast · InfoNCE(c, c') + stay · (KL(P ‖ Q(c, c')) + KL(P ‖ Q(c', c))) / 2 + anchor · InfoNCE(c, g)
                   + match · KL(P* ‖ Q(c, c'))

        where P* are the guide's similarities with a share of token matches (:mod:`experiments.adapt.matching`), over a batch in
        which every sentence has a neighbour if the method gives them.

    Args:
        model: The encoder to be trained.
        temperature: τ of both.
        dropout: Rate of every dropout in the Transformer during training; −1 keeps the encoder's own.
        contrast: Weight of the contrast.
        stay: Weight of the relational term.
        guide_temperature: τ_g of the guide's distribution.
        anchor: Weight of the contrast with the guide's own embedding as the positive.
        thin: Share of the tokens that the second embedding does not see.
        match: Weight of the term with token matches.
        match_share: Share of the match in its targets; the rest is the cosine.
        idf: Weight of every token, which the matches need.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        temperature: float = 0.05,
        dropout: float = KEEP_DROPOUT,
        contrast: float = 1.0,
        stay: float = 0.0,
        guide_temperature: float = 0.05,
        anchor: float = 0.0,
        thin: float = 0.0,
        match: float = 0.0,
        match_share: float = 0.3,
        idf: Tensor | None = None,
    ) -> None:
        guide = copy.deepcopy(model).requires_grad_(False).eval() if match else None
        super().__init__(model, temperature, head=False, dropout=dropout)
        self.contrast_weight, self.stay, self.anchor = contrast, stay, anchor
        self.thin, self.match, self.match_share, self._idf = thin, match, match_share, idf
        self.guide_temperature = guide_temperature
        self._guide: Tensor | None = None
        # In a tuple, so that it is neither trained nor saved.
        self._guides = () if guide is None else (guide,)

    def prepare(self, run: Preparation) -> None:
        """Compute the guide's embeddings of the text."""
        super().prepare(run)
        if not self.stay and not self.anchor:
            return
        if run.text is None or run.columns != 1:
            raise UsageError(
                "The guide's embeddings are computed before training, which needs one column of plain text."
            )
        training = self.encoder.training
        self.encoder.eval()
        vectors = sentence_vectors(self.encoder, list(run.text.rows))
        self.encoder.train(training)
        self._guide = torch.from_numpy(np.ascontiguousarray(vectors))

    def on_host(self, features: dict[str, Any], rows: list[int]) -> dict[str, Any]:
        """Add the guide's embeddings to a batch."""
        return features if self._guide is None else {**features, GUIDE: self._guide[rows]}

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        """Return the loss of a batch; see the class."""
        self.begin_step()
        batches = [dict(features) for features in sentence_features]
        guide = batches[0].pop(GUIDE, None)
        features = batches[0] if len(batches) == 1 else stacked(batches, self.encoder.tokenizer.pad_token_id)
        if self.thin:
            both = stacked([features, thinned(features, self.thin)], self.encoder.tokenizer.pad_token_id)
            first, second = self.encode(both)["sentence_embedding"].chunk(2)
        else:
            first, second = self._pairs(features).unbind(dim=1)
        with full_precision(first):
            first, second = single(first), single(second)
            loss = first.new_zeros(())
            if self.contrast_weight:
                loss = loss + self.contrast_weight * functional.info_nce(first, second, self.temperature)
            if guide is not None and self.stay:
                temperatures = (self.temperature, self.guide_temperature)
                both_ways = relational(first, second, _cosines(guide, guide), *temperatures) + relational(
                    second, first, _cosines(guide, guide), *temperatures
                )
                loss = loss + self.stay * both_ways / 2
            if guide is not None and self.anchor:
                loss = loss + self.anchor * functional.info_nce(first, guide, self.temperature)
            if self._guides and self._idf is not None:
                targets = guide_targets(self._guides[0].to(first.device), features, self._idf, self.match_share)
                loss = loss + self.match * relational(
                    first, second, targets, self.guide_temperature, self.guide_temperature
                )
        return loss

    def get_config_dict(self) -> dict[str, Any]:
        """Return the loss's settings, as model cards show them."""
        names = ("stay", "anchor", "thin", "match", "match_share", "guide_temperature")
        return {
            **super().get_config_dict(),
            "contrast": self.contrast_weight,
            **{name: getattr(self, name) for name in names},
        }


def thinned(features: Features, rate: float) -> Features:
    """Return a batch without a random share of each sentence's tokens; the first and the last one stay.

    Args:
        features: A batch that is padded on the right.
        rate: Probability of each token to be left out.

    Returns:
        A batch of the same width.
    """
    mask = features["attention_mask"].bool()
    last = mask.sum(dim=1, keepdim=True) - 1
    place = torch.arange(mask.shape[1], device=mask.device)
    kept = mask & ((torch.rand(mask.shape, device=mask.device) >= rate) | (place == 0) | (place == last))
    order = (~kept).long().argsort(dim=1, stable=True)
    found = dict(features)
    found["input_ids"] = features["input_ids"].gather(1, order)
    found["attention_mask"] = (place < kept.sum(dim=1, keepdim=True)).to(features["attention_mask"].dtype)
    return found


def _cosines(a: Tensor, b: Tensor) -> Tensor:
    return F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).T
