"""Copies of the tasks on the Hugging Face hub: which ones are known, and what is odd about each.

What is listed has the rows of the release by its published counts (and where it is graded by its mean grade), except
where a comment says otherwise. A task whose copies lack rows or labels that the papers use, such as SST2's test labels,
has none here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from selfguide.data.messages import first_line
from selfguide.errors import SelfguideError
from selfguide.evaluation.layouts import ReadPart, Record, checked_rows
from selfguide.evaluation.rows import TextForm
from selfguide.evaluation.tasks import Task

_TIMEOUT_S = 10


@dataclass(frozen=True)
class Copy:
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
    """What its grades are multiplied by."""
    order: str | None = None
    """The column that tells the order of the release, where splits have to be joined again."""
    text: TextForm = "raw"
    """The form of its text, which is not always that of the release."""
    note: str = ""


_NO_SUBSETS = "this copy does not tell the subsets apart, so that only the 'all' aggregation exists"

COPIES: dict[str, tuple[Copy, ...]] = {
    **{
        # Character for character as long as SentEval's tokenised text, and longer than the releases.
        f"sts{year}": (Copy(f"mteb/sts{year}-sts", {"all": ("test",)}, text="senteval", note=_NO_SUBSETS),)
        for year in (12, 13, 14, 15, 16)
    },
    "stsb": (Copy("mteb/stsbenchmark-sts"), Copy("sentence-transformers/stsb", scale=5.0)),
    "stsb-dev": (
        Copy("mteb/stsbenchmark-sts", {"test": ("validation",)}),
        Copy("sentence-transformers/stsb", {"test": ("validation",)}, scale=5.0),
    ),
    # The first joins all splits (see _sick_test); the second is an early state of it, by its file sizes not yet joined.
    "sickr": (
        Copy("mteb/sickr-sts"),
        Copy("mteb/sickr-sts", revision="b589c9fc99a24743f4f6cc6c7c9633cd0fe40b9d"),
    ),
    **{
        f"sts17-{pair}": (Copy("mteb/sts17-crosslingual-sts", config=config),)
        for pair, config in {
            "ar-ar": "ar-ar",
            "ar-en": "en-ar",
            "en-en": "en-en",
            "es-en": "es-en",
            "es-es": "es-es",
            "tr-en": "en-tr",
        }.items()
    },
    "korsts": (Copy("mteb/KorSTS"),),  # three of its 1,379 rows were lost on the way to the hub
    "stsb-de": (Copy("PhilipMay/stsb_multi_mt", value="similarity_score", config="de"),),
    "stsb-es": (Copy("PhilipMay/stsb_multi_mt", value="similarity_score", config="es"),),
    "mr": (
        Copy(
            "cornell-movie-review-data/rotten_tomatoes",
            {"all": ("train", "validation", "test")},
            first="text",
            second=None,
            value="label",
            note="its rows are in another order than the release's, so that the folds differ",
        ),
    ),
    "mrpc": (
        Copy(
            "nyu-mll/glue",
            {"train": ("train", "validation"), "test": ("test",)},
            value="label",
            config="mrpc",
            order="idx",
            text="senteval",
        ),
    ),
}


def read_copy(task: Task, copy: Copy) -> dict[str, ReadPart]:
    """The parts of a task out of one copy, downloaded or out of the hub's cache."""
    _require_reachable(copy)
    name = f"hf:{copy.name}"
    read = {}
    for part, splits in copy.splits.items():
        rows = [row for split in splits for row in _downloaded(copy, split)]
        if copy.order is not None:
            order = copy.order
            rows.sort(key=lambda row: row[order])
        records = list(_records(copy, rows, name))
        if task.name == "sickr":
            records = _sick_test(records)
        read[part] = ReadPart(checked_rows(task, part, records), name)
    return read


def _require_reachable(copy: Copy) -> None:
    """Ask once, with a time limit: ``load_dataset`` would try for half a minute before it gives up."""
    try:
        from huggingface_hub import HfApi
        from huggingface_hub.errors import OfflineModeIsEnabled
    except ImportError as error:
        raise SelfguideError(f"hf:{copy.name} needs the package datasets: pip install datasets") from error
    try:
        HfApi().dataset_info(copy.name, timeout=_TIMEOUT_S)
    except OfflineModeIsEnabled:
        return  # a copy in the cache may do, and load_dataset does not wait in this mode
    except Exception as error:  # the HTTP library's own errors, which differ between versions
        raise SelfguideError(
            f"hf:{copy.name} cannot be reached ({first_line(error)}; if it was downloaded before, set HF_HUB_OFFLINE=1)"
        ) from error


def _downloaded(copy: Copy, split: str) -> list[dict[str, Any]]:
    try:
        from datasets import load_dataset

        rows = [dict(row) for row in load_dataset(copy.name, copy.config, split=split, revision=copy.revision)]
    except Exception as error:  # connections, missing names, bad files: errors of half a dozen packages, no common root
        raise SelfguideError(f"hf:{copy.name} cannot be loaded ({first_line(error)})") from error
    wanted = [column for column in (copy.first, copy.second, copy.value, copy.order) if column]
    if rows and (lacking := [column for column in wanted if column not in rows[0]]):
        raise SelfguideError(f"hf:{copy.name} has no column {lacking[0]!r} any more, only {', '.join(rows[0])}")
    return rows


def _records(copy: Copy, rows: list[dict[str, Any]], name: str) -> Iterator[Record]:
    for number, row in enumerate(rows, 1):
        value = row[copy.value]
        if isinstance(value, float):
            # Single precision and a division by five both leave crumbs, which would break the ties that Spearman counts.
            value = round(value * copy.scale, 6)
        # Some copies have blanks or line ends around their sentences that the releases do not have.
        second = str(row[copy.second] or "").strip() if copy.second else None
        yield Record(f"{name}, row {number}", value, str(row[copy.first] or "").strip(), second)


# -- SICK-R ------------------------------------------------------------------------------------------------------------

_SICK_ALL, _SICK_TEST = 9927, 4927
_SICK_TEST_STARTS = (0, 500, 4500, 5000)  # wherever train (4,500) and trial (500) stand
_SICK_TEST_MARK = "4b9ded043f9d70b6"


def _sick_test(records: list[Record]) -> list[Record]:
    """The papers' test rows out of a copy that joined all splits: only a block known to be them is taken."""
    if len(records) != _SICK_ALL:
        return records
    for start in _SICK_TEST_STARTS:
        block = records[start : start + _SICK_TEST]
        if _mark(block) == _SICK_TEST_MARK:
            return block
    raise SelfguideError(
        f"{records[0].where.partition(',')[0]} holds {_SICK_ALL:,} rows, train and trial among them, and the "
        f"{_SICK_TEST:,} test rows that the papers score cannot be told apart"
    )


def _mark(records: list[Record]) -> str:
    """A hash of grades and letters that spacing, case and punctuation do not change."""
    digest = hashlib.sha256()
    for record in records:
        first, second = (re.sub("[^a-z0-9]", "", text.lower()) for text in (record.first, record.second or ""))
        try:
            grade = f"{float(str(record.value)):g}"
        except ValueError:
            grade = "?"
        digest.update(f"{grade}|{first}|{second}\n".encode())
    return digest.hexdigest()[:16]
