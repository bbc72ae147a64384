"""Which rows become sentences: cleaning, dropping and counting, a batch at a time."""

from __future__ import annotations

from collections import Counter
from itertools import compress
from typing import NamedTuple

from selfguide.data.cleaning import MarkedText, Row, clean
from selfguide.data.dedup import SeenHashes, hash_sentences
from selfguide.data.options import TextOptions

# What became of a row; it can be more than one of these, as when a line is cut and kept.
KEPT, BLANK, TOO_LONG, DUPLICATE, MISSING, REPLACED = 1, 2, 4, 8, 16, 32


def count_flags(flags: Counter[int]) -> dict[str, int]:
    """From counts of combinations to counts of each flag, under the names that the summary gives them."""
    names = {
        "kept": KEPT,
        "blank": BLANK,
        "too_long": TOO_LONG,
        "duplicates": DUPLICATE,
        "missing": MISSING,
        "replaced": REPLACED,
    }
    return {name: sum(count for row, count in flags.items() if row & flag) for name, flag in names.items()}


class Sifted(NamedTuple):
    flags: bytearray  # one for each row of the batch
    sentences: list[str]
    rows: list[int]  # the row in the batch that each sentence comes from


class Sieve:
    """Remembers the sentences of one pass, to know repeats; two passes need two sieves."""

    def __init__(self, options: TextOptions) -> None:
        self._options = options
        self._seen = None if options.keep_duplicates else SeenHashes()

    def sift(self, batch: list[Row]) -> Sifted:
        max_chars = self._options.max_chars
        sifted = Sifted(bytearray(len(batch)), [], [])
        for row, raw in enumerate(batch):
            text = "" if raw is None else clean(raw)
            flag = KEPT
            if not text or len(text) > max_chars or isinstance(raw, MarkedText):
                text, flag = self._judged(raw, text)
            sifted.flags[row] = flag
            if flag & KEPT:
                sifted.sentences.append(text)
                sifted.rows.append(row)
        return self._without_repeats(sifted)

    def _judged(self, raw: Row, text: str) -> tuple[str, int]:
        """The text and the flags of a row that is not just an ordinary sentence."""
        truncated = isinstance(raw, MarkedText) and raw.truncated
        replaced = REPLACED if isinstance(raw, MarkedText) and raw.replaced else 0
        kept_if_blank = KEPT if self._options.keep_blank else 0
        if raw is None:
            return "", MISSING | kept_if_blank
        if truncated or len(text) > self._options.max_chars:
            if self._options.long_lines == "drop":
                return "", TOO_LONG | replaced
            cut = text[: self._options.max_chars].rstrip()
            return cut, TOO_LONG | replaced | (KEPT if cut else kept_if_blank)
        if not text:
            return "", BLANK | replaced | kept_if_blank
        return text, KEPT | replaced

    def _without_repeats(self, sifted: Sifted) -> Sifted:
        flags, sentences, rows = sifted
        if self._seen is None or not sentences:
            return sifted
        first = self._seen.first_met(hash_sentences(sentences)).tolist()
        if all(first):
            return sifted
        # A blank row that is kept stands for a row of the input, and is no repeat of another blank.
        wanted = [new or not sentence for new, sentence in zip(first, sentences, strict=True)]
        for row, keep in zip(rows, wanted, strict=True):
            if not keep:
                flags[row] ^= KEPT | DUPLICATE
        return Sifted(flags, list(compress(sentences, wanted)), list(compress(rows, wanted)))
