"""Sentences as tokens: one flat array for a chunk of sentences, and batches of it with about equally many tokens each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer

# Tokens a forward pass. On a CPU more gain nothing and leave the cache; a GPU wants as many as keep all of it busy.
CPU_TOKENS = 512
GPU_TOKENS = 32_768


@dataclass(frozen=True)
class Batch:
    """Sentences that go through the model together: their rows in the chunk and their tokens, end to end."""

    rows: NDArray[np.int64]
    lengths: NDArray[np.int64]
    ids: NDArray[np.int64]

    def positions(self) -> NDArray[np.int64]:
        """The place of every token in its own sentence."""
        starts = np.cumsum(self.lengths) - self.lengths
        return np.arange(len(self.ids)) - np.repeat(starts, self.lengths)

    def padded(self, padding: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Token ids and mask as (sentences, longest)."""
        mask = np.arange(self.lengths.max()) < self.lengths[:, None]
        ids = np.full(mask.shape, padding, dtype=np.int64)
        ids[mask] = self.ids
        return ids, mask.astype(np.int64)


@dataclass(frozen=True)
class Tokens:
    """The tokens of a chunk of sentences, end to end; sentence n has ``lengths[n]`` of them."""

    ids: NDArray[np.int64]
    lengths: NDArray[np.int64]

    def batches(self, budget: int, most: int | None, parts: int = 1) -> list[Batch]:
        """The longest sentences first, each batch of about ``budget`` tokens and of ``most`` sentences at most.

        Where the chunk is small, batches are smaller, so that each of ``parts`` workers gets one.
        """
        parted = rows_by_length(self.lengths, budget, most, parts)
        if not parted:
            return []
        order = np.concatenate(parted)
        sizes = self.lengths[order]
        # Where each token of the sorted sentences comes from: a sentence's tokens stay together.
        shift = (np.cumsum(self.lengths) - self.lengths)[order] - (np.cumsum(sizes) - sizes)
        ids = self.ids[np.arange(sizes.sum()) + np.repeat(shift, sizes)]
        batches = []
        start = 0
        for rows in parted:
            lengths = self.lengths[rows]
            end = start + int(lengths.sum())
            batches.append(Batch(rows, lengths, ids[start:end]))
            start = end
        return batches


def rows_by_length(
    lengths: NDArray[np.int64], budget: int, most: int | None, parts: int = 1
) -> list[NDArray[np.int64]]:
    """Numbers of sentences, a batch each, the longest first."""
    budget = max(1, min(budget, -(-int(lengths.sum()) // max(1, parts))))
    order = np.argsort(-lengths, kind="stable")
    order = order[: np.count_nonzero(lengths)]  # without a token there is nothing to compute
    batches: list[NDArray[np.int64]] = []
    start = 0
    while start < len(order):
        longest = max(1, int(lengths[order[start]]))
        count = max(1, budget // longest)
        count = min(count, most) if most else count
        batches.append(order[start : start + count])
        start += count
    return batches


def tokenise(tokenizer: Any, sentences: Sequence[str], limit: int) -> Tokens:
    """A chunk's tokens, cut after ``limit``. The fast tokenizer is asked directly: its wrapper is slower than it."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or tokenizer.truncation_side != "right":
        rows = tokenizer(list(sentences), truncation=True, max_length=limit)["input_ids"]
    else:
        backend.no_padding()
        backend.enable_truncation(max_length=limit)
        rows = [encoding.ids for encoding in backend.encode_batch_fast(list(sentences))]
    lengths = np.fromiter((len(row) for row in rows), dtype=np.int64, count=len(rows))
    ids = np.fromiter(chain.from_iterable(rows), dtype=np.int64, count=int(lengths.sum()))
    return Tokens(ids, lengths)


def length_limit(model: SentenceTransformer) -> int:
    """Tokens after which the model cuts a sentence."""
    limit = model.max_seq_length
    return int(limit) if limit and math.isfinite(limit) else 512


def tokens_a_pass(model: SentenceTransformer) -> int:
    """The budget of a batch where the model is."""
    return CPU_TOKENS if model.device.type == "cpu" else GPU_TOKENS
