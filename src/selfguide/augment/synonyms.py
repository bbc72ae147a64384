"""Synonyms of a token: its neighbours in the encoder's input embeddings, or the entries of a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from selfguide.errors import SelfguideError

Synonyms = Callable[[int], Sequence[Sequence[int]]]
"""From a token id to its synonyms, each a list of token ids; empty where there are none."""


class EmbeddingNeighbours:
    """Nearest tokens by cosine in an encoder's input embeddings.

    Neighbours are close in use, not always in meaning: antonyms are neighbours too. The embeddings are copied, so that training
    does not change the neighbours and a resumed run, which starts from the same encoder, finds the same ones. Tokens that begin
    a word are replaced by tokens that begin one, and continuations by continuations.

    Args:
        embeddings: Input embeddings (vocabulary, dim).
        tokenizer: The tokenizer of that vocabulary; its special tokens are neither replaced nor used.
        count: Neighbours of each token.
    """

    def __init__(self, embeddings: Tensor, tokenizer: Any, count: int = 5) -> None:
        self.directions = F.normalize(embeddings.detach().float().cpu(), dim=-1)
        self.count = count
        names = tokenizer.convert_ids_to_tokens(list(range(min(len(self.directions), len(tokenizer)))))
        # Vocabularies mark either the beginnings or the continuations of words (##ing, Ġword, ▁word): it is enough to compare
        # tokens with the same mark.
        marks = [str(name).startswith(("##", "Ġ", "▁")) for name in names]
        self._marked = torch.zeros(len(self.directions), dtype=torch.bool)
        self._marked[: len(marks)] = torch.tensor(marks)
        self._barred = torch.zeros(len(self.directions), dtype=torch.bool)
        self._barred[list(tokenizer.all_special_ids)] = True
        self._barred[len(marks) :] = True
        self._known: dict[int, list[list[int]]] = {}

    def __call__(self, token: int) -> Sequence[Sequence[int]]:
        """Return a token's neighbours, computed on first use because a corpus uses a small part of a vocabulary."""
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
    """Read synonyms from a file with a word and its synonyms on each line, separated by tabs.

    Args:
        path: The file, in UTF-8.
        tokenizer: The encoder's tokenizer; words of several tokens are skipped.

    Returns:
        A function from a token id to its synonyms.

    Raises:
        SelfguideError: The file cannot be read, a line has no synonym, or no word is a single token.
    """
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
