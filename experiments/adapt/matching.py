"""Targets that look at tokens: how well the guide's token embeddings of two sentences match one another.

A pooled embedding cannot see which words of two sentences correspond; token embeddings can. The match of two sentences
is BERTScore's: every token takes its best partner in the other sentence, weighted by how rare the token is in the text (IDF). As
targets for the student's cosines it is a teacher that costs nothing but the guide's forward pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def rarity(model: SentenceTransformer, sentences: Iterable[str]) -> Tensor:
    """Return the IDF of every token of the vocabulary in a text; special tokens have 0.

    Args:
        model: The encoder whose tokenizer is used.
        sentences: The text.

    Returns:
        One weight a token (vocabulary,).
    """
    tokenizer: Any = model.tokenizer
    rows = [set(ids) for ids in tokenizer(list(sentences), add_special_tokens=False, truncation=True)["input_ids"]]
    counts = np.zeros(len(tokenizer), dtype=np.float64)
    for row in rows:
        counts[list(row)] += 1
    weights = np.log((len(rows) + 1) / (counts + 0.5))
    weights[tokenizer.all_special_ids] = 0.0
    return torch.from_numpy(weights.astype(np.float32))


def matches(tokens: Tensor, weights: Tensor, rows: int = 32) -> Tensor:
    """Compute the match of every two sentences of a batch.

    Args:
        tokens: Token embeddings (batch, tokens, dim).
        weights: Weight of each token, 0 for padding and special tokens (batch, tokens).
        rows: Sentences compared with all others at a time.

    Returns:
        The harmonic mean of both directions' weighted mean of best cosines (batch, batch).
    """
    tokens = F.normalize(tokens.float(), dim=-1)
    share = weights / weights.sum(dim=1, keepdim=True).clamp_min(1e-6)
    absent = weights == 0
    found = []
    for start in range(0, len(tokens), rows):
        cosines = torch.einsum("aid,bjd->abij", tokens[start : start + rows], tokens)
        cosines = cosines.masked_fill(absent[None, :, None, :], -1.0)
        found.append((cosines.amax(dim=3) * share[start : start + rows, None, :]).sum(dim=2))
    forward = torch.cat(found)
    backward = forward.T
    return 2 * forward * backward / (forward + backward).clamp_min(1e-6)


@torch.no_grad()
def guide_targets(guide: SentenceTransformer, features: Mapping[str, Any], idf: Tensor, share: float) -> Tensor:
    """Return the guide's similarities of a batch: its cosines, and a share of its matches.

    Args:
        guide: The encoder as it was.
        features: A tokenised batch.
        idf: Weight of every token of the vocabulary.
        share: Share of the match; the rest is the cosine.

    Returns:
        Similarities (batch, batch).
    """
    found = guide(dict(features))
    pooled = F.normalize(found["sentence_embedding"].float(), dim=-1)
    cosines = pooled @ pooled.T
    if not share:
        return cosines
    ids = features["input_ids"]
    weights = idf.to(ids.device)[ids] * features["attention_mask"]
    return (1 - share) * cosines + share * matches(found["token_embeddings"], weights)
