"""Compare methods on one text, with several seeds each, and print the table.

    python examples/compare_methods.py notes.txt --pairs graded.tsv --output comparison
    python examples/compare_methods.py --limit 60 --seeds 1 --set max_steps=2       # the demonstration's data, toy size

A run that was stopped resumes with the same command, if it has an ``--output``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import selfguide
from selfguide.data import TextOptions
from selfguide.data.resources import demo_file

# A name, a name with settings, a label with settings, and a chain: train the first, then fit the second on its result.
METHODS = ["mean", "whitening:pooling=mean", "gentle=simcse:learning_rate=1e-5", "sg-opt", "simcse+whitening"]


def main(words: Sequence[str] | None = None) -> None:
    """Run the comparison and print what it found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs="?", default=demo_file("sentences.txt"))
    parser.add_argument("--encoder", default="mini")
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--pairs", default=demo_file("pairs-test.tsv"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--set", nargs="*", default=[], help="settings of all methods, or of one: simcse.epochs=2")
    parser.add_argument("--limit", type=int, help="use this many sentences")
    parser.add_argument("--output", help="folder for the cells, the tables and the report")
    given = parser.parse_args(words)

    found = selfguide.compare(
        given.encoder,
        given.text,
        given.methods,
        seeds=given.seeds,
        tasks=(),
        pairs=given.pairs,
        settings=given.set,
        output=given.output,
        text_options=TextOptions(limit=given.limit),
        baseline="mean",
    )
    print(found.markdown())
    for record in found.failed:
        print(f"{record.cell.label} failed: {record.error}")


if __name__ == "__main__":
    main()
