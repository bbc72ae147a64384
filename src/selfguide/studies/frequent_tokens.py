"""Frequent tokens: what happens to the mean of a sentence's tokens when the most frequent ones are left out of it?

The k tokens that occur most often in the text are left out when the last layer's tokens are averaged; the encoder still
reads them. [CLS], [SEP] and other special tokens are never left out, so that k = 0 is the plain mean and no sentence is
left without a token. For each k there is a score (Spearman of cosine and grade, mean over the tasks) and the mean cosine of
the pairs. Yan et al. show with this that a few frequent words hold the untuned vectors together and blur them, and that
tuning cures it: what leaving tokens out gains before tuning, it should not gain afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from selfguide.comparison.specs import parse_specs
from selfguide.comparison.summary import Value
from selfguide.errors import UsageError
from selfguide.studies.base import FULL, SMALL, Found, Grid, Measurement, Plan, Setup, Study
from selfguide.studies.graded_runs import GradedPairs, Result, by_label, graded_rows, runs_of
from selfguide.studies.measuring import Place
from selfguide.studies.outcome import Column, Entry, Figure, Lines, Outcome, Series, Table, over_seeds

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer
    from torch import Tensor

GRID = "tuned"
UNTUNED = "untuned"
_SHOWN = 10


class FrequentTokens(Study):
    """How many frequent tokens are left out × before and after tuning."""

    # ConSERT's published learning rate goes with long training of a large encoder: in few steps nothing would move.
    small = replace(
        SMALL,
        settings=(*SMALL.settings, "consert.learning_rate=5e-5"),
        values={"removed": (0, 1, 2, 5, 10, 20, 50, 100, 200), "methods": ("consert", "sg-opt")},
    )
    full = replace(
        FULL,
        settings=("consert.learning_rate=5e-6",),
        values={"removed": (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512), "methods": ("consert", "sg-opt", "simcse")},
    )

    def plan(self, setup: Setup) -> Plan:
        methods = setup.values("methods")
        for spec in parse_specs(methods):
            if not any(stage.tuned for stage in spec.stages):
                raise UsageError(
                    f"{spec.label} tunes nothing, so its tokens are the untuned ones; name methods that tune."
                )
        removed = _counts(setup.values("removed"))
        before = Measurement(UNTUNED, _FUNCTION, {"label": None, "seed": None, "removed": removed})
        after = [
            Measurement(run.key, _FUNCTION, {"label": run.label, "seed": run.seed, "removed": removed}, after=(GRID,))
            for run in runs_of(methods, setup.scale.seeds)
        ]
        return Plan((Grid(GRID, tuple(methods), "the tuned encoders", keep=True),), (before, *after))

    def outcome(self, found: Found) -> Outcome:
        untuned = found.results[UNTUNED]
        tuned = by_label(runs_of(found.setup.values("methods"), found.setup.scale.seeds), found.results)
        runs: dict[str, dict[int | None, Result]] = {UNTUNED: {} if untuned is None else {None: untuned}, **tuned}
        curves = {name: _curves(by_seed) for name, by_seed in runs.items()}
        return Outcome((_table(curves), _shares(untuned)), _figures(curves))


_FUNCTION = "selfguide.studies.frequent_tokens:thinned"
Curves = dict[int, tuple[Value | None, Value | None]]
"""By how many tokens are left out: the score and the mean cosine."""


def thinned(place: Place, label: str | None, seed: int | None, removed: Sequence[int]) -> dict[str, Any]:
    """Score and mean cosine of an encoder's mean-pooled tokens for every number of tokens left out."""
    import numpy as np

    from selfguide.correlation import spearman
    from selfguide.evaluation.metrics import similarities

    encoder = place.load_encoder() if label is None else place.kept(GRID, label, seed)
    ranks, tokens, shares = frequency_ranks(encoder, place.sentences(), removed)
    scores: list[list[float]] = [[] for _ in removed]
    cosines: list[list[float]] = [[] for _ in removed]
    tasks = graded_rows(place)
    for rows in tasks:
        pairs = GradedPairs.of(rows)
        vectors = thinned_means(encoder, pairs.sentences, ranks, removed, place.batch_size)
        for number, by_sentence in enumerate(vectors):
            near = similarities(by_sentence[pairs.left], by_sentence[pairs.right], "cosine")
            scores[number].append(100 * spearman(near, pairs.grades))
            cosines[number].append(float(np.mean(near)))
    return {
        "removed": list(removed),
        "scores": [_plain(fmean(values)) for values in scores],
        "cosines": [fmean(values) for values in cosines],
        "by_task": {rows.task.name: [_plain(values[number]) for values in scores] for number, rows in enumerate(tasks)},
        "tokens": tokens,
        "shares": shares,
    }


def frequency_ranks(
    encoder: SentenceTransformer, sentences: Sequence[str], removed: Sequence[int]
) -> tuple[NDArray[np.int64], list[str], list[float]]:
    """By token number, its rank from 0 for the most frequent in the text (special tokens come after all others); the most
    frequent tokens themselves; and for each k the share of the text's tokens that the first k are."""
    import numpy as np
    from datasets import Dataset

    from selfguide.calibration.frequencies import Vocabulary, text_counts

    vocabulary = Vocabulary.of_encoder(encoder)
    counts = text_counts(vocabulary, Dataset.from_dict({"sentence": list(sentences)}))
    # Equally frequent ones in the order of their numbers, so that the same text always gives the same ranks.
    order = np.argsort(-counts, kind="stable")
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order))
    ranks[list(vocabulary.special)] = np.iinfo(np.int64).max
    total = float(counts.sum()) or 1.0
    shares = [float(counts[order[:number]].sum()) / total for number in removed]
    return ranks, [vocabulary.tokens[token] for token in order[:_SHOWN]], shares


def thinned_means(
    encoder: SentenceTransformer,
    sentences: Sequence[str],
    ranks: NDArray[np.int64],
    removed: Sequence[int],
    batch_size: int,
) -> NDArray[np.float32]:
    """Means of the last layer's tokens without the k most frequent: (len(removed), sentences, dim), from one pass."""
    import numpy as np
    import torch

    from selfguide.engine.encode import token_batches
    from selfguide.models.encoders import backbone, input_names
    from selfguide.models.layers import hidden_states, model_inputs, pool

    model, names = backbone(encoder).eval(), input_names(encoder)
    by_token = torch.from_numpy(ranks).to(encoder.device)
    found: NDArray[np.float32] | None = None
    with torch.inference_mode():
        for batch in token_batches(encoder, list(sentences), batch_size):
            features = encoder.preprocess([sentences[number] for number in batch])
            inputs = {name: value.to(encoder.device) for name, value in model_inputs(features, names).items()}
            states = hidden_states(model, inputs)[-1]
            rank = by_token[inputs["input_ids"]]
            means = torch.stack([
                pool(states, _left(inputs["attention_mask"], rank, count), "mean") for count in removed
            ])  # fmt: skip
            if found is None:
                found = np.empty((len(removed), len(sentences), means.shape[-1]), dtype=np.float32)
            found[:, batch] = means.float().cpu().numpy()
    assert found is not None  # GradedPairs refuses a task without sentences
    return found


def _left(mask: Tensor, rank: Tensor, count: int) -> Tensor:
    """The tokens that are averaged; all of them where none would be left (a tokenizer without special tokens)."""
    kept = mask.bool() & (rank >= count)
    return kept | (mask.bool() & ~kept.any(dim=1, keepdim=True))


def _counts(removed: Sequence[int]) -> list[int]:
    if min(removed) < 0:
        raise UsageError(f"removed says how many tokens are left out, from 0 on, not {min(removed)}.")
    return sorted({0, *removed})


def _plain(score: float) -> float | None:
    return None if score != score else score  # NaN: all cosines are the same


# -- what it comes to ------------------------------------------------------------------------------------------------------


def _curves(known: Mapping[int | None, Result]) -> Curves:
    counts = next(iter(known.values()))["removed"] if known else []
    return {
        count: (_value(known, "scores", place), _value(known, "cosines", place)) for place, count in enumerate(counts)
    }


def _value(known: Mapping[int | None, Result], name: str, place: int) -> Value | None:
    numbers = {seed: result[name][place] for seed, result in known.items() if result[name][place] is not None}
    return over_seeds(numbers) if numbers else None


def _table(curves: Mapping[str, Curves]) -> Table:
    counts = sorted({count for curve in curves.values() for count in curve})
    columns = [Column("removed", "tokens left out")]
    columns += [Column(f"score {name}", f"{name}, score", better="high") for name in curves]
    columns += [Column(f"cosine {name}", f"{name}, mean cosine", decimals=3) for name in curves]
    rows: list[dict[str, Entry]] = []
    for count in counts:
        row: dict[str, Entry] = {"removed": count}
        for name, curve in curves.items():
            row[f"score {name}"], row[f"cosine {name}"] = curve.get(count, (None, None))
        rows.append(row)
    note = "The vector is the mean of the last layer's tokens for every row, whatever the method's own vector is."
    return Table("scores", "Score and mean cosine of the pairs", tuple(columns), tuple(rows), (note,))


def _shares(untuned: Mapping[str, Any] | None) -> Table:
    rows: list[dict[str, Entry]] = []
    notes: tuple[str, ...] = ()
    if untuned is not None:
        rows = [
            {"removed": count, "share": 100 * share}
            for count, share in zip(untuned["removed"], untuned["shares"], strict=True)
        ]
        notes = (f"The most frequent tokens of the text: {' '.join(untuned['tokens'])}",)
    columns = (Column("removed", "tokens left out"), Column("share", "% of the text's tokens", decimals=1))
    return Table("shares", "How much of the text they are", columns, tuple(rows), notes)


def _figures(curves: Mapping[str, Curves]) -> tuple[Figure, ...]:
    across = "most frequent tokens left out"
    scores = tuple(Series(name, _points(curve, 0)) for name, curve in curves.items())
    cosines = tuple(Series(name, _points(curve, 1)) for name, curve in curves.items())
    if not any(series.points for series in scores):
        return ()
    return (
        Lines(
            "scores",
            "Score without the most frequent tokens",
            "The score of mean-pooled tokens, before and after tuning; bars are ± one deviation over seeds. The numbers "
            "across stand at equal distances.",
            across,
            "Spearman × 100",
            scores,
        ),
        Lines(
            "cosines",
            "Mean cosine of the pairs without the most frequent tokens",
            "How near the two sentences of a pair are on average, whatever their grade: high where all vectors point the "
            "same way.",
            across,
            "mean cosine",
            cosines,
        ),
    )


def _points(curve: Curves, which: int) -> tuple[tuple[str, Value], ...]:
    """Words across, since the numbers grow by leaps and start at 0."""
    return tuple((str(count), value) for count, both in curve.items() if (value := both[which]) is not None)
