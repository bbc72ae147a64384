"""Augmentations of a tokenised batch at the embedding layer, as in ConSERT.

A :class:`TokenBatch` is a padded batch and a factor by which the embedding layer's output is multiplied. An augmentation is
a function ``TokenBatch -> TokenBatch`` that changes the order of the tokens or the factor, never the mask:

* ``shuffle``          permutes the tokens of a sentence; [CLS] and [SEP] keep their positions.
* ``token-cutoff``     zeroes a fraction of the tokens as a whole; never [CLS] or [SEP].
* ``feature-cutoff``   zeroes a fraction of the dimensions in all tokens of a sentence, drawn anew for each sentence.
* ``dropout``          zeroes single elements independently, without rescaling the others.
* ``none``             changes nothing; ``shuffle+token-cutoff`` and the like apply several in order.

ConSERT's own code shuffles by permuting position ids. A Transformer gives the same states either way, in another order that
pooling does not see, but moving the tokens needs no position ids, so it works with relative and rotary positions too.

Reference: Yan et al., ConSERT: A Contrastive Framework for Self-Supervised Sentence Representation Transfer, ACL 2021.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from selfguide.augment.chains import chain
from selfguide.options import Between, check

RATE = Between(0, 1, open_high=True)
"""Rule of the fraction that an augmentation zeroes."""
DEFAULT_RATES: Mapping[str, float] = {"token-cutoff": 0.15, "feature-cutoff": 0.2, "dropout": 0.2}
AUGMENTATIONS = ("none", "shuffle", *DEFAULT_RATES)


@dataclass(frozen=True)
class TokenBatch:
    """A padded batch on its way through augmentations."""

    input_ids: Tensor
    """(batch, tokens)"""
    attention_mask: Tensor
    """(batch, tokens): 1 for real tokens."""
    special: Tensor
    """(batch, tokens): true for [CLS], [SEP] and padding, which keep their positions."""
    factor: Tensor
    """(batch, tokens, width): factor of the embedding layer's output."""

    @property
    def content(self) -> Tensor:
        """(batch, tokens): true for the sentence's own tokens."""
        return self.attention_mask.bool() & ~self.special


Augmentation = Callable[[TokenBatch], TokenBatch]


def token_batch(input_ids: Tensor, attention_mask: Tensor, special_ids: Collection[int], width: int) -> TokenBatch:
    """Return an unchanged batch.

    Args:
        input_ids: Token ids (batch, tokens).
        attention_mask: Mask (batch, tokens).
        special_ids: Ids of the tokens that no augmentation moves or cuts (:func:`frame_ids`).
        width: Width of the embedding layer's output.

    Returns:
        The batch, with a factor of 1 everywhere.
    """
    frame = torch.tensor(sorted(special_ids), dtype=input_ids.dtype, device=input_ids.device)
    special = torch.isin(input_ids, frame)
    factor = torch.ones(*input_ids.shape, width, device=input_ids.device)
    return TokenBatch(input_ids, attention_mask, special, factor)


def frame_ids(tokenizer: Any) -> set[int]:
    """Return the ids of the tokens around a sentence ([CLS], [SEP], padding), without [MASK] and [UNK], which stand for words."""
    names = ("cls_token_id", "sep_token_id", "pad_token_id", "bos_token_id", "eos_token_id")
    found = {getattr(tokenizer, name, None) for name in names}
    words = {getattr(tokenizer, name, None) for name in ("mask_token_id", "unk_token_id")}
    return {int(token) for token in found - words if token is not None}


def unchanged(batch: TokenBatch) -> TokenBatch:
    """Return the batch as it is."""
    return batch


def shuffle(batch: TokenBatch) -> TokenBatch:
    """Permute the tokens of each sentence uniformly.

    Args:
        batch: Tokens after the embedding layer.

    Returns:
        The batch in the new order; padding and the tokens around a sentence stay.
    """
    content = batch.content
    keys = torch.rand(content.shape).to(content.device)
    # Both index lists name a row's content first and then the rest, which is equal in both and so keeps its position.
    # The sorts are stable, so tokens with equal keys keep their order.
    places = torch.argsort((~content).long(), dim=1, stable=True)
    tokens = torch.argsort(keys.masked_fill(~content, 2.0), dim=1, stable=True)
    width = batch.factor.shape[-1]
    return replace(
        batch,
        input_ids=batch.input_ids.scatter(1, places, batch.input_ids.gather(1, tokens)),
        factor=batch.factor.scatter(1, _wide(places, width), batch.factor.gather(1, _wide(tokens, width))),
    )


def token_cutoff(batch: TokenBatch, rate: float) -> TokenBatch:
    """Zero ⌊rate · n⌋ of a sentence's n own tokens, chosen uniformly.

    Args:
        batch: Tokens after the embedding layer.
        rate: Fraction of a sentence's own tokens.

    Returns:
        The batch with zeros in place of those tokens.
    """
    chosen = _choose(batch.content, rate)
    return replace(batch, factor=batch.factor * (~chosen).unsqueeze(-1))


def feature_cutoff(batch: TokenBatch, rate: float) -> TokenBatch:
    """Zero ⌊rate · width⌋ dimensions of each sentence in all its real tokens, including [CLS] and [SEP].

    Args:
        batch: Tokens after the embedding layer.
        rate: Fraction of the dimensions.

    Returns:
        The batch with zeros in those dimensions.
    """
    rows, _, width = batch.factor.shape
    cut = _choose(torch.ones(rows, width, dtype=torch.bool, device=batch.factor.device), rate)
    real = batch.attention_mask.bool()
    return replace(batch, factor=batch.factor * ~(cut.unsqueeze(1) & real.unsqueeze(-1)))


def embedding_dropout(batch: TokenBatch, rate: float) -> TokenBatch:
    """Zero each element of the real tokens with probability ``rate``.

    Args:
        batch: Tokens after the embedding layer.
        rate: Probability of each element.

    Returns:
        The batch with zeros in place of those elements; the others are not rescaled.
    """
    cut = torch.rand(batch.factor.shape).to(batch.factor.device) < rate
    return replace(batch, factor=batch.factor * ~(cut & batch.attention_mask.bool().unsqueeze(-1)))


def parse_augmentation(names: str, rates: Mapping[str, float] = DEFAULT_RATES) -> Augmentation:
    """Return the augmentation of a name, or of several joined by ``+``.

    Args:
        names: One of :data:`AUGMENTATIONS`, or several joined by ``+``.
        rates: Fractions to zero, by the names of the augmentations; 0 where one is missing.

    Returns:
        The augmentation.

    Raises:
        UsageError: A name is unknown, or a rate is not from 0 up to 1.
    """
    for name, rate in rates.items():
        check(f"The rate of {name}", rate, RATE)
    rated = {"token-cutoff": token_cutoff, "feature-cutoff": feature_cutoff, "dropout": embedding_dropout}
    steps: dict[str, Augmentation] = {"none": unchanged, "shuffle": shuffle}
    steps |= {name: partial(function, rate=rates.get(name, 0.0)) for name, function in rated.items()}
    return chain(names, steps)


def _choose(candidates: Tensor, rate: float) -> Tensor:
    """Choose ⌊rate · n⌋ of each row's n candidates at random."""
    keys = torch.rand(candidates.shape).to(candidates.device).masked_fill(~candidates, 2.0)
    rank = keys.argsort(dim=1, stable=True).argsort(dim=1, stable=True)
    # The small constant is for products such as 0.29 · 100, which floating point puts just below the whole number.
    count = (candidates.sum(dim=1, keepdim=True).double() * rate + 1e-9).floor()
    return candidates & (rank < count)


def _wide(index: Tensor, width: int) -> Tensor:
    return index.unsqueeze(-1).expand(-1, -1, width)
