"""How long the rows of packed sentences should be on a CPU: a training step with rows of several lengths.

    python -m experiments.speed.rows --encoder all-MiniLM-L6-v2=FOLDER --text FILE
    python -m experiments.speed.rows --steps 1 --rounds 1 --out /tmp/rows.json                                # rehearsal

Rows of the same sentences run in turns, and the medians of the rounds are reported. The step is that of adaptation: 64 sentences,
each twice through dropout, forward and backward, without the optimiser. Without ``--text`` the demonstration's sentences are
read, which are short.
"""

from __future__ import annotations

import random
import statistics
import time
from pathlib import Path
from unittest.mock import patch

import torch

from experiments.adapt.run import named_encoder
from experiments.provenance import RESULTS, command_parser, provenance, text_facts, write
from selfguide.data.resources import demo_sentences
from selfguide.engine import packing
from selfguide.engine.onednn import fast_linear_layers
from selfguide.losses import GuidedContrastLoss
from selfguide.models.encoders import load_encoder

LENGTHS = (48, 64, 96, 128, 256)
BATCH = 64


def main() -> None:
    """Measure, and write the results file."""
    parser = command_parser(__doc__)
    parser.add_argument("--encoder", default="mini", metavar="NAME=FOLDER")
    parser.add_argument("--text", type=Path, help="one sentence a line; the first 5,000 are drawn from")
    parser.add_argument("--steps", type=int, default=2, help="batches of a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS / "packed-rows.json")
    arguments = parser.parse_args()
    name, folder = named_encoder(arguments.encoder)
    lines = arguments.text.read_text(encoding="utf-8").splitlines() if arguments.text else demo_sentences()
    sentences = list(dict.fromkeys(lines))[:5000]
    batches = [random.Random(number).sample(sentences, BATCH) for number in range(arguments.steps)]
    times = _seconds(folder, batches, arguments.rounds)
    seconds = {str(length): statistics.median(found) / arguments.steps for length, found in times.items()}
    text = text_facts(arguments.text.name if arguments.text else "demo", sentences)
    words = statistics.fmean(len(sentence.split()) for batch in batches for sentence in batch)
    write(
        arguments.out,
        {
            **provenance(name, folder, text={**text, "words": round(words, 1)}, seeds=[0]),
            "rounds": arguments.rounds,
            "threads": torch.get_num_threads(),
            "seconds": {length: round(value, 3) for length, value in seconds.items()},
            "ratio": {length: round(seconds["256"] / value, 3) for length, value in seconds.items()},
        },
    )


def _seconds(folder: Path, batches: list[list[str]], rounds: int) -> dict[int, list[float]]:
    """Return the seconds of every round by length of the rows; the first round warms up and does not count."""
    model = load_encoder(folder, device="cpu")
    loss = GuidedContrastLoss(model, stay_close=0.0, dropout=0.2).train()
    inputs = [model.preprocess(batch) for batch in batches]
    times: dict[int, list[float]] = {length: [] for length in LENGTHS}
    for number in range(rounds + 1):
        for length in LENGTHS:
            started = time.perf_counter()
            with patch.object(packing, "ROW_TOKENS", length), fast_linear_layers(loss):
                for features in inputs:
                    loss([dict(features)]).backward()
                    model.zero_grad()
            if number:
                times[length].append(time.perf_counter() - started)
    return times


if __name__ == "__main__":
    main()
