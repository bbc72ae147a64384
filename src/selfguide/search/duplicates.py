"""Near-duplicates: every pair of rows whose cosine is above a percentile of the text's own random pairs.

A cosine of 0.9 is high for one encoder and low for another, so the threshold is a percentile. It is read from all pairs of
some thousand rows, drawn at random; then all pairs of all rows are compared, block by block, in an amount of memory that does not
grow with the rows. Nothing is approximate: what an index of vectors would propose is not used.
"""

from __future__ import annotations

import csv
import heapq
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from selfguide.errors import SelfguideError, UsageError
from selfguide.escaping import csv_text
from selfguide.files import atomic_path
from selfguide.options import Between, check
from selfguide.progress import Reporter
from selfguide.search.columns import SENTENCE, VECTOR
from selfguide.search.index import Index

if TYPE_CHECKING:
    from numpy.typing import NDArray

PAIR_FORMATS = (".csv", ".jsonl")
SAMPLED = 4096
"""Rows whose pairs estimate the percentile: 8.4 million pairs."""
_BLOCK = 16_384  # rows that are compared with all others in one pass over the table
_PART = 2048  # of them at a time, so that a matrix of cosines has 128 MB at most


class Pair(NamedTuple):
    """Two rows that are nearly the same."""

    first: int
    """Number of the row in the index, from 0; below ``second``."""
    second: int
    cosine: float
    first_text: str
    second_text: str


class DuplicatesFound(NamedTuple):
    """The result of comparing all pairs."""

    pairs: int
    dropped: int
    """Rows that a kept earlier one is near to."""
    closest: list[Pair]


@dataclass(frozen=True)
class NearDuplicates:
    """The pairs of an index above a percentile; iterating computes them.

    Args:
        index: The index.
        percentile: Of the cosines of random pairs.
        threshold: The cosine at this percentile.
        sampled: How many pairs it was read from.
        seed: Of the draw.
    """

    index: Index
    percentile: float
    threshold: float
    sampled: int
    seed: int
    reporter: Reporter

    @property
    def expected(self) -> int:
        """About how many pairs there will be: the percentage above, of all pairs."""
        count = len(self.index)
        return round((100 - self.percentile) / 100 * count * (count - 1) / 2)

    def __iter__(self) -> Iterator[Pair]:
        """Yield the pairs block by block.

        Yields:
            Each pair whose cosine is at or above the threshold, once; after all pairs in which its first row is the second.
        """
        count = len(self.index)
        with self.reporter.bar("comparing", count * (count - 1) // 2 or None, "pairs") as advance:
            for start in range(0, count, _BLOCK):
                rows, texts = self._block(start)
                after = start
                for batch in self.index.store.batches(SENTENCE, VECTOR, offset=start):
                    others = _vectors(batch, self.index.store.dim)
                    found, compared = _above(rows, others, start, after, self.threshold)
                    if len(found[0]):
                        names = batch.column(SENTENCE)
                        for place, other, cosine in zip(*(part.tolist() for part in found), strict=True):
                            yield Pair(start + place, after + other, cosine, texts[place], names[other].as_py())
                    after += len(others)
                    advance(compared, "")

    def write(self, pairs: Path | None = None, cleaned: Path | None = None, closest: int = 0) -> DuplicatesFound:
        """Compute the pairs once, and write what is wanted of them.

        Args:
            pairs: A ``.csv`` or ``.jsonl`` file for all pairs.
            cleaned: A file for the sentences of the index, one a line, without those that a kept earlier one is near to.
            closest: How many of the closest pairs to return.

        Returns:
            The counts, and the closest pairs.

        Raises:
            UsageError: A file has another suffix.
            SelfguideError: A file cannot be written.
        """
        if pairs is not None and pairs.suffix not in PAIR_FORMATS:
            raise UsageError(
                f"{pairs} ends in {pairs.suffix or 'nothing'}; pairs are written to {' or '.join(PAIR_FORMATS)}."
            )
        for path in filter(None, (pairs, cleaned)):  # before the pairs are computed, which takes long
            if not path.parent.is_dir():
                raise SelfguideError(f"{path} cannot be written: there is no folder {path.parent}.")
            if not os.access(path.parent, os.W_OK):
                raise SelfguideError(f"{path} cannot be written: Permission denied.")
        count, dropped, writing = 0, np.zeros(len(self.index), dtype=np.bool_), pairs
        best: list[tuple[float, int, int, Pair]] = []
        try:
            with ExitStack() as stack:
                file = None
                if pairs is not None:
                    temporary = stack.enter_context(atomic_path(pairs))
                    file = stack.enter_context(temporary.open("w", encoding="utf-8", newline=""))
                    rows = csv.writer(file)
                    if pairs.suffix == ".csv":
                        rows.writerow(["cosine", "first row", "second row", "first", "second"])
                for pair in self:
                    count += 1
                    if not dropped[pair.first]:
                        dropped[pair.second] = True
                    if len(best) < closest:
                        heapq.heappush(best, (pair.cosine, -pair.first, -pair.second, pair))
                    elif best and pair.cosine > best[0][0]:
                        heapq.heapreplace(best, (pair.cosine, -pair.first, -pair.second, pair))
                    if file is not None and pairs is not None and pairs.suffix == ".csv":
                        texts = csv_text(pair.first_text), csv_text(pair.second_text)
                        rows.writerow([f"{pair.cosine:.6f}", pair.first, pair.second, *texts])
                    elif file is not None:
                        file.write(json.dumps(pair._asdict(), ensure_ascii=False) + "\n")
            if cleaned is not None:
                writing = cleaned
                self._write_cleaned(cleaned, dropped)
        except OSError as error:
            doing = f"{self.index.folder} cannot be read" if writing is None else f"{writing} cannot be written"
            raise SelfguideError(f"{doing}: {error.strerror}.") from None
        closest_pairs = [item[3] for item in sorted(best, reverse=True)]
        return DuplicatesFound(count, int(dropped.sum()), closest_pairs)

    def _write_cleaned(self, path: Path, dropped: NDArray[np.bool_]) -> None:
        place = 0
        with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8") as file:
            for batch in self.index.store.batches(SENTENCE):
                texts = batch.column(SENTENCE).to_pylist()
                kept = (text for text, gone in zip(texts, dropped[place : place + len(texts)], strict=True) if not gone)
                file.writelines(text + "\n" for text in kept)
                place += len(texts)

    def _block(self, start: int) -> tuple[NDArray[np.float32], list[str]]:
        parts, texts = [], []
        for batch in self.index.store.batches(SENTENCE, VECTOR, offset=start, count=_BLOCK):
            parts.append(_vectors(batch, self.index.store.dim))
            texts.extend(batch.column(SENTENCE).to_pylist())
        return np.concatenate(parts), texts


def near_duplicates(
    index: Index, percentile: float = 99.99, *, seed: int = 1, reporter: Reporter | None = None
) -> NearDuplicates:
    """Find the pairs of rows that are nearer than nearly all random pairs of the text.

    Args:
        index: The index.
        percentile: How near: of 99.99, one random pair of 10,000 is as near.
        seed: Of the rows that are drawn to find the cosine of this percentile; of up to 4,096 rows all are taken.
        reporter: Shows progress.

    Returns:
        The pairs, computed as they are asked for; see :class:`NearDuplicates`.

    Raises:
        UsageError: The percentile is not between 0 and 100.
        SelfguideError: There are fewer than two rows.

    Example::

        for pair in selfguide.near_duplicates(selfguide.open_index("notes.index"), 99.99):
            print(pair.cosine, pair.first_text, pair.second_text)
    """
    check("near_duplicates", percentile, Between(0, 100, open_low=True, open_high=True))
    index.refresh()
    count = len(index)
    if count < 2:
        raise SelfguideError("There are fewer than two rows in the index, so there is no pair to compare.")
    places = np.sort(np.random.default_rng(seed).choice(count, min(SAMPLED, count), replace=False))
    sample = index.store.vectors_at(places)
    cosines = (sample @ sample.T)[np.triu_indices(len(sample), 1)]
    threshold = float(np.percentile(cosines.astype(np.float64), percentile))
    return NearDuplicates(index, percentile, threshold, len(cosines), seed, reporter or Reporter(quiet=True))


def _above(
    rows: NDArray[np.float32], others: NDArray[np.float32], start: int, after: int, threshold: float
) -> tuple[tuple[NDArray[Any], NDArray[Any], NDArray[Any]], int]:
    """Return the places of pairs at or above the threshold, the first before the second, and how many were compared."""
    firsts, seconds, cosines = [], [], []
    compared = 0
    for low in range(0, len(rows), _PART):
        part = rows[low : low + _PART]
        near = part @ others.T
        place = np.arange(start + low, start + low + len(part))[:, None]
        later = np.arange(after, after + len(others))[None, :] > place
        compared += int(later.sum())
        first, second = np.nonzero((near >= threshold) & later)
        firsts.append(first + low)
        seconds.append(second)
        cosines.append(near[first, second])
    order = np.lexsort((np.concatenate(seconds), np.concatenate(firsts)))
    found = tuple(np.concatenate(parts)[order] for parts in (firsts, seconds, cosines))
    return (found[0], found[1], found[2]), compared


def _vectors(batch: Any, dim: int) -> NDArray[np.float32]:
    found: NDArray[np.float32] = batch.column(VECTOR).flatten().to_numpy(zero_copy_only=False).reshape(-1, dim)
    return found
