"""The contrastive objectives, as pure functions of tensors: those of self-guidance, and the two that others share.

The objectives of self-guidance take the student's embeddings ``c`` of shape (batch, dim) and the guide's views ``h``, both
already through the projection head if there is one, and compare them by cosine. With φ(u, v) = exp(cos(u, v) / τ):

* ``sg``      (L_base)  NT-Xent over X = {c_i} ∪ {h_i}: every element is an anchor, its partner is the positive.
* ``opt1``    anchors are the c_i alone:       −log φ(c_i, h_i) / (Σ_{j≠i} φ(c_i, c_j) + Σ_j φ(c_i, h_j))
* ``opt2``    embeddings repel views only:     −log φ(c_i, h_i) / Σ_j φ(c_i, h_j)
* ``sg-opt``  (L_opt3) all views of the sentence are positives, one at a time, and all views of the others negatives:
              −log φ(c_i, h_ik) / (φ(c_i, h_ik) + Σ_{m≠i} Σ_n φ(c_i, h_mn)), averaged over i and k.

Contrast of two versions of each sentence comes in two forms: ``nt_xent_pairs`` (2N anchors; ConSERT, Mirror-BERT, CLEAR)
and ``info_nce`` (N anchors against N positives; SimCSE). They are the forms of ``sg`` and ``opt2``.

Nothing here knows a model or a tokenizer, and a new objective is a few lines.

Reference: Kim, Yoo and Lee, Self-Guided Contrastive Learning for BERT Sentence Representations, ACL 2021.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from selfguide.errors import UsageError

SINGLE_VIEW_OBJECTIVES = ("sg", "opt1", "opt2")
OBJECTIVES = (*SINGLE_VIEW_OBJECTIVES, "sg-opt")


def nt_xent(vectors: Tensor, partner: Tensor, temperature: float) -> Tensor:
    """NT-Xent over a set of vectors in which ``partner[m]`` is the row of the positive of row m.

    −log φ(x_m, x_partner(m)) / Σ_{n≠m} φ(x_m, x_n), averaged over all rows.
    """
    logits = _cosines(vectors, vectors) / temperature
    itself = torch.eye(len(vectors), dtype=torch.bool, device=vectors.device)
    return F.cross_entropy(logits.masked_fill(itself, float("-inf")), partner)


def nt_xent_pairs(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """NT-Xent over two vectors of each sentence: all 2N are anchors, and all but the anchor itself are candidates."""
    _check(first, second, temperature, view_dims=2)
    rows = torch.arange(len(first), device=first.device)
    partner = torch.cat([rows + len(rows), rows])
    return nt_xent(torch.cat([first, second]), partner, temperature)


def info_nce(anchors: Tensor, positives: Tensor, temperature: float) -> Tensor:
    """−log φ(a_i, p_i) / Σ_j φ(a_i, p_j), averaged over i: the N positives are the only candidates."""
    _check(anchors, positives, temperature, view_dims=2)
    logits = _cosines(anchors, positives) / temperature
    return F.cross_entropy(logits, torch.arange(len(anchors), device=anchors.device))


def sg(embeddings: Tensor, views: Tensor, temperature: float) -> Tensor:
    """L_base: NT-Xent over the embeddings and one view of each sentence; ``views`` has shape (batch, dim)."""
    return nt_xent_pairs(embeddings, views, temperature)


def opt1(embeddings: Tensor, views: Tensor, temperature: float) -> Tensor:
    """L_opt1: as :func:`sg`, but only the embeddings are anchors; ``views`` has shape (batch, dim)."""
    _check(embeddings, views, temperature, view_dims=2)
    to_views = _cosines(embeddings, views) / temperature
    to_embeddings = _cosines(embeddings, embeddings) / temperature
    itself = torch.eye(len(embeddings), dtype=torch.bool, device=embeddings.device)
    logits = torch.cat([to_views, to_embeddings.masked_fill(itself, float("-inf"))], dim=1)
    return F.cross_entropy(logits, torch.arange(len(embeddings), device=embeddings.device))


def opt2(embeddings: Tensor, views: Tensor, temperature: float) -> Tensor:
    """L_opt2: embeddings against views only; ``views`` has shape (batch, dim)."""
    return info_nce(embeddings, views, temperature)


def sg_opt(embeddings: Tensor, views: Tensor, temperature: float) -> Tensor:
    """L_opt3, the objective of SG-OPT: each view of a sentence against all views of the others; ``views`` is 3-D.

    One matrix product gives every cosine. With s the positive's logit and N the log-sum-exp of the negatives, a term is
    −log e^s / (e^s + e^N) = softplus(N − s), so the sum over negatives is made once for each sentence, not once for each view.
    """
    _check(embeddings, views, temperature, view_dims=3)
    batch, count, _ = views.shape
    logits = _cosines(embeddings, views.flatten(0, 1)).view(batch, batch, count) / temperature
    rows = torch.arange(batch, device=embeddings.device)
    positives = logits[rows, rows]
    if batch == 1:  # nothing to tell the sentence apart from: every term is −log 1
        return (positives * 0.0).sum()
    own = torch.eye(batch, dtype=torch.bool, device=embeddings.device).unsqueeze(-1)
    negatives = logits.masked_fill(own, float("-inf")).flatten(1).logsumexp(dim=1, keepdim=True)
    return F.softplus(negatives - positives).mean()


def objective(name: str) -> Any:
    """The loss function of an objective's name."""
    functions = {"sg": sg, "opt1": opt1, "opt2": opt2, "sg-opt": sg_opt}
    if name not in functions:
        raise UsageError(f"There is no objective {name!r}; choose one of {', '.join(OBJECTIVES)}.")
    return functions[name]


# Numbers a CPU works on at a time in the stay-close term: three stretches of them stay in its cache between two operations.
_STRETCH = 1 << 18


class _SquaredDistance(torch.autograd.Function):
    """Σ‖a − b‖² over lists of tensors. Its cost is the memory it walks through, so that is done as seldom as can be.

    Nothing is kept for the backward pass but the tensors themselves. A GPU does it in a handful of fused kernels, instead of
    three for each parameter; a CPU stretch by stretch, in its cache.
    """

    @staticmethod
    def forward(ctx: Any, count: int, *tensors: Tensor) -> Tensor:
        ctx.save_for_backward(*tensors)
        ctx.count = count
        ones, others = list(tensors[:count]), list(tensors[count:])
        if ones[0].device.type != "cpu":
            return torch.stack(torch._foreach_norm(torch._foreach_sub(ones, others))).square().sum()
        parts = []
        for a, b in zip(ones, others, strict=True):
            for one, other in _stretches(a, b):
                difference = one - other
                parts.append(torch.dot(difference, difference))
        return torch.stack(parts).sum()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        twice = 2.0 * grads[0]
        ones, others = list(ctx.saved_tensors[: ctx.count]), list(ctx.saved_tensors[ctx.count :])
        if ones[0].device.type != "cpu":
            scaled = list(torch._foreach_sub(ones, others))
            torch._foreach_mul_(scaled, twice)
        else:
            scaled = [torch.empty_like(a) for a in ones]
            for a, b, found in zip(ones, others, scaled, strict=True):
                for one, other, place in _stretches(a, b, found):
                    torch.sub(one, other, out=place).mul_(twice)
        return (None, *scaled, *([None] * ctx.count))


def _stretches(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The same stretches of several contiguous tensors, one after the other."""
    return zip(*(tensor.view(-1).split(_STRETCH) for tensor in tensors), strict=True)


def stay_close(student: Sequence[Tensor], guide: Sequence[Tensor]) -> Tensor:
    """‖θ_F − θ_T‖², summed over pairs of parameters; its gradient reaches the student's alone."""
    if len(student) != len(guide):
        raise ValueError(
            f"stay_close compares parameters pair by pair, but got {len(student)} and {len(guide)} of them."
        )
    if not student:
        return torch.zeros(())
    return _SquaredDistance.apply(len(student), *student, *(parameter.detach() for parameter in guide))


def _cosines(a: Tensor, b: Tensor) -> Tensor:
    return F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).T


def _check(embeddings: Tensor, views: Tensor, temperature: float, view_dims: int) -> None:
    shape = "(batch, dim)" if view_dims == 2 else "(batch, views, dim)"
    if not temperature > 0:
        raise ValueError(f"temperature must be above 0, got {temperature}.")
    if embeddings.dim() != 2 or views.dim() != view_dims:
        raise ValueError(
            f"embeddings must be (batch, dim) and views {shape}, got {tuple(embeddings.shape)} and {tuple(views.shape)}."
        )
    if embeddings.shape[0] != views.shape[0] or embeddings.shape[-1] != views.shape[-1]:
        raise ValueError(f"embeddings {tuple(embeddings.shape)} and views {tuple(views.shape)} do not belong together.")
