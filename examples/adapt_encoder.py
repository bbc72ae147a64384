"""Adapt an encoder that is already a sentence encoder to your text, and check that it did not get worse.

    python examples/adapt_encoder.py notes.txt graded.tsv adapted --encoder sentence-transformers/all-MiniLM-L6-v2
    python examples/adapt_encoder.py notes.txt graded.tsv adapted --encoder FOLDER --max-steps 3

The recipe keeps what the encoder knows: its own pooling, no head that starts at random, a small learning rate, and the full
length of the sentences.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import selfguide


def main(words: Sequence[str] | None = None) -> None:
    """Adapt the encoder, score both, and say which one to keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", help="one sentence a line")
    parser.add_argument("pairs", help="graded pairs of the domain: grade, sentence, sentence")
    parser.add_argument("output", help="folder to save the adapted encoder in")
    parser.add_argument("--encoder", default="sentence-transformers/all-MiniLM-L6-v2")
    parser.add_argument("--pooling", default="mean", help="the pooling that the encoder was trained with")
    parser.add_argument("--learning-rate", type=float, default=5e-6)
    parser.add_argument("--max-length", type=int, default=0, help="tokens that training sees; 0 follows the text")
    parser.add_argument("--max-steps", type=int, default=0)
    given = parser.parse_args(words)

    selfguide.train(
        given.encoder,
        given.text,
        "simcse",
        output=given.output,
        pooling=given.pooling,
        head=False,
        learning_rate=given.learning_rate,
        max_length=given.max_length,
        max_steps=given.max_steps,
    )
    before, after = (
        selfguide.evaluate(encoder, (), pairs=given.pairs).scores[0] for encoder in (given.encoder, given.output)
    )
    print(f"before {before.value:.2f} {_interval(before.interval)}")
    print(f"after  {after.value:.2f} {_interval(after.interval)}")
    print(f"keep   {given.output if after.value > before.value else given.encoder}")


def _interval(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f"(95 % interval {interval[0]:.2f} to {interval[1]:.2f})"


if __name__ == "__main__":
    main()
