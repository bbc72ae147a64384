"""Contrastive losses as plain loops over their formulas, which share no code with the package."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def _cosine(u: Tensor, v: Tensor) -> Tensor:
    return torch.dot(u, v) / (u.norm() * v.norm())


def naive_info_nce(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """−log exp(cos(a_i, b_i) / τ) / Σ_j exp(cos(a_i, b_j) / τ), averaged over i."""
    total = first.new_zeros(())
    for i in range(len(first)):
        terms = torch.stack([_cosine(first[i], second[j]) / temperature for j in range(len(second))])
        total = total - torch.log(torch.exp(terms[i]) / torch.exp(terms).sum())
    return total / len(first)


def naive_nt_xent(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """NT-Xent over both vectors of each sentence."""
    everything, count = torch.cat([first, second]), len(first)
    total = first.new_zeros(())
    for m in range(2 * count):
        partner = (m + count) % (2 * count)
        others = [n for n in range(2 * count) if n != m]
        terms = torch.stack([_cosine(everything[m], everything[n]) / temperature for n in others])
        total = total - (terms[others.index(partner)] - torch.logsumexp(terms, 0))
    return total / (2 * count)


def naive_momentum_contrast(queries: Tensor, keys: Tensor, queue: Tensor, temperature: float) -> Tensor:
    """−log φ(q_i, k_i) / (Σ_j φ(q_i, k_j) + Σ_n φ(q_i, queue_n)), averaged over i."""
    total = queries.new_zeros(())
    for i in range(len(queries)):
        terms = torch.stack([_cosine(queries[i], other) / temperature for other in (*keys, *queue)])
        total = total - (terms[i] - torch.logsumexp(terms, 0))
    return total / len(queries)


def naive_relational_divergence(first: Tensor, second: Tensor, guide: Tensor, temperature: float) -> Tensor:
    """Σ_j p_ij log(p_ij / q_ij) over j ≠ i, averaged over i; p from the guide's cosines, q from those of both versions."""
    total = first.new_zeros(())
    for i in range(len(first)):
        others = [j for j in range(len(first)) if j != i]
        p = torch.stack([torch.exp(_cosine(guide[i], guide[j]) / temperature) for j in others])
        q = torch.stack([torch.exp(_cosine(first[i], second[j]) / temperature) for j in others])
        p, q = p / p.sum(), q / q.sum()
        total = total + (p * torch.log(p / q)).sum()
    return total / len(first)


def naive_info_max(tokens: list[Tensor], sentences: Tensor) -> Tensor:
    """IS-BERT's loss; ``tokens``: the local features of each sentence."""
    together, apart = [], []
    for i, own in enumerate(tokens):
        for token in own:
            for j, vector in enumerate(sentences):
                score = token @ vector
                if i == j:
                    together.append(math.log(2) - torch.log(1 + torch.exp(-score)))
                else:
                    apart.append(torch.log(1 + torch.exp(score)) - math.log(2))
    return (sum(apart) / len(apart) if apart else 0) - sum(together) / len(together)  # type: ignore[return-value]
