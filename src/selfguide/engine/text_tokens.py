"""The text of a run as tokens: made once, ahead of training, and laid into batches from there.

The stock collator runs the tokenizer on every batch, in the loop, and again in every epoch. Here each column of text goes
through it once, many sentences at a time (which a fast tokenizer does in parallel), into one flat array; a batch is then a
few slices of it. What comes out is what the encoder's own ``preprocess`` gives, number for number.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from datasets import Dataset
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer

LABELS = ("label", "labels", "score", "scores")
# Of more sentences than these, a table from sentence to tokens is too much memory: they are tokenised batch by batch.
AHEAD_LIMIT = 2_000_000
_CHUNK = 4096
_FIELDS = {"input_ids", "attention_mask", "token_type_ids"}

Features = dict[str, Any]


class TokenisedText:
    """Every sentence of a dataset's text columns, as tokens, cut to the encoder's length.

    A sentence is found by its words, so neither the order of the rows nor repeats matter.
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
        self.lengths = np.concatenate(lengths)
        self._tokens = np.concatenate(parts)
        self._ends = np.concatenate([[0], np.cumsum(self.lengths)])

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def fingerprint(self) -> str:
        """Of the tokens and their order: text, tokenizer and length limit in one."""
        digest = hashlib.sha256(self.lengths.tobytes())
        digest.update(self._tokens.tobytes())
        return digest.hexdigest()

    def batch(self, rows: Sequence[int]) -> Features:
        """The padded batch of these rows, as the encoder's ``preprocess`` would make it of their sentences."""
        lengths = self.lengths[list(rows)]
        width = int(lengths.max())
        ids = np.full((len(rows), width), self._padding, dtype=np.int64)
        steps = np.arange(width)
        real = steps >= width - lengths[:, None] if self._left else steps < lengths[:, None]
        ids[real] = np.concatenate([self._tokens[self._ends[row] : self._ends[row + 1]] for row in rows])
        made = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(real.astype(np.int64))}
        if "token_type_ids" in self._template:
            made["token_type_ids"] = torch.zeros_like(made["input_ids"])
        return {name: made.get(name, value) for name, value in self._template.items()}


def tokenise(encoder: SentenceTransformer, text: Dataset) -> TokenisedText | None:
    """A dataset's text as tokens; ``None`` where it must be done batch by batch: too much text, or another kind of encoder."""
    columns = [name for name in text.column_names if name not in LABELS]
    holds_sentences = all(getattr(text.features[name], "dtype", "") in ("string", "large_string") for name in columns)
    changes_on_reading = text.format["type"] is not None
    if len(text) * len(columns) > AHEAD_LIMIT or not holds_sentences or changes_on_reading or not _is_plain(encoder):
        return None
    # By column, so that the rows of a run that trains on one column of sentences are those of its text.
    chunks = (chunk[name] for name in columns for chunk in text.select_columns([name]).iter(_CHUNK))
    return TokenisedText(encoder, (sentence for chunk in chunks for sentence in chunk))


def _is_plain(encoder: SentenceTransformer) -> bool:
    """Whether the encoder's ``preprocess`` is its tokenizer and nothing else: no prompts, no words looked up in a table."""
    if not callable(encoder.tokenizer) or getattr(encoder.tokenizer, "pad_token_id", None) is None:
        return False
    made = encoder.preprocess(["a", "b a a"])
    tensors = {name for name, value in made.items() if isinstance(value, Tensor)}
    if not {"input_ids", "attention_mask"} <= tensors or not tensors <= _FIELDS:
        return False
    again = TokenisedText(encoder, ["a", "b a a"]).batch([0, 1])
    return all(torch.equal(made[name], again[name]) for name in tensors)


class TokenCollator:
    """Rows of the dataset → features, from tokens made ahead; stands in for the stock collator.

    ``finish`` gets the first column's features and the rows they are of, while they are on the host, and may add to them.
    """

    def __init__(self, text: TokenisedText, finish: Callable[[Features, list[int]], Features]) -> None:
        self.text, self.finish = text, finish
        # What the trainer reads of a collator.
        self.valid_label_columns = list(LABELS)

    def __call__(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
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
