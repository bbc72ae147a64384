"""Measure what a fused vector costs over the plain encoder's, and check the saved folder against its two parts.

    python -m experiments.fused.cost --rounds 7 --sentences 512

Both encoders have the same Transformer; the plain one takes its [CLS]. Both are loaded from their folders with plain
sentence-transformers and encode the same embedded sentences in alternating rounds; the ratio is the median over rounds. Time
is this process's CPU time on a CPU, which other programs do not disturb, and wall time on a GPU.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

import selfguide
from experiments.fused.parts import Part, TextTokens, encoded, token_weights
from experiments.provenance import RESULTS, command_parser, provenance, text_facts, write
from selfguide.calibration.frequencies import Vocabulary
from selfguide.calibration.vocabulary_states import VocabularyStates
from selfguide.data.resources import demo_sentences
from selfguide.methods.fused import USUAL_WEIGHT
from selfguide.models.encoders import load_encoder

ALLOWED = 1.1


def main() -> None:
    """Measure, and write the results file."""
    arguments = _arguments()
    text = demo_sentences()[:: len(demo_sentences()) // arguments.sentences][: arguments.sentences]
    with tempfile.TemporaryDirectory() as folder:
        plain, fused = Path(folder) / "plain", Path(folder) / "fused"
        load_encoder("mini", pooling="cls", max_length=128).save(str(plain), create_model_card=False)
        made = selfguide.train("mini", text, "fused", tune="none", output=fused, report=False, quiet=True)
        encoders = {"plain": SentenceTransformer(str(plain)), "fused": SentenceTransformer(str(fused))}
    rounds = timed(encoders, text, arguments.rounds, arguments.batch)
    ratios = [one / other for one, other in zip(rounds["fused"], rounds["plain"], strict=True)]
    vectors = np.asarray(encoders["fused"].encode(text, show_progress_bar=False))
    differences = {
        "to the encoder that was saved": _difference(vectors, np.asarray(made.encode(text, show_progress_bar=False))),
        "to the two parts computed apart": _difference(vectors, _computed_apart(made, text)),
    }
    for name, times in rounds.items():
        print(f"{name:6s} {1000 * statistics.median(times) / len(text):7.2f} ms a sentence")
    ratio = statistics.median(ratios)
    print(f"ratio {ratio:.3f} (at most {ALLOWED}); largest difference of a cosine {max(differences.values()):.1e}")
    write(
        arguments.out,
        {
            **provenance(text=text_facts("the demonstration's sentences, every n-th", text), seeds=[1]),
            "protocol": f"{len(text)} embedded sentences, batch {arguments.batch}, stock encode; {_clock_name()}",
            "seconds": rounds,
            "ratio": ratio,
            "ratios": ratios,
            "largest difference of a cosine": differences,
        },
    )


def timed(encoders: dict[str, SentenceTransformer], text: list[str], rounds: int, batch: int) -> dict[str, list[float]]:
    """Return the seconds of every encoder in every round, after one round of warm-up."""
    clock = time.perf_counter if torch.cuda.is_available() else time.process_time
    seconds: dict[str, list[float]] = {name: [] for name in encoders}
    for number in range(rounds + 1):
        for name, encoder in encoders.items():
            start = clock()
            encoder.encode(text, batch_size=batch, show_progress_bar=False)
            if number:
                seconds[name].append(clock() - start)
    return seconds


def _clock_name() -> str:
    return "wall time" if torch.cuda.is_available() else "CPU time of the process"


def _computed_apart(encoder: SentenceTransformer, text: list[str]) -> NDArray[np.float32]:
    """Compute the same vector from two separate parts: the tuned one centred, the view a soft bag of words."""
    found, vocabulary = encoded(encoder, text, batch_size=64), Vocabulary.of_encoder(encoder)
    bag = TextTokens.of(found, np.arange(len(text)), vocabulary, VocabularyStates(encoder, vocabulary)).bag()
    view = bag.vectors(found, token_weights(encoder, text))
    halves = [Part(part, part).whitened(exponent=0.0).scored for part in (found.cls, view)]
    return np.concatenate([np.sqrt(USUAL_WEIGHT) * halves[0], np.sqrt(1 - USUAL_WEIGHT) * halves[1]], axis=1)


def _difference(first: NDArray[np.floating], second: NDArray[np.floating]) -> float:
    """Return the largest difference of any cosine between two of the sentences; axes and signs are free."""
    cosines = []
    for vectors in (first, second):
        units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        cosines.append(units.astype(np.float64) @ units.T.astype(np.float64))
    return float(np.abs(cosines[0] - cosines[1]).max())


def _arguments() -> argparse.Namespace:
    parser = command_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--sentences", type=int, default=512)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--out", type=Path, default=RESULTS / "fused-cost.json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
