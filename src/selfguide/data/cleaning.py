"""From raw rows to clean sentences: normalise each row, then drop blank, over-long and repeated ones, and count."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

from selfguide.data.ahead import prepared_ahead
from selfguide.data.blocks import Block, SplitLines
from selfguide.data.dedup import SeenHashes
from selfguide.data.options import TextOptions
from selfguide.data.spilled import IN_MEMORY, SEGMENT, Segment, SpilledHashes
from selfguide.errors import SelfguideError
from selfguide.files import private_folder

if TYPE_CHECKING:
    from selfguide.data.dedup import Mask, Positions

    Rows = Positions

T = TypeVar("T")

# Control characters other than white space, and invisible format characters: soft hyphen, zero-width space, direction
# marks, byte-order mark, tags. Visible format characters (Arabic number signs) stay, and so do the zero-width joiner and
# non-joiner: Persian and Indic scripts need them in their spelling, and emoji are composed with them.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f"
    "\ufeff\ufff9-\ufffb\U000e0001\U000e0020-\U000e007f]+"
)
_SURROGATE = re.compile("[\ud800-\udfff]")

# Flags of a row; several can apply, for instance to a line that is truncated and kept.
KEPT, BLANK, TOO_LONG, DUPLICATE, MISSING, REPLACED, BAD = 1, 2, 4, 8, 16, 32, 64


class MarkedText(str):
    """A row with remarks for the counts; almost every row needs none and is a plain ``str``."""

    __slots__ = ("bad", "replaced", "truncated")

    bad: bool  # the row could not be used, and is only counted
    replaced: bool  # invalid UTF-8 was replaced in it
    truncated: bool  # it is the start of a line too long to hold in memory

    def __new__(cls, text: str, *, replaced: bool = False, truncated: bool = False, bad: bool = False) -> MarkedText:
        """Make a marked copy of a text."""
        marked = super().__new__(cls, text)
        marked.replaced = replaced
        marked.truncated = truncated
        marked.bad = bad
        return marked


class Record(MarkedText):
    """A row together with the other cells of its record."""

    __slots__ = ("columns",)

    columns: dict[str, object]  # by name; the cells of a csv or tsv file are :class:`Cell`

    @classmethod
    def of(cls, row: str, columns: dict[str, object]) -> Record:
        """Return a row with the other cells of its record; its flags are kept."""
        marks = {name: getattr(row, name, False) for name in ("replaced", "truncated", "bad")}
        record = cls(row, **marks)
        record.columns = columns
        return record


class Cell(str):
    """A cell of a table whose type has to be inferred from its text."""

    __slots__ = ()


# A row as a reader yields it; None is a null value.
Row = str | None


def clean(text: str) -> str:
    """Normalise to NFC, drop invisible characters, collapse white space to single spaces and strip it at the ends.

    Args:
        text: The line.

    Returns:
        The sentence.
    """
    # Most lines are clean. Printable means: no control or format character, and no white space but the space.
    if text.isprintable() and "  " not in text and unicodedata.is_normalized("NFC", text):
        return text.strip()
    # The order matters: a letter and its accent compose only after invisible characters between them are gone.
    visible = _INVISIBLE.sub("", text)
    return unicodedata.normalize("NFC", " ".join(visible.split()))


def rows_to_clean(batch: Sequence[Row], max_chars: int) -> tuple[list[int], Block | None]:
    """Find the rows that :func:`clean` may change, or that are no ordinary sentences; most texts have few of them.

    The rows are looked at together, as bytes: one by one, it would take far longer than reading them.

    Args:
        batch: The rows.
        max_chars: Longest sentence.

    Returns:
        The numbers of the rows, every other one being a sentence as it stands; and if there is none, the sentences.
    """
    import numpy as np

    everything = list(range(len(batch)))
    if isinstance(batch, SplitLines):
        text, lines = batch.text, batch.encoded + b"\n"
    elif set(map(type, batch)) == {str}:
        text = "\n".join(cast("Sequence[str]", batch))
        lines = (text + "\n").encode("utf-8", "surrogatepass")
    else:
        return everything, None
    strings = cast("list[str]", batch)
    codes = np.frombuffer(lines, dtype=np.uint8)
    ends = np.flatnonzero(codes == ord("\n"))
    if ends.size != len(batch):  # a row has a line break inside
        return everything, None
    lengths = np.diff(ends, prepend=-1) - 1  # in bytes, of which a character has one at least
    doubtful = (lengths == 0) | (lengths > max_chars)
    space = codes <= ord(" ")
    odd = (codes < ord(" ")) & (codes != ord("\n"))
    if text.isascii():
        odd |= codes == 0x7F
    elif not (text.replace("\n", " ").isprintable() and unicodedata.is_normalized("NFC", text)):
        odd |= codes >= 0x7F
    odd[1:] |= space[1:] & space[:-1]
    odd[0] |= space[0]
    doubtful[np.searchsorted(ends, np.flatnonzero(odd))] = True
    rows = np.flatnonzero(doubtful).tolist()
    return rows, None if rows else Block(len(batch), strings=strings, lines=lines, ends=ends.astype(np.int32))


def has_surrogates(text: str) -> bool:
    """Return whether the text holds half of a surrogate pair (JSON can escape one), which UTF-8 cannot encode."""
    return not text.isascii() and _SURROGATE.search(text) is not None


def replace_surrogates(text: str) -> MarkedText:
    """Return the text with U+FFFD for every surrogate, marked as replaced."""
    return MarkedText(_SURROGATE.sub("\ufffd", text), replaced=True)


def count_flags(flags: Counter[int]) -> dict[str, int]:
    """Turn counts of flag combinations into counts of each flag, under the names of the summary's fields.

    Args:
        flags: How often each combination occurred.

    Returns:
        How often each flag was set.
    """
    names = {
        "kept": KEPT,
        "blank": BLANK,
        "too_long": TOO_LONG,
        "duplicates": DUPLICATE,
        "missing": MISSING,
        "replaced": REPLACED,
        "bad": BAD,
    }
    return {name: sum(count for row, count in flags.items() if row & flag) for name, flag in names.items()}


class FilteredBatch(NamedTuple):
    """The sentences of a batch of rows."""

    flags: bytearray  # one for each row of the batch
    sentences: Block
    rows: Rows  # the row in the batch that each sentence comes from
    raw: list[Row]  # the batch as it was read; empty if the rows were spilled to disk


class RowFilter:
    """Cleans and filters the rows of one pass; it remembers sentences to find repeats, so each pass needs a new one.

    Args:
        options: How to clean.
        in_memory: Distinct sentences whose hashes stay in memory.
        segment: Rows that wait together once there are more (:mod:`selfguide.data.spilled`).
        ahead: Read the next of those rows in a thread while the last ones are used.
    """

    def __init__(
        self, options: TextOptions, in_memory: int = IN_MEMORY, segment: int = SEGMENT, ahead: bool = False
    ) -> None:
        self._options = options
        self._seen = None if options.keep_duplicates else SeenHashes()
        self._in_memory, self._segment, self._ahead = in_memory, segment, ahead

    def filtered(self, batches: Iterable[list[Row]]) -> Generator[FilteredBatch, None, None]:
        """Clean and filter all rows of the pass.

        Args:
            batches: The rows.

        Yields:
            What is left of each batch, and what was dropped for which reason; the rows as they were read, unless they were
            spilled to disk.
        """
        rest = iter(batches)
        for batch in rest:
            yield self.apply(batch)
            if self._seen is not None and len(self._seen) > self._in_memory:
                break
        else:
            return
        with private_folder("selfguide-text-") as folder, _full_disk_in_words(folder):
            yield from self._from_disk(rest, folder)

    def _from_disk(self, batches: Iterator[list[Row]], folder: Path) -> Iterator[FilteredBatch]:
        assert self._seen is not None
        spilled = SpilledHashes(folder, self._seen.take_runs())
        ahead = prepared_ahead if self._ahead else _as_it_comes

        def cleaned(stopped: Callable[[], bool]) -> Generator[Segment, None, None]:
            return self._segments(batches, stopped)

        def judged(stopped: Callable[[], bool]) -> Generator[tuple[Segment, Mask], None, None]:
            with closing(ahead(cleaned)) as segments:
                for segment in segments:
                    yield segment, spilled.first_occurrences(segment.take_hashes())

        # Three threads: one reads and cleans, one looks for repeats, and this one hands the rows to the consumer.
        with closing(ahead(judged)) as segments:
            for segment, first in segments:
                start = 0
                for flags, sentences in segment.batches:
                    end = start + len(sentences)
                    yield _marked(FilteredBatch(flags, sentences, _kept_rows(flags), []), first[start:end])
                    start = end

    def _segments(self, batches: Iterator[list[Row]], stopped: Callable[[], bool]) -> Generator[Segment, None, None]:
        """Yield cleaned rows, the repeats among them; an error in a batch comes after the rows before it."""
        failure: SelfguideError | None = None
        ended = False
        while not ended:
            segment = Segment()
            try:
                while not (ended or segment.is_full(self._segment)):
                    batch = None if stopped() else next(batches, None)
                    ended = batch is None
                    if batch is not None:
                        cleaned = self._cleaned(batch)
                        segment.add(cleaned.flags, cleaned.sentences)
            except SelfguideError as error:  # a limit may end the reading before it
                failure, ended = error, True
            yield segment
        if failure is not None:
            raise failure

    def apply(self, batch: list[Row]) -> FilteredBatch:
        """Clean and filter the next rows of the pass.

        Args:
            batch: The rows.

        Returns:
            What is left of them, and what was dropped for which reason.
        """
        filtered = self._cleaned(batch)
        if self._seen is None or not filtered.sentences:
            return filtered
        return _marked(filtered, self._seen.first_occurrences(filtered.sentences.hashes()))

    def _cleaned(self, batch: list[Row]) -> FilteredBatch:
        """Clean rows and drop blank and over-long ones, but not yet the repeats."""
        max_chars = self._options.max_chars
        flags = bytearray([KEPT]) * len(batch)
        doubtful, block = rows_to_clean(batch, max_chars)
        if block is not None:
            return FilteredBatch(flags, block, _kept_rows(flags), batch)
        texts = list(batch)
        for row in doubtful:
            raw = batch[row]
            text = "" if raw is None else clean(raw)
            flag = KEPT
            if not text or len(text) > max_chars or isinstance(raw, MarkedText):
                text, flag = self._classify(raw, text)
            flags[row], texts[row] = flag, text
        rows = _kept_rows(flags)
        kept = texts if len(rows) == len(texts) else [texts[row] for row in rows]
        return FilteredBatch(flags, Block.of(cast("list[str]", kept)), rows, batch)

    def _classify(self, raw: Row, text: str) -> tuple[str, int]:
        """Return the text and the flags of a row that is not an ordinary sentence."""
        if isinstance(raw, MarkedText) and raw.bad:
            return "", BAD
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


def _as_it_comes(make: Callable[[Callable[[], bool]], Generator[T, None, None]]) -> Generator[T, None, None]:
    yield from make(lambda: False)


def _marked(filtered: FilteredBatch, first: Mask) -> FilteredBatch:
    """Drop the repeats: all sentences that are not the first of their kind."""
    import numpy as np

    flags, sentences, rows, raw = filtered
    if flags.count(KEPT) < len(flags):
        # A blank row that is kept keeps the output aligned with the input, so it does not count as a repeat of another blank.
        first = first | sentences.blank()
    if first.all():
        return filtered
    np.frombuffer(flags, dtype=np.uint8)[rows[~first]] ^= KEPT | DUPLICATE
    return FilteredBatch(flags, sentences.where(first), rows[first], raw)


def _kept_rows(flags: bytearray) -> Rows:
    import numpy as np

    return np.flatnonzero(np.frombuffer(flags, dtype=np.uint8) & KEPT)


@contextmanager
def _full_disk_in_words(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SelfguideError(
            f"A text of this size is de-duplicated on disk, and {folder.parent} cannot be written: "
            f"{error.strerror or error}. Make room there, or name another folder with the environment variable TMPDIR."
        ) from error
