"""The texts of the development list and of the report list, with the pairs that judge an encoder fitted on each.

Everything may be chosen on the development list, nothing on the report list. A text is the distinct sentences of its own pairs
(or a corpus), without grades. The two lists share no pair: headlines, answers-forums and OnWN are for developing, the other
subsets of STS12 to STS16 for the report.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from selfguide.data.pairs import Pairs, read_pairs

# Files of the data folder, by the text's name.
DEVELOPMENT: dict[str, tuple[str, ...]] = {
    "mqp": ("domain/mqp.tsv",),
    "qqp": ("nli/qqp.dev.tsv",),
    "mrpc": ("transfer/MRPC/train.tsv",),
    "headlines": tuple(f"sts/sts{year}/headlines.tsv" for year in (13, 14, 15, 16)),
    "forums": ("sts/sts15/answers-forums.tsv",),
    "glosses": ("sts/sts12/surprise.OnWN.tsv", "sts/sts13/OnWN.tsv", "sts/sts14/OnWN.tsv"),
}
REPORT: dict[str, tuple[str, ...]] = {
    "twitter-url-test": ("domain/twitter-url-test.tsv",),
    "msr-par": ("sts/sts12/MSRpar.tsv",),
    "msr-vid": ("sts/sts12/MSRvid.tsv",),
    "europarl": ("sts/sts12/SMTeuroparl.tsv",),
    "smt-news": ("sts/sts12/surprise.SMTnews.tsv",),
    "framenet": ("sts/sts13/FNWN.tsv",),
    "deft-forum": ("sts/sts14/deft-forum.tsv",),
    "deft-news": ("sts/sts14/deft-news.tsv",),
    "images": ("sts/sts14/images.tsv", "sts/sts15/images.tsv"),
    "tweet-news": ("sts/sts14/tweet-news.tsv",),
    "answers-students": ("sts/sts15/answers-students.tsv",),
    "belief": ("sts/sts15/belief.tsv",),
    "answer-answer": ("sts/sts16/answer-answer.tsv",),
    "plagiarism": ("sts/sts16/plagiarism.tsv",),
    "postediting": ("sts/sts16/postediting.tsv",),
    "question-question": ("sts/sts16/question-question.tsv",),
}
"""Texts of the report list that have graded pairs; :mod:`experiments.adapt.judges` has the others."""
ELSEWHERE = "sts/stsb/dev.tsv"
"""Pairs of general English, to see during development what is lost elsewhere; never STS-B test."""


@dataclass(frozen=True)
class JudgedText:
    """Raw sentences, and the graded pairs that judge an encoder fitted on them."""

    name: str
    sentences: tuple[str, ...]
    pairs: Pairs


def some_sentences(sentences: Sequence[str], most: int, seed: int = 1) -> tuple[str, ...]:
    """Return at most so many sentences in their order, chosen by the seed; 0 returns all."""
    if not most or len(sentences) <= most:
        return tuple(sentences)
    order = np.random.default_rng(seed).permutation(len(sentences))[:most]
    return tuple(sentences[index] for index in sorted(order))


def judged_text(name: str, data: Path, pairs: int = 0) -> JudgedText:
    """Read a text of either list.

    Args:
        name: A key of ``DEVELOPMENT`` or ``REPORT``.
        data: The data folder.
        pairs: Pairs at most, drawn at random with a fixed seed; 0: all.

    Returns:
        The text: its sentences are those of the pairs that were kept.
    """
    files = (DEVELOPMENT | REPORT)[name]
    kept = some_pairs(joined_pairs(read_pairs(data / file) for file in files), pairs)
    return JudgedText(name, distinct(kept), kept)


def elsewhere(data: Path, pairs: int = 0) -> Pairs:
    """Return the pairs of general English that are scored during development."""
    return some_pairs(read_pairs(data / ELSEWHERE), pairs)


def joined_pairs(parts: Iterable[Pairs]) -> Pairs:
    """Return the pairs of several files as one list."""
    found = list(parts)
    return Pairs(
        [score for part in found for score in part.scores],
        [sentence for part in found for sentence in part.first],
        [sentence for part in found for sentence in part.second],
        found[0].path,
    )


def some_pairs(pairs: Pairs, most: int) -> Pairs:
    """Return at most so many pairs, always the same ones, in their order."""
    if not most or len(pairs) <= most:
        return pairs
    rows = sorted(np.random.default_rng(0).permutation(len(pairs))[:most])
    scores, first, second = ([column[row] for row in rows] for column in (pairs.scores, pairs.first, pairs.second))
    return Pairs(scores, first, second, pairs.path)


def distinct(pairs: Pairs) -> tuple[str, ...]:
    """Return the distinct sentences of pairs in the order of their first occurrence."""
    both = [text for pair in zip(pairs.first, pairs.second, strict=True) for text in pair]
    return tuple(dict.fromkeys(text for text in both if text.strip()))
