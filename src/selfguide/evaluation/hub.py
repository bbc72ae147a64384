"""Copies of the tasks on the Hugging Face hub: the known ones, and how each differs from the release.

A listed copy has the rows of the release by its published counts (and, where it is graded, by its mean grade), unless a comment
says otherwise. A task whose copies lack rows or labels that the papers use, such as SST2's test labels, has none here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from selfguide.data.messages import first_line
from selfguide.errors import SelfguideError
from selfguide.evaluation.layouts import RawRow, ReadPart, checked_rows
from selfguide.evaluation.tasks import GROUPS, Task, TextForm

_TIMEOUT_S = 10
_SICK_ALL, _SICK_TEST = 9927, 4927
_SICK_TEST_STARTS = (0, 500, 4500, 5000)  # in whatever order train (4,500 rows), trial (500) and test are joined
_SICK_TEST_MARK = "4b9ded043f9d70b6"


def _sick_test(rows: list[RawRow]) -> list[RawRow]:
    """Pick the papers' test rows out of a copy that joins all splits; only a block with their hash is taken."""
    if len(rows) != _SICK_ALL:
        return rows
    for start in _SICK_TEST_STARTS:
        block = rows[start : start + _SICK_TEST]
        if _mark(block) == _SICK_TEST_MARK:
            return block
    raise SelfguideError(
        f"{rows[0].where.partition(',')[0]} holds {_SICK_ALL:,} rows, train and trial among them, and the "
        f"{_SICK_TEST:,} test rows that the papers score cannot be told apart"
    )


def _mark(rows: list[RawRow]) -> str:
    """Hash grades and letters, ignoring spacing, case and punctuation."""
    digest = hashlib.sha256()
    for row in rows:
        first, second = (re.sub("[^a-z0-9]", "", text.lower()) for text in (row.first, row.second or ""))
        try:
            grade = f"{float(str(row.value)):g}"
        except ValueError:
            grade = "?"
        digest.update(f"{grade}|{first}|{second}\n".encode())
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class HubCopy:
    """A dataset on the hub that holds a task's rows."""

    name: str
    splits: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: {"test": ("test",)})
    """The splits that make up each part."""
    first: str = "sentence1"
    second: str | None = "sentence2"
    value: str = "score"
    config: str | None = None
    revision: str | None = None
    scale: float = 1.0
    """Factor that brings its grades to the task's range."""
    order: str | None = None
    """The column that restores the order of the release where splits are joined."""
    text: TextForm = "raw"
    note: str = ""
    select: Callable[[list[RawRow]], list[RawRow]] | None = None
    """Picks the task's rows where the copy holds more."""


_NO_SUBSETS = "this copy does not tell the subsets apart, so that only the 'all' aggregation exists"
_CONFIGS = {"sts17-ar-en": "en-ar", "sts17-tr-en": "en-tr"}  # the others are called as ours

COPIES: dict[str, tuple[HubCopy, ...]] = {
    **{
        # Character for character as long as SentEval's tokenised text, and longer than the releases.
        f"sts{year}": (HubCopy(f"mteb/sts{year}-sts", {"all": ("test",)}, text="senteval", note=_NO_SUBSETS),)
        for year in (12, 13, 14, 15, 16)
    },
    "stsb": (HubCopy("mteb/stsbenchmark-sts"), HubCopy("sentence-transformers/stsb", scale=5.0)),
    "stsb-dev": (
        HubCopy("mteb/stsbenchmark-sts", {"test": ("validation",)}),
        HubCopy("sentence-transformers/stsb", {"test": ("validation",)}, scale=5.0),
    ),
    # The first joins all splits; the second is an early revision, by its file sizes not yet joined.
    "sickr": (
        HubCopy("mteb/sickr-sts", select=_sick_test),
        HubCopy("mteb/sickr-sts", revision="b589c9fc99a24743f4f6cc6c7c9633cd0fe40b9d", select=_sick_test),
    ),
    **{
        name: (HubCopy("mteb/sts17-crosslingual-sts", config=_CONFIGS.get(name, name.removeprefix("sts17-"))),)
        for name in GROUPS["sts17"]
    },
    "korsts": (HubCopy("mteb/KorSTS"),),  # three of its 1,379 rows were lost on the way to the hub
    "stsb-de": (HubCopy("PhilipMay/stsb_multi_mt", value="similarity_score", config="de"),),
    "stsb-es": (HubCopy("PhilipMay/stsb_multi_mt", value="similarity_score", config="es"),),
    "mr": (
        HubCopy(
            "cornell-movie-review-data/rotten_tomatoes",
            {"all": ("train", "validation", "test")},
            first="text",
            second=None,
            value="label",
            note="its rows are in another order than the release's, so that the folds differ",
        ),
    ),
    "mrpc": (
        HubCopy(
            "nyu-mll/glue",
            {"train": ("train", "validation"), "test": ("test",)},
            value="label",
            config="mrpc",
            order="idx",
            text="senteval",
        ),
    ),
}


def read_copy(task: Task, copy: HubCopy) -> dict[str, ReadPart]:
    """Read the parts of a task from a copy, downloaded or in the hub's cache.

    Returns:
        The parts by name.

    Raises:
        SelfguideError: The copy cannot be reached or loaded, or a row is faulty.
    """
    _require_reachable(copy)
    name = f"hf:{copy.name}"
    read = {}
    for part, splits in copy.splits.items():
        rows = [row for split in splits for row in _downloaded(copy, split)]
        if copy.order is not None:
            order = copy.order
            rows.sort(key=lambda row: row[order])
        raw = list(_raw_rows(copy, rows, name))
        read[part] = ReadPart(checked_rows(task, part, copy.select(raw) if copy.select else raw), name)
    return read


def _require_reachable(copy: HubCopy) -> None:
    """Ask once, with a time limit: ``load_dataset`` retries for half a minute before it gives up."""
    try:
        from huggingface_hub import HfApi
        from huggingface_hub.errors import OfflineModeIsEnabled
    except ImportError as error:
        raise SelfguideError(f"hf:{copy.name} needs the package datasets: pip install datasets") from error
    try:
        HfApi().dataset_info(copy.name, timeout=_TIMEOUT_S)
    except OfflineModeIsEnabled:
        return  # a cached copy may do, and load_dataset does not wait in this mode
    except Exception as error:  # the HTTP library's own errors, which differ between versions
        raise SelfguideError(
            f"hf:{copy.name} cannot be reached ({first_line(error)}; if it was downloaded before, set HF_HUB_OFFLINE=1)"
        ) from error


def _downloaded(copy: HubCopy, split: str) -> list[dict[str, Any]]:
    try:
        from datasets import load_dataset

        rows = [dict(row) for row in load_dataset(copy.name, copy.config, split=split, revision=copy.revision)]
    except Exception as error:  # errors of half a dozen packages without a common base class
        raise SelfguideError(f"hf:{copy.name} cannot be loaded ({first_line(error)})") from error
    wanted = [column for column in (copy.first, copy.second, copy.value, copy.order) if column]
    if rows and (lacking := [column for column in wanted if column not in rows[0]]):
        raise SelfguideError(f"hf:{copy.name} has no column {lacking[0]!r} any more, only {', '.join(rows[0])}")
    return rows


def _raw_rows(copy: HubCopy, rows: list[dict[str, Any]], name: str) -> Iterator[RawRow]:
    for number, row in enumerate(rows, 1):
        value = row[copy.value]
        if isinstance(value, float):
            # Single precision and a division by five both leave rounding errors, which would break ties between grades.
            value = round(value * copy.scale, 6)
        # Some copies have white space around their sentences that the releases do not have.
        second = str(row[copy.second] or "").strip() if copy.second else None
        yield RawRow(f"{name}, row {number}", value, str(row[copy.first] or "").strip(), second)
