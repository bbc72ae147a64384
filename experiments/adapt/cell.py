"""One cell: an encoder, a text, a recipe and a seed; what comes out is scored at several shares between original and tuned."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import selfguide
from experiments.adapt.judges import Judge, pair_cosines
from experiments.adapt.recipes import recipe
from experiments.adapt.scores import NEIGHBOURS, Encode, Probe, Vectors
from experiments.adapt.texts import some_sentences
from experiments.adapt.unhelpful import unhelpful_text
from experiments.provenance import device_name
from selfguide.calibration.centring import mean_cosine, one_sidedness
from selfguide.calibration.spread import general_sentences
from selfguide.engine.encode import sentence_vectors
from selfguide.methods.adapt import SAMPLE

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer
    from torch import Tensor

AS_IS = "as-is"


def one_run(
    encoder: str,
    text: str,
    word: str,
    seed: int,
    data: str,
    shares: Sequence[float] = (0.5, 1.0),
    pairs: int = 0,
    size: int = 0,
    instead: str = "",
    max_steps: int = 0,
    precision: str = "fp32",
    also: str = "dev",
    name: str = "",
    free: bool = True,
    cosines: bool = False,
) -> dict[str, Any]:
    """Train a recipe on a text, and score the weights at every share of the way.

    Args:
        encoder: The encoder to start from.
        text: A text of either list, or a task; it also judges.
        word: The recipe, or ``as-is`` to train nothing.
        seed: The seed.
        data: The data folder.
        shares: Shares of the tuned weights in the average with the original's; above 1 goes beyond them.
        pairs: Graded pairs of the text and of the general set at most; 0: all.
        size: Sentences to train on at most; 0: all.
        instead: Train on this unhelpful text instead; see :mod:`experiments.adapt.unhelpful`.
        max_steps: Rehearsal: training steps.
        precision: ``fp32``, or ``bf16`` for training and for scoring, which is faster where the CPU has it.
        also: What is scored elsewhere; see :class:`experiments.adapt.judges.Judge`.
        name: What the encoder is called in the results.
        free: Compute the label-free scores too.
        cosines: Record the cosine of every pair of the text as well, for what is chosen by a part of the pairs later.

    Returns:
        Scores by share, label-free scores beside them, and what the run was.
    """
    folder = Path(data)
    judge = Judge(text, folder, pairs, also)
    train_on = some_sentences(judge.sentences, size, seed)
    if instead:
        train_on = unhelpful_text(instead, judge.sentences, folder, seed)
    original = selfguide.load_encoder(encoder).eval()
    encode = Remembering(original, precision)
    label_free = LabelFree(train_on, seed, encode) if free else None
    moved = Moved(train_on, encode)
    found: dict[str, Any] = {"sentences": len(train_on), "device": device_name(), **moved.start, "shares": {}}
    if word == AS_IS:
        found["shares"]["0"] = judge.scores(encode) | (label_free.scores(encode) if label_free else {})
        if cosines and judge.pairs is not None:
            found["shares"]["0"]["cosines"] = [round(float(one), 5) for one in pair_cosines(encode, judge.pairs)[0]]
        return found
    start = {name: tensor.clone() for name, tensor in original.state_dict().items()}
    chosen = recipe(word)
    settings = dict(chosen.settings)
    if chosen.method.trains:
        settings = {"precision": precision} | settings | ({"max_steps": max_steps} if max_steps else {})
    begun = time.monotonic()
    tuned = selfguide.train(encoder, list(train_on), chosen.method, seed=seed, quiet=True, **settings)
    found["seconds"] = round(time.monotonic() - begun, 1)
    end = {name: tensor.clone() for name, tensor in tuned.state_dict().items()}
    # `adapt` has chosen its share by itself, so what it gave back is scored as it is.
    own_choice = chosen.method.describe_options().get("choose", False)
    if own_choice:
        found["unchanged"] = start.keys() == end.keys() and all(torch.equal(start[name], end[name]) for name in start)
    for share in shares if chosen.method.trains and not own_choice else (1.0,):
        if chosen.method.trains and not own_choice:
            tuned.load_state_dict(averaged(start, end, share))
        encode = Remembering(tuned, precision)
        found["shares"][f"{share:g}"] = (
            judge.scores(encode) | moved.scores(encode) | (label_free.scores(encode) if label_free else {})
        )
        if cosines and judge.pairs is not None:
            found["shares"][f"{share:g}"]["cosines"] = [
                round(float(one), 5) for one in pair_cosines(encode, judge.pairs)[0]
            ]
    return found


class Moved:
    """How one-sided a text is to the original, and how many of its neighbours a candidate keeps."""

    def __init__(self, sentences: Sequence[str], original: Encode) -> None:
        self.sample = some_sentences(sentences, SAMPLE)
        text, general = (_unit(original(part)) for part in (self.sample, general_sentences()))
        self.before = _nearest(text)
        self.start = {"common": one_sidedness(text, general), "cosines": [mean_cosine(text), mean_cosine(general)]}

    def scores(self, encode: Encode) -> dict[str, float]:
        """Return the share of each sentence's nearest neighbours that a candidate keeps."""
        pairs = zip(self.before, _nearest(_unit(encode(self.sample))), strict=True)
        return {"kept": float(np.mean([len(set(one) & set(two)) / len(one) for one, two in pairs]))}


def _nearest(vectors: Vectors) -> NDArray[np.int64]:
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -2)
    return np.asarray(np.argsort(-cosines, axis=1)[:, : min(NEIGHBOURS, len(vectors) - 1)])


def _unit(vectors: Vectors) -> Vectors:
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12), dtype=np.float32)


class LabelFree:
    """The label-free scores of candidates on a text, against those of the original."""

    def __init__(self, sentences: Sequence[str], seed: int, original: Encode) -> None:
        self.probe = Probe.of(sentences, seed=seed)
        self.before = self.probe.measure(original)

    def scores(self, encode: Encode) -> dict[str, Any]:
        """Return the scores of a candidate as a field of its row."""
        return {"free": self.probe.measure(encode).against(self.before)}


def averaged(start: Mapping[str, Tensor], end: Mapping[str, Tensor], share: float) -> dict[str, Tensor]:
    """Return the weights at a share of the way from ``start`` to ``end``; weights that ``start`` lacks are those of the end."""
    return {
        name: start[name] + share * (tensor - start[name])
        if name in start and tensor.is_floating_point()
        else tensor.clone()
        for name, tensor in end.items()
    }


class Remembering:
    """Encode sentences, and remember their vectors: pairs, text and probe share most of them.

    Args:
        encoder: The encoder; its weights must not change.
        precision: ``fp32`` or ``bf16``.
    """

    def __init__(self, encoder: SentenceTransformer, precision: str = "fp32") -> None:
        self.encoder, self.backend = encoder, "bf16" if precision == "bf16" else "torch"
        self.known: dict[str, Vectors] = {}

    def __call__(self, sentences: Sequence[str]) -> Vectors:
        """Return one vector a sentence."""
        new = [sentence for sentence in dict.fromkeys(sentences) if sentence not in self.known]
        if new:
            self.known.update(zip(new, sentence_vectors(self.encoder, new, backend=self.backend), strict=True))
        return np.stack([self.known[sentence] for sentence in sentences])
