"""Batches drawn, packed and masked on the device itself: the whole corpus is a few hundred megabytes there.

Nothing in here waits for the device: every shape is fixed beforehand and the random parts stay tensors.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .config import Settings
from .model import Packed
from .prepare import DOCUMENT, HELD_OUT, LENGTH, LINE, SENTENCES, TOKENS, part_names, read_numbers
from .tokenizer import CLS, MASK, SEP


class Corpus(NamedTuple):
    """Token ids end to end, and for each sentence where it, its line and its document lie."""

    tokens: Tensor  # (N,) int16
    starts: Tensor  # (S + 1,) first token of each sentence, then N
    line_starts: Tensor  # (S,) first token of the sentence's line
    document_ends: Tensor  # (S,) end of the sentence's document


def corpus_of(tokens: np.ndarray, marks: np.ndarray, device: torch.device) -> Corpus:
    """The arrays of one or more parts as tensors on ``device``."""
    ends = np.cumsum((marks & LENGTH).astype(np.int64))
    if not len(marks) or ends[-1] != len(tokens):
        raise ValueError("the sentence file does not belong to the token file")
    starts = np.concatenate([[0], ends])
    lines = np.maximum.accumulate(np.where(marks & LINE, starts[:-1], 0))
    first = np.flatnonzero(marks & DOCUMENT)
    limits = np.append(starts[first[1:]], len(tokens))
    document_ends = np.repeat(limits, np.diff(np.append(first, len(marks))))
    as_tensor = [torch.from_numpy(a).to(device) for a in (tokens.astype(np.int16), starts, lines, document_ends)]
    return Corpus(*as_tensor)


def load_corpus(folder: Path, device: torch.device, *, held_out: bool = False) -> Corpus:
    """All training parts of a folder, or its held-out part."""
    names = [HELD_OUT] if held_out else part_names(folder)
    files = [name + end for end in (TOKENS, SENTENCES) for name in names]
    with ThreadPoolExecutor() as pool:  # unpacking releases the interpreter lock
        arrays = list(pool.map(lambda name: read_numbers(folder, name), files))
    count = len(names)
    return corpus_of(np.concatenate(arrays[:count]), np.concatenate(arrays[count:]), device)


class Spans(NamedTuple):
    """Stretches of the corpus: first token and length (without special tokens)."""

    start: Tensor
    length: Tensor


def pack(corpus: Corpus, spans: Spans, total: int) -> Packed:
    """Lay spans end to end, each as [CLS] … [SEP], in a row of exactly ``total`` tokens.

    The span that meets the end is cut to fit; those after it become empty sequences. The spans must fill the row.
    """
    ends = torch.cumsum(spans.length + 2, 0).clamp_(max=total)
    cu = torch.cat([ends.new_zeros(1), ends])
    flat = torch.arange(total, device=cu.device)
    sequence = torch.searchsorted(ends, flat, right=True)
    positions = flat - cu[sequence]
    ids = corpus.tokens[(spans.start[sequence] + positions - 1).clamp_(0, corpus.tokens.shape[0] - 1)].long()
    ids = torch.where(flat == ends[sequence] - 1, SEP, ids)
    ids = torch.where(positions == 0, CLS, ids)
    return Packed(ids, positions, cu.to(torch.int32), sequence)


def mask(ids: Tensor, count: int, vocab: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Hide exactly ``count`` ordinary tokens: 80 % as [MASK], 10 % as a random token, 10 % as they are.

    Returns the new ids, the places and the labels. Entries of the vocabulary up to [MASK] are never chosen.
    """
    score = torch.rand(ids.shape, device=ids.device, generator=generator)
    score = torch.where(ids > MASK, score, 2.0)
    places = torch.topk(score, count, largest=False, sorted=False).indices
    labels = ids[places]
    how = torch.rand(labels.shape, device=ids.device, generator=generator)
    other = torch.randint(MASK + 1, vocab, labels.shape, device=ids.device, generator=generator)
    put = torch.where(how < 0.8, MASK, torch.where(how < 0.9, other, labels))
    return ids.scatter(0, places, put), places, labels


class Batcher:
    """Draws steps: a fixed number of short inputs, then long ones until the row is full."""

    def __init__(self, corpus: Corpus, settings: Settings, *, vocab: int, positions: int, seed: int) -> None:
        self.corpus, self.settings, self.vocab, self.positions = corpus, settings, vocab, positions
        self.device = corpus.tokens.device
        self.generator = torch.Generator(device=self.device)
        self.generator.manual_seed(seed)
        left = corpus.document_ends - corpus.starts[:-1]
        self._usable = torch.nonzero(left >= settings.short_min - 2).flatten()
        if corpus.tokens.shape[0] < positions or not len(self._usable):
            raise ValueError("too little text to draw from")
        # Mean lengths, measured once, turn the wanted shares into fixed numbers of sequences.
        short, long = (float(draw(20000).length.float().mean()) + 2 for draw in (self.draw_short, self.draw_long))
        total = settings.tokens
        self.shorts = round(total * settings.short_share / short)
        needed = total * (1 - settings.short_share) / long
        self.longs = math.ceil(1.25 * needed) + 4
        # A quarter more than needed practically always fills the row; these full windows make it certain.
        self.spill = math.ceil(total / positions)
        # A round number of sequences keeps the shapes, and with them what the compiler cached, across like corpora.
        count = self.shorts + self.longs + self.spill
        self.spill += -count % 512 if count > 512 else 0
        self.sequences = count + (-count % 512 if count > 512 else 0)
        plain = total - 2 * (self.shorts + needed)
        self.masked = max(1, int(settings.mask_rate * plain))
        if self.masked > 256:
            self.masked -= self.masked % 256  # for the same reason, and matrix kernels like it

    def _uniform(self, high: int, count: int, low: int = 0) -> Tensor:
        return torch.randint(low, high, (count,), device=self.device, generator=self.generator)

    def _chance(self, count: int) -> Tensor:
        return torch.rand(count, device=self.device, generator=self.generator)

    def draw_short(self, count: int) -> Spans:
        """Single sentences, or runs of whole sentences up to a random length; every sentence is equally likely."""
        settings, corpus = self.settings, self.corpus
        lowest, highest = settings.short_min - 2, settings.short_max - 2
        number = self._usable[self._uniform(len(self._usable), count)]
        start = corpus.starts[number]
        wanted = start + self._uniform(highest + 1, count, low=lowest)
        last = corpus.starts[torch.searchsorted(corpus.starts, wanted, right=True) - 1]
        run = torch.where(self._chance(count) < settings.single_share, start, last)
        end = torch.maximum(torch.maximum(corpus.starts[number + 1], run), start + lowest)
        end = torch.minimum(torch.minimum(end, start + highest), corpus.document_ends[number])
        return Spans(start, end - start)

    def draw_long(self, count: int) -> Spans:
        """Contiguous text from a line start, or from a sentence start deep inside a long line.

        A random *token* chooses the place: choosing among lines would fill the batch with the text of short lines, and
        starting at lines alone would never show what lies beyond the window in a long paragraph.
        """
        settings, corpus = self.settings, self.corpus
        token = self._uniform(corpus.tokens.shape[0], count)
        number = torch.searchsorted(corpus.starts, token, right=True) - 1
        line, sentence = corpus.line_starts[number], corpus.starts[number]
        start = torch.where(token - line < settings.long_max // 2, line, sentence)
        longest = min(settings.long_max, self.positions) - 2
        limit = torch.where(self._chance(count) < settings.full_share, self.positions - 2, longest)
        return Spans(start, torch.minimum(limit, corpus.document_ends[number] - start))

    def _draw_spill(self) -> Spans:
        start = self._uniform(self.corpus.tokens.shape[0] - self.positions + 2, self.spill)
        return Spans(start, torch.full_like(start, self.positions - 2))

    def draw(self) -> tuple[Packed, Tensor, Tensor]:
        """One step: the packed row with tokens hidden, their places, their labels."""
        kinds = [self.draw_short(self.shorts), self.draw_long(self.longs), self._draw_spill()]
        spans = Spans(torch.cat([k.start for k in kinds]), torch.cat([k.length for k in kinds]))
        packed = pack(self.corpus, spans, self.settings.tokens)
        ids, places, labels = mask(packed.ids, self.masked, self.vocab, self.generator)
        return packed._replace(ids=ids), places, labels


def held_out_batches(
    corpus: Corpus, length: int, *, vocab: int, limit: int, row: int = 65536, rate: float = 0.15, seed: int = 7
) -> list[tuple[Packed, Tensor, Tensor]]:
    """Fixed evaluation rows: sequences of exactly ``length`` tokens from line starts, spread evenly over the text.

    The masks come from a seed of their own, so that every evaluation of every run asks the same questions.
    """
    content = length - 2
    at_line = corpus.starts[:-1] == corpus.line_starts
    fits = corpus.document_ends - corpus.starts[:-1] >= content
    starts = corpus.starts[:-1][at_line & fits]
    if not len(starts):
        return []
    # Overlapping windows add nothing: keep a line only when it begins a window after the last kept one.
    kept: list[int] = []
    for start in starts.tolist():
        if not kept or start >= kept[-1] + content:
            kept.append(start)
    kept = kept[:: max(1, math.ceil(len(kept) * length / limit))]
    # Drawn on the CPU: the generators of two kinds of device give different numbers for one seed.
    generator = torch.Generator().manual_seed(seed)
    host = Corpus(*(t.cpu() for t in corpus))
    batches: list[tuple[Packed, Tensor, Tensor]] = []
    per_row = max(1, row // length)
    for begin in range(0, len(kept), per_row):
        chosen = torch.tensor(kept[begin : begin + per_row])
        packed = pack(host, Spans(chosen, torch.full_like(chosen, content)), len(chosen) * length)
        ids, places, labels = mask(packed.ids, max(1, int(rate * len(chosen) * content)), vocab, generator)
        packed = Packed(*(t.to(corpus.tokens.device) for t in packed._replace(ids=ids)))
        batches.append((packed, places.to(corpus.tokens.device), labels.to(corpus.tokens.device)))
    return batches
