"""Who judges an encoder that was fitted on a text: the text's own pairs or task, and what is lost elsewhere."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import selfguide
from experiments.adapt.scores import Vectors
from experiments.adapt.texts import DEVELOPMENT, REPORT, distinct, elsewhere, judged_text
from selfguide.correlation import spearman
from selfguide.data.pairs import Pairs
from selfguide.errors import UsageError

Encode = Callable[[Sequence[str]], Vectors]

TASKS: dict[str, tuple[str, int]] = {
    "scifact": ("retrieval/scifact/corpus.tsv", 1),
    "cranfield": ("retrieval/cranfield/corpus.tsv", 1),
    "cisi": ("retrieval/cisi/corpus.tsv", 1),
    "banking77": ("retrieval/banking77/train.tsv", 1),
    "stackoverflow": ("retrieval/stackoverflow_titles/test.tsv", 1),
}
"""Tasks of the report list by name: the file of the text, and its column. Queries and labels are for scoring alone."""
ALSO = ("dev", "sts", "all", "none")


class Judge:
    """A text, and the scores of an encoder fitted on it.

    Args:
        name: A text of either list, or a task.
        data: The data folder.
        pairs: Graded pairs at most; 0: all.
        also: What is scored elsewhere: ``dev`` STS-B dev, ``sts`` the seven STS sets, ``all`` these and the transfer tasks,
            ``none`` nothing.
    """

    def __init__(self, name: str, data: Path, pairs: int = 0, also: str = "dev") -> None:
        self.name, self.data, self.also = name, data, also
        self.pairs: Pairs | None = None
        if name in TASKS:
            self.sentences = _column(data / TASKS[name][0], TASKS[name][1])
        elif name in DEVELOPMENT | REPORT:
            judged = judged_text(name, data, pairs)
            self.sentences, self.pairs = judged.sentences, judged.pairs
        else:
            raise UsageError(f"There is no text {name!r}; there are {', '.join([*DEVELOPMENT, *REPORT, *TASKS])}.")
        self.general = elsewhere(data, pairs) if also == "dev" else None

    def scores(self, encode: Encode) -> dict[str, float]:
        """Return the score on the text's own pairs or task (``own``), and those elsewhere.

        Args:
            encode: Returns one vector a sentence.

        Returns:
            Scores × 100; ``elsewhere`` is STS-B dev or the mean of the seven STS sets, ``transfer`` the mean of those tasks.
        """
        found = {"own": correlation(encode, self.pairs) if self.pairs is not None else self._task(encode, self.name)}
        if self.general is not None:
            found["elsewhere"] = correlation(encode, self.general)
        if self.also in ("sts", "all"):
            found["elsewhere"] = self._task(encode, "sts")
        if self.also == "all":
            found["transfer"] = self._task(encode, "transfer")
        return found

    def _task(self, encode: Encode, tasks: str) -> float:
        scores = selfguide.evaluate(encode, tasks, data=self.data, bootstrap=0, download=False).scores
        return statistics.fmean(score.value for score in scores)


def correlation(encode: Encode, pairs: Pairs) -> float:
    """Return Spearman × 100 of cosine and grade; pairs with an empty sentence are left out."""
    return float(100 * spearman(*pair_cosines(encode, pairs)))


def pair_cosines(encode: Encode, pairs: Pairs) -> tuple[NDArray[np.float32], list[float]]:
    """Return the cosine and the grade of every pair; pairs with an empty sentence are left out."""
    sentences = distinct(pairs)
    vectors = encode(sentences)
    vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    rows = {sentence: row for row, sentence in enumerate(sentences)}
    kept = [
        (rows[first], rows[second], score)
        for score, first, second in zip(pairs.scores, pairs.first, pairs.second, strict=True)
        if first in rows and second in rows
    ]
    one, two = (vectors[[pair[side] for pair in kept]] for side in (0, 1))
    return (one * two).sum(axis=1), [pair[2] for pair in kept]


def _column(path: Path, column: int) -> tuple[str, ...]:
    """Return the distinct texts of a column of a tab-separated file."""
    with path.open(encoding="utf-8", newline="\n") as lines:
        cells = (line.rstrip("\n").split("\t") for line in lines)
        return tuple(dict.fromkeys(row[column].strip() for row in cells if len(row) > column and row[column].strip()))
