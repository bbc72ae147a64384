"""Frequent tokens: what happens to the mean of a sentence's tokens when the most frequent ones are left out?

The k tokens that occur most often in the evaluated sentences are left out of the mean; the encoder still reads them. As in
the paper, [CLS] and [SEP] count as tokens: they are in every sentence, so they are the two most frequent ones and go first.
The mean is taken over the last two layers, as ConSERT's encoders are evaluated (``layers=1``: over the last alone). A
sentence of which no token would be left keeps them all. For each k there is a score (Spearman of cosine and grade, mean over
the tasks) and the mean cosine of the pairs. Yan et al. show with this that a few frequent tokens dominate the untuned
embeddings and that tuning cures it: leaving tokens out gains much before tuning, and nothing afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from selfguide.calibration.frequencies import Vocabulary
from selfguide.comparison.specs import parse_specs
from selfguide.correlation import spearman
from selfguide.engine.encode import token_batches
from selfguide.engine.tokens import length_limit
from selfguide.errors import UsageError
from selfguide.evaluation.metrics import similarities
from selfguide.models.encoders import backbone, input_names
from selfguide.models.layers import hidden_states, model_inputs, pool
from selfguide.report.plots import Lines, Series
from selfguide.studies.base import FULL, SMALL, Findings, Grid, Measurement, Plan, Setup, Study
from selfguide.studies.context import GradedPairs, MeasurementContext
from selfguide.studies.outcome import Column, Outcome, Table, TableRow, known_series
from selfguide.studies.specs import Result, results_by_label, runs_of
from selfguide.studies.values import Value, known_over_seeds, nan_to_none

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

GRID = "tuned"
UNTUNED = "untuned"
_TOKENS_SHOWN = 10
_CHUNK = 1024
_SCORE_CAPTION = (
    "The score of mean-pooled tokens, before and after tuning; bars are ± one deviation over seeds. The numbers of tokens are "
    "equally spaced."
)
_COSINE_CAPTION = (
    "The mean cosine of a pair's two sentences, whatever their grade: high where all embeddings point the same way."
)
_SHARE = Column("share", "% of the evaluated tokens", decimals=1)
_NOTE = (
    "The vector is the mean of the tokens over the last {layers} for every row, whatever the method's own vector is."
)
Runs = Mapping[str, Mapping[int | None, Result]]
"""Results by label and seed."""
Values = dict[str, dict[int, Value | None]]
"""A number over the seeds, by label and number of tokens left out."""


class FrequentTokens(Study):
    """How many frequent tokens are left out × before and after tuning."""

    name = "frequent-tokens"
    title = "Frequent tokens"
    question = "Do a few frequent tokens spoil the mean of a sentence, before and after tuning?"
    reference = "Yan et al., ACL 2021"
    # ConSERT's published learning rate is for long training of a large encoder; in few steps nothing would move.
    small = replace(
        SMALL,
        settings=(*SMALL.settings, "consert.learning_rate=5e-5"),
        values={"removed": (0, 1, 2, 4, 8, 16, 32, 64, 128, 256), "methods": ("consert", "sg-opt"), "layers": (2,)},
    )
    full = replace(
        FULL,
        settings=("consert.learning_rate=5e-6",),
        values={
            "removed": (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
            "methods": ("consert", "sg-opt", "simcse"),
            "layers": (2,),
        },
    )

    def plan(self, setup: Setup) -> Plan:
        """See :meth:`Study.plan`."""
        methods, removed = setup.values("methods"), setup.values("removed")
        for spec in parse_specs(methods):
            if not any(stage.tuned for stage in spec.stages):
                raise UsageError(
                    f"{spec.label} tunes nothing, so its tokens are the untuned ones; name methods that tune."
                )
        if min(removed) < 0:
            raise UsageError(f"removed says how many tokens are left out, from 0 on, not {min(removed)}.")
        function, counts, layers = f"{__name__}:thinned", sorted({0, *removed}), _layers(setup)
        before = Measurement(UNTUNED, function, {"label": None, "seed": None, "removed": counts, "layers": layers})
        after = [
            run.measurement(function, GRID, removed=counts, layers=layers)
            for run in runs_of(methods, setup.scale.seeds)
        ]
        return Plan((Grid(GRID, tuple(methods), "the tuned encoders", keep=True),), (before, *after))

    def outcome(self, findings: Findings) -> Outcome:
        """See :meth:`Study.outcome`."""
        untuned = findings.results[UNTUNED]
        tuned = results_by_label(
            runs_of(findings.setup.values("methods"), findings.setup.scale.seeds), findings.results
        )
        runs: Runs = {UNTUNED: {} if untuned is None else {None: untuned}, **tuned}
        scores, cosines = _values(runs, "scores"), _values(runs, "cosines")
        columns = [Column("removed", "tokens left out")]
        columns += [Column(f"score {name}", f"{name}, score", better="high") for name in runs]
        columns += [Column(f"cosine {name}", f"{name}, mean cosine", decimals=3) for name in runs]
        rows: list[TableRow] = []
        for count in sorted({count for by_count in scores.values() for count in by_count}):
            row: TableRow = {"removed": count, **{f"score {name}": scores[name].get(count) for name in runs}}
            rows.append({**row, **{f"cosine {name}": cosines[name].get(count) for name in runs}})
        found = untuned or {"removed": [], "shares": []}
        shares: list[TableRow] = [
            {"removed": count, "share": 100 * share}
            for count, share in zip(found["removed"], found["shares"], strict=True)
        ]
        notes = (
            [f"The most frequent tokens of {untuned['tokens_of']}: {' '.join(untuned['tokens'])}"] if untuned else []
        )
        layers = _layers(findings.setup)
        of_layers = "layer" if layers == 1 else f"{layers} layers"
        tables = [
            Table("scores", "Score and mean cosine of the pairs", columns, rows, [_NOTE.format(layers=of_layers)]),
            Table("shares", "How much of the evaluated sentences they are", [columns[0], _SHARE], shares, notes),
        ]
        without, axis = "without the most frequent tokens", "most frequent tokens left out"
        title, series = f"Mean cosine of the pairs {without}", _series(scores)
        figures = [
            Lines("scores", f"Score {without}", _SCORE_CAPTION, axis, "Spearman × 100", series),
            Lines("cosines", title, _COSINE_CAPTION, axis, "mean cosine", _series(cosines)),
        ]
        return Outcome(tables, figures if any(line.points for line in series) else [])


def _layers(setup: Setup) -> int:
    """Return how many of the last layers are averaged."""
    layers = setup.value("layers")
    if layers < 1:
        raise UsageError(f"layers says how many of the last layers are averaged, from 1 on, not {layers}.")
    return int(layers)


def _series(values: Values) -> tuple[Series, ...]:
    # Words on the axis, since the numbers grow in leaps and start at 0.
    return known_series({name: [(str(count), value) for count, value in of.items()] for name, of in values.items()})


def _values(runs: Runs, name: str) -> Values:
    return {
        label: {
            count: known_over_seeds({seed: result[name][index] for seed, result in by_seed.items()})
            for index, count in enumerate(next(iter(by_seed.values()))["removed"] if by_seed else [])
        }
        for label, by_seed in runs.items()
    }


# -- measuring -----------------------------------------------------------------------------------------------------------


def thinned(
    context: MeasurementContext, label: str | None, seed: int | None, removed: Sequence[int], layers: int
) -> dict[str, Any]:
    """Measure score and mean cosine of an encoder's mean-pooled tokens, for every number of tokens left out.

    Args:
        context: What the study runs on.
        label: The row; ``None`` for the untuned encoder.
        seed: Its seed.
        removed: Numbers of frequent tokens to leave out.
        layers: How many of the last layers are averaged.

    Returns:
        Score and mean cosine by number, as the study's record keeps them.
    """
    encoder = context.load_encoder() if label is None else context.kept_encoder(GRID, label, seed)
    scores: list[list[float]] = [[] for _ in removed]
    cosines: list[list[float]] = [[] for _ in removed]
    shares: list[list[float]] = [[] for _ in removed]
    tokens: list[str] = []
    tasks = context.graded_tasks()
    for rows in tasks:
        pairs = GradedPairs.of(rows, differing=True)
        left, right = pairs.indices
        ranks, most_frequent, of_task = frequency_ranks(encoder, pairs.sentences, removed)
        tokens = tokens or most_frequent
        for number, share in enumerate(of_task):
            shares[number].append(share)
        means = thinned_means(encoder, pairs.sentences, ranks, removed, context.batch_size, layers)
        for number, vectors in enumerate(means):
            near = similarities(vectors[left], vectors[right], "cosine")
            scores[number].append(100 * spearman(near, pairs.grades))
            cosines[number].append(float(np.mean(near)))
    return {
        "removed": list(removed),
        "scores": [nan_to_none(fmean(values)) for values in scores],
        "cosines": [fmean(values) for values in cosines],
        "by_task": {
            rows.task.name: [nan_to_none(values[number]) for values in scores] for number, rows in enumerate(tasks)
        },
        "tokens": tokens,
        "tokens_of": tasks[0].task.name,
        "shares": [fmean(values) for values in shares],
    }


def frequency_ranks(
    encoder: SentenceTransformer, sentences: Sequence[str], removed: Sequence[int]
) -> tuple[NDArray[np.int64], list[str], list[float]]:
    """Rank the encoder's tokens by their frequency in the sentences that are evaluated, [CLS] and [SEP] included.

    Args:
        encoder: Its tokenizer is used.
        sentences: The sentences.
        removed: Numbers k of most frequent tokens.

    Returns:
        The rank of each token id, from 0 for the most frequent; the most frequent tokens; and for each k the share of the
        sentences' tokens that the first k make up.
    """
    vocabulary = Vocabulary.of_encoder(encoder)
    counts = np.zeros(len(vocabulary.tokens), dtype=np.int64)
    limit = length_limit(encoder)
    for start in range(0, len(sentences), _CHUNK):
        rows = encoder.tokenizer(list(sentences[start : start + _CHUNK]), truncation=True, max_length=limit)[
            "input_ids"
        ]
        for ids in rows:
            np.add.at(counts, ids, 1)
    # A stable sort keeps equally frequent tokens in the order of their ids, so that a text always gives the same ranks.
    order = np.argsort(-counts, kind="stable")
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order))
    total = float(counts.sum()) or 1.0
    shares = [float(counts[order[:number]].sum()) / total for number in removed]
    return ranks, [vocabulary.tokens[token] for token in order[:_TOKENS_SHOWN]], shares


def thinned_means(
    encoder: SentenceTransformer,
    sentences: Sequence[str],
    ranks: NDArray[np.int64],
    removed: Sequence[int],
    batch_size: int,
    layers: int = 2,
) -> NDArray[np.float32]:
    """Average the tokens of the last layers without the k most frequent ones, from one pass over the sentences.

    Args:
        encoder: The encoder.
        sentences: What to encode.
        ranks: The frequency rank of each token id.
        removed: Values of k.
        batch_size: Sentences per forward pass.
        layers: How many of the last layers are averaged.

    Returns:
        An array of shape (len(removed), sentences, dimension).
    """
    model, names = backbone(encoder).eval(), input_names(encoder)
    by_token = torch.from_numpy(ranks).to(encoder.device)
    found: NDArray[np.float32] | None = None
    with torch.inference_mode():
        for batch in token_batches(encoder, list(sentences), batch_size):
            features = encoder.preprocess([sentences[number] for number in batch])
            inputs = {name: value.to(encoder.device) for name, value in model_inputs(features, names).items()}
            states = torch.stack(list(hidden_states(model, inputs)[-layers:])).mean(dim=0)
            mask, rank = inputs["attention_mask"].bool(), by_token[inputs["input_ids"]]
            means = torch.stack([pool(states, _kept(mask, rank, count), "mean") for count in removed])
            if found is None:
                found = np.empty((len(removed), len(sentences), means.shape[-1]), dtype=np.float32)
            found[:, batch] = means.float().cpu().numpy()
    assert found is not None  # GradedPairs.of refuses a task without sentences
    return found


def _kept(mask: Tensor, rank: Tensor, count: int) -> Tensor:
    """Select the tokens to average; all of them where none would be left."""
    kept = mask & (rank >= count)
    return kept | (mask & ~kept.any(dim=1, keepdim=True))
