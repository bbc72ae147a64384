"""Variants of a fused vector that differ in one option of the method, from the vectors of one tuned encoder.

Nothing here trains a network: every sentence is encoded once, and a variant is arithmetic on the arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from datasets import Dataset
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from experiments.fused.parts import Bag, Encoded, Floats, Geometry, GradedSets, Part, TextTokens, applied, joined
from selfguide.calibration.frequencies import SOURCES, Vocabulary, piece_weights, probabilities, weights_of
from selfguide.calibration.linear_maps import LinearMap, joined_map
from selfguide.calibration.text_statistics import Statistics
from selfguide.calibration.vocabulary_states import VocabularyStates
from selfguide.methods.fused import USUAL_WEIGHT, FusedOptions

DEFAULTS = FusedOptions()
WEIGHTS = tuple(round(0.05 * step, 2) for step in range(21))
LAYERS = (1, 2, 6, 12)
SMOOTHING = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
PIECE_WEIGHTS = (0.2, 0.4, 0.6, 0.8, 1.0)
SIZES = (64, 128, 192, 256, 384, 512, 768)
SHARES = {"cls": USUAL_WEIGHT, "view": 1 - USUAL_WEIGHT}
NamedVariants = Iterator[tuple[str, Geometry]]


@dataclass
class Material:
    """The vectors of one tuned encoder, with the rows that are text and the rows that are scored."""

    encoder: SentenceTransformer
    sentences: list[str]
    found: Encoded
    texts: Mapping[str, NDArray[np.int64]]
    """Rows of each text that a calibration may be fitted on; the first is the text of the tuning."""
    scored: NDArray[np.int64]
    sets: GradedSets
    _probabilities: dict[tuple[str, str], Floats] = field(default_factory=dict)
    _tokens: dict[str, TextTokens] = field(default_factory=dict)
    _bags: dict[tuple[str, bool], Bag] = field(default_factory=dict)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The encoder's vocabulary."""
        return Vocabulary.of_encoder(self.encoder)

    @cached_property
    def general(self) -> VocabularyStates:
        """The token statistics of general English."""
        return VocabularyStates(self.encoder, self.vocabulary)

    @cached_property
    def own_text(self) -> str:
        """The name of the text of the tuning."""
        return next(iter(self.texts))

    def weights(self, source: str = DEFAULTS.frequencies, a: float = DEFAULTS.a, text: str | None = None) -> Floats:
        """Return SIF token weights.

        Args:
            source: Where the token frequencies come from.
            a: The smoothing constant.
            text: The text in which tokens are counted; by default the text of the tuning.
        """
        text = text or self.own_text
        if (source, text) not in self._probabilities:  # splitting the English table takes a second
            dataset = Dataset.from_dict({"sentence": [self.sentences[row] for row in self.texts[text].tolist()]})
            self._probabilities[source, text] = probabilities(self.vocabulary, dataset, source)
        return weights_of(self.vocabulary, self._probabilities[source, text], a)

    def part(self, vectors: NDArray[np.float32], text: str | None = None) -> Part:
        """Return vectors of all sentences as a part that is fitted on a text."""
        return Part(vectors[self.texts[text or self.own_text]], vectors[self.scored])

    @cached_property
    def cls(self) -> Part:
        """The tuned part as the encoder gives it."""
        return self.part(self.found.cls)

    @cached_property
    def mean(self) -> Part:
        """The weighted mean of layer 0, not whitened."""
        return self.part(self.found.view(self.weights()))

    def bag(
        self, weights: Floats, text: str | None = None, piece_weight: float = DEFAULTS.piece_weight, prior: bool = True
    ) -> Part:
        """Return the second part: a soft bag of words, whitened by the tokens of a text.

        Args:
            weights: Token weights.
            text: The text of the token statistics; by default the text of the tuning.
            piece_weight: The factor of tokens that continue a word.
            prior: Whether the covariance is smoothed with a general-English prior, as in the method.
        """
        text = text or self.own_text
        if text not in self._tokens:
            self._tokens[text] = TextTokens.of(self.found, self.texts[text], self.vocabulary, self.general)
        if (text, prior) not in self._bags:
            self._bags[text, prior] = self._tokens[text].bag(prior)
        vectors = self._bags[text, prior].vectors(self.found, weights * piece_weights(self.vocabulary, piece_weight))
        return self.part(vectors, text).whitened(exponent=0.0)

    @cached_property
    def own_part(self) -> Part:
        """The second part as the method has it."""
        return self.bag(self.weights())

    @cached_property
    def own_view(self) -> Geometry:
        """The geometry of the second part as the method has it."""
        return self.geometry(self.own_part)

    @cached_property
    def calibrated(self) -> Geometry:
        """The geometry of the tuned part as the method has it."""
        return self.geometry(self.cls.whitened(exponent=DEFAULTS.tuned_exponent))

    def geometry(self, part: Part) -> Geometry:
        """Return what the cosines of all scored pairs need of a part."""
        return self.sets.geometry(part.scored)

    def fused(self, cls: Geometry | None = None, view: Geometry | None = None) -> Geometry:
        """Return two parts joined at the default weight; by default they are the method's own."""
        return joined({"cls": cls or self.calibrated, "view": view or self.own_view}, SHARES)


def all_variants(material: Material, brief: bool = False) -> NamedVariants:
    """Yield the name, ``group: setting``, and the geometry of every variant.

    Args:
        material: The vectors.
        brief: Only the variants that cost next to nothing: single parts and weights.
    """
    few = (_parts, _weights)
    for group in few if brief else (*few, _layers, _piece_weights, _frequencies, _texts, _sizes):
        yield from group(material)


def _parts(material: Material) -> NamedVariants:
    """Each part alone and both, whitened or not."""
    raw = {"cls": material.geometry(material.cls.scaled()), "view": material.geometry(material.mean.scaled())}
    white = {"cls": material.geometry(material.cls.whitened()), "view": material.geometry(material.mean.whitened())}
    for name in ("cls", "view"):
        yield f"part: {name}", raw[name]
        yield f"part: {name}, whitened", white[name]
    yield "part: view, tokens whitened", material.own_view
    yield "part: both", joined(raw, SHARES)
    yield "part: both, whitened", joined(white, SHARES)
    yield "part: cls as it is, view whitened", material.fused(raw["cls"], white["view"])
    yield "part: cls centred, view whitened", material.fused(view=white["view"])
    yield "part: cls as it is, tokens of the view whitened", material.fused(raw["cls"])
    yield "part: cls whitened, tokens of the view whitened", material.fused(white["cls"])
    yield "part: cls whitened, view as it is", material.fused(white["cls"], raw["view"])


def _weights(material: Material) -> NamedVariants:
    """The weight, with the tuned part whitened, half whitened, and only centred."""
    for exponent, name in ((0.5, "weight"), (0.25, "weight, cls half whitened"), (0.0, "weight, cls centred only")):
        parts = {"cls": material.geometry(material.cls.whitened(exponent=exponent)), "view": material.own_view}
        for weight in WEIGHTS:
            yield f"{name}: {weight:.2f}", joined(parts, {"cls": weight, "view": 1 - weight})


def _layers(material: Material) -> NamedVariants:
    yield "view layer: 0", material.fused()
    for layer, vectors in material.found.means.items():
        view = material.geometry(material.part(vectors).whitened())  # by sentences: tokens of these layers are not kept
        yield f"view layer, sentences whitened: {layer}", material.fused(view=view)
        yield f"view layer alone, sentences whitened: {layer}", view


def _piece_weights(material: Material) -> NamedVariants:
    for weight in PIECE_WEIGHTS:
        view = material.geometry(material.bag(material.weights(), piece_weight=weight))
        yield f"piece weight: {weight:g}", material.fused(view=view)
        yield f"piece weight, view alone: {weight:g}", view


def _frequencies(material: Material) -> NamedVariants:
    plain = weights_of(material.vocabulary, np.zeros(len(material.vocabulary.tokens)), 1.0)
    weights = {f"{source}, a={a:g}": material.weights(source, a) for source in SOURCES for a in SMOOTHING}
    for name, values in (*weights.items(), ("none (plain mean)", plain)):
        view = material.geometry(material.bag(values))
        yield f"frequencies: {name}", material.fused(view=view)
        yield f"frequencies, view alone: {name}", view


def _texts(material: Material) -> NamedVariants:
    """The calibration, token frequencies included, fitted on another text than that of the tuning."""
    for name in material.texts:
        cls = material.geometry(material.part(material.found.cls, name).whitened(exponent=DEFAULTS.tuned_exponent))
        weights = material.weights(text=name)
        view = material.geometry(material.bag(weights, name))
        yield f"calibration text: {name}", material.fused(cls, view)
        yield f"calibration text, cls alone: {name}", cls
        yield f"calibration text, view alone: {name}", view
        view = material.geometry(material.bag(weights, name, prior=False))
        yield f"calibration text, without general English: {name}", material.fused(cls, view)


def _sizes(material: Material) -> NamedVariants:
    """The joined vector truncated to k dimensions by its covariance."""
    both = material.cls.scaled().beside(material.own_part.scaled())
    widths = (material.cls.text.shape[1], material.own_part.text.shape[1])
    statistics = Statistics.of(both.text, widths)
    # The bag of words is whitened already, so its own map is the identity.
    identity = LinearMap(np.eye(widths[1]), np.zeros(widths[1]))

    def mapping(size: int) -> LinearMap:
        exponents = (DEFAULTS.tuned_exponent, 0.5)
        return joined_map(statistics, tuple(SHARES.values()), size, "auto", exponents, (None, identity))

    full = len(mapping(0).weight)
    for size in sorted({min(size, full) for size in SIZES}):
        yield f"k: {size}", material.sets.geometry(applied(mapping(size), both.scored))
