"""Fused: two views of a sentence in one embedding, a tuned one and a soft bag of the sentence's words.

Contrastive tuning teaches the last layer to tell sentences apart by their meaning, but it loses some of what the words themselves
say; the embedding layer (layer 0) still holds that, and a frequency-weighted mean reads it out. The two make different mistakes.
One forward pass gives both:

    x_1(s) = the tuned sentence embedding, such as H_{l,[CLS]}  after tuning with layer 0 frozen
    x_2(s) = Σ_t w(t) H_{0,t} / Σ_t w(t)                        w(t) = g(t) / n(t) · a / (a + p(t)); [CLS], [SEP] weigh 0
    v(s)   = [√w · c_1 W_1 (x_1 − μ_1) ; √(1 − w) · c_2 W_2 (x_2 − μ_2)]

W_2 whitens the *tokens* of the user's text, and n(t) is the norm that token t then has, so that every word counts by its
weight alone (:mod:`selfguide.calibration.token_statistics`); on a small text their covariance is smoothed with a
general-English prior (:mod:`selfguide.calibration.vocabulary_states`). g(t) is ``piece_weight`` for tokens that continue a word.
With ``whiten`` sentences W_2 whitens the weighted means themselves, as sif does, and n(t) = 1. W_1 = diag(s^−e) Uᵀ whitens
the first view as far as ``tuned_exponent`` e says, since contrast has spread a tuned embedding out already. c_k makes the
mean squared norm of each part 1, so that w alone says how much each counts; by default dev pairs choose it, or it is one
half. With ``dim`` the leading directions of the joined embedding are kept.

The first view is tuned by another method, by default simcse with dropout 0.05 and without a head. It is the embedding that
this method gives: [CLS], or a mean of one or two layers. Dev pairs, if there are any, choose its checkpoint as always. A
view_layer above 0 is a layer of the *tuned* encoder.

Saved as stock modules (:mod:`selfguide.calibration.two_views`), with the statistics beside them, so that more text can be
added without training (``selfguide calibrate``).

This method is new in this package. It builds on SimCSE (Gao, Yao and Chen, EMNLP 2021), SIF (Arora, Liang and Ma, ICLR 2017) and
whitening (Su, Cao, Liu and Ou, 2021).
"""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from sentence_transformers import SentenceTransformer

from selfguide.calibration.frequencies import SOURCES, Vocabulary, piece_weights, sif_weights, word_weights
from selfguide.calibration.linear_maps import LinearMap, joined_map, whitening_map
from selfguide.calibration.moments import check_shrinkage
from selfguide.calibration.text_statistics import Statistics, TextStatistics, measure, warn_if_few
from selfguide.calibration.token_statistics import TokenMeans, measure_tokens
from selfguide.calibration.two_views import calibrated, refuse_unknown_script, two_views
from selfguide.calibration.vocabulary_states import VocabularyStates, vocabulary_states
from selfguide.calibration.weight_choice import best_weight, graded_pairs
from selfguide.errors import UsageError
from selfguide.losses.dropout_contrast import CITATION
from selfguide.methods import registry
from selfguide.methods.base import CalibratedMethod, Method, option_types
from selfguide.methods.search import BATCHES, RATES
from selfguide.options import Above, AtLeast, Between, CheckedOptions, OneOf, parse_value
from selfguide.training.settings import TRAINING_ONLY, TrainingSettings
from selfguide.training.trainer import FitContext, TrainingOutcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from datasets import Dataset

    from selfguide.models.starting_points import StartingPoint
    from selfguide.progress import Reporter

UNTUNED = "none"
BY_DEV = -1.0
"""Weight that leaves the choice to the dev pairs."""
USUAL_WEIGHT = 0.5
"""Weight without dev pairs; on STS-B dev the score hardly changes between 0.4 and 0.55."""
# Options of the method that tunes the first view: the second view must not move.
_FORCED: dict[str, Any] = {"freeze_layer_0": True}
# Options whose own defaults do not suit this method.
_RECIPES: dict[str, dict[str, Any]] = {"simcse": {"dropout": 0.05, "head": False}}


@dataclass(frozen=True)
class FusedOptions(CheckedOptions):
    """Options of the fused embedding."""

    tune: str = "simcse"
    """Method that tunes the first view: simcse, sg-opt, consert, any other that can freeze layer 0, or none."""
    tune_options: str = ""
    """Options of that method, such as "temperature=0.1 dropout=0.1"."""
    weight: Annotated[float, Between(0, 1, or_else=BY_DEV, or_else_means="chosen by the dev pairs")] = BY_DEV
    """Weight of the tuned view, 0 to 1, against the frequency-weighted one; -1: chosen by the dev pairs, or one half if there
    are none."""
    tuned_exponent: Annotated[float, Between(0, 0.5)] = 0.0
    """How far the tuned view is whitened: 0 only centres it, 0.5 whitens it, values between do so in part."""
    view_layer: int = 0
    """Layer of the frequency-weighted view: 0 is the embedding layer, which tuning leaves as it is, -1 the last."""
    a: Annotated[float, Above(0)] = 1e-3
    """a of the weight a / (a + p): the smaller, the less a frequent token counts."""
    frequencies: Annotated[str, OneOf(*SOURCES)] = "both"
    """Where token frequencies come from: table (general English, in the package), text (yours) or both."""
    whiten: Annotated[str, OneOf("tokens", "sentences")] = "tokens"
    """What the weighted view is whitened by: the text's tokens, which then have the same norm, or its sentences."""
    piece_weight: Annotated[float, Between(0, 1, open_low=True)] = 0.6
    """Weight of a token that continues a word, relative to one that begins a word."""
    dim: Annotated[int, AtLeast(0)] = 0
    """Maximum embedding dimension, the largest variance first; 0: all."""
    shrinkage: str = "auto"
    """Shrinkage of each covariance, 0 to 1; auto: none for a large text, Ledoit-Wolf for a small one."""

    def __post_init__(self) -> None:
        """Check the shrinkage too."""
        super().__post_init__()
        check_shrinkage(self.shrinkage)

    @property
    def by_sentences(self) -> bool:
        """Whether the map depends on the covariance of sentence embeddings."""
        return self.tuned_exponent > 0 or self.whiten == "sentences"

    def prior(self, general: VocabularyStates | None) -> Statistics | None:
        """Return the general-English prior of the token statistics, or ``None`` if only the text's own frequencies count."""
        return None if general is None or self.frequencies == "text" else general.prior

    def spread(self, tokens: Statistics, prior: Statistics | None) -> LinearMap:
        """Return the map that whitens tokens, by their statistics and the prior."""
        smoothed = tokens if prior is None else tokens.merge(prior)
        return whitening_map(smoothed.part(0), shrinkage=smoothed.shrinkage(0, self.shrinkage))

    def mapping(
        self, statistics: TextStatistics, prior: Statistics | None = None, by_dev: float | None = None
    ) -> LinearMap:
        """Compute the calibration map.

        Args:
            statistics: The statistics of the text.
            prior: The prior of its token statistics.
            by_dev: The weight that dev pairs chose, used if ``weight`` leaves it to them.

        Returns:
            The map from both views to the embedding.
        """
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
    summary = "two views in one embedding: the tuned one and the frequency-weighted, whitened layer 0 (ours, not in the papers)"
    reference = "builds on simcse, sif and whitening"
    seeded = True
    trains = True
    cost = "one forward pass and a small matrix product"
    made_for = "raw language model"
    Options = FusedOptions
    options: FusedOptions
    defaults = TrainingSettings(batch_size=64, learning_rate=3e-5, warmup=0.0, patience=0)  # SimCSE's
    citation = CITATION
    search = {
        "learning_rate": RATES,
        "batch_size": BATCHES,
        "weight": (0.35, 0.45, 0.5, 0.55, 0.65),
        "tune_options": ("dropout=0.05 head=false", "dropout=0.1 head=false", "dropout=0.1 head=true"),
        "a": (3e-4, 1e-3, 3e-3),
        "piece_weight": (0.6, 1.0),
    }

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.tuner = _tuner(self.options)
        if self.tuner is not None and self.options.tune not in _RECIPES:
            vars(self).update(defaults=self.tuner.defaults)

    def unused_settings(self) -> frozenset[str]:
        """See :meth:`Method.unused_settings`: what the method that tunes the first view does not use."""
        return TRAINING_ONLY if self.tuner is None else self.tuner.unused_settings()

    def check(self) -> None:
        """See :meth:`Method.check`."""
        if self.tuner is not None:
            self.tuner.check()

    def check_start(self, start: StartingPoint, name: str, reporter: Reporter) -> None:
        """See :meth:`Method.check_start`: where nothing is tuned, no default is made for raw models only."""
        if self.tuner is not None:
            super().check_start(start, name, reporter)

    def fit(self, encoder: SentenceTransformer, context: FitContext) -> TrainingOutcome:
        """See :meth:`Method.fit`."""
        options = self.options
        outcome = self._tuned(encoder, context)
        started = time.monotonic()
        vocabulary = Vocabulary.of_encoder(outcome.encoder)
        weights = sif_weights(vocabulary, context.text, options.frequencies, options.a, context.reporter)
        weights *= piece_weights(vocabulary, options.piece_weight)
        tokens = prior = None
        if options.whiten == "tokens":
            general = vocabulary_states(outcome.encoder, vocabulary, options.view_layer)
            prior = options.prior(general)
            tokens, means = self._tokens(outcome.encoder, context, vocabulary)
            # Without any variance (no known word, or one word only) the checks below refuse the text.
            if tokens.moments.scatter.any():
                spread = options.spread(tokens, prior)
                weights /= means.lengths(spread, None if general is None else general.lengths(spread))
        views = two_views(outcome.encoder, options.view_layer, word_weights(vocabulary, weights))
        statistics = TextStatistics(_statistics(views, context), tokens)
        refuse_unknown_script(statistics.sentences, options.weight)
        by_dev = self._weight_by_dev(views, statistics, prior, context)
        warn_if_few(statistics, options.shrinkage, context.reporter, options.by_sentences, with_prior=prior is not None)
        seconds = time.monotonic() - started
        return replace(
            outcome,
            encoder=calibrated(views, options.mapping(statistics, prior, by_dev), statistics),
            seconds=outcome.seconds + seconds,
            sentences_per_second=outcome.sentences_per_second or len(context.text) / max(seconds, 1e-9),
            chosen={} if by_dev is None else {"weight": by_dev},
            best_score=None,  # the tuned view's alone; the run scores the fused embedding
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
            prior = options.prior(vocabulary_states(encoder, Vocabulary.of_encoder(encoder), options.view_layer))
        warn_if_few(statistics, options.shrinkage, reporter, options.by_sentences, with_prior=prior is not None)
        refuse_unknown_script(statistics.sentences, options.weight)
        return options.mapping(statistics, prior, chosen.get("weight"))

    def _tokens(
        self, encoder: SentenceTransformer, context: FitContext, vocabulary: Vocabulary
    ) -> tuple[Statistics, TokenMeans]:
        """Measure the text's tokens: their statistics, and the mean vector of each."""
        size, layer, total = max(64, context.settings.batch_size), self.options.view_layer, len(context.text)
        return measure_tokens(encoder, layer, _batches(context.text), size, context.reporter, vocabulary, total)

    def _weight_by_dev(
        self, views: SentenceTransformer, statistics: TextStatistics, prior: Statistics | None, context: FitContext
    ) -> float | None:
        """Return the weight with the best score on the dev pairs, if there are any and ``weight`` is left to them."""
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
        """Return the fine-tuned encoder, or the input encoder when tuning is off."""
        if self.tuner is None:
            return TrainingOutcome(encoder.eval())
        return self.tuner.fit(encoder, context)


def _tuner(options: FusedOptions) -> Method | None:
    """Make the method that tunes the first view, with the options that the second view requires."""
    if options.tune == UNTUNED:
        if options.tune_options:
            raise UsageError(f"tune none tunes nothing: leave tune_options={options.tune_options!r} out.")
        return None
    cls = registry.method_class(options.tune)
    own = {item.name for item in fields(cls.Options)} - set(cls.preset)
    if cls.family != "tuning" or "freeze_layer_0" not in own:
        raise UsageError(
            f"The method {options.tune} cannot tune for fused: it has no option to freeze layer 0 (freeze_layer_0), which "
            "the second view is made of. Choose simcse, sg-opt, consert or mirror, or none to tune nothing."
        )
    forced = {name: value for name, value in _FORCED.items() if name in own}
    given = _parsed(options.tune_options, option_types(cls.Options))
    for name in forced:
        if name in given:
            raise UsageError(f"fused sets the option {name} of {options.tune} itself: leave it out of tune_options.")
    return registry.make(options.tune, {**_RECIPES.get(options.tune, {}), **given, **forced})


def _parsed(text: str, types: dict[str, Any]) -> dict[str, Any]:
    """Parse ``temperature=0.1 head=true`` to values of the options' types; the method itself checks the names."""
    values: dict[str, Any] = {}
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"tune_options {text!r} cannot be read: {error}.") from None
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise UsageError(f"tune_options are written name=value, separated by blanks; {word!r} is not.")
        name = name.replace("-", "_")
        values[name] = parse_value(value, types.get(name, str), f"tune_options: {name}")
    return values


def _batches(text: Dataset) -> Iterator[list[str]]:
    return (list(rows["sentence"]) for rows in text.iter(batch_size=4096))


def _statistics(views: SentenceTransformer, context: FitContext) -> Statistics:
    width = int(views.get_embedding_dimension() or 0) // 2
    batch_size = max(64, context.settings.batch_size)
    return measure(views, _batches(context.text), (width, width), batch_size, context.reporter, total=len(context.text))
