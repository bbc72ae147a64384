"""How far exported embeddings are from the encoder's own, on a text.

Three figures, none of which needs labels:

* ``cosine``: of each sentence's two embeddings; the mean, and the lowest. Not where an embedding has fewer dimensions.
* ``rank_agreement``: the Spearman correlation of the similarities of all pairs of sentences, by one and by the other.
* ``same_neighbours``: of a sentence's ten most similar ones by the encoder, the share that the exported embeddings find too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selfguide.correlation import spearman
from selfguide.engine.onnx_export import INPUTS
from selfguide.engine.tokens import rows_by_length
from selfguide.engine.vector_form import VectorForm, normalised

NEIGHBOURS = 10
# Sentences that are compared, each with all others.
SAMPLE = 512
# Tokens in a batch.
_TOKENS = 2048

Run = Callable[[dict[str, NDArray[np.int64]]], NDArray[Any]]


@dataclass(frozen=True)
class Agreement:
    """Exported embeddings beside the encoder's own."""

    rank_agreement: float
    same_neighbours: float
    cosine_mean: float | None = None
    cosine_lowest: float | None = None

    def summary(self) -> str:
        """Return the figures as part of a line."""
        cosine = f"cosine {self.cosine_mean:.4f} (lowest {self.cosine_lowest:.4f}), " if self.cosine_mean else ""
        return (
            f"{cosine}rank agreement {self.rank_agreement:.4f}, {100 * self.same_neighbours:.1f} % of neighbours kept"
        )


def sample(sentences: Iterable[str], count: int = SAMPLE) -> tuple[list[str], int]:
    """Choose sentences that are evenly spaced in a text of unknown length, each once.

    Args:
        sentences: The text, read once.
        count: How many are wanted at most.

    Returns:
        The sentences, and how many the text has.
    """
    kept: list[str] = []
    seen: set[str] = set()
    step, total = 1, 0
    for number, sentence in enumerate(sentences):
        total = number + 1
        if number % step or sentence in seen or not sentence.strip():
            continue
        kept.append(sentence)
        seen.add(sentence)
        if len(kept) == 2 * count:
            kept, step = kept[::2], 2 * step
            seen = set(kept)
    return kept[:: -(-len(kept) // count)] if len(kept) > count else kept, total


def compare(expected: NDArray[Any], found: NDArray[Any], *, same_space: bool = True) -> Agreement:
    """Compare embeddings with those of the encoder.

    Args:
        expected: The encoder's own, (count, dim).
        found: The exported ones, in floats.
        same_space: Whether they have the same meaning dimension by dimension, so that a cosine can be taken.

    Returns:
        The figures; rank agreement and neighbours are NaN for fewer than three sentences.
    """
    one, other = (normalised(vectors.astype(np.float64)) for vectors in (expected, found))
    cosine: dict[str, float] = {}
    if same_space and one.shape == other.shape:
        cosines = (one * other).sum(axis=1)
        cosine = {"cosine_mean": float(cosines.mean()), "cosine_lowest": float(cosines.min())}
    if len(one) < 3:
        return Agreement(float("nan"), float("nan"), **cosine)
    first, second = one @ one.T, other @ other.T
    upper = np.triu_indices(len(one), 1)
    return Agreement(spearman(first[upper], second[upper]), _kept(first, second), **cosine)


def _kept(first: NDArray[Any], second: NDArray[Any]) -> float:
    """Return the share of nearest neighbours that both similarities find, averaged over sentences."""
    count = min(NEIGHBOURS, len(first) - 2)
    found = []
    for similarity in (first, second):
        own = similarity.copy()
        np.fill_diagonal(own, -np.inf)
        nearest = np.argsort(-own, axis=1, kind="stable")[:, :count]
        mask = np.zeros(own.shape, dtype=bool)
        np.put_along_axis(mask, nearest, True, axis=1)
        found.append(mask)
    return float((found[0] & found[1]).sum() / (count * len(first)))


def floats(vectors: NDArray[Any], form: VectorForm) -> NDArray[Any]:
    """Return quantised embeddings as the numbers that they stand for, so that cosines can be taken.

    Args:
        vectors: What an exported graph gave.
        form: The form of its embeddings.

    Returns:
        Floats, (count, dim); a bit is −1 or 1.
    """
    if form.precision.endswith("binary"):
        raw: NDArray[np.uint8] = vectors.view(np.uint8)
        signed = np.uint8(0x80 if form.precision == "binary" else 0)
        return np.unpackbits(np.bitwise_xor(raw, signed, dtype=np.uint8), axis=1).astype(np.float32) * 2 - 1
    if form.ranges is not None:
        steps = vectors.astype(np.float32) + (128 if form.precision == "int8" else 0)
        return form.ranges[0] + (steps + 0.5) * (form.ranges[1] - form.ranges[0]) / 255
    return vectors


def run_files(tokenizer_file: Path, run: Run, sentences: list[str]) -> NDArray[Any]:
    """Encode sentences as a user of an exported folder does: with its tokenizer's file and its graph.

    Args:
        tokenizer_file: The folder's ``tokenizer.json``, which truncates and pads.
        run: Runs the graph.
        sentences: The sentences.

    Returns:
        The embeddings, in order.
    """
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    lengths = np.array([sum(row.attention_mask) for row in map(tokenizer.encode, sentences)], dtype=np.int64)
    parts, order = [], []
    for rows in rows_by_length(np.maximum(lengths, 1), _TOKENS, parts=0):
        batch = tokenizer.encode_batch([sentences[row] for row in rows])
        inputs = {
            INPUTS[0]: np.array([one.ids for one in batch], dtype=np.int64),
            INPUTS[1]: np.array([one.attention_mask for one in batch], dtype=np.int64),
        }
        parts.append(run(inputs))
        order.append(rows)
    vectors = np.concatenate(parts)
    found = np.empty_like(vectors)
    found[np.concatenate(order)] = vectors
    return found
