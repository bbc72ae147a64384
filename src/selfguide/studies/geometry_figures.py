"""The figures of the geometry study, from what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from selfguide.comparison.summary import Value
from selfguide.studies.geometry_numbers import EDGES, GRADE_BINS
from selfguide.studies.outcome import Figure, Histogram, Lines, Scatter, Series, over_seeds

Results = Mapping[int | None, Mapping[str, Any]]
"""What was measured of one kind of vectors, by seed; never empty."""


def figures(named: Mapping[str, Results]) -> tuple[Figure, ...]:
    """Of everything together, then of each kind of vectors, in the first seed."""
    edges = _used_edges(named)
    drawn = [_plane(named), _spectrum(named)]
    for number, (name, by_seed) in enumerate(named.items()):
        first = next(iter(by_seed.values()))
        drawn += _of_one(f"{number + 1}", name, first, edges)
    return tuple(drawn)


def _plane(named: Mapping[str, Results]) -> Figure:
    groups = {
        name: tuple(
            (result["uniformity"], result["alignment"])
            for result in by_seed.values()
            if result["alignment"] is not None
        )
        for name, by_seed in named.items()
    }
    told = "; ".join(
        f"{name}: " + ", ".join(f"uniformity {x:.2f}, alignment {y:.2f}" for x, y in places)
        for name, places in groups.items()
    )
    return Scatter(
        "alignment-uniformity",
        "Alignment and uniformity",
        "A point is a run. Down: pairs that mean the same are near each other; left: all sentences are spread evenly. The "
        "lower left corner is where one wants to be.",
        "uniformity",
        "alignment",
        groups,
        f"{told}.",
    )


def _spectrum(named: Mapping[str, Results]) -> Figure:
    return Lines(
        "explained-variance",
        "Variance in the first directions",
        "The share of the variance that lies in the first directions: a line that starts high is a cloud that fills few of "
        "its dimensions. The numbers across stand at equal distances.",
        "directions",
        "% of the variance",
        tuple(Series(name, tuple(_shares(by_seed))) for name, by_seed in named.items()),
    )


def _shares(by_seed: Results) -> Iterator[tuple[str, Value]]:
    """Words across, since the numbers grow by leaps."""
    directions = next(iter(by_seed.values()))["explained"]
    for count in directions:
        known = {seed: 100 * result["explained"][count] for seed, result in by_seed.items() if result["explained"]}
        yield count, over_seeds(known)


def _of_one(number: str, name: str, result: Mapping[str, Any], edges: tuple[int, int]) -> Iterator[Figure]:
    start, end = edges
    bins = _grade_bins(*result["grades"])
    counts = {
        words: tuple(by_bin[start:end]) for words, by_bin in zip(bins, result["histograms"], strict=True) if sum(by_bin)
    }
    yield Histogram(
        f"cosines-{number}",
        f"Cosines by grade: {name}",
        "The cosines of the pairs, an outline for each fifth of the grades, as shares of its pairs. The scale is the same for "
        "all vectors. The further apart the outlines, the better cosines tell grades apart.",
        "cosine",
        EDGES[start : end + 1],
        counts,
        f"Mean cosine by grade: {_means(counts, EDGES[start : end + 1])}.",
    )
    yield Scatter(
        f"grades-{number}",
        f"Grade against cosine: {name}",
        f"A point is a pair, {len(result['points']):,} of {result['pairs']:,}.",
        "grade",
        "cosine",
        {name: tuple((grade, cosine) for grade, cosine in result["points"])},
        f"{len(result['points'])} pairs; positive pairs have the mean cosine {_told(result['positive_cosine'])}, negative "
        f"ones {_told(result['negative_cosine'])}.",
    )
    if result["map"]:
        kinds = {f"{kind} pairs": tuple((x, y) for x, y in places) for kind, places in result["map"].items()}
        yield Scatter(
            f"map-{number}",
            f"Map of pairs: {name}",
            "A point is a pair, described by how its two vectors differ and laid out by t-SNE. Distances on the map mean "
            "little; what counts is whether the two kinds lie apart.",
            "t-SNE 1",
            "t-SNE 2",
            kinds,
            "; ".join(f"{len(places)} {kind}" for kind, places in kinds.items()) + ", laid out by t-SNE.",
        )


def _used_edges(named: Mapping[str, Results]) -> tuple[int, int]:
    """The first and the last edge that any of the histograms needs."""
    used = [
        place
        for by_seed in named.values()
        for by_bin in next(iter(by_seed.values()))["histograms"]
        for place, count in enumerate(by_bin)
        if count
    ]
    return min(used), max(used) + 1


def _grade_bins(low: float, high: float) -> list[str]:
    step = (high - low) / GRADE_BINS
    return [f"grade {low + step * number:g} to {low + step * (number + 1):g}" for number in range(GRADE_BINS)]


def _means(counts: Mapping[str, tuple[int, ...]], edges: tuple[float, ...]) -> str:
    centres = [(one + two) / 2 for one, two in pairwise(edges)]
    return ", ".join(
        f"{words} {sum(count * x for count, x in zip(by_bin, centres, strict=True)) / sum(by_bin):.2f}"
        for words, by_bin in counts.items()
    )


def _told(number: float | None) -> str:
    return "unknown" if number is None else f"{number:.2f}"
