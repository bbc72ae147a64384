"""Do the embedded demonstration pairs rank encoders as STS-B does?

    SELFGUIDE_DATA=folder python -m benchmarks.demo_pairs [--also all-MiniLM-L6-v2=FOLDER]

Scores poolings of the embedded encoder, whitening, SG-OPT and dropout contrast (both tuned on the embedded sentences) and any
further encoder on both sets (Spearman × 100 of cosine), and reports the rank correlation of the two columns.
"""

from __future__ import annotations

import argparse
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from benchmarks.results import RESULTS, folder_hash, provenance, write
from selfguide import train
from selfguide.demo import demo_file, demo_pairs, demo_sentences
from selfguide.encoders import load_encoder, mini_folder
from selfguide.encoding import cosine, encode
from selfguide.text.pairs import Pairs, read_pairs


def main() -> None:
    arguments = _arguments()
    sets = {"demo": demo_pairs("test"), "stsb": read_pairs(Path(arguments.data) / "sts" / "stsb" / "test.tsv")}
    rows: dict[str, dict[str, float]] = {}
    for name, encoder in _encoders(arguments.also).items():
        rows[name] = {
            key: _score(encode(encoder, pairs.first), encode(encoder, pairs.second), pairs)
            for key, pairs in sets.items()
        }
        print(f"{name:24s} demo {rows[name]['demo']:6.2f}   STS-B test {rows[name]['stsb']:6.2f}", flush=True)
    rows["whitened last2"] = _whitened(sets)
    print(
        f"{'whitened last2':24s} demo {rows['whitened last2']['demo']:6.2f}   STS-B test {rows['whitened last2']['stsb']:6.2f}"
    )
    agreement = float(
        spearmanr([row["demo"] for row in rows.values()], [row["stsb"] for row in rows.values()]).statistic
    )
    print(f"rank correlation over {len(rows)} encoders: {agreement:.3f}")
    content = {
        **provenance("SELFGUIDE_DATA=... python -m benchmarks.demo_pairs --also all-MiniLM-L6-v2=FOLDER"),
        "encoder": {"name": "mini", "weights": folder_hash(mini_folder())},
        "protocol": "Spearman x 100 of cosine; demo pairs (test half, 440) and STS-B test (1,379), text as released; one seed",
        "rows": rows,
        "rank_correlation": agreement,
    }
    write(RESULTS / "demo-pairs.json", content)


def _encoders(also: list[str]) -> dict[str, Any]:
    encoders: dict[str, Any] = {
        name: load_encoder("mini", pooling=name) for name in ("cls", "mean", "max", "last2", "first-last")
    }
    encoders["mean, layer 0"] = load_encoder("mini", pooling="mean", layer=0)
    encoders["sg-opt"] = train("mini", demo_sentences(), dev=demo_file("pairs-dev.tsv"), quiet=True)
    encoders["dropout contrast"] = dropout_contrast(demo_sentences())
    for item in also:
        name, _, folder = item.partition("=")
        encoders[name] = load_encoder(folder)
    return encoders


def dropout_contrast(sentences: list[str], batch: int = 64, rate: float = 3e-5) -> Any:
    """The SimCSE idea in its plainest form: a sentence twice through dropout, the other sentences as negatives, one epoch."""
    import torch
    import torch.nn.functional as F

    random.Random(1).shuffle(sentences)
    torch.manual_seed(1)
    encoder = load_encoder("mini", pooling="cls", max_length=64)
    optimiser = torch.optim.AdamW(encoder.parameters(), lr=rate)
    encoder.train()
    for start in range(0, len(sentences) - batch + 1, batch):
        chunk = sentences[start : start + batch]
        one, two = (F.normalize(encoder(encoder.preprocess(chunk))["sentence_embedding"], dim=-1) for _ in range(2))
        loss = F.cross_entropy(one @ two.T / 0.05, torch.arange(batch))
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    return encoder.eval()


def _whitened(sets: dict[str, Pairs]) -> dict[str, float]:
    """Mean of the last two layers, whitened with the embedded sentences' mean and covariance."""
    encoder = load_encoder("mini", pooling="last2")
    text = encode(encoder, demo_sentences())
    centre = text.mean(axis=0)
    values, vectors = np.linalg.eigh(np.cov(text - centre, rowvar=False))
    matrix = vectors / np.sqrt(values)
    return {
        key: _score(
            (encode(encoder, pairs.first) - centre) @ matrix, (encode(encoder, pairs.second) - centre) @ matrix, pairs
        )
        for key, pairs in sets.items()
    }


def _score(first: Any, second: Any, pairs: Pairs) -> float:
    return 100 * float(spearmanr(cosine(first, second), pairs.scores).statistic)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--data", default=os.environ.get("SELFGUIDE_DATA"))
    parser.add_argument("--also", nargs="*", default=[], metavar="NAME=FOLDER", help="further encoders")
    arguments = parser.parse_args()
    if not arguments.data or not (Path(arguments.data) / "sts").is_dir():
        parser.error("set SELFGUIDE_DATA (or --data) to a folder with sts/stsb/test.tsv")
    return arguments


if __name__ == "__main__":
    main()
