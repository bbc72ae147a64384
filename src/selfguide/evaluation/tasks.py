"""What tasks there are: names, parts and the number of rows each must have. Nothing here reads a file or imports torch.

Row counts are those of the papers' protocol. SICK-R is the trap: 4,927 test pairs in the papers, 9,927 (all splits) in
some copies; the two give different numbers and must not be mixed.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from selfguide.errors import UsageError

Kind = Literal["graded-pairs", "binary-pairs", "classification", "pair-classification"]
Splits = Literal["folds", "train-test", "train-dev-test", "none"]


@dataclass(frozen=True)
class Part:
    """One file of a task: a subset (STS12's MSRpar) or a split (TREC's train)."""

    name: str
    rows: int | None = None
    """How many rows it must have; None where nobody knows, as for a user's own file."""


@dataclass(frozen=True)
class Task:
    """A set of rows, what is asked about them, and where a data folder keeps them."""

    name: str
    title: str
    kind: Kind
    parts: tuple[Part, ...]
    where: str
    """Place in the data folder, ``{part}`` standing for a part's name."""
    low: float = 0.0
    high: float = 5.0
    """The range of the grades."""
    splits: Splits = "none"
    language: str = "en"

    @property
    def rows(self) -> int | None:
        """All rows together, where all counts are known."""
        counts = [part.rows for part in self.parts]
        return None if None in counts else sum(count for count in counts if count is not None)


def _sts(name: str, title: str, **rows: int) -> Task:
    parts = tuple(Part(part.replace("__", ".").replace("_", "-"), count) for part, count in rows.items())
    return Task(name, title, "graded-pairs", parts, f"sts/{name}/{{part}}.tsv")


def _pairs(name: str, title: str, where: str, rows: int | None, language: str = "en") -> Task:
    return Task(name, title, "graded-pairs", (Part("test", rows),), where, language=language)


def _labelled(name: str, title: str, splits: Splits, kind: Kind = "classification", **rows: int) -> Task:
    parts = tuple(Part(part, count) for part, count in rows.items())
    return Task(name, title, kind, parts, f"transfer/{title}/{{part}}.tsv", 0.0, 1.0, splits)


_STS17 = ("ar-ar", "ar-en", "en-en", "es-en", "es-es", "tr-en")

TASKS: tuple[Task, ...] = (
    _sts("sts12", "STS12", MSRpar=750, MSRvid=750, SMTeuroparl=459, surprise__OnWN=750, surprise__SMTnews=399),
    _sts("sts13", "STS13", FNWN=189, OnWN=561, headlines=750),
    _sts("sts14", "STS14", OnWN=750, deft_forum=450, deft_news=300, headlines=750, images=750, tweet_news=750),
    _sts("sts15", "STS15", answers_forums=375, answers_students=750, belief=375, headlines=750, images=750),
    _sts("sts16", "STS16", answer_answer=254, headlines=249, plagiarism=230, postediting=244, question_question=209),
    _pairs("stsb", "STS-B", "sts/stsb/test.tsv", 1379),
    Task("sickr", "SICK-R", "graded-pairs", (Part("test", 4927),), "sts/sickr/test.tsv", low=1.0),
    _pairs("stsb-dev", "STS-B dev", "sts/stsb/dev.tsv", 1500),
    _labelled("mr", "MR", "folds", all=10662),
    _labelled("cr", "CR", "folds", all=3775),
    _labelled("subj", "SUBJ", "folds", all=10000),
    _labelled("mpqa", "MPQA", "folds", all=10606),
    _labelled("sst2", "SST2", "train-dev-test", train=67349, dev=872, test=1821),
    _labelled("trec", "TREC", "train-test", train=5452, test=500),
    _labelled("mrpc", "MRPC", "train-test", "pair-classification", train=4076, test=1725),
    *(
        _pairs(f"sts17-{pair}", f"STS17 {pair}", f"multilingual/sts17-{pair}.tsv", 250, language=pair)
        for pair in _STS17
    ),
    _pairs("korsts", "KorSTS", "multilingual/korsts-test.tsv", 1379, "ko"),
    _pairs("korsts-dev", "KorSTS dev", "multilingual/korsts-dev.tsv", 1500, "ko"),
    _pairs("stsb-de", "STS-B de", "multilingual/stsb-mt-de-test.tsv", 1379, "de"),
    _pairs("stsb-es", "STS-B es", "multilingual/stsb-mt-es-test.tsv", 1379, "es"),
    Task(
        "sts14-es",
        "STS14 es",
        "graded-pairs",
        (Part("news", 480), Part("wikipedia", 324)),
        "multilingual/sts14-es-{part}.tsv",
        high=4.0,
        language="es",
    ),
    Task("demo", "demo pairs", "graded-pairs", (Part("test", 440),), ""),
    Task("demo-dev", "demo pairs dev", "graded-pairs", (Part("dev", 220),), ""),
)

GROUPS: dict[str, tuple[str, ...]] = {
    "sts": ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr"),
    "transfer": ("mr", "cr", "subj", "mpqa", "sst2", "trec", "mrpc"),
    "sts17": tuple(f"sts17-{pair}" for pair in _STS17),
    "multilingual": (*(f"sts17-{pair}" for pair in _STS17), "korsts", "stsb-de", "stsb-es", "sts14-es"),
}
"""Names that stand for several tasks; the papers' averages are over ``sts`` and over ``transfer``."""


def task(name: str) -> Task:
    """The task of this name."""
    for candidate in TASKS:
        if candidate.name == name:
            return candidate
    names = [*GROUPS, *(candidate.name for candidate in TASKS)]
    close = difflib.get_close_matches(name, names, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise UsageError(f"There is no task {name!r}.{hint} There are {', '.join(names)}.")


def tasks(names: str | Iterable[str]) -> tuple[Task, ...]:
    """The tasks that names and groups stand for, each once, in the order given: ``"sts,mr"`` or ``["sts", "mr"]``."""
    words = names.split(",") if isinstance(names, str) else list(names)
    wanted = [member for word in words if word.strip() for member in GROUPS.get(word.strip(), (word.strip(),))]
    if not wanted:
        raise UsageError(f"No task is named. There are {', '.join([*GROUPS, *(item.name for item in TASKS)])}.")
    return tuple(task(name) for name in dict.fromkeys(wanted))
