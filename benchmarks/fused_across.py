"""Variants of a fused vector that need several tuned encoders: two tuned parts side by side, and the mean of weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from benchmarks.fused_parts import encoded, joined
from benchmarks.fused_variants import DEFAULTS, Material
from selfguide.encoders import backbone

Scores = dict[str, dict[str, float]]


def across_runs(material: Material, work: Path, usual: str, runs: dict[str, dict[int, Scores]]) -> dict[int, Scores]:
    """Scores by seed. ``material`` is of the untuned encoder: its layer 0 is that of all of them, its [CLS] is not used."""
    found: dict[int, Scores] = {seed: {} for seed in runs.get(usual, {})}
    for seed in found:
        for label in runs:
            if label != usual and seed in runs[label]:
                found[seed] |= two_tuned_parts(material, work, [(usual, seed), (label, seed)])
        others = [other for other in found if other != seed]
        if others:
            found[seed] |= two_tuned_parts(material, work, [(usual, seed), (usual, others[0])], "two seeds")
    weights = [path for seed in found if (path := work / f"{usual}.seed{seed}.pt").is_file()]
    if len(weights) > 1:
        souped = soup(material, weights)
        for scores in found.values():  # one encoder for all seeds
            scores |= souped
    return found


def two_tuned_parts(material: Material, work: Path, runs: list[tuple[str, int]], name: str = "") -> Scores:
    """[CLS] of two tuned encoders and the view, all whitened; the two share the weight of one. Two networks, so no method:
    it says whether two objectives in one network would be worth the trouble."""
    parts = {"view": material.white["view"]}
    for number, (label, seed) in enumerate(runs):
        vectors = np.load(work / f"{label}.seed{seed}.npz")["cls"].astype(np.float32)
        parts[f"cls {number}"] = material.geometry(material.part(vectors).whitened())
    name = name or " and ".join(label for label, _ in runs)
    half = DEFAULTS.weight / 2
    shares = {"cls 0": half, "cls 1": half, "view": 1 - DEFAULTS.weight}
    two = joined(parts, {"cls 0": 0.5, "cls 1": 0.5})
    return {
        f"across, two tuned parts and the view: {name}": material.sets.scores(joined(parts, shares)),
        f"across, two tuned parts alone: {name}": material.sets.scores(two),
    }


def soup(material: Material, weights: list[Path]) -> Scores:
    """The mean of the seeds' weights as one encoder: [CLS] as it is, whitened, and fused."""
    average_weights(material.encoder, weights)
    part = material.part(encoded(material.encoder, material.sentences).cls)
    white = part.whitened()
    return {
        "across, mean of the seeds' weights: cls": material.sets.scores(material.geometry(part)),
        "across, mean of the seeds' weights: cls, whitened": material.sets.scores(material.geometry(white)),
        "across, mean of the seeds' weights: fused": material.sets.scores(material.fused(cls=white)),
    }


def save_weights(encoder: SentenceTransformer, path: Path) -> None:
    """The Transformer's weights in half precision, which is enough to average."""
    torch.save({name: value.half().cpu() for name, value in backbone(encoder).state_dict().items()}, path)


def average_weights(encoder: SentenceTransformer, weights: list[Path]) -> None:
    """Give the encoder the mean of saved weights."""
    total: dict[str, torch.Tensor] = {}
    for path in weights:
        for name, value in torch.load(path, weights_only=True).items():
            total[name] = total.get(name, 0) + value.float() / len(weights)
    model = backbone(encoder)
    kinds = {name: value.dtype for name, value in model.state_dict().items()}
    model.load_state_dict({name: value.to(kinds[name]) for name, value in total.items()})
