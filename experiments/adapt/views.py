"""What other views of the same forward pass add to a sentence encoder: its lower layers, and the layer-0 view of ``fused``.

    SELFGUIDE_DATA=folder python -m experiments.adapt.views --encoder all-MiniLM-L6-v2=FOLDER
    SELFGUIDE_DATA=folder python -m experiments.adapt.views --texts forums --pairs 40 --out /tmp/views.json      # rehearsal

Nothing is trained. With u the encoder's embedding and v a view, both of length 1, two embeddings [u; √w v] have the cosine
(cos_u + w cos_v) / (1 + w), so a weight is tried without making the encoder. Views: the mean of a layer's tokens, as it is or
centred on the text, and the frequency-weighted mean of layer 0, whitened on the text (the method ``sif``). Only the development
list is read.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

import selfguide
from experiments.adapt.judges import Encode, Judge, pair_cosines
from experiments.adapt.run import LISTS, named_encoder
from experiments.adapt.scores import Vectors
from experiments.provenance import RESULTS, command_parser, folder_hash, provenance, text_facts, write
from selfguide.correlation import spearman
from selfguide.evaluation.probe import layer_vectors
from selfguide.progress import Reporter

WEIGHTS = (0.05, 0.1, 0.2, 0.5, 1.0)
ALLOWED = -0.5
LIST = "development"


def main() -> None:
    """Score every view and weight on every text, and write the results file."""
    arguments = command_line(__doc__, RESULTS / "adapt-views-development.json")
    protocol = "Spearman x 100 of cosine and grade on the text's own pairs; gain: over the encoder's own embedding"
    write(arguments.out, measured(arguments, cell, protocol))


def measured(
    arguments: argparse.Namespace, one_cell: Callable[[Path, Judge], dict[str, Any]], protocol: str
) -> dict[str, Any]:
    """Measure every encoder on every text.

    Args:
        arguments: The command line, from :func:`command_line`.
        one_cell: Measures an encoder on a text.
        protocol: What the scores are.

    Returns:
        The content of the results file, with a summary for each encoder.
    """
    encoders = dict(named_encoder(item) for item in arguments.encoder)
    cells: list[dict[str, Any]] = []
    digests = {}
    for name, folder in encoders.items():
        for text in arguments.texts:
            judge = Judge(text, Path(arguments.data), arguments.pairs, "none")
            digests[text] = text_facts(text, judge.sentences)["digest"]
            cells.append({"encoder": name, "text": text, **one_cell(folder, judge)})
            print(name, text, round(cells[-1]["own"], 2), flush=True)
    return {
        **provenance(None, text={"name": "by cell", "digests": digests}, seeds=[1]),
        "encoders": {name: folder_hash(folder) for name, folder in encoders.items()},
        "list": LIST,
        "pairs": arguments.pairs,
        "protocol": protocol,
        "cells": cells,
        "summary": {name: summary([row for row in cells if row["encoder"] == name]) for name in encoders},
    }


def cell(folder: str | Path | SentenceTransformer, judge: Judge) -> dict[str, Any]:
    """Measure one text.

    Args:
        folder: The encoder, or its folder.
        judge: The text with its graded pairs.

    Returns:
        The score of the encoder's own embedding, and the gain of every view and weight.
    """
    assert judge.pairs is not None
    encoder = selfguide.load_encoder(folder).eval()
    sentences = list(judge.sentences)
    own, grades = pair_cosines(_encode(encoder.encode), judge.pairs)
    before = 100 * spearman(own, grades)
    gains = {}
    for view, vectors in views(encoder, sentences).items():
        cosines, _ = pair_cosines(_looked_up(sentences, vectors), judge.pairs)
        gains[view] = {f"{weight:g}": 100 * spearman(own + weight * cosines, grades) - before for weight in WEIGHTS}
    return {"own": before, "pairs": len(grades), "sentences": len(sentences), "gains": gains}


def views(encoder: Any, sentences: Sequence[str]) -> dict[str, NDArray[np.float32]]:
    """Return the views of sentences, by name."""
    (layers,) = layer_vectors(encoder, sentences, ("mean",), 64, Reporter(quiet=True))
    found = {}
    for number, vectors in enumerate(layers):
        last = number == len(layers) - 1
        # The mean of the last layer is the encoder's own embedding, or nearly so.
        if not last:
            found[f"layer {number}"] = vectors
        found[f"layer {number}, centred"] = vectors - vectors.mean(axis=0)
    sif = selfguide.train(encoder, sentences, method="sif", quiet=True)
    found["layer 0, frequency-weighted and whitened"] = _encode(sif.encode)(sentences)
    return found


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return for every view and weight its mean and worst gain, and what a choice gains that does not see the text it is for.

    Args:
        rows: Cells of one encoder.

    Returns:
        Gains by view and weight, and ``held out``: view and weight selected on the other texts, the largest mean gain among
        those that lose no more than half a point there.
    """
    by_way = {
        (view, weight): [row["gains"][view][weight] for row in rows]
        for view in rows[0]["gains"]
        for weight in rows[0]["gains"][view]
    }
    found: dict[str, Any] = {}
    for (view, weight), values in by_way.items():
        found.setdefault(view, {})[weight] = {"mean": statistics.fmean(values), "worst": min(values)}
    if len(rows) > 1:
        taken = []
        for left_out in range(len(rows)):
            others = {way: values[:left_out] + values[left_out + 1 :] for way, values in by_way.items()}
            safe = {way: statistics.fmean(values) for way, values in others.items() if min(values) >= ALLOWED}
            taken.append(by_way[max(safe, key=lambda way: safe[way])][left_out] if safe else 0.0)
        found["held out"] = {"mean": statistics.fmean(taken), "worst": min(taken)}
    return found


def _looked_up(sentences: Sequence[str], vectors: Vectors) -> Encode:
    rows = dict(zip(sentences, vectors, strict=True))
    return lambda texts: np.stack([rows[text] for text in texts])


def _encode(encode: Any) -> Encode:
    return lambda texts: np.asarray(encode(list(texts), show_progress_bar=False), dtype=np.float32)


def command_line(description: str | None, out: Path) -> argparse.Namespace:
    """Read the command line of an experiment that trains nothing.

    Args:
        description: The docstring of its module.
        out: Where its results go by default.

    Returns:
        The arguments.
    """
    parser = command_parser(description)
    parser.add_argument("--encoder", nargs="+", default=["mini"], metavar="NAME=FOLDER")
    parser.add_argument("--texts", nargs="+", default=list(LISTS[LIST]), choices=list(LISTS[LIST]), metavar="TEXT")
    parser.add_argument("--pairs", type=int, default=0, help="graded pairs of a text at most; 0: all")
    parser.add_argument("--data", default=os.environ.get("SELFGUIDE_DATA"), help="folder with domain/, nli/, sts/ …")
    parser.add_argument("--out", type=Path, default=out)
    arguments = parser.parse_args()
    if not arguments.data or not (Path(arguments.data) / "domain").is_dir():
        parser.error("set SELFGUIDE_DATA (or --data) to a folder with domain/, nli/, sts/ and transfer/")
    return arguments


if __name__ == "__main__":
    main()
