"""An encoder that is none of ours, scored beside ours: all it takes is a function from sentences to vectors.

``encode`` below is latent semantic analysis, made with scikit-learn: counts of words and of character triples, weighted by
how rare they are (TF-IDF), brought down to 128 numbers by a truncated singular value decomposition. It is fitted once, on
the sentences of the demonstration. From the repository's root:

    selfguide eval mini examples.other_encoder:encode

or, in Python, ``python examples/other_encoder.py``, which does what ``main`` says. Put your own model in its place: any
function that takes a list of sentences and returns a row of numbers for each, in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline, make_union

import selfguide
from selfguide.data.resources import demo_sentences

DIMENSIONS = 128


def encode(sentences: Sequence[str]) -> NDArray[np.float32]:
    """One vector for each sentence."""
    return np.asarray(_pipeline().transform(sentences), dtype=np.float32)


@cache
def _pipeline() -> Any:
    """Fitted when it is first needed, and only then: a module that is imported should not start to compute."""
    words = TfidfVectorizer(sublinear_tf=True)
    triples = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 3), sublinear_tf=True)
    pipeline = make_pipeline(make_union(words, triples), TruncatedSVD(DIMENSIONS, random_state=0))
    return pipeline.fit(demo_sentences())


def main() -> None:
    """Both encoders on the demonstration's pairs, by the same protocol."""
    for name, encoder in (("mini", "mini"), ("TF-IDF and SVD", encode)):
        found = selfguide.evaluate(encoder, "demo", name=name)["demo"]
        assert found.interval is not None
        low, high = found.interval
        print(f"{name:<16} Spearman {found.value:.2f}, 95 % interval {low:.2f} to {high:.2f}")


if __name__ == "__main__":
    main()
