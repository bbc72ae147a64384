"""Sentences as tokens: the ids of many sentences in one flat array, and batches of them.

:class:`Tokens` is that array. Encoding makes one for each chunk of sentences (:func:`tokenise`) and runs it in batches of
about equally many tokens. Training makes one for the whole text (:class:`TokenisedText`), because the stock collator would
run the tokenizer on every batch, in the loop, and again in every epoch; a batch then is a few slices of the array, and equals
what the encoder's own ``preprocess`` gives.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from datasets import Dataset
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer

# Tokens in a forward pass. On a CPU more do not help and overflow the cache; a GPU needs enough to keep all of it busy.
CPU_TOKENS = 512
GPU_TOKENS = 32_768
LABELS = ("label", "labels", "score", "scores")
"""Names of dataset columns that hold labels instead of text."""
# With more sentences than this the table from sentence to row takes too much memory: they are tokenised batch by batch.
AHEAD_LIMIT = 2_000_000
_CHUNK = 4096
_FIELDS = {"input_ids", "attention_mask", "token_type_ids"}

Features = dict[str, Any]


@dataclass(frozen=True)
class Tokens:
    """Token ids of several sentences, end to end; sentence n has ``lengths[n]`` of them."""

    ids: NDArray[np.integer]
    lengths: NDArray[np.int64]

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Index of each sentence's first token."""
        return np.cumsum(self.lengths) - self.lengths

    def positions(self) -> NDArray[np.int64]:
        """Return the position of every token in its own sentence."""
        return np.arange(len(self.ids)) - np.repeat(self.starts, self.lengths)

    def take(self, rows: NDArray[np.int64]) -> Tokens:
        """Return the tokens of the given sentences, in that order."""
        lengths = self.lengths[rows]
        shift = self.starts[rows] - (np.cumsum(lengths) - lengths)
        return Tokens(self.ids[np.arange(lengths.sum()) + np.repeat(shift, lengths)], lengths)

    def padded(self, padding: int, left: bool = False) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return token ids and attention mask as (sentences, longest).

        Args:
            padding: Id of the padding token.
            left: Pad on the left instead of the right.
        """
        width = int(self.lengths.max())
        steps = np.arange(width)
        mask = steps >= width - self.lengths[:, None] if left else steps < self.lengths[:, None]
        ids = np.full(mask.shape, padding, dtype=np.int64)
        ids[mask] = self.ids
        return ids, mask.astype(np.int64)

    def batches(self, budget: int, most: int | None, parts: int = 1) -> list[Batch]:
        """Split the sentences into batches, the longest first; see :func:`rows_by_length` for the arguments.

        Args:
            budget: Maximum number of tokens per batch.
            most: Maximum number of sentences per batch.
            parts: Divide the work into at least this many batches.

        Returns:
            The batches, which together hold every sentence once.
        """
        split = rows_by_length(self.lengths, budget, most, parts)
        if not split:
            return []
        ordered = self.take(np.concatenate(split))
        batches = []
        start = 0
        for rows in split:
            lengths = self.lengths[rows]
            end = start + int(lengths.sum())
            batches.append(Batch(ordered.ids[start:end], lengths, rows))
            start = end
        return batches


@dataclass(frozen=True)
class Batch(Tokens):
    """Sentences that go through the model together, with their rows in the chunk that they come from."""

    rows: NDArray[np.int64]


def rows_by_length(
    lengths: NDArray[np.int64], budget: int, most: int | None = None, parts: int = 1
) -> list[NDArray[np.int64]]:
    """Group sentences of similar length into batches, the longest first.

    Args:
        lengths: Number of tokens of each sentence; sentences without tokens are left out.
        budget: Tokens in a batch, padding included.
        most: Sentences in a batch at most.
        parts: Number of workers; few sentences are divided into smaller batches, so that each gets one. 0: they are not.

    Returns:
        The rows of each batch.
    """
    if parts:
        budget = max(1, min(budget, -(-int(lengths.sum()) // parts)))
    order = np.argsort(-lengths, kind="stable")[: np.count_nonzero(lengths)]
    batches: list[NDArray[np.int64]] = []
    start = 0
    while start < len(order):
        count = max(1, budget // int(lengths[order[start]]))
        count = min(count, most) if most else count
        batches.append(order[start : start + count])
        start += count
    return batches


def tokenise(tokenizer: Any, sentences: Sequence[str], limit: int) -> Tokens:
    """Tokenise sentences for encoding.

    Args:
        tokenizer: The encoder's tokenizer. A fast one is called directly, because its wrapper is slower than it.
        sentences: The sentences.
        limit: Number of tokens after which a sentence is truncated.

    Returns:
        Their tokens.
    """
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


def token_counts(tokenizer: Any, sentences: Sequence[str]) -> list[int]:
    """Count the tokens of sentences, special ones included, without truncating any.

    Args:
        tokenizer: The encoder's tokenizer. A fast one is called directly, which takes half of the time of its wrapper.
        sentences: The sentences.

    Returns:
        The number of tokens of each.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return [len(row) for row in tokenizer(list(sentences), truncation=False, verbose=False)["input_ids"]]
    backend.no_padding()
    backend.no_truncation()
    return [len(encoding) for encoding in backend.encode_batch_fast(list(sentences))]


def length_limit(model: SentenceTransformer) -> int:
    """Return the number of tokens after which a model truncates a sentence."""
    limit = model.max_seq_length
    return int(limit) if limit and math.isfinite(limit) else 512


def tokens_per_pass(model: SentenceTransformer) -> int:
    """Return how many tokens a forward pass should have on the model's device."""
    return CPU_TOKENS if model.device.type == "cpu" else GPU_TOKENS


class TokenisedText:
    """The distinct sentences of a text as tokens, truncated to the encoder's length.

    A sentence is looked up by its text, so neither the order of the dataset's rows nor repeats matter.

    Args:
        encoder: Its ``preprocess`` tokenises.
        sentences: The text.
    """

    def __init__(self, encoder: SentenceTransformer, sentences: Iterable[str]) -> None:
        tokenizer = encoder.tokenizer
        self._padding = int(tokenizer.pad_token_id)
        self._left = tokenizer.padding_side == "left"
        self._template = encoder.preprocess(["a"])
        self.rows: dict[str, int] = {}
        for sentence in sentences:
            self.rows.setdefault(sentence, len(self.rows))
        everything = list(self.rows)
        lengths: list[NDArray[np.int64]] = []
        parts: list[NDArray[np.int32]] = []
        for start in range(0, len(everything), _CHUNK):
            made = encoder.preprocess(everything[start : start + _CHUNK])
            mask: Tensor = made["attention_mask"].bool()
            lengths.append(mask.sum(dim=1).numpy())
            parts.append(made["input_ids"][mask].numpy().astype(np.int32))
        self.tokens = Tokens(np.concatenate(parts), np.concatenate(lengths))

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of tokens of each sentence."""
        return self.tokens.lengths

    @property
    def fingerprint(self) -> str:
        """Digest of the tokens and their order, which covers text, tokenizer and length limit."""
        digest = hashlib.sha256(self.tokens.lengths.tobytes())
        digest.update(self.tokens.ids.tobytes())
        return digest.hexdigest()

    def batch(self, rows: Sequence[int] | NDArray[np.int64]) -> Features:
        """Return the padded batch of these rows, as the encoder's ``preprocess`` would make it of their sentences."""
        ids, mask = self.tokens.take(np.asarray(rows)).padded(self._padding, self._left)
        made = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}
        if "token_type_ids" in self._template:
            made["token_type_ids"] = torch.zeros_like(made["input_ids"])
        return {name: made.get(name, value) for name, value in self._template.items()}


def tokenise_dataset(encoder: SentenceTransformer, text: Dataset) -> TokenisedText | None:
    """Tokenise the text columns of a dataset ahead of training.

    Args:
        encoder: The encoder to be trained.
        text: The dataset; columns named as in ``LABELS`` are not text.

    Returns:
        The tokens, or ``None`` where each batch must be tokenised in the loop: too much text, or an encoder whose
        ``preprocess`` does more than run a tokenizer.
    """
    columns = [name for name in text.column_names if name not in LABELS]
    holds_sentences = all(getattr(text.features[name], "dtype", "") in ("string", "large_string") for name in columns)
    changes_on_reading = text.format["type"] is not None
    if len(text) * len(columns) > AHEAD_LIMIT or not holds_sentences or changes_on_reading or not is_plain(encoder):
        return None
    # By column, so that with one column of distinct sentences the rows here are those of the dataset.
    chunks = (chunk[name] for name in columns for chunk in text.select_columns([name]).iter(_CHUNK))
    return TokenisedText(encoder, (sentence for chunk in chunks for sentence in chunk))


def is_plain(encoder: SentenceTransformer) -> bool:
    """Return whether an encoder's ``preprocess`` is its tokenizer and nothing else: no prompts, no static embeddings.

    Args:
        encoder: The encoder.

    Returns:
        Whether a batch can be made of token ids alone.
    """
    if not callable(encoder.tokenizer) or getattr(encoder.tokenizer, "pad_token_id", None) is None:
        return False
    made = encoder.preprocess(["a", "b a a"])
    tensors = {name for name, value in made.items() if isinstance(value, Tensor)}
    if not {"input_ids", "attention_mask"} <= tensors or not tensors <= _FIELDS:
        return False
    again = TokenisedText(encoder, ["a", "b a a"]).batch([0, 1])
    return all(torch.equal(made[name], again[name]) for name in tensors)


class TokenCollator:
    """Collate rows of a dataset from tokens made before training; replaces the stock collator.

    Args:
        text: The tokens of the dataset's sentences.
        finish: Called with the first column's features and their rows while they are on the CPU; returns the features to
            be used.
    """

    def __init__(self, text: TokenisedText, finish: Callable[[Features, list[int]], Features]) -> None:
        self.text, self.finish = text, finish
        # The trainer reads this attribute of a collator.
        self.valid_label_columns = list(LABELS)

    def __call__(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the features of a batch, named ``COLUMN_FIELD``, and its labels."""
        batch: dict[str, Any] = {}
        columns = [name for name in examples[0] if name != "dataset_name"]
        label = next((name for name in columns if name in LABELS), None)
        if label is not None:
            batch["label"] = torch.tensor([example[label] for example in examples])
            columns.remove(label)
        for number, column in enumerate(columns):
            rows = [self.text.rows[example[column]] for example in examples]
            features = self.text.batch(rows)
            if number == 0:
                features = self.finish(features, rows)
            for name, value in features.items():
                batch[f"{column}_{name}"] = value
        return batch
