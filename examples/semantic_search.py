"""Search a corpus by meaning and by words: index it once, add what is new, answer queries (extra: selfguide[search]).

    python examples/semantic_search.py corpus.txt "a late train" "an unpaid bill" --encoder notes-encoder
    python examples/semantic_search.py corpus.csv "a late train" --where "year >= 2020" --top 2

The index is kept beside the corpus. Run again, only rows that are new are encoded.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import selfguide


def corpus_index(corpus: Path, encoder: str) -> Path:
    """Return the index beside the corpus, with all of its rows."""
    place = corpus.with_name(f"{corpus.name}.{Path(encoder).name}.index")
    if place.is_dir():
        selfguide.add_to_index(place, corpus, encoder=encoder)
    else:
        selfguide.build_index(corpus, encoder, output=place)
    return place


def main(words: Sequence[str] | None = None) -> None:
    """Print the nearest sentences of each query."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, help="text, one sentence a line, or a table")
    parser.add_argument("query", nargs="+")
    parser.add_argument("--encoder", default="mini")
    parser.add_argument("--where", help="a condition on the other columns")
    parser.add_argument("--top", type=int, default=5)
    given = parser.parse_args(words)

    index = selfguide.open_index(corpus_index(given.corpus, given.encoder))
    for query in given.query:
        print(query)
        for hit in index.search(query, limit=given.top, where=given.where).hits:
            print(f"  {hit.cosine:.2f}  {hit.text}")


if __name__ == "__main__":
    main()
