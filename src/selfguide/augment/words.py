"""Augmentations that rewrite a sentence: characters masked (Mirror-BERT), words deleted, moved or replaced (CLEAR).

:func:`mask_span` works on text, the others on a sentence's own tokens, as a list of ids without [CLS] and [SEP]; a token
stands for a word here, as in CLEAR. Everything random comes from torch's global generator on the CPU, so that seeds repeat
and a resumed run goes on as the uninterrupted one would have.

References: Liu et al., EMNLP 2021 (Mirror-BERT); Wu et al., CLEAR: Contrastive Learning for Sentence Representation, 2020.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from selfguide.errors import SelfguideError, UsageError

MASKABLE = 30
"""Characters that a sentence must have for a span of it to be masked: shorter ones would lose too much."""

Rewriting = Callable[[list[int]], list[int]]
Synonyms = Callable[[int], Sequence[Sequence[int]]]
"""From a token to its synonyms, each a list of tokens; an empty list where there are none."""


def mask_span(text: str, length: int, mask: str) -> str:
    """Replace ``length`` neighbouring characters by the mask token; sentences below 30 characters stay as they are."""
    if length == 0 or len(text) < max(MASKABLE, length + 1):
        return text
    start = int(torch.randint(len(text) - length + 1, ()))
    return f"{text[:start]} {mask} {text[start + length :]}"


def delete_words(tokens: list[int], rate: float, marker: int | None) -> list[int]:
    """Delete ⌊rate · n⌋ of n tokens. Each run of deleted ones leaves one marker behind (``None``: nothing)."""
    gone = set(torch.randperm(len(tokens))[: _share(len(tokens), rate)].tolist())
    return _without(tokens, gone, marker)


def delete_spans(tokens: list[int], spans: int, length: float, marker: int | None) -> list[int]:
    """Delete several spans, each a share ``length`` of the sentence; see :func:`_cells` for short sentences."""
    size, cells = _cells(len(tokens), length, _fitting(len(tokens), spans, length))
    gone = {start + offset for start in cells for offset in range(size)}
    return _without(tokens, gone, marker)


def reorder(tokens: list[int], pairs: int, length: float) -> list[int]:
    """Let pairs of spans change places, each span a share ``length`` of the sentence."""
    size, cells = _cells(len(tokens), length, 2 * _fitting(len(tokens), pairs, length))
    moved = list(tokens)
    for one, other in zip(cells[::2], cells[1::2], strict=False):
        moved[one : one + size], moved[other : other + size] = tokens[other : other + size], tokens[one : one + size]
    return moved


def substitute(tokens: list[int], rate: float, synonyms: Synonyms) -> list[int]:
    """Replace ⌊rate · n⌋ of n tokens, each by one of its synonyms; a token without any stays."""
    chosen = set(torch.randperm(len(tokens))[: _share(len(tokens), rate)].tolist())
    rewritten: list[int] = []
    for place, token in enumerate(tokens):
        choices = synonyms(token) if place in chosen else ()
        rewritten += choices[int(torch.randint(len(choices), ()))] if choices else [token]
    return rewritten


class EmbeddingNeighbours:
    """Synonyms without a dictionary: the nearest tokens by cosine in the encoder's own input embeddings.

    They are near in use, not always in meaning (antonyms are neighbours too). They are taken from the embeddings as they
    were when this was made, so that a resumed run, which starts from the same encoder, replaces by the same tokens.
    Pieces that begin a word are replaced by such, pieces that continue one by such.
    """

    def __init__(self, embeddings: Tensor, tokenizer: Any, count: int = 5) -> None:
        self.directions = F.normalize(embeddings.detach().float().cpu(), dim=-1)
        self.count = count
        names = tokenizer.convert_ids_to_tokens(list(range(min(len(self.directions), len(tokenizer)))))
        # How a vocabulary marks pieces differs (##ing, Ġword, ▁word); what matters is that both have the mark or neither.
        marks = [str(name).startswith(("##", "Ġ", "▁")) for name in names]
        self._marked = torch.zeros(len(self.directions), dtype=torch.bool)
        self._marked[: len(marks)] = torch.tensor(marks)
        self._barred = torch.zeros(len(self.directions), dtype=torch.bool)
        self._barred[list(tokenizer.all_special_ids)] = True
        self._barred[len(marks) :] = True
        self._known: dict[int, list[list[int]]] = {}

    def __call__(self, token: int) -> Sequence[Sequence[int]]:
        """The token's neighbours, found when it is first asked for: a text uses a small part of a vocabulary."""
        if token not in self._known:
            self._known[token] = [] if self._barred[token] else self._nearest(token)
        return self._known[token]

    def _nearest(self, token: int) -> list[list[int]]:
        cosines = self.directions @ self.directions[token]
        cosines = cosines.masked_fill(self._barred | (self._marked != self._marked[token]), -2.0)
        cosines[token] = -2.0
        values, found = cosines.topk(min(self.count, len(cosines)))
        return [[int(other)] for value, other in zip(values.tolist(), found.tolist(), strict=True) if value > -2.0]


def read_synonyms(path: str | Path, tokenizer: Any) -> Synonyms:
    """Synonyms from a file: on each line a word and its synonyms, with tabs between. Words of several tokens are skipped."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SelfguideError(f"The synonyms file {path} could not be read: {error}.") from None
    known: dict[int, list[list[int]]] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        word, *others = (part.strip() for part in line.split("\t"))
        if not word or not any(others):
            raise SelfguideError(f"Line {number} of {path} has no synonym: write a word, a tab and its synonyms.")
        ids = [tokenizer.encode(text, add_special_tokens=False) for text in (word, *filter(None, others))]
        if len(ids[0]) == 1:
            known.setdefault(ids[0][0], []).extend(ids[1:])
    if not known:
        raise SelfguideError(f"The synonyms file {path} has no word that is a single token of this encoder.")
    return lambda token: known.get(token, [])


def chain(words: str, steps: dict[str, Rewriting]) -> Rewriting:
    """The rewriting of a name among ``steps``, or of several joined by ``+``."""
    chosen: list[Rewriting] = []
    for name in (part.strip() for part in words.split("+")):
        if name not in steps:
            raise UsageError(
                f"There is no augmentation {name!r} (in {words!r}); choose one of {', '.join(steps)}, "
                "or join several with +."
            )
        chosen.append(steps[name])

    def rewrite(tokens: list[int]) -> list[int]:
        for step in chosen:
            tokens = step(tokens)
        return tokens

    return rewrite


def _without(tokens: list[int], gone: set[int], marker: int | None) -> list[int]:
    if len(gone) == len(tokens) and tokens:
        gone = gone - {int(torch.randint(len(tokens), ()))}  # a sentence of nothing says nothing
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
    """How many spans a sentence takes: no more tokens than ``wanted`` spans are meant to have, but one span at least."""
    size = max(1, round(count * length))
    return max(1, min(wanted, _share(count, wanted * length) // size))


def _cells(count: int, length: float, wanted: int) -> tuple[int, list[int]]:
    """Non-overlapping spans: their size and their starts, in random order.

    The sentence is cut into cells of the size, from a random start on, and cells are drawn. A span has at least one token.
    """
    size = max(1, round(count * length))
    if count < size:
        return size, []
    slack = count % size
    first = int(torch.randint(slack + 1, ())) if slack else 0
    cells = torch.arange(first, count - size + 1, size)
    return size, cells[torch.randperm(len(cells))][:wanted].tolist()
