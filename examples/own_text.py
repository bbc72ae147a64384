"""Train an encoder on your own sentences, and score it beside the encoder it started from.

    python examples/own_text.py notes.txt --pairs graded.tsv --output notes-encoder
    python examples/own_text.py --limit 60 --max-steps 3                       # the demonstration's data, toy size

The text has one sentence a line; the pairs are ``grade<TAB>sentence<TAB>sentence`` and are not used for training.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import selfguide
from selfguide.data import TextOptions
from selfguide.data.resources import demo_file


def main(words: Sequence[str] | None = None) -> None:
    """Train, then print the score before and after."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs="?", default=demo_file("sentences.txt"))
    parser.add_argument("--encoder", default="mini")
    parser.add_argument("--method", default="sg-opt")
    parser.add_argument("--pairs", default=demo_file("pairs-test.tsv"))
    parser.add_argument("--output", help="folder to save the encoder in; nothing is saved without it")
    parser.add_argument("--limit", type=int, help="use this many sentences")
    parser.add_argument("--max-steps", type=int, default=0)
    given = parser.parse_args(words)

    encoder = selfguide.train(
        given.encoder,
        given.text,
        given.method,
        output=given.output,
        text_options=TextOptions(limit=given.limit),
        max_steps=given.max_steps,
    )
    for name, candidate in (("before (mean pooling)", given.encoder), ("after", encoder)):
        (score,) = selfguide.evaluate(candidate, (), pairs=given.pairs, name=name).scores
        print(f"{name:<22} {score.metric}: {score.value:.2f}")


if __name__ == "__main__":
    main()
