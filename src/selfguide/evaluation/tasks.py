"""The tasks that encoders are scored on: names, parts and the number of rows each must have.

Nothing here reads a file or imports torch. Row counts are those of the papers' protocol. SICK-R is the trap: 4,927 test pairs
in the papers, 9,927 (all splits) in some copies; the two give different numbers and must not be mixed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from selfguide.errors import UsageError, suggestion

Kind = Literal[
    "graded-pairs", "binary-pairs", "classification", "pair-classification", "few-shot", "clustering", "retrieval"
]
Splits = Literal["folds", "train-test", "train-dev-test", "none"]
TextForm = Literal["raw", "senteval"]
"""Text as released, or as SentEval tokenises and lower-cases it (what the papers scored)."""
TEXT_FORMS: tuple[TextForm, ...] = ("raw", "senteval")
_RAW: tuple[TextForm, ...] = ("raw",)


@dataclass(frozen=True)
class Part:
    """One file of a task: a subset (STS12's MSRpar) or a split (TREC's train)."""

    name: str
    rows: int | None = None
    """The number of rows it must have; None where it is not known, as for a user's own file."""
    all_splits: int | None = None
    """The number of rows of a well-known copy that joins all splits, and so is another dataset."""


@dataclass(frozen=True)
class Task:
    """A dataset, what is asked about its rows, and where a data folder keeps it."""

    name: str
    title: str
    kind: Kind
    parts: tuple[Part, ...]
    path: str
    """Path in the data folder, ``{part}`` standing for a part's name; empty for the data inside the package."""
    low: float = 0.0
    high: float = 5.0
    """The range of the grades."""
    splits: Splits = "none"
    language: str = "en"
    classes: tuple[str, ...] = ("0", "1")
    """The labels of a classification task; empty where any label may occur."""
    forms: tuple[TextForm, ...] = TEXT_FORMS
    """The forms in which its text exists."""

    @property
    def rows(self) -> int | None:
        """The number of rows of all parts, or None where one is not known."""
        counts = [part.rows for part in self.parts]
        return None if None in counts else sum(count for count in counts if count is not None)

    @property
    def is_classification(self) -> bool:
        """Whether a classifier is trained on many labelled rows (a transfer task)."""
        return self.kind in ("classification", "pair-classification")

    @property
    def has_pairs(self) -> bool:
        """Whether the rows are pairs with a grade each."""
        return self.kind in ("graded-pairs", "binary-pairs")

    @property
    def has_labels(self) -> bool:
        """Whether the rows have labels instead of grades."""
        return self.is_classification or self.kind in ("few-shot", "clustering")


def _sts(name: str, title: str, **rows: int) -> Task:
    parts = tuple(Part(part.replace("__", ".").replace("_", "-"), count) for part, count in rows.items())
    return Task(name, title, "graded-pairs", parts, f"sts/{name}/{{part}}.tsv")


def _pairs(name: str, title: str, path: str, rows: int) -> Task:
    return Task(name, title, "graded-pairs", (Part("test", rows),), path)


def _multilingual(name: str, title: str, file: str, language: str, rows: int) -> Task:
    return replace(_pairs(name, title, f"multilingual/{file}.tsv", rows), language=language, forms=_RAW)


def _labelled(name: str, title: str, splits: Splits, kind: Kind = "classification", **rows: int) -> Task:
    parts = tuple(Part(part, count) for part, count in rows.items())
    return Task(name, title, kind, parts, f"transfer/{title}/{{part}}.tsv", 0.0, 1.0, splits)


def _retrieval(name: str, title: str, corpus: int, queries: int, qrels: int) -> Task:
    parts = (Part("corpus", corpus), Part("queries", queries), Part("qrels", qrels))
    return Task(name, title, "retrieval", parts, f"retrieval/{name}", forms=_RAW)


_STS17 = ("ar-ar", "ar-en", "en-en", "es-en", "es-es", "tr-en")
_STS14_ES = (Part("news", 480), Part("wikipedia", 324))

TASKS: tuple[Task, ...] = (
    _sts("sts12", "STS12", MSRpar=750, MSRvid=750, SMTeuroparl=459, surprise__OnWN=750, surprise__SMTnews=399),
    _sts("sts13", "STS13", FNWN=189, OnWN=561, headlines=750),
    _sts("sts14", "STS14", OnWN=750, deft_forum=450, deft_news=300, headlines=750, images=750, tweet_news=750),
    _sts("sts15", "STS15", answers_forums=375, answers_students=750, belief=375, headlines=750, images=750),
    _sts("sts16", "STS16", answer_answer=254, headlines=249, plagiarism=230, postediting=244, question_question=209),
    _pairs("stsb", "STS-B", "sts/stsb/test.tsv", 1379),
    Task("sickr", "SICK-R", "graded-pairs", (Part("test", 4927, all_splits=9927),), "sts/sickr/test.tsv", low=1.0),
    _pairs("stsb-dev", "STS-B dev", "sts/stsb/dev.tsv", 1500),
    _labelled("mr", "MR", "folds", all=10662),
    _labelled("cr", "CR", "folds", all=3775),
    _labelled("subj", "SUBJ", "folds", all=10000),
    _labelled("mpqa", "MPQA", "folds", all=10606),
    replace(_labelled("sst2", "SST2", "train-dev-test", train=67349, dev=872, test=1821), forms=_RAW),
    replace(
        _labelled("trec", "TREC", "train-test", train=5452, test=500),
        classes=("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM"),
    ),
    _labelled("mrpc", "MRPC", "train-test", "pair-classification", train=4076, test=1725),
    *(_multilingual(f"sts17-{pair}", f"STS17 {pair}", f"sts17-{pair}", pair, 250) for pair in _STS17),
    _multilingual("korsts", "KorSTS", "korsts-test", "ko", 1379),
    _multilingual("korsts-dev", "KorSTS dev", "korsts-dev", "ko", 1500),
    _multilingual("stsb-de", "STS-B de", "stsb-mt-de-test", "de", 1379),
    _multilingual("stsb-es", "STS-B es", "stsb-mt-es-test", "es", 1379),
    replace(_multilingual("sts14-es", "STS14 es", "sts14-es-{part}", "es", 0), parts=_STS14_ES, high=4.0),
    _retrieval("scifact", "SciFact", 5183, 300, 339),
    _retrieval("cranfield", "Cranfield", 1400, 225, 1612),
    _retrieval("cisi", "CISI", 1460, 76, 3114),
    Task(
        "banking77",
        "Banking77",
        "few-shot",
        (Part("train", 10003), Part("test", 3080)),
        "retrieval/banking77/{part}.tsv",
        splits="train-test",
        classes=(),
        forms=_RAW,
    ),
    Task(
        "stackoverflow",
        "Stack Overflow titles",
        "clustering",
        (Part("test", 20000),),
        "retrieval/stackoverflow_titles/{part}.tsv",
        classes=(),
        forms=_RAW,
    ),
    Task("demo", "demo pairs", "graded-pairs", (Part("test", 440),), "", forms=_RAW),
    Task("demo-dev", "demo pairs dev", "graded-pairs", (Part("dev", 220),), "", forms=_RAW),
)

RETRIEVAL = "retrieval"
"""The group of retrieval sets, and their folder in a data folder."""

GROUPS: dict[str, tuple[str, ...]] = {
    "sts": ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr"),
    "transfer": ("mr", "cr", "subj", "mpqa", "sst2", "trec", "mrpc"),
    "sts17": tuple(f"sts17-{pair}" for pair in _STS17),
    RETRIEVAL: ("scifact", "cranfield", "cisi"),
    "multilingual": (*(f"sts17-{pair}" for pair in _STS17), "korsts", "stsb-de", "stsb-es", "sts14-es"),
}
"""Names that stand for several tasks, the most important first; the papers' averages are over ``sts`` and over ``transfer``.
With a data folder, ``retrieval`` stands for the retrieval sets that it has: these, and those of one's own."""

CORPORA: dict[str, Task] = {
    "stsb": Task(
        "data:stsb",
        "STS-B (train, dev and test)",
        "graded-pairs",
        (Part("train", 5749), Part("dev", 1500), Part("test", 1379)),
        "sts/stsb/{part}.tsv",
    )
}
"""Tasks whose unlabelled training text, in the papers' protocol, has more parts than are scored."""


def task_named(name: str) -> Task:
    """Return the task of a name.

    Raises:
        UsageError: There is no such task; the message suggests a similar name.
    """
    for candidate in TASKS:
        if candidate.name == name:
            return candidate
    raise UsageError(f"There is no task {name!r}.{suggestion(name, _names())} There are {', '.join(_names())}.")


def tasks_named(names: str | Iterable[str]) -> tuple[Task, ...]:
    """Return the tasks denoted by names and groups, each once and in the order given.

    Args:
        names: Such as ``"sts,mr"`` or ``["sts", "mr"]``.

    Returns:
        The tasks.

    Raises:
        UsageError: No task is named, or a name is unknown.
    """
    members = [member for name in split_names(names) for member in GROUPS.get(name, (name,))]
    if not members:
        raise UsageError(f"No task is named. There are {', '.join(_names())}.")
    return tuple(task_named(name) for name in dict.fromkeys(members))


def split_names(names: str | Iterable[str]) -> list[str]:
    """Return the names of tasks and groups in what a user gave, without blanks and empty ones."""
    given = names.split(",") if isinstance(names, str) else names
    return [name.strip() for name in given if name.strip()]


def _names() -> list[str]:
    return [*GROUPS, *(item.name for item in TASKS)]
