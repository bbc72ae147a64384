"""Augmentations of a tokenised batch at the embedding layer: what ConSERT does to a sentence instead of rewriting it.

A :class:`TokenBatch` is a padded batch and a factor for each number that the embedding layer gives out. An augmentation
is a function ``TokenBatch -> TokenBatch``; it changes the order of the tokens or the factor, never the mask:

* ``shuffle``          the sentence's tokens change places; [CLS] and [SEP] stay.
* ``token-cutoff``     a share of the tokens is set to zero as a whole; never [CLS] or [SEP].
* ``feature-cutoff``   a share of the dimensions is set to zero in all tokens of a sentence; each sentence has its own.
* ``dropout``          single numbers are set to zero, each by itself. The rest is not scaled up.
* ``none``             nothing; ``shuffle+token-cutoff`` and the like apply one after the other.

Everything random is drawn from torch's global generator on the CPU, so that a seed means the same on every device and a
resumed run, whose generator is restored, draws what the uninterrupted one would have.

Shuffling moves the tokens, where ConSERT's own code permutes their position numbers. A Transformer cannot tell the two
apart (its output comes in another order, which pooling does not see), but moving tokens needs no position numbers, so it
works with relative and rotary positions too.

Reference: Yan et al., ConSERT: A Contrastive Framework for Self-Supervised Sentence Representation Transfer, ACL 2021.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from selfguide.errors import UsageError

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
    """(batch, tokens): true for [CLS], [SEP] and padding, which keep their places."""
    factor: Tensor
    """(batch, tokens, width): what the embedding layer's output is multiplied by."""

    @property
    def content(self) -> Tensor:
        """(batch, tokens): true for the sentence's own tokens."""
        return self.attention_mask.bool() & ~self.special


Augmentation = Callable[[TokenBatch], TokenBatch]


def token_batch(input_ids: Tensor, attention_mask: Tensor, special_ids: Collection[int], width: int) -> TokenBatch:
    """A batch that nothing has been done to; ``width``: of the embedding layer's output."""
    frame = torch.tensor(sorted(special_ids), dtype=input_ids.dtype, device=input_ids.device)
    special = torch.isin(input_ids, frame)
    factor = torch.ones(*input_ids.shape, width, device=input_ids.device)
    return TokenBatch(input_ids, attention_mask, special, factor)


def frame_ids(tokenizer: Any) -> set[int]:
    """The tokens that frame a sentence: [CLS], [SEP], padding and their like. [MASK] and [UNK] stand for words."""
    names = ("cls_token_id", "sep_token_id", "pad_token_id", "bos_token_id", "eos_token_id")
    found = {getattr(tokenizer, name, None) for name in names}
    words = {getattr(tokenizer, name, None) for name in ("mask_token_id", "unk_token_id")}
    return {int(token) for token in found - words if token is not None}


def unchanged(batch: TokenBatch) -> TokenBatch:
    """The batch as it is."""
    return batch


def shuffle(batch: TokenBatch) -> TokenBatch:
    """Every order of a sentence's own tokens is equally likely."""
    content = batch.content
    keys = torch.rand(content.shape).to(content.device)
    # Both lists name a row's content first and the rest after it, which is the same in both and so stays where it is.
    # (Stable sorts: tokens with equal keys come in their order.)
    places = torch.argsort((~content).long(), dim=1, stable=True)
    tokens = torch.argsort(keys.masked_fill(~content, 2.0), dim=1, stable=True)
    width = batch.factor.shape[-1]
    return replace(
        batch,
        input_ids=batch.input_ids.scatter(1, places, batch.input_ids.gather(1, tokens)),
        factor=batch.factor.scatter(1, _wide(places, width), batch.factor.gather(1, _wide(tokens, width))),
    )


def token_cutoff(batch: TokenBatch, rate: float) -> TokenBatch:
    """Zero ⌊rate · n⌋ of a sentence's n own tokens, chosen uniformly."""
    chosen = _choose(batch.content, rate)
    return replace(batch, factor=batch.factor * (~chosen).unsqueeze(-1))


def feature_cutoff(batch: TokenBatch, rate: float) -> TokenBatch:
    """Zero ⌊rate · width⌋ dimensions of each sentence in all its real tokens, [CLS] and [SEP] too."""
    rows, _, width = batch.factor.shape
    cut = _choose(torch.ones(rows, width, dtype=torch.bool, device=batch.factor.device), rate)
    real = batch.attention_mask.bool()
    return replace(batch, factor=batch.factor * ~(cut.unsqueeze(1) & real.unsqueeze(-1)))


def embedding_dropout(batch: TokenBatch, rate: float) -> TokenBatch:
    """Zero each number of the real tokens with probability ``rate``."""
    cut = torch.rand(batch.factor.shape).to(batch.factor.device) < rate
    return replace(batch, factor=batch.factor * ~(cut & batch.attention_mask.bool().unsqueeze(-1)))


def compose(*steps: Augmentation) -> Augmentation:
    """One augmentation after the other."""

    def augment(batch: TokenBatch) -> TokenBatch:
        for step in steps:
            batch = step(batch)
        return batch

    return augment


def parse_augmentation(words: str, rates: Mapping[str, float] = DEFAULT_RATES) -> Augmentation:
    """The augmentation of a name, or of several joined by ``+``; ``rates`` go by the names."""
    steps: list[Augmentation] = []
    for name in (part.strip() for part in words.split("+")):
        if name not in AUGMENTATIONS:
            raise UsageError(
                f"There is no augmentation {name!r} (in {words!r}); choose one of {', '.join(AUGMENTATIONS)}, "
                "or join several with +."
            )
        rate = rates.get(name, 0.0)
        if not 0 <= rate < 1:
            raise UsageError(f"The rate of {name} must be from 0 up to 1, got {rate}.")
        plain: dict[str, Augmentation] = {
            "none": unchanged,
            "shuffle": shuffle,
            "token-cutoff": partial(token_cutoff, rate=rate),
            "feature-cutoff": partial(feature_cutoff, rate=rate),
            "dropout": partial(embedding_dropout, rate=rate),
        }
        steps.append(plain[name])
    return compose(*steps)


def _choose(candidates: Tensor, rate: float) -> Tensor:
    """Of each row's n candidates, ⌊rate · n⌋ at random."""
    keys = torch.rand(candidates.shape).to(candidates.device).masked_fill(~candidates, 2.0)
    rank = keys.argsort(dim=1, stable=True).argsort(dim=1, stable=True)
    # The little extra is for products such as 0.29 · 100, which floating point puts just below the whole number.
    count = (candidates.sum(dim=1, keepdim=True).double() * rate + 1e-9).floor()
    return candidates & (rank < count)


def _wide(index: Tensor, width: int) -> Tensor:
    return index.unsqueeze(-1).expand(-1, -1, width)
