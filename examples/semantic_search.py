"""Search a corpus by meaning: encode it once, keep the embeddings, answer queries with one matrix product.

    python examples/semantic_search.py corpus.txt "a late train" "an unpaid bill" --encoder notes-encoder
    python examples/semantic_search.py corpus.txt "a late train" --top 2

The embeddings are kept beside the corpus and used again if they are newer than it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import selfguide


def corpus_embeddings(corpus: Path, sentences: list[str], encoder: str, backend: str) -> NDArray[np.float32]:
    """Return the unit embeddings of the corpus, from the file beside it where that is up to date."""
    kept = corpus.with_name(f"{corpus.name}.{Path(encoder).name}.npy")
    if not kept.is_file() or kept.stat().st_mtime < corpus.stat().st_mtime:
        np.save(kept, selfguide.encode(encoder, sentences, normalise=True, backend=backend))
    return np.load(kept, mmap_mode="r")


def main(words: Sequence[str] | None = None) -> None:
    """Print the nearest sentences of each query."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, help="one sentence a line")
    parser.add_argument("query", nargs="+")
    parser.add_argument("--encoder", default="mini")
    parser.add_argument("--backend", default="torch", help="torch, or onnx and int8 with selfguide[onnx]")
    parser.add_argument("--top", type=int, default=5)
    given = parser.parse_args(words)

    sentences = given.corpus.read_text(encoding="utf-8").splitlines()
    vectors = corpus_embeddings(given.corpus, sentences, given.encoder, given.backend)
    queries = selfguide.encode(given.encoder, given.query, normalise=True)
    for query, scores in zip(given.query, queries @ vectors.T, strict=True):
        print(query)
        for row in np.argsort(-scores)[: given.top]:
            print(f"  {scores[row]:.2f}  {sentences[row]}")


if __name__ == "__main__":
    main()
