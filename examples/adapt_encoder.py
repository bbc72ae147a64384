"""Adapt an encoder that is already a sentence encoder to your text, see what was chosen, and score it before and after.

    python examples/adapt_encoder.py notes.txt graded.tsv adapted --encoder sentence-transformers/all-MiniLM-L6-v2
    python examples/adapt_encoder.py notes.txt graded.tsv adapted --encoder FOLDER --max-steps 3

The encoder keeps its pooling, prompts and length. It comes back as it was where the text gives no reason to change it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import selfguide


def main(words: Sequence[str] | None = None) -> None:
    """Adapt the encoder, say what was kept and why, and score both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", help="one sentence a line")
    parser.add_argument("pairs", help="graded pairs of the domain: grade, sentence, sentence")
    parser.add_argument("output", type=Path, help="folder to save the adapted encoder in")
    parser.add_argument("--encoder", default="sentence-transformers/all-MiniLM-L6-v2")
    parser.add_argument("--max-steps", type=int, default=0)
    given = parser.parse_args(words)

    selfguide.adapt(given.encoder, given.text, output=given.output, max_steps=given.max_steps)
    choice = json.loads((given.output / "run.json").read_text(encoding="utf-8"))["choice"]
    print(choice["sentence"])
    before, after = (
        selfguide.evaluate(encoder, (), pairs=given.pairs).scores[0] for encoder in (given.encoder, given.output)
    )
    print(f"before {before.value:.2f} {_interval(before.interval)}")
    print(f"after  {after.value:.2f} {_interval(after.interval)}")


def _interval(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f"(95 % interval {interval[0]:.2f} to {interval[1]:.2f})"


if __name__ == "__main__":
    main()
