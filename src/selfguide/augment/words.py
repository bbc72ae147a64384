"""Augmentations that rewrite a sentence: text masked or deleted, tokens masked, deleted, reordered or replaced.

:func:`mask_span` (Mirror-BERT) and :func:`drop_words` (TSDAE) work on text. The others (CLEAR) work on the ids of a sentence's
own tokens, without [CLS] and [SEP]; as in CLEAR, "word" means token there.

References: Liu et al., EMNLP 2021 (Mirror-BERT); Wang, Reimers and Gurevych, Findings of EMNLP 2021 (TSDAE); Wu et al., CLEAR:
Contrastive Learning for Sentence Representation, 2020.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection

import torch

from selfguide.augment.synonyms import Synonyms
from selfguide.words import join_words, split_words

MASKABLE = 30
"""Shortest text, in characters, of which :func:`mask_span` masks a span: a shorter one would lose too much."""

Rewriting = Callable[[list[int]], list[int]]
"""A function of the ids of a sentence's own tokens."""


def mask_span(text: str, length: int, mask: str) -> str:
    """Replace a random span of characters by the mask token.

    Args:
        text: A sentence; one below :data:`MASKABLE` characters is returned unchanged.
        length: Characters to replace; 0 for none.
        mask: The mask token.

    Returns:
        The text with one span replaced.
    """
    if length == 0 or not maskable(text, length):
        return text
    start = int(torch.randint(len(text) - length + 1, ()))
    return f"{text[:start]} {mask} {text[start + length :]}"


def maskable(text: str, length: int) -> bool:
    """Return whether :func:`mask_span` masks a span of this length in a text."""
    return len(text) >= max(MASKABLE, length + 1)


def drop_words(text: str, rate: float) -> str:
    """Delete each word and punctuation mark of a text with probability ``rate``; one is always kept.

    Where a script has no spaces between words, its characters are the words (:mod:`selfguide.words`).

    Args:
        text: The sentence.
        rate: Probability of each word.

    Returns:
        The words that are left, joined by spaces where the script has them.
    """
    words = split_words(text)
    if not words:
        return text
    kept = torch.rand(len(words)) >= rate
    if not bool(kept.any()):
        kept[int(torch.randint(len(words), ()))] = True
    return join_words([word for word, stays in zip(words, kept.tolist(), strict=True) if stays])


def delete_words(tokens: list[int], rate: float, marker: int | None) -> list[int]:
    """Delete ⌊rate · n⌋ of n tokens, chosen uniformly.

    Args:
        tokens: Ids of a sentence's own tokens.
        rate: Fraction to delete.
        marker: Id that replaces each run of deleted tokens; ``None`` for nothing.

    Returns:
        The tokens that are left, at least one of them, with markers between them.
    """
    gone = set(torch.randperm(len(tokens))[: _share(len(tokens), rate)].tolist())
    return _without(tokens, gone, marker)


def delete_spans(tokens: list[int], spans: int, length: float, marker: int | None) -> list[int]:
    """Delete several spans of tokens.

    Args:
        tokens: Ids of a sentence's own tokens.
        spans: Number of spans; fewer in a short sentence, which would lose a larger fraction of its tokens.
        length: Length of a span as a fraction of the sentence; at least one token.
        marker: Id that replaces each run of deleted tokens; ``None`` for nothing.

    Returns:
        The tokens that are left, at least one of them, with markers between them.
    """
    size, starts = _draw_spans(len(tokens), length, _fitting(len(tokens), spans, length))
    gone = {start + offset for start in starts for offset in range(size)}
    return _without(tokens, gone, marker)


def reorder(tokens: list[int], pairs: int, length: float) -> list[int]:
    """Swap pairs of spans.

    Args:
        tokens: Ids of a sentence's own tokens.
        pairs: Pairs of spans to swap; fewer in a short sentence.
        length: Length of a span as a fraction of the sentence; at least one token.

    Returns:
        The same tokens in another order.
    """
    size, starts = _draw_spans(len(tokens), length, 2 * _fitting(len(tokens), pairs, length))
    moved = list(tokens)
    for one, other in zip(starts[::2], starts[1::2], strict=False):
        moved[one : one + size], moved[other : other + size] = tokens[other : other + size], tokens[one : one + size]
    return moved


def substitute(tokens: list[int], rate: float, synonyms: Synonyms) -> list[int]:
    """Replace ⌊rate · n⌋ of n tokens by one of their synonyms each.

    Args:
        tokens: Ids of a sentence's own tokens.
        rate: Fraction to replace.
        synonyms: Looks up the synonyms of a token; a token without any is kept.

    Returns:
        The rewritten tokens.
    """
    chosen = set(torch.randperm(len(tokens))[: _share(len(tokens), rate)].tolist())
    rewritten: list[int] = []
    for place, token in enumerate(tokens):
        choices = synonyms(token) if place in chosen else ()
        rewritten += choices[int(torch.randint(len(choices), ()))] if choices else [token]
    return rewritten


def mask_tokens(
    tokens: list[int], rate: float, mask: int, vocabulary: int, barred: Collection[int] = ()
) -> tuple[list[int], list[int]]:
    """Hide tokens for masked language modelling: 80 % become [MASK], 10 % a random token, 10 % stay.

    Args:
        tokens: Ids of a sentence's own tokens.
        rate: Fraction to hide; at least one token.
        mask: Id of [MASK].
        vocabulary: Size of the vocabulary that random tokens are drawn from.
        barred: Ids that are never put in; [MASK] takes their place.

    Returns:
        The sentence with hidden tokens, and their positions.
    """
    places = torch.randperm(len(tokens))[: max(1, round(rate * len(tokens)))].tolist() if tokens else []
    hidden = list(tokens)
    for place in places:
        draw = float(torch.rand(()))
        if draw < 0.8:
            hidden[place] = mask
        elif draw < 0.9:
            other = int(torch.randint(vocabulary, ()))
            hidden[place] = mask if other in barred else other
    return hidden, places


def _without(tokens: list[int], gone: set[int], marker: int | None) -> list[int]:
    if len(gone) == len(tokens) and tokens:
        gone = gone - {int(torch.randint(len(tokens), ()))}  # an empty sentence has no meaning to contrast
    kept: list[int] = []
    for place, token in enumerate(tokens):
        if place not in gone:
            kept.append(token)
        elif marker is not None and (place == 0 or place - 1 not in gone):
            kept.append(marker)
    return kept


def _share(count: int, rate: float) -> int:
    return math.floor(count * rate + 1e-9)


def _fitting(count: int, wanted: int, length: float) -> int:
    """Return how many spans to draw: at least one, and no more tokens than ``wanted`` spans of exact length would have."""
    size = max(1, round(count * length))
    return max(1, min(wanted, _share(count, wanted * length) // size))


def _draw_spans(count: int, length: float, wanted: int) -> tuple[int, list[int]]:
    """Draw non-overlapping spans: their size, and their starts in random order.

    The sentence is divided into cells of that size, from a random offset on, and cells are drawn.
    """
    size = max(1, round(count * length))
    if count < size:
        return size, []
    slack = count % size
    first = int(torch.randint(slack + 1, ())) if slack else 0
    cells = torch.arange(first, count - size + 1, size)
    return size, cells[torch.randperm(len(cells))][:wanted].tolist()
