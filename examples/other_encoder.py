"""Evaluate an encoder that is not ours: all it takes is a function from sentences to vectors.

``encode`` below is latent semantic analysis with scikit-learn: TF-IDF over words and character trigrams, reduced to 128
dimensions by a truncated singular value decomposition. It is fitted once, on the demonstration's sentences. From the root of the
repository:

    selfguide eval mini examples.other_encoder:encode
    python examples/other_encoder.py                       # the same in Python, beside mini

Put your own model in its place: any function that takes a list of sentences and returns one row for each, in their order.
"""

from __future__ import annotations

import argparse
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
    """Return one vector for each sentence."""
    return np.asarray(_pipeline().transform(sentences), dtype=np.float32)


@cache
def _pipeline() -> Any:
    """Fit the pipeline when it is first needed: importing a module should not start a computation."""
    words = TfidfVectorizer(sublinear_tf=True)
    trigrams = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 3), sublinear_tf=True)
    pipeline = make_pipeline(make_union(words, trigrams), TruncatedSVD(DIMENSIONS, random_state=0))
    return pipeline.fit(demo_sentences())


def main(words: Sequence[str] | None = None) -> None:
    """Score both encoders on the demonstration's pairs, by the same protocol."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beside", default="mini", help="the encoder to compare with")
    given = parser.parse_args(words)

    for name, encoder in ((given.beside, given.beside), ("TF-IDF and SVD", encode)):
        found = selfguide.evaluate(encoder, "demo", name=name)["demo"]
        assert found.interval is not None
        low, high = found.interval
        print(f"{name:<16} Spearman {found.value:.2f}, 95 % interval {low:.2f} to {high:.2f}")


if __name__ == "__main__":
    main()
