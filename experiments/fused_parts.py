"""The parts of a fused vector as plain arrays, and what they are worth on graded pairs. Shared by the ``fused_*`` experiments.

One pass over the sentences keeps what every variant is made of: the tuned vector, the tokens of layer 0, and weighted
means of other layers. Variants are then arithmetic on arrays, by the same functions that the method itself is made of.

A cosine of joined parts needs only three numbers of each part and pair (:class:`Geometry`), so that trying another weight
costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense

from selfguide.calibration.frequencies import Vocabulary, piece_weights, sif_weights
from selfguide.calibration.general_tokens import GeneralTokens
from selfguide.calibration.parted_statistics import Statistics
from selfguide.calibration.statistics import LinearMap, Moments, whitening_map
from selfguide.calibration.token_statistics import TokenMeans
from selfguide.correlation import spearman
from selfguide.engine.encode import token_batches
from selfguide.evaluation.rows import TaskData
from selfguide.evaluation.tasks import GROUPS
from selfguide.methods.fused import FusedOptions
from selfguide.models.encoders import backbone, input_names
from selfguide.models.layers import hidden_states, model_inputs

Floats = NDArray[np.float64]
Vectors = NDArray[np.float32]


@dataclass
class Encoded:
    """What one pass over sentences kept: a row a sentence, and layer 0 a row a token."""

    cls: Vectors
    """The tuned vector: [CLS], unless the method that tuned it hands out another."""
    tokens: Vectors
    """Layer 0 of every token that is not padding, sentence after sentence."""
    ids: NDArray[np.int64]
    starts: NDArray[np.int64]
    """Where in ``tokens`` each sentence begins."""
    means: dict[int, Vectors] = field(default_factory=dict)
    """Weighted means of other layers."""

    def view(self, weights: Floats) -> Vectors:
        """The mean of layer 0 weighted by token; a sentence whose tokens all weigh 0 has the vector 0."""
        weight = weights[self.ids].astype(np.float32)
        if torch.cuda.is_available():
            return self._view_on_gpu(weight)
        sums = np.add.reduceat(self.tokens * weight[:, None], self.starts, axis=0)
        totals = np.add.reduceat(weight, self.starts)
        return np.asarray(sums / np.maximum(totals, 1e-9)[:, None])

    def _view_on_gpu(self, weight: Vectors) -> Vectors:
        """The tokens stay there: a million of them are what takes the time, and there are dozens of weights to try."""
        tokens, sentence = self._on_gpu
        given = torch.from_numpy(weight).cuda()
        sums = torch.zeros(len(self.starts), tokens.shape[1], device="cuda")
        sums.index_add_(0, sentence, tokens * given[:, None])
        totals = torch.zeros(len(self.starts), device="cuda").index_add_(0, sentence, given)
        return (sums / totals.clamp(min=1e-9)[:, None]).cpu().numpy()

    @cached_property
    def _on_gpu(self) -> tuple[torch.Tensor, torch.Tensor]:
        lengths = np.diff(np.append(self.starts, len(self.ids)))
        sentence = np.repeat(np.arange(len(self.starts)), lengths)
        return torch.from_numpy(self.tokens).cuda(), torch.from_numpy(sentence).cuda()

    def tokens_of(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], Vectors]:
        """Numbers and vectors of the tokens of some sentences."""
        wanted = np.zeros(len(self.starts), dtype=bool)
        wanted[rows] = True
        lengths = np.diff(np.append(self.starts, len(self.ids)))
        chosen = np.repeat(wanted, lengths)
        return self.ids[chosen], self.tokens[chosen]


@dataclass(frozen=True)
class Bag:
    """What makes a soft bag of words of weighted means, as the method fused does it, by the tokens of a text."""

    spread: LinearMap
    lengths: Floats

    @classmethod
    def of(cls, found: Encoded, rows: NDArray[np.int64], vocabulary: Vocabulary, general: GeneralTokens) -> Bag:
        """By the tokens of layer 0 of these sentences."""
        return TextTokens.of(found, rows, vocabulary, general).bag()

    def vectors(self, found: Encoded, weights: Floats) -> Vectors:
        """Of every sentence; not centred."""
        return applied(
            LinearMap(self.spread.weight, np.zeros(len(self.spread.weight))), found.view(weights / self.lengths)
        )


@dataclass(frozen=True)
class TextTokens:
    """What bags of words need to know of the tokens of a text."""

    statistics: Statistics
    means: TokenMeans
    general: GeneralTokens

    @classmethod
    def of(cls, found: Encoded, rows: NDArray[np.int64], vocabulary: Vocabulary, general: GeneralTokens) -> TextTokens:
        """Layer 0 of these sentences."""
        ids, tokens = found.tokens_of(rows)
        plain = ~np.isin(ids, sorted(vocabulary.special))
        means = TokenMeans(len(vocabulary.tokens), tokens.shape[1])
        means.add(ids[plain], tokens[plain])
        return cls(Statistics.of(tokens[plain], (tokens.shape[1],)), means, general)

    def bag(self, exponent: float = 0.5, eked_out: bool = True) -> Bag:
        """``exponent`` says how far tokens are whitened, ``eked_out`` whether general English helps, as in the method."""
        statistics = self.statistics.merge(self.general.prior) if eked_out else self.statistics
        spread = whitening_map(statistics.moments, 0, statistics.shrinkage(0), exponent)
        return Bag(spread, self.means.lengths(spread, self.general.lengths(spread) if eked_out else None))


@torch.inference_mode()
def encoded(
    encoder: SentenceTransformer,
    sentences: Sequence[str],
    layers: Sequence[int] = (),
    weights: Floats | None = None,
    batch_size: int = 256,
    keep_tokens: bool = True,
) -> Encoded:
    """Run every sentence through the Transformer once. ``weights`` are those of the means of ``layers``.

    Layer 0 is the same before and after tuning: where it is known already, ``keep_tokens`` can be left out.
    """
    model, names, device = backbone(encoder).eval(), input_names(encoder), encoder.device
    pooling = _pooling(encoder)
    by_token = None if weights is None else torch.tensor(weights, dtype=torch.float32, device=device)
    cls: dict[int, Vectors] = {}
    tokens: dict[int, Vectors] = {}
    ids: dict[int, NDArray[np.int64]] = {}
    means: dict[int, dict[int, Vectors]] = {layer: {} for layer in layers}
    for batch in token_batches(encoder, list(sentences), batch_size):
        features = encoder.preprocess([sentences[index] for index in batch])
        inputs = {name: value.to(device) for name, value in model_inputs(features, names).items()}
        states = hidden_states(model, inputs)
        mask = inputs["attention_mask"]
        pooled: Any = {"token_embeddings": states[-1], "attention_mask": mask, "all_layer_embeddings": states}
        for module in pooling:
            pooled = module(pooled)
        cls.update(zip(batch, pooled["sentence_embedding"].float().cpu().numpy(), strict=True))
        lengths = mask.sum(dim=1).tolist()
        zero = states[0].float().cpu().numpy() if keep_tokens else np.zeros((*mask.shape, 0), dtype=np.float32)
        numbers = inputs["input_ids"].cpu().numpy()
        for row, (index, length) in enumerate(zip(batch, lengths, strict=True)):
            tokens[index], ids[index] = zero[row, :length].copy(), numbers[row, :length].copy()
        if by_token is not None:
            weight = (by_token[inputs["input_ids"]] * mask).unsqueeze(1)
            for layer, kept in means.items():
                mean = (weight @ states[layer].float()).squeeze(1) / weight.sum(dim=2).clamp(min=1e-9)
                kept.update(zip(batch, mean.cpu().numpy(), strict=True))
    order = range(len(sentences))
    ends = np.cumsum([len(ids[index]) for index in order])
    return Encoded(
        cls=np.stack([cls[index] for index in order]),
        tokens=np.concatenate([tokens[index] for index in order]),
        ids=np.concatenate([ids[index] for index in order]),
        starts=np.concatenate([[0], ends[:-1]]),
        means={layer: np.stack([kept[index] for index in order]) for layer, kept in means.items()},
    )


def _pooling(encoder: SentenceTransformer) -> list[torch.nn.Module]:
    """The modules that make the tuned vector of the Transformer's layers; in a fused encoder a Dense follows them."""
    after = list(encoder)[1:]
    dense = next((place for place, module in enumerate(after) if isinstance(module, Dense)), len(after))
    return after[:dense]


def token_weights(encoder: SentenceTransformer, text: Sequence[str], source: str = "both", a: float = 1e-3) -> Floats:
    """The weights that the method fused would give the tokens on this text, before it divides them by their lengths."""
    vocabulary = Vocabulary.of_encoder(encoder)
    weights = sif_weights(vocabulary, Dataset.from_dict({"sentence": list(text)}), source, a)
    return weights * piece_weights(vocabulary, FusedOptions().piece_weight)


@dataclass
class GradedSets:
    """Graded pairs of several sets over one list of distinct sentences."""

    sentences: list[str]
    pairs: dict[str, tuple[NDArray[np.int64], NDArray[np.int64], Floats]]
    """Of each set: rows of the first sentences, rows of the second, grades."""

    @classmethod
    def of(cls, tasks: Iterable[TaskData], most: int | None = None, seed: int = 1) -> GradedSets:
        """All pairs of the tasks, or ``most`` of each, drawn at random. A task's parts are one list (the 'all' setting)."""
        draw = np.random.default_rng(seed)
        rows: dict[str, int] = {}
        pairs = {}
        for task in tasks:
            triples = [
                triple
                for part in task.parts
                for triple in zip(part.first, part.second or [], part.grades or [], strict=True)
            ]
            if most is not None and len(triples) > most:
                triples = [triples[index] for index in sorted(draw.choice(len(triples), most, replace=False))]
            numbers = [[rows.setdefault(text, len(rows)) for text in triple[:2]] for triple in triples]
            places = np.array(numbers, dtype=np.int64).reshape(-1, 2)
            pairs[task.task.name] = (places[:, 0], places[:, 1], np.array([grade for *_, grade in triples]))
        return cls(list(rows), pairs)

    def scores(self, geometry: Geometry) -> dict[str, float]:
        """Spearman × 100 on each set, and the average of the seven STS sets where all are there."""
        found, start, cosines = {}, 0, geometry.cosines()
        for name, (_, _, grades) in self.pairs.items():
            found[name] = 100 * spearman(grades, cosines[start : start + len(grades)])
            start += len(grades)
        if set(GROUPS["sts"]) <= found.keys():
            found["average"] = float(np.mean([found[name] for name in GROUPS["sts"]]))
        return found

    def geometry(self, vectors: NDArray[np.floating]) -> Geometry:
        """What the cosines of all pairs need of these vectors, one a sentence."""
        rows = [np.concatenate([pair[side] for pair in self.pairs.values()]) for side in (0, 1)]
        # On a GPU where there is one: of a hundred variants, this is what takes the time.
        device = "cuda" if torch.cuda.is_available() else "cpu"
        every = torch.from_numpy(np.ascontiguousarray(vectors)).to(device).double()
        first, second = (every[torch.from_numpy(row).to(device)] for row in rows)
        dots = [(one * two).sum(dim=1) for one, two in ((first, second), (first, first), (second, second))]
        return Geometry(*(dot.cpu().numpy() for dot in dots))


@dataclass(frozen=True)
class Geometry:
    """Of every pair: the product of its vectors, and their squared lengths. Those of joined parts add up."""

    products: Floats
    first: Floats
    second: Floats

    def __mul__(self, share: float) -> Geometry:
        return Geometry(self.products * share, self.first * share, self.second * share)

    def __add__(self, other: Geometry) -> Geometry:
        return Geometry(self.products + other.products, self.first + other.first, self.second + other.second)

    def cosines(self) -> Floats:
        """0 where a vector has no length."""
        lengths = np.sqrt(self.first * self.second)
        return np.divide(self.products, lengths, out=np.zeros_like(self.products), where=lengths > 0)

    def unit(self) -> Geometry:
        """Of the vectors scaled to length 1, each by itself; a vector without length stays as it is."""
        ones = [np.where(lengths > 0, 1.0, 0.0) for lengths in (self.first, self.second)]
        return Geometry(self.cosines(), *ones)


@dataclass
class Part:
    """One part of a vector: of the text that it is fitted on, and of the sentences that it is scored on."""

    text: Vectors
    scored: Vectors

    def moments(self) -> Moments:
        """Mean and covariance on the text."""
        return Moments.of(self.text)

    def whitened(self, shrinkage: str = "auto", exponent: float = 0.5, keep: int = 0) -> Part:
        """Whitened on its own text, as the method does it, and scaled to a mean squared length of 1 there."""
        statistics = Statistics.of(self.text, (self.text.shape[1],))
        share = statistics.shrinkage(0, shrinkage)
        return self.mapped(whitening_map(statistics.moments, keep, share, exponent)).scaled()

    def mapped(self, mapping: LinearMap) -> Part:
        """After a linear map."""
        return Part(applied(mapping, self.text), applied(mapping, self.scored))

    def scaled(self) -> Part:
        """With a mean squared length of 1 on the text."""
        length = np.sqrt(np.mean(np.einsum("ij,ij->i", self.text, self.text)))
        return Part(self.text / length, self.scored / length)


def applied(mapping: LinearMap, vectors: Vectors) -> Vectors:
    """weight · x + bias for every row, on a GPU where there is one."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    weight = torch.tensor(mapping.weight, dtype=torch.float32, device=device)
    bias = torch.tensor(mapping.bias, dtype=torch.float32, device=device)
    return (torch.from_numpy(np.ascontiguousarray(vectors)).to(device) @ weight.T + bias).cpu().numpy()


def joined(parts: Mapping[str, Geometry], shares: Mapping[str, float]) -> Geometry:
    """Parts side by side, each with its share."""
    weighted = [parts[name] * share for name, share in shares.items() if share]
    total = weighted[0]
    for other in weighted[1:]:
        total = total + other
    return total


def summary(values: Sequence[float]) -> dict[str, Any]:
    """Mean, deviation, least and number of some values."""
    array = np.asarray(values, dtype=np.float64)
    spread = float(array.std(ddof=1)) if len(array) > 1 else 0.0
    return {"mean": float(array.mean()), "deviation": spread, "least": float(array.min()), "count": len(array)}
