"""How text is read, and what a pass over it counted."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import PurePath
from typing import Annotated, Any, Literal

from selfguide.data.messages import shortened
from selfguide.options import AtLeast, CheckedOptions, NotEmpty

SEPARATOR_NAMES = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|"}
"""Words for separators that are hard to type."""
NO_SEPARATOR = "none"


class Separator:
    """One character, or the name of one."""

    def problem(self, name: str, value: str) -> str | None:
        """See :class:`~selfguide.options.Rule`."""
        if value in SEPARATOR_NAMES or value == NO_SEPARATOR or (len(value) == 1 and value not in "\r\n\"'"):
            return None
        names = ", ".join((*SEPARATOR_NAMES, NO_SEPARATOR))
        return f"{name} must be one character (no quote), or one of {names}, got {shortened(value)}."


class KnownEncoding:
    """An encoding of text that Python knows."""

    def problem(self, name: str, value: str) -> str | None:
        """See :class:`~selfguide.options.Rule`."""
        try:
            "a".encode(value)
        except (LookupError, ValueError):
            return f"{name} must be an encoding such as utf-8, latin-1, cp1252 or utf-16, got {shortened(value)}."
        return None


@dataclass(frozen=True)
class TextOptions(CheckedOptions):
    """How sentences are read from their sources and cleaned.

    The output has a row for each row of the input, as encoding needs, if ``keep_blank`` and ``keep_duplicates`` are set and
    ``long_lines`` is "cut"; a missing value is then an empty sentence too.
    """

    column: Annotated[str | None, NotEmpty()] = None
    """Column of csv, tsv, parquet and hub sources: a name, or a number from 0. With a name the first row of a csv or tsv file is
    the header; with a number, ``header`` decides."""
    header: Literal["auto", "yes", "no"] = "auto"
    """Whether the first row of csv and tsv files names the columns; ``auto``: if it looks so."""
    delimiter: Annotated[str | None, Separator()] = None
    """What separates the cells of a table: one character, or comma, semicolon, tab, pipe, none. ``None``: found from the first
    rows of a csv file, a tab in tsv files. Any file of text becomes a table with it."""
    encoding: Annotated[str, KnownEncoding()] = "utf-8"
    """The encoding of files of text and of standard input."""
    skip_bad_rows: Annotated[int, AtLeast(0)] = 0
    """How many rows of a source may be left out because they have too many or too few cells, or are not valid CSV or JSON."""
    split_sentences: bool = False
    """Split every row into sentences, with the package sentencex."""
    language: Annotated[str, NotEmpty()] = "en"
    """The language whose rules split sentences: a code of ISO 639-1."""
    field: Annotated[str | None, NotEmpty()] = None
    """Field of JSON lines; dots lead into nested objects."""
    keep_duplicates: bool = False
    """Keep every occurrence of a repeated sentence."""
    keep_blank: bool = False
    """Keep blank rows as empty sentences."""
    max_chars: Annotated[int, AtLeast(1)] = 5000
    """Maximum length of a sentence in characters."""
    long_lines: Literal["drop", "cut"] = "drop"
    """What to do with longer ones."""
    on_bad_utf8: Literal["error", "replace"] = "error"
    """Whether invalid UTF-8 is an error or becomes U+FFFD."""
    limit: Annotated[int | None, AtLeast(1)] = None
    """Stop after this many sentences."""


@dataclass(frozen=True)
class TextSummary:
    """The counts of one pass, exact up to the last sentence yielded."""

    files: tuple[str, ...] = ()
    read: int = 0
    """Lines or rows."""
    kept: int = 0
    """Sentences yielded; those that were truncated, or blank and kept, also count under ``too_long`` or ``blank``."""
    blank: int = 0
    too_long: int = 0
    duplicates: int = 0
    missing: int = 0
    replaced: int = 0
    bad: int = 0
    """Rows that were left out because they could not be used."""
    paragraphs: int = 0
    """Rows before they were split into sentences; 0 where nothing was split. ``read`` counts the sentences then."""
    fingerprint: str | None = None
    """Hash of the sentences in order; ``None`` until the pass is complete."""

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as values that JSON can hold."""
        return asdict(self) | {"files": list(self.files)}

    def describe(self) -> str:
        """Return a short sentence that leaves out what did not occur."""
        remarks = [
            f"{self.kept:,} kept",
            _counted(self.duplicates, "repeat" if self.duplicates == 1 else "repeats"),
            _counted(self.blank, "blank"),
            _counted(self.too_long, "over-long"),
            _counted(self.missing, "missing"),
            _counted(self.replaced, "with bad UTF-8 replaced"),
            _counted(self.bad, "bad row left out" if self.bad == 1 else "bad rows left out"),
        ]
        lines = _counted(self.read, "line" if self.read == 1 else "lines") or "no lines"
        if self.paragraphs:
            sentences = f"{self.read:,} {'sentence' if self.read == 1 else 'sentences'}"
            lines = f"{self.paragraphs:,} {'line' if self.paragraphs == 1 else 'lines'}, split into {sentences},"
        return f"{lines} read from {self._origin()}: {', '.join(filter(None, remarks))}"

    def _origin(self) -> str:
        if len(self.files) > 1:
            return f"{len(self.files):,} files"
        name = self.files[0] if self.files else "nothing"
        return name if name.startswith("hf:") else PurePath(name).name


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number else ""
