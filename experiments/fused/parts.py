"""The parts of a fused vector as arrays, so that many variants can be tried on one pass over the sentences.

A pass keeps of every sentence the tuned vector, the tokens of layer 0, and weighted means of other layers. Variants are
arithmetic on these arrays, by the same functions that the method itself is made of. The cosine of joined parts needs only
three numbers of each part and pair (:class:`Geometry`), so that trying another weight costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense

from selfguide.calibration.frequencies import Vocabulary, piece_weights, sif_weights
from selfguide.calibration.linear_maps import LinearMap, whitening_map
from selfguide.calibration.text_statistics import Statistics, TextStatistics
from selfguide.calibration.token_statistics import TokenMeans
from selfguide.calibration.two_views import CalibratedEncoder
from selfguide.calibration.vocabulary_states import VocabularyStates, vocabulary_states
from selfguide.correlation import spearman
from selfguide.engine.encode import token_batches
from selfguide.evaluation.rows import TaskData
from selfguide.evaluation.tasks import GROUPS
from selfguide.methods.fused import Fused, FusedOptions
from selfguide.models.encoders import backbone, input_names
from selfguide.models.layers import hidden_states, model_inputs

Floats = NDArray[np.float64]
Vectors = NDArray[np.float32]


@dataclass
class Encoded:
    """What one pass over sentences keeps: one row a sentence, and one row a token of layer 0."""

    cls: Vectors
    """The tuned sentence vector: [CLS], unless the tuning method uses another pooling."""
    tokens: Vectors
    """Layer 0 of every token but padding, sentence after sentence."""
    ids: NDArray[np.int64]
    starts: NDArray[np.int64]
    """The first row of each sentence in ``tokens``."""
    means: dict[int, Vectors] = field(default_factory=dict)
    """Weighted means of other layers, by layer."""

    def view(self, weights: Floats) -> Vectors:
        """Return the weighted mean of layer 0 of every sentence, by weights of the vocabulary's tokens.

        A sentence whose tokens all weigh 0 gets the zero vector.
        """
        weight = weights[self.ids].astype(np.float32)
        sums = np.add.reduceat(self.tokens * weight[:, None], self.starts, axis=0)
        totals = np.add.reduceat(weight, self.starts)
        return np.asarray(sums / np.maximum(totals, 1e-9)[:, None])

    def tokens_of(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], Vectors]:
        """Return ids and vectors of the tokens of the given sentences."""
        wanted = np.zeros(len(self.starts), dtype=bool)
        wanted[rows] = True
        lengths = np.diff(np.append(self.starts, len(self.ids)))
        chosen = np.repeat(wanted, lengths)
        return self.ids[chosen], self.tokens[chosen]


@dataclass(frozen=True)
class Bag:
    """What turns weighted means into a soft bag of words, as the method fused does it."""

    spread: LinearMap
    lengths: Floats

    def vectors(self, found: Encoded, weights: Floats) -> Vectors:
        """Return the bag of words of every sentence, not centred."""
        return applied(
            LinearMap(self.spread.weight, np.zeros(len(self.spread.weight))), found.view(weights / self.lengths)
        )


@dataclass(frozen=True)
class TextTokens:
    """The token statistics of a text that a bag of words is fitted by."""

    statistics: Statistics
    means: TokenMeans
    general: VocabularyStates

    @classmethod
    def of(
        cls, found: Encoded, rows: NDArray[np.int64], vocabulary: Vocabulary, general: VocabularyStates
    ) -> TextTokens:
        """Measure layer 0 of the given sentences."""
        ids, tokens = found.tokens_of(rows)
        plain = ~np.isin(ids, sorted(vocabulary.special))
        means = TokenMeans(len(vocabulary.tokens), tokens.shape[1])
        means.add(ids[plain], tokens[plain])
        return cls(Statistics.of(tokens[plain], (tokens.shape[1],)), means, general)

    def bag(self, prior: bool = True) -> Bag:
        """Return the bag of words; ``prior`` smooths the covariance with a general-English prior, as the method does."""
        statistics = self.statistics.merge(self.general.prior) if prior else self.statistics
        spread = whitening_map(statistics.moments, 0, statistics.shrinkage(0))
        return Bag(spread, self.means.lengths(spread, self.general.lengths(spread) if prior else None))


@torch.inference_mode()
def encoded(
    encoder: SentenceTransformer,
    sentences: Sequence[str],
    layers: Sequence[int] = (),
    weights: Floats | None = None,
    batch_size: int = 256,
) -> Encoded:
    """Run every sentence through the Transformer once.

    Args:
        encoder: The encoder; a fused one is read before its last linear layers.
        sentences: What to encode.
        layers: Layers of which weighted means are kept.
        weights: Token weights of these means.
        batch_size: Sentences a batch.

    Returns:
        The vectors, in the order of the sentences.
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
        zero = states[0].float().cpu().numpy()
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
    """Return the modules that pool the tuned vector; in a fused encoder a Dense follows them."""
    after = list(encoder)[1:]
    dense = next((place for place, module in enumerate(after) if isinstance(module, Dense)), len(after))
    return after[:dense]


def token_weights(encoder: SentenceTransformer, text: Sequence[str], source: str = "both", a: float = 1e-3) -> Floats:
    """Return the token weights of the method fused on a text, before they are divided by the tokens' lengths."""
    vocabulary = Vocabulary.of_encoder(encoder)
    weights = sif_weights(vocabulary, Dataset.from_dict({"sentence": list(text)}), source, a)
    return weights * piece_weights(vocabulary, FusedOptions().piece_weight)


def mapping_inputs(encoder: SentenceTransformer, sentences: Sequence[str]) -> tuple[Vectors, TextStatistics, Any]:
    """Return what ``FusedOptions.mapping`` and its map need of a fused encoder.

    Args:
        encoder: The encoder, as ``selfguide.train`` returns it.
        sentences: The sentences that will be mapped.

    Returns:
        The sentences' vectors [x_1 ; x_2] before the map, the statistics of the text, and the general-English prior.
    """
    assert isinstance(encoder, CalibratedEncoder)
    raw = Fused.without_map(encoder).encode(list(sentences), batch_size=128, show_progress_bar=False)
    options = FusedOptions()
    prior = options.prior(vocabulary_states(encoder, Vocabulary.of_encoder(encoder), options.view_layer))
    return np.asarray(raw), encoder.statistics, prior


@dataclass
class GradedSets:
    """Graded pairs of several sets over one list of distinct sentences."""

    sentences: list[str]
    pairs: dict[str, tuple[NDArray[np.int64], NDArray[np.int64], Floats]]
    """By set: rows of the first sentences, rows of the second, grades."""

    @classmethod
    def of(cls, tasks: Iterable[TaskData], most: int | None = None, seed: int = 1) -> GradedSets:
        """Gather the pairs of tasks; the subsets of a task are one list (the 'all' setting).

        Args:
            tasks: The tasks.
            most: Pairs of each task at most, drawn at random; None takes all.
            seed: Seed of the draw.
        """
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
        """Return Spearman × 100 on each set, and the average of the seven STS sets if all are there."""
        found, start, cosines = {}, 0, geometry.cosines()
        for name, (_, _, grades) in self.pairs.items():
            found[name] = 100 * spearman(grades, cosines[start : start + len(grades)])
            start += len(grades)
        if set(GROUPS["sts"]) <= found.keys():
            found["average"] = float(np.mean([found[name] for name in GROUPS["sts"]]))
        return found

    def geometry(self, vectors: NDArray[np.floating]) -> Geometry:
        """Return what the cosines of all pairs need of the sentences' vectors."""
        rows = [np.concatenate([pair[side] for pair in self.pairs.values()]) for side in (0, 1)]
        # This dominates the time of a hundred variants, so it runs on a GPU where there is one.
        device = "cuda" if torch.cuda.is_available() else "cpu"
        every = torch.from_numpy(np.ascontiguousarray(vectors)).to(device).double()
        first, second = (every[torch.from_numpy(row).to(device)] for row in rows)
        dots = [(one * two).sum(dim=1) for one, two in ((first, second), (first, first), (second, second))]
        return Geometry(*(dot.cpu().numpy() for dot in dots))


@dataclass(frozen=True)
class Geometry:
    """The inner product of every pair's vectors, and their squared lengths; those of joined parts add up."""

    products: Floats
    first: Floats
    second: Floats

    def __mul__(self, share: float) -> Geometry:
        return Geometry(self.products * share, self.first * share, self.second * share)

    def __add__(self, other: Geometry) -> Geometry:
        return Geometry(self.products + other.products, self.first + other.first, self.second + other.second)

    def cosines(self) -> Floats:
        """Return the cosines; 0 where a vector has no length."""
        lengths = np.sqrt(self.first * self.second)
        return np.divide(self.products, lengths, out=np.zeros_like(self.products), where=lengths > 0)


@dataclass
class Part:
    """One part of a vector: of the text that it is fitted on, and of the sentences that it is scored on."""

    text: Vectors
    scored: Vectors

    def whitened(self, exponent: float = 0.5) -> Part:
        """Return the part whitened on its own text as the method does it, with a mean squared length of 1 there.

        Args:
            exponent: 0.5 whitens, 0 only centres.
        """
        statistics = Statistics.of(self.text, (self.text.shape[1],))
        mapping = whitening_map(statistics.moments, 0, statistics.shrinkage(0, "auto"), exponent)
        return Part(applied(mapping, self.text), applied(mapping, self.scored)).scaled()

    def scaled(self) -> Part:
        """Return the part with a mean squared length of 1 on the text."""
        length = np.sqrt(np.mean(np.einsum("ij,ij->i", self.text, self.text)))
        return Part(self.text / length, self.scored / length)

    def beside(self, other: Part) -> Part:
        """Return two parts as one."""
        return Part(np.concatenate([self.text, other.text], 1), np.concatenate([self.scored, other.scored], 1))


def applied(mapping: LinearMap, vectors: Vectors) -> Vectors:
    """Return weight · x + bias for every row, computed on a GPU where there is one."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    weight = torch.tensor(mapping.weight, dtype=torch.float32, device=device)
    bias = torch.tensor(mapping.bias, dtype=torch.float32, device=device)
    return (torch.from_numpy(np.ascontiguousarray(vectors)).to(device) @ weight.T + bias).cpu().numpy()


def joined(parts: Mapping[str, Geometry], shares: Mapping[str, float]) -> Geometry:
    """Return parts side by side, each with its share of the squared length."""
    weighted = [parts[name] * share for name, share in shares.items() if share]
    total = weighted[0]
    for other in weighted[1:]:
        total = total + other
    return total


def summary(values: Sequence[float]) -> dict[str, Any]:
    """Return mean, sample deviation, minimum and number of values."""
    array = np.asarray(values, dtype=np.float64)
    spread = float(array.std(ddof=1)) if len(array) > 1 else 0.0
    return {"mean": float(array.mean()), "deviation": spread, "least": float(array.min()), "count": len(array)}
