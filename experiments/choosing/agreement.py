"""Agreement with views of the text that owe nothing to the encoder.

Three views of a sentence are made by counting alone, each a sparse or small vector:

    words        its words, weighted by idf
    characters   its runs of three to five characters within words, weighted by idf: sees inflections and typing mistakes
    topics       its idf-weighted words in the space of the text's ``TOPICS`` strongest word-by-sentence directions (latent
                 semantic analysis): sees that two words keep the same company

Pairs are mined by them, so that near, loosely related and unrelated ones are all met: for each of up to ``MOST`` sentences, one
of the nearest three, one of the next thirty and one at random, nearest by the mean of the three views' cosines. On these pairs

    words    Spearman of the encoder's cosine and the cosine of the weighted words
    panel    Spearman of the encoder's cosine and the mean of the ranks that the three views give

A view errs in its own way: what all three call near is near. An encoder that agrees with them has at least not lost what the
words say. It cannot be told how much it knows beyond them: a bag of words has the best score of all.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from experiments.choosing.sample import Sample, require, words
from experiments.choosing.vectors import Floats, Vectors, or_nothing, row_cosines, unit
from selfguide.correlation import ranks, spearman

MOST = 1000
TOPICS = 100
_NEAREST, _LOOSE = 3, 30


def agreement_words(vectors: Vectors, sample: Sample) -> float:
    """Spearman of the encoder's cosines and the weighted words'."""
    _, _, cosines = mined_pairs(sample)
    return or_nothing(spearman(pair_cosines(vectors, sample), cosines["words"]))


def agreement_panel(vectors: Vectors, sample: Sample) -> float:
    """Spearman of the encoder's cosines and the mean rank by the three views."""
    _, _, cosines = mined_pairs(sample)
    together = np.mean([ranks(view) for view in cosines.values()], axis=0)
    return or_nothing(spearman(pair_cosines(vectors, sample), together))


def pair_cosines(vectors: Vectors, sample: Sample) -> Floats:
    """An encoder's cosines of the mined pairs; :mod:`consensus` needs no more of it."""
    first, second, _ = mined_pairs(sample)
    chosen = vectors(sample.sentences[:MOST])
    return row_cosines(chosen[first], chosen[second])


@lru_cache(maxsize=4)  # the same for all encoders of a text
def mined_pairs(sample: Sample) -> tuple[list[int], list[int], dict[str, Floats]]:
    """Pairs of sentences by their numbers, and each view's cosines of them."""
    sentences = sample.sentences[:MOST]
    require([sentence for sentence in sentences if words(sentence)], "sentences with a word in them")
    views = view_cosines(sentences)
    nearness = np.mean(list(views.values()), axis=0)
    np.fill_diagonal(nearness, -np.inf)
    order = np.argsort(-nearness, axis=1, kind="stable")[:, :-1]  # the last is the sentence itself
    random = sample.draw("pairs")
    near = min(_NEAREST, order.shape[1])
    loose = min(near + _LOOSE, order.shape[1])
    places = np.stack(
        [
            random.integers(0, near, len(sentences)),
            random.integers(min(near, loose - 1), loose, len(sentences)),
            random.integers(0, order.shape[1], len(sentences)),
        ],
        axis=1,
    )
    pairs = {
        (min(one, int(two)), max(one, int(two)))
        for one, row in enumerate(np.take_along_axis(order, places, axis=1))
        for two in row
    }
    first, second = (list(side) for side in zip(*sorted(pairs), strict=True))
    return first, second, {name: view[first, second] for name, view in views.items()}


def view_cosines(sentences: Sequence[str]) -> dict[str, Floats]:
    """Of each counted view, the cosines of all sentences with all; 0 for a sentence in which a view sees nothing."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    def counted(vectoriser: Any) -> Any:
        try:
            return vectoriser.fit_transform(sentences)
        except ValueError:  # no word, or no run of characters, in any sentence
            return np.zeros((len(sentences), 1))

    by_word = counted(TfidfVectorizer(analyzer=words, norm="l2"))
    by_character = counted(
        TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), min_df=2, norm="l2", max_features=50_000)
    )
    views = {"words": by_word, "characters": by_character, "topics": topics(by_word)}
    return {name: np.round(_array(view @ view.T), 9) for name, view in views.items()}


def topics(by_word: Any) -> Floats:
    """The sentences in the space of the strongest directions, each direction with its own strength, length one."""
    size = min(TOPICS, min(by_word.shape) - 1)
    if size < 1 or not by_word.max() > 0:
        return unit(_array(by_word))
    from sklearn.decomposition import TruncatedSVD

    with warnings.catch_warnings():  # of shares of a variance that is nothing
        warnings.simplefilter("ignore", RuntimeWarning)
        return unit(TruncatedSVD(size, algorithm="randomized", random_state=0).fit_transform(by_word))


def _array(matrix: Any) -> Floats:
    return np.asarray(matrix.toarray() if hasattr(matrix, "toarray") else matrix, dtype=np.float64)
