"""Groups on the map (HDBSCAN), and the words that characterise each (class-based TF-IDF).

A word's weight in a group is its share s of the group's words, the BM25 form of the inverse frequency, and the SIF weight:

    s · log(1 + (A − f + ½) / (f + ½)) · a / (a + p)

A is the mean number of words of a group, f how often the word occurs in all of them, p its probability in general English or in
the text, whichever is higher. Words such as "her" and "after" weigh next to nothing without a list of stop words; in other
languages the text's own probabilities do that, if less well.

Reference: Campello, Moulavi and Sander, Density-Based Clustering Based on Hierarchical Density Estimates, PAKDD 2013;
Grootendorst, BERTopic: Neural topic modeling with a class-based TF-IDF procedure, 2022.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from selfguide.calibration.frequencies import english_table
from selfguide.words import is_spaceless, marks, split_words

if TYPE_CHECKING:
    from numpy.typing import NDArray

WORDS = 5
"""Words named for a group."""
UNGROUPED = -1
"""The label of a sentence that belongs to no group."""
_SMALLEST = 5
_LARGEST_MINIMUM = 250
_SHARE = 100  # a group has at least a hundredth of the sentences, within the two bounds above
_SIF_A = 1e-3  # as in the paper on SIF


@dataclass(frozen=True)
class Cluster:
    """A group of sentences."""

    words: tuple[str, ...]
    """Its characteristic words, the most characteristic first."""
    size: int
    example: int
    """Row of the sentence nearest to the middle of the group."""


def find_clusters(
    places: NDArray[np.float32], vectors: NDArray[np.float32], sentences: Sequence[str]
) -> tuple[NDArray[np.int64], list[Cluster]]:
    """Group sentences that lie densely together on the map.

    Args:
        places: On the map (count, 2).
        vectors: Unit vectors (count, dim), for the example of each group.
        sentences: The sentences.

    Returns:
        The group of each sentence, numbered by size, :data:`UNGROUPED` for none; and the groups.
    """
    raw = _dense_places(places)
    numbers, sizes = np.unique(raw[raw != UNGROUPED], return_counts=True)
    order = numbers[np.argsort(-sizes, kind="stable")]
    labels = np.full(len(raw), UNGROUPED, dtype=np.int64)
    for new, old in enumerate(order):
        labels[raw == old] = new
    words = characteristic_words(sentences, labels, len(order))
    clusters = []
    for number in range(len(order)):
        members = np.flatnonzero(labels == number)
        middle = vectors[members].mean(axis=0)
        clusters.append(Cluster(words[number], len(members), int(members[np.argmax(vectors[members] @ middle)])))
    return labels, clusters


def _dense_places(places: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the group of each place, in any order, as HDBSCAN finds them."""
    from sklearn.cluster import HDBSCAN

    smallest = min(max(_SMALLEST, len(places) // _SHARE), _LARGEST_MINIMUM)
    labels = np.full(len(places), UNGROUPED)
    # The most persistent groups; but one that holds most of the text says nothing, and then the finest ones are taken.
    for selection in ("eom", "leaf"):
        search = HDBSCAN(smallest, min_samples=_SMALLEST, cluster_selection_method=selection, copy=True)
        labels = np.asarray(search.fit(places).labels_)
        if 2 * np.bincount(labels[labels != UNGROUPED], minlength=1).max() <= len(labels):
            break
    return labels


def characteristic_words(sentences: Sequence[str], labels: NDArray[np.int64], groups: int) -> list[tuple[str, ...]]:
    """Return the words with the highest class-based TF-IDF in each group.

    Args:
        sentences: The sentences.
        labels: The group of each.
        groups: How many groups there are.

    Returns:
        Up to :data:`WORDS` words for each group; pairs of letters for writing without spaces between words.
    """
    inside = [row for row, label in enumerate(labels) if label != UNGROUPED]
    counter = _word_counter([sentences[row] for row in inside])
    if not inside or counter is None:
        return [()] * groups
    by_sentence = counter.transform(sentences[row] for row in inside)
    names = counter.get_feature_names_out()
    of_groups = labels[inside]
    counts = np.vstack([np.asarray(by_sentence[of_groups == group].sum(axis=0)).ravel() for group in range(groups)])
    spread = np.vstack(
        [np.asarray((by_sentence[of_groups == group] > 0).sum(axis=0)).ravel() for group in range(groups)]
    )
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    often, mean = counts.sum(axis=0), counts.sum(axis=1).mean()
    table, total = english_table()
    common = np.maximum([table.get(name, 0) / total for name in names], often / max(often.sum(), 1))
    weights = shares * np.log(np.maximum(1 + (mean - often + 0.5) / (often + 0.5), 1)) * _SIF_A / (_SIF_A + common)
    weights[spread < 2] = 0  # a word of a single sentence says nothing about the group
    return [_best(row, names) for row in weights]


def _best(weights: NDArray[np.float64], names: Sequence[str]) -> tuple[str, ...]:
    """Return the words with the highest weights; of "vote" and "votes" the heavier one only."""
    chosen: list[str] = []
    for column in np.argsort(-weights, kind="stable"):
        name = str(names[column])
        if weights[column] <= 0 or len(chosen) == WORDS:
            break
        if not any(_same_word(name, other) for other in chosen):
            chosen.append(name)
    return tuple(chosen)


def _same_word(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    return len(short) > 2 and len(long) - len(short) <= 2 and long.startswith(short)


def _word_counter(sentences: Sequence[str]) -> Any:
    """Return a fitted counter of words, and of pairs of letters where there are no spaces; ``None`` where there are none."""
    from sklearn.feature_extraction.text import CountVectorizer

    # Two letters at least, no digits: "l'eau", "state-of-the-art" and "Straße" stay whole, and so do letters and their marks.
    letter = rf"[^\W\d_][{marks()}]*"
    word = re.compile(rf"{letter}(?:[\w'’\u200c\u200d{marks()}-]*{letter})")
    counter = CountVectorizer(analyzer=lambda sentence: _terms(word.findall(sentence.lower())))
    try:
        return counter.fit(sentences)
    except ValueError:  # an empty vocabulary
        return None


def _terms(words: Sequence[str]) -> list[str]:
    """Return words as they are, but of writing without spaces the pairs of neighbouring letters."""
    terms: list[str] = []
    for word in words:
        if not is_spaceless(word):
            terms.append(word)
            continue
        letters = split_words(word)
        terms += [one + two for one, two in pairwise(letters) if is_spaceless(one) and is_spaceless(two)]
        terms += [each for each in letters if not is_spaceless(each) and len(each) > 1 and each.isalpha()]
    return terms
