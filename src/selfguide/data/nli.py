"""Labelled pairs for natural language inference: a premise, a hypothesis, and whether the hypothesis follows.

Each line of a file is ``label<TAB>premise<TAB>hypothesis``, without header or quoting; further columns are ignored. Labels
are entailment, neutral and contradiction, or 0, 1 and 2 in that order. A row whose label is ``-`` or -1, on which the
annotators did not agree, is skipped and counted. Files may be compressed (.gz and so on).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from selfguide.data.lines import TextLines
from selfguide.data.messages import shortened
from selfguide.data.sources import byte_source, matching_paths
from selfguide.errors import SelfguideError, UsageError

if TYPE_CHECKING:
    from datasets import Dataset

    from selfguide.progress import Reporter

LABELS = ("entailment", "neutral", "contradiction")
COLUMNS = ("premise", "hypothesis")
NO_FILE = "none"
"""Value of an option that names no file."""
_NUMBER = {name: number for number, label in enumerate(LABELS) for name in (label, str(number))}
_UNDECIDED = ("-", "-1")
_LAYOUT = "label<TAB>premise<TAB>hypothesis"


@dataclass
class _Rows:
    premises: list[str] = field(default_factory=list)
    hypotheses: list[str] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    undecided: int = 0


def read_nli(sources: str | Path | Iterable[str | Path], reporter: Reporter | None = None) -> Dataset:
    """Read labelled pairs.

    Args:
        sources: A file, a glob such as ``nli/*.tsv.gz``, several of these separated by commas, or a list of them.
        reporter: Receives the number of pairs of each label.

    Returns:
        A dataset with the columns ``premise``, ``hypothesis`` and ``label`` (0, 1 or 2).

    Raises:
        SelfguideError: A file cannot be read, a line is at fault, or a label does not occur.
    """
    from datasets import Dataset

    paths = _paths(sources)
    rows = _Rows()
    for path in paths:
        _read(path, rows)
    _check_labels(rows, paths)
    if reporter is not None:
        reporter.note(_summary(rows, len(paths)))
    return Dataset.from_dict({"premise": rows.premises, "hypothesis": rows.hypotheses, "label": rows.labels})


def check_option(value: str, method: str) -> None:
    """Check a method's option ``nli``.

    Args:
        value: The option: files as in :func:`read_nli`.
        method: Name of the method, for the error.

    Raises:
        UsageError: It names no file.
        SelfguideError: A file does not exist.
    """
    if value in (NO_FILE, ""):
        raise UsageError(
            f"The method {method} learns from labelled pairs of sentences: name a file of them with --nli FILE "
            f"(in Python nli=), {_LAYOUT} a line, with the labels {', '.join(LABELS)}. SNLI and MultiNLI are such pairs."
        )
    _paths(value)


def _paths(sources: str | Path | Iterable[str | Path]) -> list[Path]:
    paths = []
    for source in [sources] if isinstance(sources, str | Path) else sources:
        name = str(source)
        # A name that exists as a whole is one file, even with a comma in it.
        whole = isinstance(source, Path) or Path(name).expanduser().exists()
        for part in [name] if whole else filter(None, map(str.strip, name.split(","))):
            paths += matching_paths(part)
    return paths


def _read(path: Path, rows: _Rows) -> None:
    lines = TextLines(byte_source(path))
    for line in lines:
        cells = line.rstrip("\r").split("\t")
        if cells == [""]:
            continue
        if len(cells) < 3:
            raise lines.column_error(cells, _LAYOUT)
        word, premise, hypothesis = (cell.strip() for cell in cells[:3])
        if word in _UNDECIDED:
            rows.undecided += 1
            continue
        number = _NUMBER.get(word.lower())
        if number is None:
            hint = " (a header has to be taken out)" if lines.number == 1 else ""
            raise lines.error(
                f"has the label {shortened(word)}, where one of {', '.join(LABELS)} or 0, 1, 2 is wanted{hint}."
            )
        for place, sentence in zip(COLUMNS, (premise, hypothesis), strict=True):
            if not sentence:
                raise lines.error(f"has an empty {place}: fill it in, or take the line out.")
        rows.premises.append(premise)
        rows.hypotheses.append(hypothesis)
        rows.labels.append(number)


def _check_labels(rows: _Rows, paths: list[Path]) -> None:
    """Require all three labels, because labels of another kind (0 and 1 for paraphrases) would be mistaken for these."""
    where = str(paths[0]) if len(paths) == 1 else f"The {len(paths)} files"
    holds = "holds" if len(paths) == 1 else "hold"
    missing = [label for number, label in enumerate(LABELS) if number not in set(rows.labels)]
    if len(missing) == len(LABELS):
        skipped = f" ({rows.undecided:,} rows have the label -, which is skipped)" if rows.undecided else ""
        raise SelfguideError(f"{where} {holds} no labelled pairs{skipped}: every line must be {_LAYOUT}.")
    if missing:
        raise SelfguideError(
            f"{where} {holds} no pair with the label {' or '.join(missing)}; all three of {', '.join(LABELS)} are needed, "
            "or the classifier learns nothing about the missing one. Are these labels of another kind?"
        )


def _summary(rows: _Rows, files: int) -> str:
    counts = Counter(rows.labels)
    each = ", ".join(f"{label} {counts[number]:,}" for number, label in enumerate(LABELS))
    source = f"{files} files" if files > 1 else "1 file"
    skipped = f"; {rows.undecided:,} without an agreed label were skipped" if rows.undecided else ""
    return f"{len(rows.labels):,} labelled pairs from {source} ({each}){skipped}."
