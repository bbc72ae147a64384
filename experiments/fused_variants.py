"""Every cheap variant of a fused vector, from the vectors of one tuned encoder. Nothing here trains a network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
from datasets import Dataset
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from experiments import fused_ideas as ideas
from experiments.fused_parts import Bag, Encoded, Floats, Geometry, GradedSets, Part, TextTokens, applied, joined
from selfguide.calibration.frequencies import SOURCES, Vocabulary, piece_weights, probabilities, weights_of
from selfguide.calibration.general_tokens import GeneralTokens
from selfguide.calibration.parted_statistics import Statistics, joined_map
from selfguide.calibration.statistics import LinearMap
from selfguide.methods.fused import USUAL_WEIGHT, FusedOptions

DEFAULTS = FusedOptions()
WEIGHTS = tuple(round(0.05 * step, 2) for step in range(21))
LAYERS = (1, 2, 6, 12)
SMOOTHING = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
SIZES = (64, 128, 192, 256, 384, 512, 768)
EXPONENTS = (0.0, 0.125, 0.25, 0.375, 0.5)
SHRINKAGES = ("0", "0.02", "0.05", "0.1", "0.2", "0.4")
BIGRAM_SHARES = (0.03, 0.06, 0.1, 0.15, 0.2)
RANKS = (32, 64, 128, 256)
Named = Iterator[tuple[str, Geometry]]


@dataclass
class Material:
    """The vectors of one tuned encoder, and which rows of them are text and which are scored."""

    encoder: SentenceTransformer
    sentences: list[str]
    found: Encoded
    texts: Mapping[str, NDArray[np.int64]]
    """Rows of each text that a calibration may be fitted on; the first is the one that was tuned on."""
    scored: NDArray[np.int64]
    sets: GradedSets
    views: dict[str, Geometry] = field(default_factory=dict)
    """Second parts by name. Tuning leaves layer 0 alone, so they are those of every tuned encoder, and made once."""
    own: Part | None = None
    """The second part as the method has it, where it is known already."""
    deep: bool = False
    """Whether ideas are tried that take minutes; they need the tokens of layer 0."""
    _chances: dict[tuple[str, str | None], Floats] = field(default_factory=dict)
    _tokens: dict[str | None, TextTokens] = field(default_factory=dict)
    _bags: dict[tuple[str | None, float, bool], Bag] = field(default_factory=dict)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary.of_encoder(self.encoder)

    @cached_property
    def general(self) -> GeneralTokens:
        return GeneralTokens(self.encoder, self.vocabulary)

    @property
    def text(self) -> NDArray[np.int64]:
        """The rows of the text that was tuned on."""
        return next(iter(self.texts.values()))

    def weights(self, source: str = DEFAULTS.frequencies, a: float = DEFAULTS.a, text: str | None = None) -> Floats:
        """Token weights, counted on one of the texts."""
        if (source, text) not in self._chances:  # splitting the table of English takes a second
            rows = self.text if text is None else self.texts[text]
            dataset = Dataset.from_dict({"sentence": [self.sentences[row] for row in rows.tolist()]})
            self._chances[source, text] = probabilities(self.vocabulary, dataset, source)
        return weights_of(self.vocabulary, self._chances[source, text], a)

    def part(self, vectors: NDArray[np.float32], text: str | None = None) -> Part:
        """Vectors of all sentences as a part that is fitted on a text."""
        return Part(vectors[self.text if text is None else self.texts[text]], vectors[self.scored])

    @cached_property
    def cls(self) -> Part:
        return self.part(self.found.cls)

    def view(self) -> Part:
        """The weighted mean of layer 0, not whitened."""
        return self.part(self.found.view(self.weights()))

    def bag(
        self,
        source: str = DEFAULTS.frequencies,
        a: float = DEFAULTS.a,
        text: str | None = None,
        piece_weight: float = DEFAULTS.piece_weight,
        exponent: float = 0.5,
        weights: Floats | None = None,
        eked_out: bool = True,
    ) -> Part:
        """The soft bag of words, as the method has it but for what is told; ``weights`` are others than the frequencies'."""
        assert len(self.found.tokens.T), "layer 0 was not kept: this part should have been made before"
        if text not in self._tokens:
            rows = self.text if text is None else self.texts[text]
            self._tokens[text] = TextTokens.of(self.found, rows, self.vocabulary, self.general)
        if (text, exponent, eked_out) not in self._bags:
            self._bags[text, exponent, eked_out] = self._tokens[text].bag(exponent, eked_out)
        weights = self.weights(source, a, text) if weights is None else weights
        bag = self._bags[text, exponent, eked_out]
        vectors = bag.vectors(self.found, weights * piece_weights(self.vocabulary, piece_weight))
        return self.part(vectors, text).whitened(exponent=0.0)

    def second(self, name: str, make: Callable[[], Part]) -> Geometry:
        """A second part by its name, made where it is not known yet."""
        if name not in self.views:
            self.views[name] = self.geometry(make())
        return self.views[name]

    @cached_property
    def white(self) -> dict[str, Geometry]:
        """Both parts, whitened by their own covariance."""
        return {
            "cls": self.geometry(self.cls.whitened()),
            "view": self.second("weighted mean, whitened", lambda: self.view().whitened()),
        }

    @property
    def own_view(self) -> Geometry:
        """The second part as the method has it."""
        return self.second("as the method has it", self.own_part)

    def own_part(self) -> Part:
        """Its vectors."""
        if self.own is None:
            self.own = self.bag()
        return self.own

    def geometry(self, part: Part) -> Geometry:
        return self.sets.geometry(part.scored)

    def calibrated(self, cls: Part) -> Part:
        """The tuned part as the method has it: whitened as far as its default says."""
        return cls.whitened(exponent=DEFAULTS.tuned_exponent)

    def fused(self, cls: Part | None = None, view: Geometry | None = None) -> Geometry:
        """Two parts at the method's weight; one that is not given is the method's own."""
        parts = {
            "cls": self.geometry(self.calibrated(self.cls) if cls is None else cls),
            "view": self.own_view if view is None else view,
        }
        return joined(parts, {"cls": USUAL_WEIGHT, "view": 1 - USUAL_WEIGHT})


def second_parts(material: Material, brief: bool = False) -> None:
    """Make every second part that a variant asks for, and keep it by its name."""
    for _ in all_variants(material, brief):
        pass


def all_variants(material: Material, brief: bool = False) -> Named:
    """Name and geometry of every variant; a name is ``group: setting``. ``brief``: only those that cost next to nothing."""
    groups = (
        (_parts, _weights)
        if brief
        else (_parts, _weights, _layers, _tokens, _frequencies, _texts, _sizes, _calibrations, _ideas)
    )
    for group in groups:
        yield from group(material)


def _parts(material: Material) -> Named:
    """Each part alone and both, whitened or not."""
    raw = {
        "cls": material.geometry(material.cls.scaled()),
        "view": material.second("weighted mean", lambda: material.view().scaled()),
    }
    for name in ("cls", "view"):
        yield f"part: {name}", raw[name]
        yield f"part: {name}, whitened", material.white[name]
    shares = {"cls": USUAL_WEIGHT, "view": 1 - USUAL_WEIGHT}
    yield "part: view, tokens whitened", material.own_view
    yield "part: both", joined(raw, shares)
    yield "part: both, whitened", joined(material.white, shares)
    yield "part: cls as it is, view whitened", joined({"cls": raw["cls"], "view": material.white["view"]}, shares)
    yield (
        "part: cls as it is, tokens of the view whitened",
        joined({"cls": raw["cls"], "view": material.own_view}, shares),
    )
    yield (
        "part: cls whitened, tokens of the view whitened",
        joined({"cls": material.white["cls"], "view": material.own_view}, shares),
    )
    yield "part: cls whitened, view as it is", joined({"cls": material.white["cls"], "view": raw["view"]}, shares)
    # Lengths evened out sentence by sentence, which no linear map can do.
    yield "part: both, whitened, each of length 1", joined({k: g.unit() for k, g in material.white.items()}, shares)


def _weights(material: Material) -> Named:
    """The weight, with the tuned part whitened, half whitened, and centred only: it may be good as it is."""
    for exponent, name in ((0.5, "weight"), (0.25, "weight, cls half whitened"), (0.0, "weight, cls centred only")):
        cls = material.white["cls"] if exponent == 0.5 else material.geometry(material.cls.whitened(exponent=exponent))
        for weight in WEIGHTS:
            shares = {"cls": weight, "view": 1 - weight}
            yield f"{name}: {weight:.2f}", joined({"cls": cls, "view": material.own_view}, shares)


def _layers(material: Material) -> Named:
    yield "view layer: 0", material.fused()
    for layer, vectors in material.found.means.items():
        # By its sentences: of these layers no tokens are kept. They are the tuned encoder's own, so none is known before.
        view = material.geometry(material.part(vectors).whitened())
        yield f"view layer, sentences whitened: {layer}", material.fused(view=view)
        yield f"view layer alone, sentences whitened: {layer}", view


def _tokens(material: Material) -> Named:
    """How tokens are whitened, and what a piece of a word counts."""
    for exponent in EXPONENTS:
        view = material.second(f"exponent {exponent:g}", partial(material.bag, exponent=exponent))
        yield f"tokens, exponent: {exponent:g}", material.fused(view=view)
        yield f"tokens alone, exponent: {exponent:g}", view
    for weight in (0.2, 0.4, 0.6, 0.8, 1.0):
        view = material.second(f"piece weight {weight:g}", partial(material.bag, piece_weight=weight))
        yield f"piece weight: {weight:g}", material.fused(view=view)
        yield f"piece weight, view alone: {weight:g}", view


def _frequencies(material: Material) -> Named:
    for source in SOURCES:
        for a in SMOOTHING:
            view = material.second(f"frequencies {source} {a:g}", partial(material.bag, source, a))
            yield f"frequencies: {source}, a={a:g}", material.fused(view=view)
            yield f"frequencies, view alone: {source}, a={a:g}", view
    plain = weights_of(material.vocabulary, np.zeros(len(material.vocabulary.tokens)), 1.0)
    view = material.second("frequencies none", partial(material.bag, weights=plain))
    yield "frequencies: none (plain mean)", material.fused(view=view)
    yield "frequencies, view alone: none (plain mean)", view


def _texts(material: Material) -> Named:
    """The calibration, token frequencies included, fitted on another text than the one that was tuned on."""
    for name in material.texts:
        cls = material.calibrated(material.part(material.found.cls, name))
        view = material.second(f"text {name}", partial(material.bag, text=name))
        yield f"calibration text: {name}", material.fused(cls, view)
        yield f"calibration text, cls alone: {name}", material.geometry(cls)
        yield f"calibration text, view alone: {name}", view
        view = material.second(f"text {name} alone", partial(material.bag, text=name, eked_out=False))
        yield f"calibration text, without general English: {name}", material.fused(cls, view)


def _sizes(material: Material) -> Named:
    """The joined vector cut to k numbers by its covariance."""
    view = material.own_part()
    both = ideas.beside(material.cls, view)
    widths = (material.cls.text.shape[1], view.text.shape[1])
    statistics = Statistics.of(both.text, widths)
    # The bag is whitened already: its own map is the identity.
    exponents, identity = (DEFAULTS.tuned_exponent, 0.5), LinearMap(np.eye(widths[1]), np.zeros(widths[1]))
    shares = (USUAL_WEIGHT, 1 - USUAL_WEIGHT)
    most = len(joined_map(statistics, shares, 0, "auto", exponents, (None, identity)).weight)
    for size in sorted({min(size, most) for size in SIZES}):
        mapping = joined_map(statistics, shares, size, "auto", exponents, (None, identity))
        yield f"k: {size}", material.sets.geometry(applied(mapping, both.scored))


def _calibrations(material: Material) -> Named:
    """The tuned part whitened in part, with the method's own view; and both parts whitened by their sentences."""
    for exponent in EXPONENTS:
        cls = material.cls.whitened(exponent=exponent)
        view = material.second(f"sentences {exponent:g}", partial(_by_sentences, material, exponent=exponent))
        yield f"exponent, of cls alone: {exponent:g}", material.fused(cls=cls)
        yield f"exponent, sentences: {exponent:g}", material.fused(cls, view)
        yield f"exponent, sentences, of view alone: {exponent:g}", material.fused(view=view)
    for shrinkage in SHRINKAGES:
        cls = material.cls.whitened(shrinkage=shrinkage)
        view = material.second(f"shrinkage {shrinkage}", partial(_by_sentences, material, shrinkage=shrinkage))
        yield f"shrinkage, sentences whitened: {shrinkage}", material.fused(cls, view)


def _by_sentences(material: Material, shrinkage: str = "auto", exponent: float = 0.5) -> Part:
    return material.view().whitened(shrinkage, exponent)


def _ideas(material: Material) -> Named:
    """What might push it further; see :mod:`experiments.fused_ideas`."""
    if material.deep:
        for ridge in (1.0, 10.0):
            target = material.cls.whitened().text
            learnt = ideas.learnt_token_weights(material.found, material.text, target, material.weights(), ridge)
            view = material.geometry(material.bag(weights=learnt))
            yield f"idea, learnt token weights: ridge={ridge:g}", material.fused(view=view)
    for a in (1e-4, 1e-3):
        bigrams = material.second(f"bigrams {a:g}", partial(_bigrams, material, a))
        for share in BIGRAM_SHARES:
            yield f"idea, bigrams: share={share:g} a={a:g}", material.fused() * (1 - share) + bigrams * share
    own = material.own_part()
    for ridge in (0.01, 0.1, 1.0):
        rest = ideas.residual_part(material.cls, own, ridge)
        yield (
            f"idea, tuned part less what the view predicts: ridge={ridge:g}",
            material.fused(material.calibrated(rest)),
        )
    for rank in RANKS:
        yield f"idea, low-rank covariance of cls: {rank}", material.fused(ideas.low_rank(material.cls, rank))
    yield "idea, robust covariance of cls", material.fused(ideas.robust(material.cls))
    for shrinkage in (0.01, 0.05, 0.2):
        both = ideas.jointly_whitened(material.cls, own, shrinkage)
        yield f"idea, whitened jointly: shrinkage={shrinkage:g}", material.geometry(both)


def _bigrams(material: Material, a: float) -> Part:
    pieces = material.vocabulary.split(material.sentences)
    return ideas.bigram_part(pieces, material.text, material.scored, a).whitened()
