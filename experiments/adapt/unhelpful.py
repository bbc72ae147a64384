"""Texts from which nothing can be learnt about the pairs that judge: another language, or one repeated template.

An encoder adapted to such a text must come back at most half a point worse on its own pairs; the choice without labels has to
see that the text gives no reason to change it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from selfguide.data.pairs import read_pairs
from selfguide.errors import UsageError

KINDS = ("korean", "turkish", "template", "shuffled")
COUNT = 1500
_FILES = {"korean": "multilingual/korsts-train.tsv", "turkish": "multilingual/sts17-tr-en.tsv"}


def unhelpful_text(kind: str, own: Sequence[str], data: Path, seed: int) -> tuple[str, ...]:
    """Make an unhelpful text.

    Args:
        kind: ``korean`` or ``turkish`` sentences, one English ``template`` with numbers, or the judged text with its words
            ``shuffled`` over all sentences.
        own: The sentences of the text that judges.
        data: The data folder.
        seed: Seed of whatever is drawn.

    Returns:
        Distinct sentences.
    """
    draw = np.random.default_rng(seed)
    if kind == "template":
        return tuple(f"Order {number} was shipped on day {number % 28 + 1} of the month." for number in range(COUNT))
    if kind == "shuffled":
        words = [word for sentence in own for word in sentence.split()]
        draw.shuffle(words)
        lengths = [len(sentence.split()) for sentence in own]
        ends = np.cumsum(lengths)
        return tuple(dict.fromkeys(" ".join(words[end - n : end]) for end, n in zip(ends, lengths, strict=True) if n))
    if kind not in _FILES:
        raise UsageError(f"There is no unhelpful text {kind!r}; there are {', '.join(KINDS)}.")
    pairs = read_pairs(data / _FILES[kind])
    sentences = list(dict.fromkeys(pairs.first))
    return tuple(sentences[row] for row in draw.permutation(len(sentences))[:COUNT])
