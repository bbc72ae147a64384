"""Score an exported encoder on STS-B *dev*; no test set is read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor


def read_pairs(path: Path) -> tuple[list[float], list[str], list[str]]:
    """Read tab-separated rows of grade, sentence, sentence."""
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").split("\n") if line]
    return [float(r[0]) for r in rows], [r[1] for r in rows], [r[2] for r in rows]


@torch.inference_mode()
def embed(model_folder: Path, texts: list[str], device: torch.device, batch: int = 64) -> dict[str, Tensor]:
    """Return [CLS], the mean of the last layer and the mean of the embedding layer for each text, in fp32."""
    from transformers import AutoTokenizer, BertModel

    tokenizer = AutoTokenizer.from_pretrained(str(model_folder))
    model = BertModel.from_pretrained(str(model_folder), add_pooling_layer=False, dtype=torch.float32).to(device).eval()
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))  # texts of similar length need little padding
    found: dict[str, list[Tensor]] = {"cls": [], "mean": [], "layer 0 mean": []}
    for begin in range(0, len(order), batch):
        chosen = [texts[i] for i in order[begin : begin + batch]]
        inputs = tokenizer(chosen, padding=True, truncation=True, return_tensors="pt").to(device)
        states = model(**inputs, output_hidden_states=True).hidden_states
        weight = inputs["attention_mask"][..., None].float()
        found["cls"].append(states[-1][:, 0].cpu())
        for name, state in (("mean", states[-1]), ("layer 0 mean", states[0])):
            found[name].append(((state * weight).sum(1) / weight.sum(1)).cpu())
    back = torch.empty(len(order), dtype=torch.long)
    back[torch.tensor(order)] = torch.arange(len(order))
    return {name: torch.cat(parts)[back] for name, parts in found.items()}


def whitened(vectors: Tensor) -> Tensor:
    """Return the vectors whitened by their own mean and covariance."""
    centred = vectors.double() - vectors.double().mean(0)
    values, directions = torch.linalg.eigh(centred.T @ centred / len(centred))
    white: Tensor = centred @ (directions / values.clamp_min(values.max() * 1e-6).sqrt())
    return white.float()


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    """Return the rank correlation; ties share their mean rank."""

    def ranks(x: np.ndarray) -> np.ndarray:
        _, inverse, counts = np.unique(x, return_inverse=True, return_counts=True)
        return (np.cumsum(counts) - (counts - 1) / 2.0)[inverse]

    return float(np.corrcoef(ranks(a), ranks(b))[0, 1])


def check(model_folder: Path, data: Path, device: torch.device) -> dict[str, float]:
    """Return Spearman × 100 on STS-B dev for several poolings of the encoder."""
    gold, left, right = read_pairs(data / "sts" / "stsb" / "dev.tsv")
    views = embed(model_folder, left + right, device)
    for name in ("mean", "layer 0 mean"):
        views[f"{name}, whitened"] = whitened(views[name])
    out: dict[str, float] = {}
    for name, vectors in views.items():
        cosine = torch.cosine_similarity(vectors[: len(left)], vectors[len(left) :]).numpy()
        out[name] = round(100 * spearman(cosine, np.asarray(gold)), 2)
    return out
