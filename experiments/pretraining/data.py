"""Batches drawn, packed and masked on the device itself: the whole corpus is a few hundred megabytes there.

Nothing in here waits for the device: every shape is fixed beforehand and the random parts stay tensors.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .config import Settings
from .corpus import Corpus, Spans, topic_weights
from .model import Batch, Packed, Signal
from .tokenizer import CLS, MASK, SEP

AROUND = 32  # how far from its span, in tokens, the text lies that [CLS] is to foresee (``cls_next``)


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


def mask(
    ids: Tensor, count: int, vocab: int, generator: torch.Generator, continuation: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Hide exactly ``count`` ordinary tokens: 80 % as [MASK], 10 % as a random token, 10 % as they are.

    With ``continuation`` (which entries of the vocabulary go on a word) whole words are chosen; the one that meets the
    count may be split. Returns the new ids, the places and the labels. Entries up to [MASK] are never chosen.
    """
    score = torch.rand(ids.shape, device=ids.device, generator=generator)
    if continuation is not None:
        # [CLS] is no continuation, so that no word runs on from one sequence into the next.
        word = torch.cumsum(~continuation[ids], 0) - 1
        score = score[word.clamp_(min=0)]
    score = torch.where(ids > MASK, score, 2.0)
    places = torch.topk(score, count, largest=False, sorted=False).indices
    labels = ids[places]
    how = torch.rand(labels.shape, device=ids.device, generator=generator)
    other = torch.randint(MASK + 1, vocab, labels.shape, device=ids.device, generator=generator)
    put = torch.where(how < 0.8, MASK, torch.where(how < 0.9, other, labels))
    return ids.scatter(0, places, put), places, labels


class Batcher:
    """Draws steps: a fixed number of short inputs, then long ones until the row is full."""

    def __init__(
        self, corpus: Corpus, settings: Settings,
        *, vocab: int, positions: int, seed: int, continuation: Tensor | None = None,
    ) -> None:  # fmt: skip
        if settings.whole_words and continuation is None:
            raise ValueError("whole-word masking needs to know which pieces go on a word")
        self.corpus, self.settings, self.vocab, self.positions = corpus, settings, vocab, positions
        self.device = corpus.tokens.device
        self.continuation = continuation.to(self.device) if settings.whole_words and continuation is not None else None
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
        self.topic = topic_weights(corpus, vocab) if settings.cls_own or settings.cls_next else None

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

    def draw_own(self, packed: Packed, places: Tensor, labels: Tensor) -> Signal:
        """[CLS] rows with hidden words of their own sequence as labels."""
        assert self.topic is not None
        # The places come in no random order: a random choice has to be drawn.
        chosen = self._chance(places.shape[0]).argsort()[: self.settings.cls_rows]
        own = labels[chosen]
        rows = packed.cu[packed.sequence[places[chosen]]].long()
        return Signal("cls_own", self.settings.cls_own, rows, own, self.topic[own])

    def draw_next(self, packed: Packed, spans: Spans) -> Signal:
        """[CLS] rows with words from the text after their span as labels; from before it where the document ends."""
        assert self.topic is not None
        corpus, count = self.corpus, self.settings.cls_rows
        lengths = packed.cu.diff()
        # Empty sequences all lie at the end.
        number = self._below((lengths > 0).sum().expand(count))
        start = spans.start[number]
        end = start + (lengths[number] - 2).clamp(min=0)  # of what is shown: the row may have cut the span
        sentence = torch.searchsorted(corpus.starts, start, right=True) - 1
        after = (corpus.document_ends[sentence] - end).clamp(0, AROUND)
        before = (start - corpus.document_starts[sentence]).clamp(0, AROUND)
        first = torch.where(after > 0, end, start - before)
        there = torch.where(after > 0, after, before)
        token = (first + self._below(there)).clamp_(0, corpus.tokens.shape[0] - 1)
        labels = corpus.tokens[token].long()
        weights = torch.where(there > 0, self.topic[labels], 0.0)
        return Signal("cls_next", self.settings.cls_next, packed.cu[number].long(), labels, weights)

    def _below(self, limits: Tensor) -> Tensor:
        """A random whole number from 0 up to each limit, which is not reached (0 where the limit is 0)."""
        drawn = (self._chance(limits.shape[0]) * limits).long()
        return torch.minimum(drawn, limits - 1).clamp_(min=0)  # rounding may reach the limit

    def draw(self) -> Batch:
        """One step: the packed row with tokens hidden, their places, their labels, and what [CLS] is asked."""
        kinds = [self.draw_short(self.shorts), self.draw_long(self.longs), self._draw_spill()]
        spans = Spans(torch.cat([k.start for k in kinds]), torch.cat([k.length for k in kinds]))
        packed = pack(self.corpus, spans, self.settings.tokens)
        ids, places, labels = mask(packed.ids, self.masked, self.vocab, self.generator, self.continuation)
        signals: list[Signal] = []
        if self.settings.cls_own:
            signals.append(self.draw_own(packed, places, labels))
        if self.settings.cls_next:
            signals.append(self.draw_next(packed, spans))
        return Batch(packed._replace(ids=ids), places, labels, tuple(signals))


def held_out_batches(
    corpus: Corpus, length: int, *, vocab: int, limit: int, row: int = 65536, rate: float = 0.15, seed: int = 7
) -> list[Batch]:
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
    batches: list[Batch] = []
    per_row = max(1, row // length)
    for begin in range(0, len(kept), per_row):
        chosen = torch.tensor(kept[begin : begin + per_row])
        packed = pack(host, Spans(chosen, torch.full_like(chosen, content)), len(chosen) * length)
        ids, places, labels = mask(packed.ids, max(1, int(rate * len(chosen) * content)), vocab, generator)
        packed = Packed(*(t.to(corpus.tokens.device) for t in packed._replace(ids=ids)))
        batches.append(Batch(packed, places.to(corpus.tokens.device), labels.to(corpus.tokens.device)))
    return batches
