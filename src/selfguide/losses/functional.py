"""The formulas of the losses, as pure functions of tensors.

Write φ(u, v) = exp(cos(u, v) / τ). Two versions of each sentence are contrasted in one of two forms:

* :func:`nt_xent_pairs`      2N anchors, all other vectors are candidates (ConSERT, Mirror-BERT, CLEAR, back-translation).
* :func:`info_nce`           N anchors against the N second versions (SimCSE).
* :func:`momentum_contrast`  as ``info_nce``, with a queue of past keys as further negatives (CERT).

The objectives of self-guidance take the student's embeddings c (batch, dim) and the guide's views h, both already projected:

* :func:`sg`      (L_base)  NT-Xent over X = {c_i} ∪ {h_i}: every element is an anchor, its partner is the positive.
* :func:`opt1`    anchors are the c_i alone:       −log φ(c_i, h_i) / (Σ_{j≠i} φ(c_i, c_j) + Σ_j φ(c_i, h_j))
* :func:`opt2`    embeddings repel views only:     −log φ(c_i, h_i) / Σ_j φ(c_i, h_j)
* :func:`sg_opt`  (L_opt3) all views of the sentence are positives, one at a time, and all views of the others negatives:
                  −log φ(c_i, h_ik) / (φ(c_i, h_ik) + Σ_{m≠i} Σ_n φ(c_i, h_mn)), averaged over i and k.

Others have formulas of their own: :func:`relational_divergence` (adaptation), :func:`contrastive_tension` and
:func:`contrastive_tension_in_batch` (Contrastive Tension), :func:`info_max` (IS-BERT), :func:`pair_features` (natural language
inference), :func:`stay_close` (self-guidance).

Contrasts over a batch take ``own``, for a batch that several processes share: every process has all vectors, but only the rows
in ``own`` are its anchors. It gets their terms divided by the number of all anchors, so that the results of the processes add up
to the loss of the whole batch.

Reference: Kim, Yoo and Lee, Self-Guided Contrastive Learning for BERT Sentence Representations, ACL 2021; for the others see
the losses that use them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from selfguide.options import OneOf, check

SINGLE_VIEW_OBJECTIVES = ("sg", "opt1", "opt2")
OBJECTIVES = (*SINGLE_VIEW_OBJECTIVES, "sg-opt")
NEGATIVE_TERMS = ("code", "paper")
"""How Contrastive Tension's loss of a negative pair is computed."""
OBJECTIVE = OneOf(*OBJECTIVES)
"""Rule of an option that names one of :data:`OBJECTIVES`."""


def nt_xent(vectors: Tensor, partner: Tensor, temperature: float, anchors: Tensor | None = None) -> Tensor:
    """Compute NT-Xent: −log φ(x_m, x_partner(m)) / Σ_{n≠m} φ(x_m, x_n), averaged over all rows m.

    Args:
        vectors: Vectors (count, dim).
        partner: Row of each row's positive (count,).
        temperature: τ.
        anchors: The rows m whose terms are computed; ``None`` for all.

    Returns:
        The loss, a scalar.
    """
    rows = torch.arange(len(vectors), device=vectors.device)
    if anchors is None:
        logits, anchors = _cosines(vectors, vectors) / temperature, rows
    else:
        logits, partner = _cosines(vectors[anchors], vectors) / temperature, partner[anchors]
    itself = anchors.unsqueeze(1) == rows
    return _mean(logits.masked_fill(itself, float("-inf")), partner, len(vectors))


def nt_xent_pairs(first: Tensor, second: Tensor, temperature: float, own: slice | None = None) -> Tensor:
    """Compute NT-Xent over two vectors of each sentence: all 2N are anchors, and all but the anchor itself are candidates.

    Args:
        first: First vectors (batch, dim).
        second: Second vectors (batch, dim).
        temperature: τ.
        own: Sentences of this process, both of whose vectors are its anchors; ``None`` for all.

    Returns:
        The loss, a scalar.

    Raises:
        ValueError: The shapes differ, or the temperature is not above 0.
    """
    _check(first, second, temperature, view_dims=2)
    rows = torch.arange(len(first), device=first.device)
    partner = torch.cat([rows + len(rows), rows])
    anchors = None if own is None else torch.cat([rows[own], rows[own] + len(rows)])
    return nt_xent(torch.cat([first, second]), partner, temperature, anchors)


def info_nce(anchors: Tensor, positives: Tensor, temperature: float, own: slice | None = None) -> Tensor:
    """Compute −log φ(a_i, p_i) / Σ_j φ(a_i, p_j), averaged over i: the N positives are the only candidates.

    Args:
        anchors: Vectors a (batch, dim).
        positives: Vectors p (batch, dim).
        temperature: τ.
        own: Rows of this process; ``None`` for all.

    Returns:
        The loss, a scalar.

    Raises:
        ValueError: The shapes differ, or the temperature is not above 0.
    """
    _check(anchors, positives, temperature, view_dims=2)
    rows = torch.arange(len(anchors), device=anchors.device)
    logits = _cosines(_rows(anchors, own), positives) / temperature
    return _mean(logits, _rows(rows, own), len(anchors))


def momentum_contrast(
    queries: Tensor, keys: Tensor, queue: Tensor, temperature: float, own: slice | None = None
) -> Tensor:
    """Compute −log φ(q_i, k_i) / (Σ_j φ(q_i, k_j) + Σ_n φ(q_i, queue_n)), averaged over i.

    The other keys of the batch are candidates beside the queue's, because at the start the queue is empty.

    Args:
        queries: Vectors q (batch, dim).
        keys: Vectors k (batch, dim).
        queue: Keys of past batches (queued, dim).
        temperature: τ.
        own: Rows of this process; ``None`` for all.

    Returns:
        The loss, a scalar.
    """
    candidates = torch.cat([F.normalize(keys, dim=-1), F.normalize(queue, dim=-1)])
    logits = F.normalize(_rows(queries, own), dim=-1) @ candidates.T / temperature
    return _mean(logits, _rows(torch.arange(len(queries), device=queries.device), own), len(queries))


def contrastive_tension(u: Tensor, v: Tensor, distances: Tensor, negative_term: str = "code") -> Tensor:
    """Compute the binary cross-entropy of u_i · v_i as "same sentence" and u_i · v_j as "another", averaged over all pairs.

    A pair of the same sentence has −log σ(z) for its logit z; another has −log (1 − σ(z)), or −log σ(1 − z) as the paper writes.

    Args:
        u: The first encoder's vectors of the anchors (anchors, dim), the first rows of the batch.
        v: The second encoder's vectors of the batch (batch, dim).
        distances: Rows from an anchor i to its negatives j, modulo the batch, the same for all anchors (negatives,).
        negative_term: One of :data:`NEGATIVE_TERMS`.

    Returns:
        The loss, a scalar.
    """
    rows = torch.arange(len(u), device=u.device)
    partners = (rows.unsqueeze(1) + distances) % len(v)
    same = (u * v[rows]).sum(dim=-1, keepdim=True)
    other = torch.einsum("ad,akd->ak", u, v[partners])
    shift = 1.0 if negative_term == "paper" else 0.0
    return torch.cat([F.softplus(-same), F.softplus(other - shift)], dim=1).mean()  # softplus(−x) = −log σ(x)


def contrastive_tension_in_batch(u: Tensor, v: Tensor, scale: Tensor, own: slice | None = None) -> Tensor:
    """Compute −log exp(s cos(u_i, v_i)) / Σ_j exp(s cos(u_i, v_j)), and the same with u and v exchanged; the mean of both.

    Args:
        u: The first encoder's vectors (batch, dim).
        v: The second encoder's vectors (batch, dim).
        scale: s, a scalar.
        own: Rows of this process; ``None`` for all.

    Returns:
        The loss, a scalar.
    """
    u, v = F.normalize(u, dim=-1), F.normalize(v, dim=-1)
    rows = torch.arange(len(u), device=u.device)
    if own is None:
        logits = scale * u @ v.T
        return (F.cross_entropy(logits, rows) + F.cross_entropy(logits.T, rows)) / 2
    both = [_mean(scale * one[own] @ other.T, rows[own], len(u)) for one, other in ((u, v), (v, u))]
    return (both[0] + both[1]) / 2


def info_max(tokens: Tensor, sentences: Tensor, owners: Tensor) -> Tensor:
    """Compute the negative Jensen–Shannon estimate of the mutual information between tokens and their sentences.

    Args:
        tokens: Local features (tokens, dim).
        sentences: Global vectors (batch, dim).
        owners: The sentence that each token belongs to (tokens,).

    Returns:
        The loss, a scalar; for a batch of one sentence only the part of matching pairs.
    """
    scores = tokens @ sentences.T
    own = F.one_hot(owners, len(sentences)).bool()
    together = math.log(2) - F.softplus(-scores[own])
    if len(sentences) == 1:
        return -together.mean()
    apart = F.softplus(scores[~own]) - math.log(2)
    return apart.mean() - together.mean()


def pair_features(u: Tensor, v: Tensor, product: bool = False) -> Tensor:
    """Return (u, v, |u − v|), and u ∘ v after it with ``product``: the input of a classifier of sentence pairs."""
    return torch.cat([u, v, (u - v).abs(), *([u * v] if product else [])], dim=-1)


def sg(embeddings: Tensor, views: Tensor, temperature: float, own: slice | None = None) -> Tensor:
    """Compute L_base: NT-Xent over the embeddings and one view of each sentence.

    Args:
        embeddings: Student embeddings c (batch, dim).
        views: One view h of each sentence (batch, dim).
        temperature: τ.
        own: Rows of this process; ``None`` for all.

    Returns:
        The loss, a scalar.
    """
    return nt_xent_pairs(embeddings, views, temperature, own)


def opt1(embeddings: Tensor, views: Tensor, temperature: float, own: slice | None = None) -> Tensor:
    """Compute L_opt1: as :func:`sg`, but only the embeddings are anchors.

    Args:
        embeddings: Student embeddings c (batch, dim).
        views: One view h of each sentence (batch, dim).
        temperature: τ.
        own: Rows of this process; ``None`` for all.

    Returns:
        The loss, a scalar.
    """
    _check(embeddings, views, temperature, view_dims=2)
    rows = torch.arange(len(embeddings), device=embeddings.device)
    anchors, chosen = _rows(embeddings, own), _rows(rows, own)
    to_views = _cosines(anchors, views) / temperature
    to_embeddings = _cosines(anchors, embeddings) / temperature
    itself = chosen.unsqueeze(1) == rows
    logits = torch.cat([to_views, to_embeddings.masked_fill(itself, float("-inf"))], dim=1)
    return _mean(logits, chosen, len(embeddings))


def opt2(embeddings: Tensor, views: Tensor, temperature: float, own: slice | None = None) -> Tensor:
    """Compute L_opt2: embeddings against views only.

    Args:
        embeddings: Student embeddings c (batch, dim).
        views: One view h of each sentence (batch, dim).
        temperature: τ.
        own: Rows of this process; ``None`` for all.

    Returns:
        The loss, a scalar.
    """
    return info_nce(embeddings, views, temperature, own)


def sg_opt(embeddings: Tensor, views: Tensor, temperature: float, own: slice | None = None) -> Tensor:
    """Compute L_opt3, the objective of SG-OPT: each view of a sentence against all views of the others.

    One matrix product gives every cosine. With s the positive's logit and N the log-sum-exp of the negatives, a term is
    −log e^s / (e^s + e^N) = softplus(N − s), so the sum over negatives is made once for each sentence, not once for each view.

    Args:
        embeddings: Student embeddings c (batch, dim).
        views: All views h of each sentence (batch, views, dim).
        temperature: τ.
        own: Rows of this process; ``None`` for all.

    Returns:
        The loss, a scalar.
    """
    _check(embeddings, views, temperature, view_dims=3)
    batch, count, _ = views.shape
    rows = torch.arange(batch, device=embeddings.device)
    chosen = _rows(rows, own)
    logits = _cosines(_rows(embeddings, own), views.flatten(0, 1)).view(len(chosen), batch, count) / temperature
    positives = logits[torch.arange(len(chosen), device=embeddings.device), chosen]
    if batch == 1:  # without negatives every term is −log 1
        return (positives * 0.0).sum()
    itself = (chosen.unsqueeze(1) == rows).unsqueeze(-1)
    negatives = logits.masked_fill(itself, float("-inf")).flatten(1).logsumexp(dim=1, keepdim=True)
    terms = F.softplus(negatives - positives)
    return terms.mean() if own is None else terms.sum() / (batch * count)


def objective(name: str) -> Callable[..., Tensor]:
    """Return the objective of self-guidance with the given name.

    Raises:
        UsageError: The name is not one of :data:`OBJECTIVES`.
    """
    check("objective", name, OBJECTIVE)
    return {"sg": sg, "opt1": opt1, "opt2": opt2, "sg-opt": sg_opt}[name]


# Elements that a CPU processes at a time in the stay-close term: three chunks of this size stay in its cache.
_CHUNK = 1 << 18


class _SquaredDistance(torch.autograd.Function):
    """Σ‖a − b‖² over lists of tensors, with as few passes over memory as possible, since they are its whole cost.

    The backward pass saves nothing but the tensors themselves. A GPU needs a handful of fused kernels, instead of three for
    each parameter; a CPU works chunk by chunk, in its cache.
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
            for one, other in _chunks(a, b):
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
                for one, other, place in _chunks(a, b, found):
                    torch.sub(one, other, out=place).mul_(twice)
        return (None, *scaled, *([None] * ctx.count))


def _chunks(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yield the corresponding chunks of contiguous tensors of the same size."""
    return zip(*(tensor.view(-1).split(_CHUNK) for tensor in tensors), strict=True)


def stay_close(student: Sequence[Tensor], guide: Sequence[Tensor]) -> Tensor:
    """Compute ‖θ_F − θ_T‖², summed over pairs of parameters; only the student's get a gradient.

    Args:
        student: Parameters θ_T.
        guide: Parameters θ_F, in the same order.

    Returns:
        The distance, a scalar; 0 without any parameters.

    Raises:
        ValueError: The lists differ in length.
    """
    if len(student) != len(guide):
        raise ValueError(
            f"stay_close compares parameters pair by pair, but got {len(student)} and {len(guide)} of them."
        )
    if not student:
        return torch.zeros(())
    return _SquaredDistance.apply(len(student), *student, *(parameter.detach() for parameter in guide))


def relational_divergence(
    first: Tensor, second: Tensor, guide: Tensor, temperature: float, own: slice | None = None
) -> Tensor:
    """Compute how far the similarities of a batch are from those of a guide.

    With p_ij ∝ exp(cos(g_i, g_j) / τ) and q_ij ∝ exp(cos(a_i, b_j) / τ), both over j ≠ i, it is Σ_j p_ij log(p_ij / q_ij),
    averaged over i.

    Args:
        first: Vectors a (batch, dim).
        second: Vectors b (batch, dim), other versions of the same sentences.
        guide: The guide's vectors g (batch, guide's dim), which get no gradient.
        temperature: τ.
        own: Rows of this process; ``None`` for all.

    Returns:
        The divergence, a scalar; 0 for fewer than three sentences, where there is nothing to compare.

    Raises:
        ValueError: The shapes differ, or the temperature is not above 0.
    """
    _check(first, second, temperature, view_dims=2)
    count = len(first)
    if len(guide) != count:
        raise ValueError(f"The guide has {len(guide)} vectors for {count} sentences.")
    if count < 3:
        return first.sum() * 0.0
    itself = torch.eye(count, dtype=torch.bool, device=first.device)
    others = ~_rows(itself, own)

    def log_shares(one: Tensor, other: Tensor) -> Tensor:
        return _cosines(_rows(one, own), other)[others].view(-1, count - 1).div(temperature).log_softmax(dim=-1)

    with torch.no_grad():
        target = log_shares(guide, guide)
    return F.kl_div(log_shares(first, second), target, log_target=True, reduction="sum") / count


def _rows(vectors: Tensor, own: slice | None) -> Tensor:
    return vectors if own is None else vectors[own]


def _mean(logits: Tensor, targets: Tensor, anchors: int) -> Tensor:
    """Compute the cross-entropy of some anchors' rows as their share of the mean over all anchors."""
    if len(targets) == anchors:
        return F.cross_entropy(logits, targets)
    return F.cross_entropy(logits, targets, reduction="sum") / anchors


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
