"""The prepared text on the device: one long row of tokens, with the boundaries of sentences, lines and documents."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .prepare import DOCUMENT, HELD_OUT, LENGTH, LINE, SENTENCES, TOKENS, part_language, part_names, read_numbers
from .tokenizer import MASK


class Corpus(NamedTuple):
    """Token ids end to end, and for each sentence the position of it, of its line and of its document."""

    tokens: Tensor  # (N,) int16
    starts: Tensor  # (S + 1,) first token of each sentence, then N
    line_starts: Tensor  # (S,) first token of the sentence's line
    document_starts: Tensor  # (S,) first token of the sentence's document
    document_ends: Tensor  # (S,) end of the sentence's document


class Spans(NamedTuple):
    """Spans of the corpus: first token and length, without special tokens."""

    start: Tensor
    length: Tensor


def corpus_of(tokens: np.ndarray, marks: np.ndarray, device: torch.device) -> Corpus:
    """Return the arrays of one or more parts as tensors on a device."""
    ends = np.cumsum((marks & LENGTH).astype(np.int64))
    if not len(marks) or ends[-1] != len(tokens):
        raise ValueError("The sentence file does not belong to the token file.")
    starts = np.concatenate([[0], ends])
    lines = np.maximum.accumulate(np.where(marks & LINE, starts[:-1], 0))
    first = np.flatnonzero(marks & DOCUMENT)
    sentences = np.diff(np.append(first, len(marks)))
    document_starts = np.repeat(starts[first], sentences)
    document_ends = np.repeat(np.append(starts[first[1:]], len(tokens)), sentences)
    arrays = (tokens.astype(np.int16), starts, lines, document_starts, document_ends)
    return Corpus(*(torch.from_numpy(a).to(device) for a in arrays))


def load_corpus(folder: Path, device: torch.device) -> tuple[Corpus, dict[str, int]]:
    """Load all training parts of a folder.

    Args:
        folder: The folder of prepared parts.
        device: The device.

    Returns:
        The corpus, and the number of tokens of each language in the order in which they lie; one nameless language if they
        were not kept apart.
    """
    names = part_names(folder)
    tokens, marks = _read(folder, names)
    sizes: dict[str, int] = {}
    for name, part in zip(names, tokens, strict=True):
        sizes[part_language(name)] = sizes.get(part_language(name), 0) + len(part)
    return corpus_of(np.concatenate(tokens), np.concatenate(marks), device), sizes


def load_held_out(folder: Path, device: torch.device) -> dict[str, Corpus]:
    """Load the held-out part of each language; of the nameless one if they were not kept apart."""
    names = part_names(folder, HELD_OUT)
    tokens, marks = _read(folder, names)
    return {
        part_language(name): corpus_of(part, mark, device)
        for name, part, mark in zip(names, tokens, marks, strict=True)
    }


def _read(folder: Path, names: list[str]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    files = [name + end for end in (TOKENS, SENTENCES) for name in names]
    with ThreadPoolExecutor() as pool:  # decompression releases the interpreter lock
        arrays = list(pool.map(lambda name: read_numbers(folder, name), files))
    return arrays[: len(names)], arrays[len(names) :]


def topic_weights(corpus: Corpus, vocab: int, threshold: float = 1e-4) -> Tensor:
    """Return how much each token says about a topic, (vocab,): min(1, sqrt(threshold / its frequency in the corpus)).

    Special tokens, up to [MASK], get 0.
    """
    # In slices, because the whole corpus in 64-bit integers would take gigabytes.
    counts = torch.zeros(vocab, dtype=torch.long, device=corpus.tokens.device)
    for part in corpus.tokens.split(1 << 24):
        counts += torch.bincount(part.long(), minlength=vocab)
    frequency = counts / corpus.tokens.shape[0]
    weights = (threshold / frequency).sqrt().clamp(max=1.0)  # a token that never occurs gets 1
    weights[: MASK + 1] = 0.0
    return weights
