"""Show what each part of a fused vector is good at, and what whitening does to frequent words.

    SELFGUIDE_DATA=folder python -m experiments.fused.evidence FOLDER --pairs 150            # a folder of --method fused

The vector is taken apart into the tuned [CLS], the frequency-weighted view, and both; each as it is and whitened by the
statistics that the folder keeps. Reported on the seven STS sets and the pairs of domain/*.tsv:

    by set       Spearman × 100 on each subset of each set
    by length    on pairs of short, medium and long sentences
    by overlap   on pairs that share few or many content words (Jaccard; content: not among the 100 most frequent words)
    frequent     how much of the vectors' variance the counts of the 100 most frequent words explain, how far the cosine
                 follows the overlap of frequent and of content words, and how far a vector moves without its frequent words

Bins mix sets, whose grades are not on one scale: their Spearman is taken within each set and averaged by number of pairs.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from experiments.fused.parts import Floats, GradedSets, Vectors, applied
from experiments.provenance import RESULTS, command_parser, provenance, write
from selfguide.calibration.frequencies import Vocabulary, count_words, english_table
from selfguide.calibration.linear_maps import joined_map
from selfguide.calibration.text_statistics import STATISTICS_FILE, Statistics, TextStatistics
from selfguide.calibration.vocabulary_states import vocabulary_states
from selfguide.correlation import spearman
from selfguide.engine.encode import sentence_vectors
from selfguide.errors import SelfguideError
from selfguide.evaluation.evaluate import load_tasks
from selfguide.evaluation.protocol import Protocol
from selfguide.evaluation.rows import TaskData
from selfguide.methods.fused import BY_DEV, USUAL_WEIGHT, Fused, FusedOptions
from selfguide.models.encoders import load_encoder
from selfguide.training.configuration import RUN_FILE

FREQUENT = 100
FEWEST = 20
"""Pairs of a set in a bin that are needed for a correlation."""
LENGTHS = ((0, 8), (8, 14), (14, 22), (22, 10_000))
OVERLAPS = ((0.0, 0.15), (0.15, 0.35), (0.35, 0.6), (0.6, 1.01))
VARIANTS = ("tuned [CLS]", "view", "both", "tuned [CLS], whitened", "view, whitened", "both, whitened")


@dataclass(frozen=True)
class Pairs:
    """All pairs as one list, with the properties that they are binned by."""

    subsets: NDArray[np.str_]
    grades: Floats
    lengths: Floats
    content: Floats
    """Overlap of content words."""
    frequent: Floats
    """Overlap of frequent words."""


def main() -> None:
    """Measure a folder, and write the results file and its figure."""
    arguments = _arguments()
    folder = Path(arguments.folder)
    record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    if record["config"]["method"] != "fused":
        raise SelfguideError(f"{folder} was made by {record['config']['method']}, not by fused.")
    sets = GradedSets.of(_subset_tasks(arguments.data), arguments.pairs)
    raw = np.asarray(sentence_vectors(Fused.without_map(load_encoder(folder)), sets.sentences, 64))
    vectors = _take_apart(raw, folder, record["config"]["options"])
    pairs = _pairs(sets)
    cosines = {name: sets.geometry(vectors[name]).cosines() for name in VARIANTS}
    content = {
        **provenance(
            record["config"]["encoder"],
            folder,
            text={
                "name": record["text"].get("files", record["config"]["text"]),
                "fingerprint": record["text"].get("fingerprint", ""),
            },
            seeds=[record["config"]["training"]["seed"]],
        ),
        "options": record["config"]["options"],
        "protocol": f"Spearman x 100 of cosine; at most {arguments.pairs} pairs a subset, drawn at random",
        "pairs": len(pairs.grades),
        "by set": _by_set(pairs, cosines),
        "by length": _binned(pairs, cosines, pairs.lengths, LENGTHS, "{} to {} words"),
        "by overlap": _binned(pairs, cosines, pairs.content, OVERLAPS, "{:g} to {:g}"),
        "frequent words": _frequent_words(folder, record["config"]["options"], sets, vectors, pairs, cosines),
    }
    write(arguments.out, content)
    _draw(content, arguments.out.with_suffix(".svg"))


def _subset_tasks(data: str | None) -> list[TaskData]:
    """Return each subset of the STS sets as a task of its own, and the domain pairs."""
    domains = sorted(Path(data or "").joinpath("domain").glob("*.tsv"))
    found = []
    for task in load_tasks("sts", domains, data, Protocol(), download=False):
        for part in task.parts:
            name = task.task.name if len(task.parts) == 1 else f"{task.task.name} {part.part}"
            found.append(TaskData(replace(task.task, name=name), (part,), task.source, task.digest))
    return found


def _take_apart(raw: Vectors, folder: Path, options: dict[str, Any]) -> dict[str, Vectors]:
    """Return the parts of [x_1 ; x_2], as they are and whitened by the folder's statistics; ``both`` has its weight."""
    kept = TextStatistics.load(folder / STATISTICS_FILE)
    statistics = kept.sentences
    weight, (first, second) = options["weight"], statistics.slices
    by_dev = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))["chosen"].get("weight", USUAL_WEIGHT)
    share = by_dev if weight == BY_DEV else weight
    # Unwhitened parts are scaled to the same mean squared length on the text before they are joined.
    sizes = [np.sqrt(np.trace(part.covariance) + part.mean @ part.mean) for part in map(statistics.part, range(2))]
    halves = [np.sqrt(share) * raw[:, first] / sizes[0], np.sqrt(1 - share) * raw[:, second] / sizes[1]]
    given = FusedOptions(**{item.name: options[item.name] for item in fields(FusedOptions) if item.name in options})
    spreads = None if kept.tokens is None else (None, given.spread(kept.tokens, _prior(folder, given)))
    maps = [
        joined_map(statistics, shares, 0, given.shrinkage, (given.tuned_exponent, 0.5), spreads)
        for shares in ((1, 0), (0, 1), (share, 1 - share))
    ]
    white = [applied(mapping, raw) for mapping in maps]
    return dict(
        zip(
            VARIANTS,
            (raw[:, first], raw[:, second], np.concatenate(halves, axis=1).astype(np.float32), *white),
            strict=True,
        )
    )


def _prior(folder: Path, options: FusedOptions) -> Statistics | None:
    """Return the prior that smoothed the folder's token statistics."""
    encoder = load_encoder(folder)
    return options.prior(vocabulary_states(encoder, Vocabulary.of_encoder(encoder), options.view_layer))


def _frequent_words(
    folder: Path,
    options: dict[str, Any],
    sets: GradedSets,
    vectors: dict[str, Vectors],
    pairs: Pairs,
    cosines: dict[str, Floats],
) -> dict[str, dict[str, float]]:
    """Measure how the 100 most frequent words bear on the vectors, before and after whitening."""
    moved = _moved(folder, options, sets.sentences)
    counts = _frequent_counts(sets.sentences)
    found: dict[str, dict[str, float]] = {}
    for name in VARIANTS:
        found[name] = {
            "variance that counts of frequent words explain, %": 100 * _explained(counts, vectors[name]),
            "Spearman of cosine and overlap of frequent words": 100 * spearman(pairs.frequent, cosines[name]),
            "Spearman of cosine and overlap of content words": 100 * spearman(pairs.content, cosines[name]),
            **moved[name],
        }
    return found


def _explained(counts: Floats, vectors: Vectors) -> float:
    """Return the R² of a linear regression of the vectors on the counts, over all dimensions."""
    deviations = vectors.astype(np.float64) - vectors.mean(axis=0)
    regressors = counts - counts.mean(axis=0)
    solution, *_ = np.linalg.lstsq(regressors, deviations, rcond=None)
    rest = deviations - regressors @ solution
    # Adjusted R²: as many random regressors would explain a part of the variance too.
    freedom = (len(vectors) - 1) / max(1, len(vectors) - regressors.shape[1] - 1)
    return float(1 - freedom * (rest**2).sum() / (deviations**2).sum())


def _moved(
    folder: Path, options: dict[str, Any], sentences: Sequence[str], most: int = 300
) -> dict[str, dict[str, float]]:
    """Return the mean cosine of a sentence to itself without its frequent words, and without as many content words."""
    kept = []
    for sentence in sentences:
        words = sentence.split()
        frequent = [place for place, word in enumerate(words) if word.lower().strip(".,!?;:'\"") in _frequent_set()]
        content = [place for place in range(len(words)) if place not in frequent]
        if 2 <= len(frequent) < len(content):
            drop = set(content[:: max(1, len(content) // len(frequent))][: len(frequent)])
            without = [
                " ".join(w for place, w in enumerate(words) if place not in out) for out in (set(frequent), drop)
            ]
            kept.append((sentence, *without))
        if len(kept) == most:
            break
    encoder = Fused.without_map(load_encoder(folder))
    versions = [
        _take_apart(np.asarray(sentence_vectors(encoder, list(texts), 64)), folder, options)
        for texts in zip(*kept, strict=True)
    ]
    return {
        name: {
            f"cosine to itself without {what} words": float(np.mean(_cosine(versions[0][name], versions[number][name])))
            for number, what in ((1, "its frequent"), (2, "as many content"))
        }
        for name in VARIANTS
    }


def _cosine(first: Vectors, second: Vectors) -> Floats:
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return np.asarray((first * second).sum(axis=1) / np.maximum(lengths, 1e-12), dtype=np.float64)


def _frequent_set() -> frozenset[str]:
    """Return the most frequent words of English, without punctuation."""
    words = (word for word in english_table()[0] if word[0].isalpha())
    return frozenset(word for word, _ in zip(words, range(FREQUENT), strict=False))


def _frequent_counts(sentences: Sequence[str]) -> Floats:
    column = {word: place for place, word in enumerate(sorted(_frequent_set()))}
    counts = np.zeros((len(sentences), len(column)))
    for row, sentence in enumerate(sentences):
        for word, count in count_words([sentence]).items():
            if word in column:
                counts[row, column[word]] = count
    return counts


def _pairs(sets: GradedSets) -> Pairs:
    words = [count_words([sentence]) for sentence in sets.sentences]
    every = [{word for word in counts if word[0].isalnum()} for counts in words]
    sizes = [sum(count for word, count in counts.items() if word[0].isalnum()) for counts in words]
    lengths, content, frequent, subsets, grades = [], [], [], [], []
    for name, (first, second, graded) in sets.pairs.items():
        for one, two, grade in zip(first.tolist(), second.tolist(), graded.tolist(), strict=True):
            lengths.append((sizes[one] + sizes[two]) / 2)
            content.append(_jaccard(every[one] - _frequent_set(), every[two] - _frequent_set()))
            frequent.append(_jaccard(every[one] & _frequent_set(), every[two] & _frequent_set()))
            subsets.append(name)
            grades.append(grade)
    columns = [np.array(column, dtype=np.float64) for column in (grades, lengths, content, frequent)]
    return Pairs(np.array(subsets), *columns)


def _jaccard(one: set[str], two: set[str]) -> float:
    return len(one & two) / len(one | two) if one | two else 0.0


def _by_set(pairs: Pairs, cosines: dict[str, Floats]) -> dict[str, dict[str, float]]:
    found = {}
    for name in dict.fromkeys(pairs.subsets.tolist()):
        chosen = pairs.subsets == name
        scores = {key: 100 * spearman(pairs.grades[chosen], values[chosen]) for key, values in cosines.items()}
        found[name] = {"pairs": int(chosen.sum()), **scores}
    return found


def _binned(
    pairs: Pairs, cosines: dict[str, Floats], values: Floats, bins: Sequence[tuple[float, float]], words: str
) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for low, high in bins:
        inside = (values >= low) & (values < high)
        row = {key: _within_sets(pairs, inside, values) for key, values in cosines.items()}
        found[words.format(low, min(high, 1) if high < 2 else high)] = {"pairs": int(inside.sum()), **row}
    return found


def _within_sets(pairs: Pairs, inside: NDArray[np.bool_], cosines: Floats) -> float:
    """Return Spearman × 100 within each set, averaged by number of pairs."""
    scores, weights = [], []
    for name in dict.fromkeys(pairs.subsets[inside].tolist()):
        chosen = inside & (pairs.subsets == name)
        score = spearman(pairs.grades[chosen], cosines[chosen]) if chosen.sum() >= FEWEST else float("nan")
        if np.isfinite(score):
            scores.append(100 * score)
            weights.append(int(chosen.sum()))
    return float(np.average(scores, weights=weights)) if scores else float("nan")


def _draw(content: dict[str, Any], path: Path) -> None:
    """Draw the bins by length and by overlap as bars."""
    figure = Figure(figsize=(10, 3.6))
    figure.set_layout_engine("constrained")
    shown = ("tuned [CLS]", "tuned [CLS], whitened", "view, whitened", "both, whitened")
    colours = ("#bbbbbb", "#56b4e9", "#e69f00", "#0072b2")
    for place, (table, title) in enumerate(
        (("by length", "words of a sentence"), ("by overlap", "shared content words"))
    ):
        axes = figure.add_subplot(1, 2, place + 1)
        rows = content[table]
        for number, (name, colour) in enumerate(zip(shown, colours, strict=True)):
            positions = np.arange(len(rows)) + 0.2 * (number - 1.5)
            axes.bar(positions, [row[name] for row in rows.values()], 0.2, label=name, color=colour)
        axes.set_xticks(range(len(rows)), [f"{name}\n{row['pairs']} pairs" for name, row in rows.items()], fontsize=8)
        axes.set_title(title, loc="left")
        axes.set_ylabel("Spearman x 100")
    figure.axes[0].legend(fontsize=8)
    figure.savefig(path, metadata={"Date": None})
    print(f"written: {path.name}")


def _arguments() -> argparse.Namespace:
    parser = command_parser(__doc__)
    parser.add_argument("folder", help="what `selfguide train --method fused` made")
    parser.add_argument("--data", default=os.environ.get("SELFGUIDE_DATA"))
    parser.add_argument("--pairs", type=int, default=150, help="pairs of each subset at most")
    parser.add_argument("--out", type=Path, default=RESULTS / "fused-evidence.json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
