"""The texts and test sets of the study ``domains``, by name.

The demonstration has one text, and nothing in it records the style of a sentence. So it is split by length in words: the
shorter half and the longer half of the sentences, and of the test pairs. That shows how the study works; short and long are
hardly domains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from selfguide.comparison.texts import DatasetLocator
from selfguide.data import Sentences, TextOptions
from selfguide.data.pairs import read_pairs
from selfguide.data.resources import demo_sentences
from selfguide.errors import SelfguideError, UsageError
from selfguide.evaluation.data import data_folder
from selfguide.files import write_text
from selfguide.studies.context import MeasurementContext
from selfguide.studies.texts import TextSample, TextSampler

Item = TypeVar("Item")
HALVES = ("short", "long")
"""Halves of the demonstration's sentences and of its test pairs."""
TWITTER = "twitter-url"
PAIRS = {"mqp": "domain/mqp.tsv", TWITTER: "domain/twitter-url-test.tsv"}
"""Test sets of the data folder that are not tasks."""
_UNDECIDED = 3.0
"""Of twitter-url's six annotators, three said paraphrase: the corpus's own test leaves such pairs out."""


@dataclass(frozen=True)
class Domain:
    """A text of the data folder."""

    sources: tuple[str, ...]
    """Files in the folder, or ``data:TASK``."""
    columns: tuple[str, ...] = ()
    """Columns of sentences, where the files are tables."""
    own_test: str | None = None
    """The test set that is made of the same sentences."""


_NLI = ("snli.dev", "snli.test", "snli-sample.train", "mnli-sample-en.train", "mnli-taxinli")
DOMAINS = {
    "nli": Domain(tuple(f"nli/{name}.tsv" for name in _NLI), ("1", "2")),
    "sts": Domain(("data:stsb",), own_test="stsb"),
    "wiki": Domain(("text/wiki1m_for_simcse.head.txt",)),
    "everyday": Domain(("text/commonvoice_en_sentences.txt",)),
    "medical": Domain((PAIRS["mqp"],), ("1", "2"), "mqp"),
    "tweets": Domain((PAIRS[TWITTER],), ("1", "2"), TWITTER),
}


def own_test(text: str) -> str | None:
    """Return the test set that is made of a text's own sentences, if there is one."""
    if text in HALVES:
        return text
    return DOMAINS[text].own_test if text in DOMAINS else None


def sample_text(name: str, limit: int | None, context: MeasurementContext, work: Path) -> TextSample:
    """Sample a text.

    Args:
        name: A half, a domain, or anything that ``selfguide train`` reads.
        limit: How many sentences; None: all.
        context: Names the data folder.
        work: A folder for temporary files.

    Returns:
        The sample.

    Raises:
        SelfguideError: The data folder, or the text in it, is missing.
    """
    if name in HALVES:
        sentences = _half(demo_sentences(), name, lambda sentence: len(sentence.split()))
        source = _write_lines(work / f"{name} demo sentences", sentences)
    elif name not in DOMAINS:
        source = name
    elif DOMAINS[name].columns:
        files = [_in_data(file, name, context) for file in DOMAINS[name].sources]
        columns = [Sentences(files, TextOptions(column=column, header="no")) for column in DOMAINS[name].columns]
        source = _write_lines(work / f"{name} sentences", [sentence for column in columns for sentence in column])
    else:
        (source,) = DOMAINS[name].sources
        source = source if source.startswith("data:") else str(_in_data(source, name, context))
    return TextSampler(DatasetLocator(context.data)).sample(source, limit)


def pairs_file(name: str, context: MeasurementContext, work: Path) -> Path:
    """Return a test set as a file of pairs; with labels 0 and 1, its score is average precision.

    Args:
        name: A half, a key of :data:`PAIRS`, or a file of pairs.
        context: Names the data folder.
        work: A folder for temporary files.

    Raises:
        SelfguideError: The data folder, or the test set in it, is missing.
    """
    if name in HALVES:
        rows = context.rows("demo").parts[0]
        pairs = list(zip(rows.grades or [], rows.first, rows.second or [], strict=True))
        half = _half(pairs, name, lambda pair: len(pair[1].split()) + len(pair[2].split()))
        return _write_pairs(work / f"{name}.tsv", half)
    if name not in PAIRS:
        return Path(name)
    path = _in_data(PAIRS[name], name, context)
    if name != TWITTER:
        return path
    read = read_pairs(path)
    votes = zip(read.scores, read.first, read.second, strict=True)
    return _write_pairs(
        work / f"{name}.tsv", [(float(count > _UNDECIDED), *pair) for count, *pair in votes if count != _UNDECIDED]
    )


def _half(items: Sequence[Item], name: str, length: Callable[[Item], int]) -> list[Item]:
    """Return the shorter or the longer half, in the order of the items."""
    ordered = sorted(range(len(items)), key=lambda index: (length(items[index]), index))
    middle = len(items) // 2
    return [items[index] for index in sorted(ordered[:middle] if name == HALVES[0] else ordered[middle:])]


def _in_data(source: str, name: str, context: MeasurementContext) -> Path:
    folder = data_folder(context.data)
    if folder is None:
        raise UsageError(f"{name!r} is in a data folder: name one with --data or SELFGUIDE_DATA, or leave it out.")
    if not (folder / source).is_file():
        raise SelfguideError(f"The data folder has no {source}, which {name!r} needs; put it there, or leave it out.")
    return folder / source


def _write_lines(path: Path, sentences: Sequence[str]) -> str:
    """Write a text file; its name becomes the name of the text."""
    write_text(path, "".join(sentence + "\n" for sentence in sentences))
    return str(path)


def _write_pairs(path: Path, pairs: Sequence[Sequence[Any]]) -> Path:
    write_text(path, "".join(f"{float(score)!r}\t{first}\t{second}\n" for score, first, second in pairs))
    return path
