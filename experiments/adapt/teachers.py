"""What could teach a sentence encoder that is good already: signals of its own that cost no labels, each beside its cosine.

    SELFGUIDE_DATA=folder python -m experiments.adapt.teachers --encoder all-MiniLM-L6-v2=FOLDER --pairs 1500
    SELFGUIDE_DATA=folder python -m experiments.adapt.teachers --texts forums --pairs 40 --out /tmp/teachers.json   # rehearsal

Nothing is trained: if a signal beside the cosine does not rank the pairs of a text better than the cosine alone, a student that
learns both cannot either. Signals of a pair of sentences, each added to their cosine with a weight:

* ``density``     minus the mean cosine of both to their nearest neighbours in the text: what is close to everything says less.
* ``match``       how well the token embeddings of both match (BERTScore's F), each token weighted by how rare it is in the text.
* ``match, layer n``   the same with the token embeddings of a lower layer.
* ``words``       the share of word-pieces that both have, weighted by how rare they are in the text.
* ``smoothed``    the cosine of both embeddings averaged with their nearest neighbours in the text.
* ``local``       the cosine of both embeddings less the mean of their nearest neighbours.

Only the development list is read.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import selfguide
from experiments.adapt.judges import Judge, pair_cosines
from experiments.adapt.matching import rarity
from experiments.adapt.views import WEIGHTS, command_line, measured
from experiments.provenance import RESULTS, write
from selfguide.correlation import spearman

NEIGHBOURS = 10
LAYERS = (0, 3)
_BATCH = 64

Floats = NDArray[np.float32]


def main() -> None:
    """Score every signal and weight on every text, and write the results file."""
    arguments = command_line(__doc__, RESULTS / "adapt-teachers-development.json")
    protocol = (
        "Spearman x 100 of cosine + weight x signal and grade on the text's own pairs; gain: over the cosine alone"
    )
    content = measured(arguments, cell, protocol)
    rows = content["cells"]
    best = {name: by_labels([row for row in rows if row["encoder"] == name]) for name in content["encoders"]}
    write(arguments.out, {**content, "neighbours": NEIGHBOURS, "by labels": best})


def cell(folder: str | Path, judge: Judge) -> dict[str, Any]:
    """Measure one text.

    Args:
        folder: The encoder's folder.
        judge: The text with its graded pairs.

    Returns:
        The score of the cosine alone, and the gain of every signal and weight.
    """
    assert judge.pairs is not None
    encoder = selfguide.load_encoder(folder).eval()
    sentences = list(judge.sentences)
    vectors = encoder.encode(sentences, normalize_embeddings=True, show_progress_bar=False)
    rows = {sentence: row for row, sentence in enumerate(sentences)}
    pairs = [
        (rows[one], rows[two])
        for one, two in zip(judge.pairs.first, judge.pairs.second, strict=True)
        if one in rows and two in rows
    ]
    own, grades = pair_cosines(lambda texts: np.stack([vectors[rows[text]] for text in texts]), judge.pairs)
    before = 100 * spearman(own, grades)
    gains = {
        signal: {f"{weight:g}": 100 * spearman(own + weight * values, grades) - before for weight in WEIGHTS}
        for signal, values in signals(encoder, sentences, vectors, np.array(pairs))
    }
    return {"own": before, "pairs": len(grades), "sentences": len(sentences), "gains": gains}


def by_labels(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return what a choice by the grades of each text would gain: more than any choice without labels can.

    Args:
        rows: Cells of one encoder.

    Returns:
        The gain of each text's best signal and weight, and their mean.
    """
    best = {row["text"]: max(0.0, *(max(gains.values()) for gains in row["gains"].values())) for row in rows}
    return {**best, "mean": statistics.fmean(best.values())}


def signals(
    encoder: Any, sentences: Sequence[str], vectors: Floats, pairs: NDArray[np.int64]
) -> Iterator[tuple[str, Floats]]:
    """Yield the signals of pairs, by name.

    Args:
        encoder: The encoder.
        sentences: The text.
        vectors: Its embeddings at length 1.
        pairs: Rows of both sentences of each pair (pairs, 2).

    Yields:
        The name and one value a pair.
    """
    first, second = pairs.T
    closeness, means = _neighbourhoods(vectors)
    yield "density", -(closeness[first] + closeness[second]) / 2
    for name, changed in (("smoothed", vectors + means), ("local", vectors - means)):
        unit = changed / np.maximum(np.linalg.norm(changed, axis=1, keepdims=True), 1e-12)
        yield name, (unit[first] * unit[second]).sum(axis=1)
    idf = rarity(encoder, sentences)
    used = sorted(set(pairs.ravel().tolist()), key=lambda row: len(sentences[row]))
    tokens = _tokens(encoder, [sentences[row] for row in used], idf)
    place = {row: number for number, row in enumerate(used)}
    ends = [(place[one], place[two]) for one, two in pairs.tolist()]
    yield "words", np.array([_shared(tokens[one], tokens[two]) for one, two in ends], dtype=np.float32)
    for number, name in enumerate([f"match, layer {layer}" for layer in LAYERS] + ["match"]):
        yield name, np.array([_match(tokens[one], tokens[two], number) for one, two in ends], dtype=np.float32)


def _neighbourhoods(vectors: Floats) -> tuple[Floats, Floats]:
    """Return for each embedding the mean cosine to its nearest neighbours, and their mean embedding."""
    closeness, means = np.empty(len(vectors), np.float32), np.empty_like(vectors)
    count = min(NEIGHBOURS, len(vectors) - 1)
    for start in range(0, len(vectors), 1000):
        cosines = vectors[start : start + 1000] @ vectors.T
        cosines[np.arange(len(cosines)), start + np.arange(len(cosines))] = -2
        nearest = np.argpartition(-cosines, count - 1, axis=1)[:, :count]
        closeness[start : start + 1000] = np.take_along_axis(cosines, nearest, axis=1).mean(axis=1)
        means[start : start + 1000] = vectors[nearest].mean(axis=1)
    return closeness, means


class _Tokens:
    """The tokens of a sentence: ids, shares of their rarity, and unit embeddings of each kept layer."""

    def __init__(self, ids: torch.Tensor, idf: torch.Tensor, layers: list[torch.Tensor]) -> None:
        weights = idf[ids]
        kept = weights > 0
        self.ids, self.weights = ids[kept], weights[kept]
        self.layers = [torch.nn.functional.normalize(layer[kept].float(), dim=-1) for layer in layers]


@torch.no_grad()
def _tokens(encoder: Any, sentences: Sequence[str], idf: torch.Tensor) -> list[_Tokens]:
    transformer = encoder[0].auto_model
    found = []
    for start in range(0, len(sentences), _BATCH):
        batch = encoder.preprocess(list(sentences[start : start + _BATCH]))
        inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
        states = transformer(**inputs, output_hidden_states=True).hidden_states
        kept = [states[layer] for layer in LAYERS] + [states[-1]]
        for row, mask in enumerate(batch["attention_mask"].bool()):
            found.append(_Tokens(batch["input_ids"][row][mask], idf, [layer[row][mask] for layer in kept]))
    return found


def _shared(one: _Tokens, two: _Tokens) -> float:
    weights = dict(zip(one.ids.tolist(), one.weights.tolist(), strict=True))
    others = dict(zip(two.ids.tolist(), two.weights.tolist(), strict=True))
    both = sum(weight for token, weight in weights.items() if token in others)
    return 2 * both / max(sum(weights.values()) + sum(others.values()), 1e-6)


def _match(one: _Tokens, two: _Tokens, layer: int) -> float:
    if not len(one.ids) or not len(two.ids):
        return 0.0
    cosines = one.layers[layer] @ two.layers[layer].T
    forward, backward = (
        float((cosines.amax(dim=dim) * tokens.weights).sum() / tokens.weights.sum())
        for dim, tokens in ((1, one), (0, two))
    )
    return 2 * forward * backward / max(forward + backward, 1e-6)


if __name__ == "__main__":
    main()
