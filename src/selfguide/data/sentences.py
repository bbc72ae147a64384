"""Clean sentences from any source, as an iterable that counts what it reads, keeps and drops."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from selfguide.data.blocks import Block
from selfguide.data.cleaning import Record, Row, RowFilter, count_flags
from selfguide.data.messages import shortened
from selfguide.data.options import TextOptions, TextSummary
from selfguide.data.readers import Batches, Reader, StringsReader
from selfguide.data.sources import open_sources
from selfguide.data.spilled import IN_MEMORY
from selfguide.data.splitting import require_splitter, split_rows
from selfguide.errors import SelfguideError, UsageError

if TYPE_CHECKING:
    from selfguide.data.cleaning import Rows

_DEFAULTS = TextOptions()
_SHOWN_SOURCES = 3
_SHOWN_SENTENCES = 2


class Sentences:
    """An iterable of clean sentences; each iteration is a new pass over the sources, which are read lazily.

    Sources are checked at once, so that a wrong one is reported before anything costly starts.

    Args:
        sources: Files, folders, globs, ``-`` for standard input, or ``hf:owner/name``.
        options: How to read and clean.
        stdin: Stands in for the process's standard input.

    Raises:
        SelfguideError: A source does not exist or cannot be read.
        UsageError: There is no source, or an option does not fit the sources.
    """

    def __init__(
        self, sources: Sequence[str | Path], options: TextOptions = _DEFAULTS, *, stdin: BinaryIO | None = None
    ) -> None:
        if isinstance(sources, str | Path):  # a str is a sequence of str too, but never meant as one
            sources = [sources]
        self._set_readers(open_sources(sources, options, stdin), options)

    @classmethod
    def from_strings(cls, strings: Iterable[str], options: TextOptions = _DEFAULTS) -> Sentences:
        """Clean sentences from memory or from a generator.

        Args:
            strings: The sentences.
            options: How to clean; ``column`` and ``field`` do not apply.

        Returns:
            The iterable; a generator allows a single pass.

        Raises:
            UsageError: An element of a list is not a ``str``, or an option does not apply.
        """
        if isinstance(strings, str | bytes):
            raise UsageError(f"A list of sentences is wanted, not a single {type(strings).__name__}.")
        for option in ("column", "field", "delimiter"):
            if getattr(options, option) is not None:
                raise UsageError(f"{option} is for files, and the sentences were given themselves: leave it out.")
        reader = StringsReader(strings, options)
        reader.check()
        return cls.from_readers([reader], options)

    @classmethod
    def from_readers(cls, readers: Sequence[Reader], options: TextOptions = _DEFAULTS) -> Sentences:
        """Clean sentences from readers that are open already.

        Args:
            readers: The readers.
            options: How to clean.

        Returns:
            The iterable.
        """
        sentences = cls.__new__(cls)
        sentences._set_readers(list(readers), options)
        return sentences

    def _set_readers(self, readers: list[Reader], options: TextOptions) -> None:
        if options.split_sentences:
            require_splitter()
        self._readers = readers
        self._options = options
        self._read_before = False
        self._pass = _Pass(readers, options, False)

    @property
    def summary(self) -> TextSummary:
        """The counts of the latest pass, exact up to the last sentence yielded."""
        return self._pass.summary()

    def share_read(self) -> float | None:
        """Return how much of the text the latest pass has read, from 0 to 1; ``None`` where that is not known."""
        return self._pass.share()

    def files(self) -> list[Path]:
        """Return the files that are read, those of folders and globs too."""
        return [path for reader in self._readers if (path := reader.file()) is not None]

    def sources_read(self) -> list[str]:
        """Return which column or field is read of which source and why, a line each; a few of many."""
        notes = [reader.took for reader in self._readers if reader.took is not None]
        more = [f"… and so on for {len(notes) - _SHOWN_SOURCES:,} more files."] if len(notes) > _SHOWN_SOURCES else []
        return notes[:_SHOWN_SOURCES] + more

    def examples(self) -> str | None:
        """Return the first two sentences of the latest pass, as a line for the user to check; None where there were none."""
        shown = [f"“{shortened(sentence, quote=False, width=80)}”" for sentence in self._pass.first]
        return f"It begins: {' and '.join(shown)}" if shown else None

    def described(self) -> list[str]:
        """Return what was read of which source, the counts, and how it begins, a line each."""
        begins = self.examples()
        return [*self.sources_read(), self.summary.describe(), *([begins] if begins else [])]

    def __iter__(self) -> Iterator[str]:
        """Start a new pass; raise a ``SelfguideError`` if a source can be read only once and has been."""
        return self._new_pass(False).run()

    def blocks(self) -> Iterator[Block]:
        """Start a new pass that yields the sentences some thousand at a time, for what is done with millions of them.

        Yields:
            Blocks, none of them empty, which together hold the sentences of an iteration.
        """
        yield from self._new_pass(False).blocks()

    def records(self) -> Iterator[tuple[str, dict[str, object]]]:
        """Start a new pass that brings along the other columns or fields of each sentence's row.

        Yields:
            The sentence, and the other cells of its row by name; those of nested objects have dotted names, and sources of
            sentences alone have none. The cells of csv and tsv files are text.
        """
        for sentence, row in self._new_pass(True).rows():
            yield sentence, row.columns if isinstance(row, Record) else {}

    def _new_pass(self, with_columns: bool) -> _Pass:
        if self._read_before:
            self._require_rereadable()
        self._read_before = True
        for reader in self._readers:
            reader.with_columns = with_columns
        self._pass = _Pass(self._readers, self._options, with_columns)
        return self._pass

    def _require_rereadable(self) -> None:
        for reader in self._readers:
            if reader.one_shot:
                way_out = "pass a list" if isinstance(reader, StringsReader) else "save it to a file and pass that"
                raise SelfguideError(f"{reader.name} can be read only once, and has been: {way_out}.")


class _Pass:
    """One pass over the readers. Rows are filtered in batches, and counted as their sentences are yielded."""

    def __init__(self, readers: Sequence[Reader], options: TextOptions, with_columns: bool) -> None:
        self._readers = readers
        self._options = options
        self._with_columns = with_columns
        self._hash = blake2b(digest_size=32)
        self._complete = False
        self._counts: Counter[int] = Counter()  # by combination of flags, in the batches before this one
        self._flags = bytearray()  # of the rows of this batch
        self._done = 0  # how many of those rows have been counted
        self._paragraphs = 0
        self._reading = 0  # the reader that is being read
        self.first: list[str] = []

    def run(self) -> Iterator[str]:
        return (sentence for sentence, _ in self.rows())

    def rows(self) -> Iterator[tuple[str, Row]]:
        """Yield the sentences, each with the row that it comes from where other columns are wanted."""
        with closing(self._kept()) as kept:
            for sentences, rows, raw in kept:
                for sentence, row in zip(sentences.strings, rows.tolist(), strict=True):
                    self._done = row + 1
                    if len(self.first) < _SHOWN_SENTENCES:
                        self.first.append(sentence)
                    yield sentence, raw[row] if self._with_columns else None

    def blocks(self) -> Iterator[Block]:
        """Yield the sentences in blocks."""
        with closing(self._kept()) as kept:
            for sentences, rows, _ in kept:
                if sentences:
                    self._done = int(rows[-1]) + 1
                    if len(self.first) < _SHOWN_SENTENCES:
                        self.first.extend(sentences.strings[: _SHOWN_SENTENCES - len(self.first)])
                    yield sentences

    def _kept(self) -> Generator[tuple[Block, Rows, list[Row]], None, None]:
        # Rows with other columns are never spilled to disk, so their sentences' hashes stay in memory.
        in_memory = sys.maxsize if self._with_columns else IN_MEMORY
        # Not from a pipe, which may keep the thread waiting, or from a caller's generator, which is not ours to run in a thread.
        ahead = not any(reader.one_shot for reader in self._readers)
        row_filter = RowFilter(self._options, in_memory, ahead=ahead)
        left = self._options.limit
        with closing(self._batches()) as batches, closing(row_filter.filtered(batches)) as filtered:
            for self._flags, sentences, rows, raw in filtered:
                self._done = 0
                if left is not None:
                    sentences, rows = sentences.first(left), rows[:left]
                    left -= len(sentences)
                self._hash.update(sentences.lines)
                yield sentences, rows, raw
                if left == 0:
                    break
                self._counts.update(_counted(self._flags))
                self._flags, self._done = bytearray(), 0
        self._complete = True

    def share(self) -> float | None:
        """Return how much has been read, by bytes, or by the limit where that is reached earlier."""
        known = [reader.progress() for reader in self._readers]
        sizes = [one[1] for one in known if one is not None]
        if len(sizes) < len(known) or not sum(sizes):
            return None
        current = known[self._reading] if self._reading < len(known) else None
        share = (sum(sizes[: self._reading]) + (current[0] if current else 0)) / sum(sizes)
        limit = self._options.limit
        return min(1.0, max(share, self.summary().kept / limit if limit else 0.0))

    def summary(self) -> TextSummary:
        counts = self._counts + _counted(self._flags[: self._done])
        return TextSummary(
            files=tuple(reader.name for reader in self._readers),
            read=sum(counts.values()),
            paragraphs=self._paragraphs,
            fingerprint=self._hash.hexdigest() if self._complete else None,
            **count_flags(counts),
        )

    def _batches(self) -> Batches:
        for place, reader in enumerate(self._readers):
            self._reading = place
            with closing(reader.batches()) as batches:
                if not self._options.split_sentences:
                    yield from batches
                    continue
                for batch in batches:
                    self._paragraphs += len(batch)
                    yield split_rows(batch, self._options.language)
        self._reading = len(self._readers)


def _counted(flags: bytearray) -> Counter[int]:
    """Return how often each combination of flags occurs."""
    return Counter({value: flags.count(value) for value in set(flags)})


def open_text(
    text: str | Path | Iterable[str] | Iterable[Path] | Sentences, options: TextOptions = _DEFAULTS
) -> Sentences:
    """Make :class:`Sentences` from what a caller passes as text.

    Args:
        text: A str or Path is a source (a file, a glob, ``-``, ``hf:owner/name``), several Paths are several files, several
            str are the sentences themselves, and ``Sentences`` are returned as they are, with their own options.
        options: How to read and clean.

    Returns:
        The sentences.

    Raises:
        UsageError: The text is none of these.
        SelfguideError: A source does not exist or cannot be read.
    """
    if isinstance(text, Sentences):
        return text
    if isinstance(text, str | Path):
        return Sentences([text], options)
    if isinstance(text, bytes) or not isinstance(text, Iterable):
        raise UsageError(f"The text must be a path or sentences, not {type(text).__name__} {shortened(text)}.")
    first, items = _peeked(text)
    if isinstance(first, Path):
        return Sentences(_paths(cast("Iterable[Path]", items)), options)
    return Sentences.from_strings(cast("Iterable[str]", items), options)


def _peeked(items: Iterable[str] | Iterable[Path]) -> tuple[object, Iterable[str] | Iterable[Path]]:
    """Return the first item and all items, with the first put back in front of a generator that has lost it."""
    iterator = iter(items)
    first = next(iterator, None)
    if iterator is not items:
        return first, items
    return first, cast("Iterable[str]", chain([] if first is None else [first], iterator))


def _paths(items: Iterable[Path]) -> list[Path]:
    paths = list(items)
    for index, path in enumerate(paths):
        if not isinstance(path, Path):
            raise UsageError(
                f"Element {index} of the given files is {type(path).__name__} {shortened(path)}, not a Path."
            )
    return paths
