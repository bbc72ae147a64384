"""Fused: two views of a sentence in one vector, a tuned vector and a soft bag of the sentence's words.

Contrastive tuning teaches the last layer to tell sentences apart by their meaning, but it also loses some of what the
words themselves say; the embedding layer (layer 0) still holds that, and a mean weighted by frequency reads it off. The two
make different mistakes. One forward pass gives both:

    x_1(s) = the tuned sentence vector, such as H_{l,[CLS]}     after tuning with layer 0 frozen
    x_2(s) = Σ_t w(t) H_{0,t} / Σ_t w(t)                        w(t) = g(t) / n(t) · a / (a + p(t)); [CLS], [SEP] weigh 0
    v(s)   = [√w · c_1 W_1 (x_1 − μ_1) ; √(1 − w) · c_2 W_2 (x_2 − μ_2)]

W_2 whitens the *tokens* of the user's text, and n(t) is the length that token t then has, so that every word counts by its
weight alone (:mod:`selfguide.calibration.token_statistics`); of a small text the covariance is eked out with that of general
English (:mod:`selfguide.calibration.general_tokens`). g(t) is ``piece_weight`` for pieces that go on with a word. With
``whiten`` sentences W_2 whitens the weighted means themselves, as sif does, and n(t) = 1. W_1 = diag(s^−e) Uᵀ whitens the first
view as far as ``tuned_exponent`` e says: contrast has spread a tuned vector out already. c_k makes the mean squared length of
each part 1, so that w alone says how much each counts; if none is told, dev pairs choose it, or it is a half. With ``dim`` the
leading directions of the joined vector are kept.

The first view is tuned by another method of the registry, simcse unless told otherwise: with dropout 0.05 and without a head.
It is the vector that this method hands out: [CLS], or a mean of one or two layers. Dev pairs, if there are any, choose its
checkpoint as they always do. A view_layer above 0 is a layer of the *tuned* encoder.

Saved as stock modules (:mod:`selfguide.calibration.fused_modules`), with the statistics beside them, so that more text can
be added without training (``selfguide calibrate``).

This method is ours. It builds on SimCSE (Gao, Yao and Chen, EMNLP 2021), SIF (Arora, Liang and Ma, ICLR 2017) and whitening
(Su, Cao, Liu and Ou, 2021).
"""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sentence_transformers import SentenceTransformer

from selfguide.calibration.frequencies import Vocabulary, check_source, piece_weights, sif_weights, word_weights
from selfguide.calibration.fused_modules import calibrated, refuse_unknown_script, two_views
from selfguide.calibration.general_tokens import GeneralTokens, general_tokens
from selfguide.calibration.parted_statistics import Statistics, TextStatistics, joined_map, measure, warn_if_few
from selfguide.calibration.statistics import LinearMap, check_shrinkage, whitening_map
from selfguide.calibration.token_statistics import TokenMeans, measure_tokens
from selfguide.calibration.weight_choice import best_weight, graded_pairs
from selfguide.errors import UsageError
from selfguide.losses.dropout_contrast import CITATION
from selfguide.methods import registry
from selfguide.methods.base import CalibratedMethod, Method, option_types
from selfguide.models.encoders import load_encoder
from selfguide.options import require_types
from selfguide.training.settings import TrainingSettings
from selfguide.training.trainer import FitContext, TrainingOutcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from datasets import Dataset

    from selfguide.progress import Reporter

UNTUNED = "none"
WHITEN = ("tokens", "sentences")
BY_DEV = -1.0
USUAL_WEIGHT = 0.5
"""Without dev pairs; on STS-B dev the score hardly changes between 0.4 and 0.55."""
# What the two views ask of any method that tunes the first: the second must not move.
_FORCED: dict[str, Any] = {"freeze_layer_0": True}
# Where the method's own defaults are not what this one wants.
_RECIPES: dict[str, dict[str, Any]] = {"simcse": {"dropout": 0.05, "head": False}}


@dataclass(frozen=True)
class FusedOptions:
    """Options of the fused vector."""

    tune: str = "simcse"
    """Method that tunes the first view: simcse, sg-opt, consert, any other that can freeze layer 0, or none."""
    tune_options: str = ""
    """Options of that method, such as "temperature=0.1 dropout=0.1"."""
    weight: float = BY_DEV
    """Share of the tuned vector, 0 to 1, the rest is the frequency-weighted view's; -1: what suits the dev pairs best, or half
    if there are none."""
    tuned_exponent: float = 0.0
    """How far the tuned vector is whitened: 0 takes off its mean alone, 0.5 whitens it, what is between does it in part."""
    view_layer: int = 0
    """Layer of the frequency-weighted view: 0 is the embedding layer, which tuning leaves as it is, -1 the last."""
    a: float = 1e-3
    """a of the weight a / (a + p): the smaller, the less a frequent token counts."""
    frequencies: str = "both"
    """Where token frequencies come from: table (general English, in the package), text (yours) or both."""
    whiten: str = "tokens"
    """What the weighted view is whitened by: the text's tokens, each then of one length, or its sentences."""
    piece_weight: float = 0.6
    """What a token that goes on with a word counts beside one that begins a word."""
    dim: int = 0
    """How many numbers the vector has at most, the largest variance first; 0: all."""
    shrinkage: str = "auto"
    """Share of a sphere mixed into each covariance, 0 to 1; auto: none for a large text, Ledoit-Wolf for a small one."""

    def __post_init__(self) -> None:
        require_types(self)
        if not (0 <= self.weight <= 1 or self.weight == BY_DEV):
            raise UsageError(f"weight is a share from 0 to 1, or -1 to leave it to the dev pairs, got {self.weight}.")
        if not 0 <= self.tuned_exponent <= 0.5:
            raise UsageError(f"tuned_exponent is a number from 0 to 0.5, got {self.tuned_exponent}.")
        if not self.a > 0:
            raise UsageError(f"a must be above 0, got {self.a}.")
        check_source(self.frequencies)
        if self.whiten not in WHITEN:
            raise UsageError(f"whiten must be one of {', '.join(WHITEN)}, got {self.whiten!r}.")
        if not 0 < self.piece_weight <= 1:
            raise UsageError(f"piece_weight is a number above 0, up to 1, got {self.piece_weight}.")
        if self.dim < 0:
            raise UsageError(f"dim must be at least 0, got {self.dim}.")
        check_shrinkage(self.shrinkage)

    @property
    def by_sentences(self) -> bool:
        """Whether the covariance of sentence vectors decides anything."""
        return self.tuned_exponent > 0 or self.whiten == "sentences"

    def prior(self, general: GeneralTokens | None) -> Statistics | None:
        """What stands in for the tokens that a small text lacks: general English, where the table's frequencies are wanted."""
        return None if general is None or self.frequencies == "text" else general.prior

    def spread(self, tokens: Statistics, prior: Statistics | None) -> LinearMap:
        """What whitens tokens, by their statistics."""
        eked = tokens if prior is None else tokens.merge(prior)
        return whitening_map(eked.part(0), shrinkage=eked.shrinkage(0, self.shrinkage))

    def mapping(
        self, statistics: TextStatistics, prior: Statistics | None = None, by_dev: float | None = None
    ) -> LinearMap:
        """The calibration by the statistics of a text; ``by_dev``: the weight that dev pairs chose, where none is told."""
        weight = self.weight
        if weight == BY_DEV:
            weight = USUAL_WEIGHT if by_dev is None else by_dev
        shares, exponents = (weight, 1 - weight), (self.tuned_exponent, 0.5)
        tokens = statistics.tokens if weight < 1 else None
        spreads = None if tokens is None else (None, self.spread(tokens, prior))
        return joined_map(statistics.sentences, shares, self.dim, self.shrinkage, exponents, spreads)


class Fused(CalibratedMethod):
    """``--method fused``."""

    name = "fused"
    family = "tuning"
    summary = (
        "two views in one vector: the tuned one and the frequency-weighted, whitened layer 0 (ours, not in the papers)"
    )
    reference = "builds on simcse, sif and whitening"
    seeded = True
    trains = True
    cost = "one forward pass and a small matrix product"
    Options = FusedOptions
    options: FusedOptions
    defaults = TrainingSettings(batch_size=64, learning_rate=3e-5, max_length=128)
    citation = CITATION

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.tuner = _tuner(self.options)
        if self.tuner is not None and self.options.tune not in _RECIPES:
            # Another method trains with its own settings. Only the length stays: both views see as much of a sentence.
            own = replace(self.tuner.defaults, max_length=self.defaults.max_length)
            vars(self).update(defaults=own, few_steps=self.tuner.few_steps)

    def check(self) -> None:
        if self.tuner is not None:
            self.tuner.check()

    def fit(self, encoder: SentenceTransformer, context: FitContext) -> TrainingOutcome:
        options = self.options
        outcome = self._tuned(encoder, context)
        started = time.monotonic()
        vocabulary = Vocabulary.of_encoder(outcome.encoder)
        weights = sif_weights(vocabulary, context.text, options.frequencies, options.a, context.reporter)
        weights *= piece_weights(vocabulary, options.piece_weight)
        tokens = prior = None
        if options.whiten == "tokens":
            general = general_tokens(outcome.encoder, vocabulary, options.view_layer)
            prior = options.prior(general)
            tokens, means = self._tokens(outcome.encoder, context, vocabulary)
            # No word that the tokenizer knows, or the same one over and over: what follows refuses it in words.
            if tokens.moments.scatter.any():
                spread = options.spread(tokens, prior)
                weights /= means.lengths(spread, None if general is None else general.lengths(spread))
        views = two_views(outcome.encoder, options.view_layer, word_weights(vocabulary, weights))
        statistics = TextStatistics(_statistics(views, context), tokens)
        refuse_unknown_script(statistics.sentences, options.weight)
        by_dev = self._weight_by_dev(views, statistics, prior, context)
        warn_if_few(statistics, options.shrinkage, context.reporter, options.by_sentences, eked_out=prior is not None)
        seconds = time.monotonic() - started
        return replace(
            outcome,
            encoder=calibrated(views, options.mapping(statistics, prior, by_dev), statistics),
            seconds=outcome.seconds + seconds,
            sentences_per_second=outcome.sentences_per_second or len(context.text) / max(seconds, 1e-9),
            chosen={} if by_dev is None else {"weight": by_dev},
            best_score=None,  # it was that of the tuned vector alone; the run scores the vector that is handed out
        )

    def part_widths(self, width: int) -> tuple[int, ...]:
        """See :meth:`CalibratedMethod.part_widths`: the tuned embedding and the view of layer 0."""
        return (width // 2, width // 2)

    def text_statistics(
        self, encoder: SentenceTransformer, text: Iterable[list[str]], batch_size: int, reporter: Reporter
    ) -> TextStatistics:
        """See :meth:`CalibratedMethod.text_statistics`."""
        widths = self.part_widths(int(encoder[-1].in_features))
        views = self.without_map(encoder)
        if self.options.whiten != "tokens":
            return TextStatistics(measure(views, text, widths, batch_size, reporter))
        found = TextStatistics(Statistics.empty(widths), Statistics.empty(widths[1:]))
        vocabulary = Vocabulary.of_encoder(encoder)
        for chunk in text:
            tokens, _ = measure_tokens(
                encoder, self.options.view_layer, [chunk], batch_size, reporter, vocabulary, len(chunk)
            )
            vectors = measure(views, [chunk], widths, batch_size, reporter, total=len(chunk))
            found = found.merge(TextStatistics(vectors, tokens))
        return found

    def refit(
        self,
        encoder: SentenceTransformer,
        statistics: TextStatistics,
        reporter: Reporter,
        chosen: Mapping[str, float],
    ) -> LinearMap:
        """See :meth:`CalibratedMethod.refit`. The prior follows from the encoder, so the folder does not keep it."""
        options, prior = self.options, None
        if options.whiten == "tokens":
            prior = options.prior(general_tokens(encoder, Vocabulary.of_encoder(encoder), options.view_layer))
        warn_if_few(statistics, options.shrinkage, reporter, options.by_sentences, eked_out=prior is not None)
        refuse_unknown_script(statistics.sentences, options.weight)
        return options.mapping(statistics, prior, chosen.get("weight"))

    def _tokens(
        self, encoder: SentenceTransformer, context: FitContext, vocabulary: Vocabulary
    ) -> tuple[Statistics, TokenMeans]:
        """The statistics of the text's tokens, and the mean vector of each of them."""
        size, layer, total = max(64, context.settings.batch_size), self.options.view_layer, len(context.text)
        return measure_tokens(encoder, layer, _batches(context.text), size, context.reporter, vocabulary, total)

    def _weight_by_dev(
        self, views: SentenceTransformer, statistics: TextStatistics, prior: Statistics | None, context: FitContext
    ) -> float | None:
        """The weight that suits the dev pairs best, if there are any and no weight is told."""
        pairs = graded_pairs(context.dev) if self.options.weight == BY_DEV else None
        if pairs is None:
            return None
        first, second, grades = pairs
        both = views.encode([*first, *second], batch_size=max(64, context.settings.batch_size), show_progress_bar=False)
        parts = []
        for alone in (1.0, 0.0):
            mapping = replace(self.options, weight=alone, dim=0).mapping(statistics, prior)
            vectors = np.asarray(both, dtype=np.float64) @ mapping.weight.T + mapping.bias
            parts.append((vectors[: len(first)], vectors[len(first) :]))
        return best_weight(parts[0], parts[1], grades, USUAL_WEIGHT)

    def _tuned(self, encoder: SentenceTransformer, context: FitContext) -> TrainingOutcome:
        """The tuned encoder, or the one that came."""
        if self.tuner is None:
            return TrainingOutcome(load_encoder(encoder, max_length=context.settings.max_length).eval())
        return self.tuner.fit(encoder, context)


def _tuner(options: FusedOptions) -> Method | None:
    """The method that tunes the first view, with the options that the second view needs it to have."""
    if options.tune == UNTUNED:
        if options.tune_options:
            raise UsageError(f"tune none tunes nothing: leave tune_options={options.tune_options!r} out.")
        return None
    cls = registry.method_class(options.tune)
    own = {item.name for item in fields(cls.Options)} - set(cls.preset)
    if cls.family != "tuning" or "freeze_layer_0" not in own:
        raise UsageError(
            f"The method {options.tune} cannot tune for fused: it cannot be told to leave layer 0 as it is (freeze_layer_0), "
            "which the second view is made of. Choose simcse, sg-opt, consert or mirror, or none to tune nothing."
        )
    forced = {name: value for name, value in _FORCED.items() if name in own}
    given = _parsed(options.tune_options, option_types(cls.Options))
    for name in forced:
        if name in given:
            raise UsageError(f"fused sets the option {name} of {options.tune} itself: leave it out of tune_options.")
    return registry.make(options.tune, {**_RECIPES.get(options.tune, {}), **given, **forced})


def _parsed(text: str, types: dict[str, Any]) -> dict[str, Any]:
    """``temperature=0.1 head=true`` as values of the options' types; names are checked where the method is made."""
    values: dict[str, Any] = {}
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"tune_options {text!r} cannot be read: {error}.") from None
    for word in words:
        name, equals, value = word.partition("=")
        name, kind = name.replace("-", "_"), types.get(name.replace("-", "_"), str)
        if not equals:
            raise UsageError(f"tune_options are written name=value, separated by blanks; {word!r} is not.")
        try:
            values[name] = {"true": True, "false": False}[value.lower()] if kind is bool else kind(value)
        except (KeyError, ValueError):
            raise UsageError(f"tune_options: {name} cannot be {value!r}.") from None
    return values


def _batches(text: Dataset) -> Iterator[list[str]]:
    return (list(rows["sentence"]) for rows in text.iter(batch_size=4096))


def _statistics(views: SentenceTransformer, context: FitContext) -> Statistics:
    width = int(views.get_embedding_dimension() or 0) // 2
    batch_size = max(64, context.settings.batch_size)
    return measure(views, _batches(context.text), (width, width), batch_size, context.reporter, total=len(context.text))
