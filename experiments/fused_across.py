"""Variants of a fused vector that need several tuned encoders: their parts side by side, and the mean of weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from experiments.fused_parts import encoded, joined
from experiments.fused_variants import Material
from selfguide.methods.fused import USUAL_WEIGHT
from selfguide.models.encoders import backbone

Scores = dict[str, dict[str, float]]


def across_runs(material: Material, work: Path, usual: str, runs: dict[str, dict[int, Scores]]) -> dict[int, Scores]:
    """Scores by seed. ``material`` is of the untuned encoder: its layer 0 is that of all of them, its [CLS] is not used."""
    found: dict[int, Scores] = {seed: {} for seed in runs.get(usual, {})}
    for seed in found:
        others = [label for label in runs if label != usual and (work / f"{label}.seed{seed}.npz").is_file()]
        tuned = [label for label in others if len(runs[label]) > 1]  # what is not tuned has one seed
        for label in tuned:
            found[seed] |= several_tuned_parts(material, work, [(usual, seed), (label, seed)])
        by_others = [label for label in tuned if label.startswith("by-")]
        if len(by_others) > 1:
            found[seed] |= several_tuned_parts(material, work, [(label, seed) for label in (usual, *by_others)])
        seeds = [other for other in found if other != seed]
        if seeds:
            found[seed] |= several_tuned_parts(material, work, [(usual, seed), (usual, seeds[0])], "two seeds")
    weights = [path for seed in found if (path := work / f"{usual}.seed{seed}.pt").is_file()]
    if len(weights) > 1:
        souped = soup(material, weights)
        for scores in found.values():  # one encoder for all seeds
            scores |= souped
    return found


def several_tuned_parts(material: Material, work: Path, runs: list[tuple[str, int]], name: str = "") -> Scores:
    """[CLS] of several tuned encoders and the view, each as the method has it; the tuned ones share the weight of one.
    As many networks, so no method: it says whether several objectives in one network would be worth the trouble."""
    parts = {"view": material.own_view}
    for number, (label, seed) in enumerate(runs):
        vectors = np.load(work / f"{label}.seed{seed}.npz")["cls"].astype(np.float32)
        parts[f"cls {number}"] = material.geometry(material.calibrated(material.part(vectors)))
    name = name or " and ".join(label for label, _ in runs)
    tuned = {f"cls {number}": 1 / len(runs) for number in range(len(runs))}
    shares = {part: USUAL_WEIGHT * share for part, share in tuned.items()} | {"view": 1 - USUAL_WEIGHT}
    return {
        f"across, tuned parts and the view: {name}": material.sets.scores(joined(parts, shares)),
        f"across, tuned parts alone: {name}": material.sets.scores(joined(parts, tuned)),
    }


def soup(material: Material, weights: list[Path]) -> Scores:
    """The mean of the seeds' weights as one encoder: [CLS] as it is, whitened, and fused."""
    average_weights(material.encoder, weights)
    part = material.part(encoded(material.encoder, material.sentences).cls)
    return {
        "across, mean of the seeds' weights: cls": material.sets.scores(material.geometry(part)),
        "across, mean of the seeds' weights: fused": material.sets.scores(material.fused(material.calibrated(part))),
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
