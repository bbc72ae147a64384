"""Batches that are drawn, packed and masked on the device, where the whole corpus takes a few hundred megabytes.

Nothing here synchronises with the device: all shapes are fixed in advance, and random choices stay tensors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from .config import Settings
from .corpus import Corpus, Spans, topic_weights
from .languages import Drawer, mixture_of
from .model import Batch, Packed, Signal
from .tokenizer import CLS, MASK, SEP

AROUND = 32
"""Largest distance, in tokens, of the words that [CLS] predicts around its span (``cls_next``)."""


def pack(corpus: Corpus, spans: Spans, total: int) -> Packed:
    """Pack spans end to end, each as [CLS] … [SEP], into a row of exactly ``total`` tokens.

    The span at the end is truncated; those after it become empty sequences. The spans must fill the row.
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
    """Mask exactly ``count`` tokens: 80 % become [MASK], 10 % a random token, 10 % stay.

    Args:
        ids: Token ids; special tokens, up to [MASK], are never masked.
        count: Tokens to mask.
        vocab: Size of the vocabulary.
        generator: Source of random numbers.

    Returns:
        The new ids, the masked positions and their labels.
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
    """Draw training steps: a fixed number of short inputs, then long ones until the row is full."""

    def __init__(
        self, corpus: Corpus, settings: Settings, *, vocab: int, positions: int, seed: int,
        sizes: Mapping[str, int] | None = None,
    ) -> None:  # fmt: skip
        """Fix the number of sequences and of masked tokens of a step.

        Args:
            corpus: The text.
            settings: The training settings.
            vocab: Size of the vocabulary.
            positions: The encoder's number of positions.
            seed: Seed of all draws.
            sizes: The number of tokens of each language, in the order in which they lie; by default there is one language.

        Raises:
            ValueError: There is too little text.
        """
        self.corpus, self.settings, self.vocab, self.positions = corpus, settings, vocab, positions
        self.device = corpus.tokens.device
        self.generator = torch.Generator(device=self.device)
        self.generator.manual_seed(seed)
        left = corpus.document_ends - corpus.starts[:-1]
        self._usable = torch.nonzero(left >= settings.short_min - 2).flatten()
        if corpus.tokens.shape[0] < positions or not len(self._usable):
            raise ValueError("There is too little text to draw from.")
        self._by_sentence, self._by_token = self._drawers(sizes)
        # Mean lengths, measured once, turn the wanted shares into fixed numbers of sequences.
        short, long = (float(draw(20000).length.float().mean()) + 2 for draw in (self.draw_short, self.draw_long))
        total = settings.tokens
        self.shorts = round(total * settings.short_share / short)
        needed = total * (1 - settings.short_share) / long
        self.longs = math.ceil(1.25 * needed) + 4
        # A quarter more than needed nearly always fills the row; these windows of full length make it certain.
        self.spill = math.ceil(total / positions)
        # A rounded number of sequences keeps the shapes, and the compiler's cache, across similar corpora.
        count = self.shorts + self.longs + self.spill
        self.spill += -count % 512 if count > 512 else 0
        self.sequences = count + (-count % 512 if count > 512 else 0)
        plain = total - 2 * (self.shorts + needed)
        self.masked = max(1, int(settings.mask_rate * plain))
        if self.masked > 256:
            self.masked -= self.masked % 256  # for the same reason, and because matrix kernels prefer it
        self.topic = topic_weights(corpus, vocab) if settings.cls_own or settings.cls_next else None

    def _drawers(self, sizes: Mapping[str, int] | None) -> tuple[Drawer | None, Drawer | None]:
        """Return what draws sentences and tokens of several languages, so that each gets its share of a step's tokens."""
        self._by_sentence = self._by_token = None
        if sizes is None or len(sizes) < 2:
            return None, None
        mixture = mixture_of(sizes, self.settings.temperature, self.device)
        bounds = torch.searchsorted(self.corpus.starts[self._usable].contiguous(), mixture.tokens)
        made: list[Drawer] = []
        for ends, draw in ((bounds, self.draw_short), (mixture.tokens, self.draw_long)):
            # A language of long sentences needs fewer of them for the same share of the tokens.
            lengths = []
            for place in range(len(mixture.names)):
                only = torch.zeros_like(mixture.shares)
                only[place] = 1.0
                self._by_sentence = self._by_token = Drawer(ends, only)
                lengths.append(draw(5000).length.float().mean() + 2)
            made.append(Drawer(ends, mixture.shares / torch.stack(lengths)))
        return made[0], made[1]

    def _any_of(self, high: int, count: int, drawer: Drawer | None) -> Tensor:
        """Draw integers below ``high``, uniformly or language by language."""
        return self._uniform(high, count) if drawer is None else drawer.draw(count, self.generator)

    def _uniform(self, high: int, count: int, low: int = 0) -> Tensor:
        return torch.randint(low, high, (count,), device=self.device, generator=self.generator)

    def _chance(self, count: int) -> Tensor:
        return torch.rand(count, device=self.device, generator=self.generator)

    def draw_short(self, count: int) -> Spans:
        """Draw single sentences, or runs of whole sentences up to a random length; every sentence is equally likely."""
        settings, corpus = self.settings, self.corpus
        lowest, highest = settings.short_min - 2, settings.short_max - 2
        number = self._usable[self._any_of(len(self._usable), count, self._by_sentence)]
        start = corpus.starts[number]
        wanted = start + self._uniform(highest + 1, count, low=lowest)
        last = corpus.starts[torch.searchsorted(corpus.starts, wanted, right=True) - 1]
        run = torch.where(self._chance(count) < settings.single_share, start, last)
        end = torch.maximum(torch.maximum(corpus.starts[number + 1], run), start + lowest)
        end = torch.minimum(torch.minimum(end, start + highest), corpus.document_ends[number])
        return Spans(start, end - start)

    def draw_long(self, count: int) -> Spans:
        """Draw contiguous text from the start of a line, or from the start of a sentence deep inside a long line.

        A random *token* decides: a random line would over-represent short lines, and starts of lines alone would never
        reach the text beyond the window of a long paragraph.
        """
        settings, corpus = self.settings, self.corpus
        token = self._any_of(corpus.tokens.shape[0], count, self._by_token)
        number = torch.searchsorted(corpus.starts, token, right=True) - 1
        line, sentence = corpus.line_starts[number], corpus.starts[number]
        start = torch.where(token - line < settings.long_max // 2, line, sentence)
        longest = min(settings.long_max, self.positions) - 2
        limit = torch.where(self._chance(count) < settings.full_share, self.positions - 2, longest)
        return Spans(start, torch.minimum(limit, corpus.document_ends[number] - start))

    def _draw_spill(self) -> Spans:
        last = self.corpus.tokens.shape[0] - self.positions + 1
        start = self._any_of(last + 1, self.spill, self._by_token).clamp_(max=last)
        return Spans(start, torch.full_like(start, self.positions - 2))

    def draw_own(self, packed: Packed, places: Tensor, labels: Tensor) -> Signal:
        """Draw [CLS] rows with masked words of their own sequence as labels."""
        assert self.topic is not None
        # The order of the positions is not random, so a random choice has to be drawn.
        chosen = self._chance(places.shape[0]).argsort()[: self.settings.cls_rows]
        own = labels[chosen]
        rows = packed.cu[packed.sequence[places[chosen]]].long()
        return Signal("cls_own", self.settings.cls_own, rows, own, self.topic[own])

    def draw_next(self, packed: Packed, spans: Spans) -> Signal:
        """Draw [CLS] rows with words after their span as labels, or words before it where the document ends."""
        assert self.topic is not None
        corpus, count = self.corpus, self.settings.cls_rows
        lengths = packed.cu.diff()
        # Empty sequences are all at the end.
        number = self._below((lengths > 0).sum().expand(count))
        start = spans.start[number]
        end = start + (lengths[number] - 2).clamp(min=0)  # the row may have truncated the span
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
        """Draw an integer from 0 up to, but not including, each limit (0 where the limit is 0)."""
        drawn = (self._chance(limits.shape[0]) * limits).long()
        return torch.minimum(drawn, limits - 1).clamp_(min=0)  # rounding may reach the limit

    def draw(self) -> Batch:
        """Draw a step: the masked row, the masked positions and labels, and the labels of [CLS]."""
        kinds = [self.draw_short(self.shorts), self.draw_long(self.longs), self._draw_spill()]
        spans = Spans(torch.cat([k.start for k in kinds]), torch.cat([k.length for k in kinds]))
        packed = pack(self.corpus, spans, self.settings.tokens)
        ids, places, labels = mask(packed.ids, self.masked, self.vocab, self.generator)
        signals: list[Signal] = []
        if self.settings.cls_own:
            signals.append(self.draw_own(packed, places, labels))
        if self.settings.cls_next:
            signals.append(self.draw_next(packed, spans))
        return Batch(packed._replace(ids=ids), places, labels, tuple(signals))


def held_out_batches(
    corpus: Corpus, length: int, *, vocab: int, limit: int, row: int = 65536, rate: float = 0.15, seed: int = 7
) -> list[Batch]:
    """Make the evaluation batches: sequences of ``length`` tokens from starts of lines, spread evenly over the text.

    Args:
        corpus: The held-out text.
        length: Tokens of a sequence.
        vocab: Size of the vocabulary.
        limit: Tokens in all, about.
        row: Tokens of a batch.
        rate: Share of masked tokens.
        seed: Seed of the masks, so that all runs are evaluated on the same ones.

    Returns:
        The batches; none if no line is long enough.
    """
    content = length - 2
    at_line = corpus.starts[:-1] == corpus.line_starts
    fits = corpus.document_ends - corpus.starts[:-1] >= content
    starts = corpus.starts[:-1][at_line & fits]
    if not len(starts):
        return []
    # Windows must not overlap: a line is kept only if it starts after the last kept window.
    kept: list[int] = []
    for start in starts.tolist():
        if not kept or start >= kept[-1] + content:
            kept.append(start)
    kept = kept[:: max(1, math.ceil(len(kept) * length / limit))]
    # Masks are drawn on the CPU, because generators of other devices give other numbers for the same seed.
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
