"""Would a cross-encoder be a better teacher? It is trained on the encoder's own cosines, and judged on the text's pairs.

    SELFGUIDE_DATA=folder python -m experiments.adapt.cross_encoder --encoder all-MiniLM-L6-v2=FOLDER --out FILE

A cross-encoder reads both sentences at once. Trained on what the encoder says of pairs of the text, it may say it better,
as in Trans-Encoder (Liu et al., ICLR 2022), and could then teach the encoder. It starts from the encoder's own weights. The pairs
are each sentence with some of its nearest neighbours and with others at random. If it is not better than its teacher on the
development list, there is nothing to be taught.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import selfguide
from experiments.adapt.run import named_encoder
from experiments.adapt.texts import DEVELOPMENT, judged_text
from experiments.provenance import RESULTS, command_parser, folder_hash, provenance, write
from selfguide.correlation import spearman
from selfguide.engine.encode import sentence_vectors
from selfguide.models.encoders import backbone

NEIGHBOURS = 10
DRAWN = (3, 2)
"""Pairs of each sentence: so many with neighbours, so many at random."""


class CrossEncoder(nn.Module):
    """The encoder's Transformer over both sentences, the mean of its tokens and a linear layer."""

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        self.tokenizer = encoder.tokenizer
        self.transformer = backbone(encoder)
        self.output = nn.Linear(self.transformer.config.hidden_size, 1)

    def forward(self, first: list[str], second: list[str]) -> Tensor:
        """Return one logit a pair."""
        device = self.output.weight.device
        read = self.tokenizer(first, second, padding=True, truncation=True, max_length=200, return_tensors="pt").to(
            device
        )
        states = self.transformer(**read).last_hidden_state
        mask = read["attention_mask"].unsqueeze(2)
        found: Tensor = self.output((states * mask).sum(dim=1) / mask.sum(dim=1)).squeeze(1)
        return found

    @torch.no_grad()
    def scores(self, first: list[str], second: list[str]) -> np.ndarray:
        """Return the mean logit of both orders of each pair."""
        self.eval()
        found = []
        for start in range(0, len(first), 256):
            one, two = first[start : start + 256], second[start : start + 256]
            found.append(((self(one, two) + self(two, one)) / 2).float().cpu().numpy())
        return np.concatenate(found)


def teacher(encoder: str, text: str, data: str, rate: float, epochs: int, seed: int, pairs: int) -> dict[str, float]:
    """Train a cross-encoder on a text, and score it.

    Args:
        encoder: The encoder's folder.
        text: A text of the development list.
        data: The data folder.
        rate: Learning rate.
        epochs: Passes over the pairs.
        seed: The seed.
        pairs: Graded pairs at most; 0: all.

    Returns:
        Spearman × 100 of the encoder's cosine, of the cross-encoder, and of the mean of both, standardised.
    """
    torch.manual_seed(seed)
    draw = np.random.default_rng(seed)
    judged = judged_text(text, Path(data), pairs)
    original = selfguide.load_encoder(encoder).eval()
    sentences = list(judged.sentences)
    vectors = sentence_vectors(original, sentences, normalise=True)
    rows, columns = _pairs(vectors, draw)
    targets = torch.tensor((vectors[rows] * vectors[columns]).sum(axis=1)).clamp(0, 1)
    place = {sentence: row for row, sentence in enumerate(sentences)}
    kept = [
        (a, b, grade)
        for a, b, grade in zip(judged.pairs.first, judged.pairs.second, judged.pairs.scores, strict=True)
        if a in place and b in place
    ]
    cosines = np.array([vectors[place[a]] @ vectors[place[b]] for a, b, _ in kept])
    grades = [grade for *_, grade in kept]
    device = original.device
    model = CrossEncoder(original).to(device)
    optimiser = torch.optim.AdamW(model.parameters(), rate, weight_decay=0.0)
    steps = epochs * (len(rows) // 64)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min((step + 1) / (0.1 * steps + 1), 1 - step / steps)
    )
    begun, step = time.monotonic(), 0
    for _ in range(epochs):
        order = draw.permutation(len(rows))
        for start in range(0, len(order) - 63, 64):
            picked = order[start : start + 64]
            model.train()
            with torch.autocast(device.type, torch.bfloat16):
                logits = model([sentences[rows[i]] for i in picked], [sentences[columns[i]] for i in picked])
            loss = nn.functional.binary_cross_entropy_with_logits(logits.float(), targets[picked].to(device))
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            step += 1
    scores = model.scores([a for a, *_ in kept], [b for _, b, _ in kept])
    both = _standard(scores) + _standard(cosines)
    return {
        "cosine": 100 * spearman(cosines, grades),
        "cross-encoder": 100 * spearman(scores, grades),
        "both": 100 * spearman(both, grades),
        "agreement": 100 * spearman(scores, cosines),
        "seconds": round(time.monotonic() - begun, 1),
        "pairs": len(rows),
    }


def _pairs(vectors: np.ndarray, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw pairs of rows: neighbours and others."""
    count = len(vectors)
    rows, columns = [], []
    for start in range(0, count, 1000):
        cosines = vectors[start : start + 1000] @ vectors.T
        cosines[np.arange(len(cosines)), start + np.arange(len(cosines))] = -1
        nearest = np.argpartition(-cosines, NEIGHBOURS, axis=1)[:, :NEIGHBOURS]
        for offset, row in enumerate(nearest):
            chosen = [*draw.choice(row, DRAWN[0], replace=False), *draw.integers(count, size=DRAWN[1])]
            rows += [start + offset] * len(chosen)
            columns += chosen
    return np.array(rows), np.array(columns)


def _standard(values: np.ndarray) -> np.ndarray:
    return (values - values.mean()) / values.std()


def main() -> None:
    """Train one cross-encoder a text and rate, and write what each scores."""
    parser = command_parser(__doc__)
    parser.add_argument("--encoder", required=True, metavar="NAME=FOLDER")
    parser.add_argument("--texts", nargs="+", default=list(DEVELOPMENT), choices=list(DEVELOPMENT))
    parser.add_argument("--rates", type=float, nargs="+", default=[2e-5, 5e-5])
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", default=os.environ.get("SELFGUIDE_DATA"))
    parser.add_argument("--out", type=Path, default=RESULTS / "adapt-cross-encoder.json")
    arguments = parser.parse_args()
    if not arguments.data:
        parser.error("set SELFGUIDE_DATA (or --data)")
    name, folder = named_encoder(arguments.encoder)
    cells = []
    for text in arguments.texts:
        for rate in arguments.rates:
            found = teacher(str(folder), text, arguments.data, rate, arguments.epochs, arguments.seed, arguments.pairs)
            cells.append({"text": text, "rate": rate, **found})
            print(cells[-1], flush=True)
    content = {
        **provenance(None, text={"name": "by cell"}, seeds=[arguments.seed]),
        "encoders": {name: folder_hash(folder)},
        "epochs": arguments.epochs,
        "cells": cells,
    }
    write(arguments.out, content)


if __name__ == "__main__":
    main()
