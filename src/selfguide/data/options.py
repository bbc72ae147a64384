"""What a caller may ask of the text, and what a pass over it counted."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import PurePath
from typing import Annotated, Any, Literal

from selfguide.options import AtLeast, CheckedOptions, NotEmpty


@dataclass(frozen=True)
class TextOptions(CheckedOptions):
    """How sentences are taken out of their sources and cleaned.

    ``column`` is for csv, tsv, parquet and hub datasets (a name, or a number from 0; with a number every row of a csv
    or tsv file is data, with a name the first is the header), ``field`` for JSON lines (dots lead into nested objects).
    Rows align with the input, as encoding needs, when ``keep_blank`` and ``keep_duplicates`` are set and ``long_lines``
    is "cut"; a missing value is then an empty sentence too.
    """

    column: Annotated[str | None, NotEmpty()] = None
    field: Annotated[str | None, NotEmpty()] = None
    keep_duplicates: bool = False
    keep_blank: bool = False
    max_chars: Annotated[int, AtLeast(1)] = 5000
    long_lines: Literal["drop", "cut"] = "drop"
    on_bad_utf8: Literal["error", "replace"] = "error"
    limit: Annotated[int | None, AtLeast(1)] = None


@dataclass(frozen=True)
class TextSummary:
    """The counts of one pass, exact up to the sentence last handed out.

    ``read`` counts lines or rows, ``kept`` the sentences handed out; the others say what became of the rest. A line
    that was cut, or blank and kept, is counted both in ``kept`` and under its own word. ``fingerprint`` is the hash of
    the kept sentences in order, and is None until the pass is complete.
    """

    files: tuple[str, ...] = ()
    read: int = 0
    kept: int = 0
    blank: int = 0
    too_long: int = 0
    duplicates: int = 0
    missing: int = 0
    replaced: int = 0
    fingerprint: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """The same as plain JSON-able values."""
        return asdict(self) | {"files": list(self.files)}

    def describe(self) -> str:
        """One short sentence for people; what did not happen is not mentioned."""
        remarks = [
            f"{self.kept:,} kept",
            _counted(self.duplicates, "repeat", "repeats"),
            _counted(self.blank, "blank", "blank"),
            _counted(self.too_long, "over-long", "over-long"),
            _counted(self.missing, "missing", "missing"),
            _counted(self.replaced, "with bad UTF-8 replaced", "with bad UTF-8 replaced"),
        ]
        lines = _counted(self.read, "line", "lines") or "no lines"
        return f"{lines} read from {self._origin()}: {', '.join(filter(None, remarks))}"

    def _origin(self) -> str:
        if len(self.files) > 1:
            return f"{len(self.files):,} files"
        name = self.files[0] if self.files else "nothing"
        return name if name.startswith("hf:") else PurePath(name).name


def _counted(number: int, singular: str, plural: str) -> str:
    return f"{number:,} {singular if number == 1 else plural}" if number else ""
