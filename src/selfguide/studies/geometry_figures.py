"""The figures of the geometry study."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from selfguide.comparison.summary import Value
from selfguide.report.plots import Figure, Histogram, Lines, Scatter, Series
from selfguide.studies.geometry_numbers import EDGES, GRADE_BINS
from selfguide.studies.values import over_seeds

Results = Mapping[int | None, Mapping[str, Any]]
"""What was measured of one encoder's embeddings, by seed; never empty."""


def figures(named: Mapping[str, Results]) -> tuple[Figure, ...]:
    """Make the figures of all encoders together, then those of each encoder with its first seed.

    Args:
        named: The measurements by the encoder's name.

    Returns:
        The figures.
    """
    edges = _used_edges(named)
    made = [_plane(named), _spectrum(named)]
    for number, (name, by_seed) in enumerate(named.items(), 1):
        first = next(iter(by_seed.values()))
        made += _of_one(str(number), name, first, edges)
    return tuple(made)


def _plane(named: Mapping[str, Results]) -> Figure:
    groups = {
        name: tuple(
            (result["uniformity"], result["alignment"])
            for result in by_seed.values()
            if result["alignment"] is not None
        )
        for name, by_seed in named.items()
    }
    described = "; ".join(
        f"{name}: " + ", ".join(f"uniformity {x:.2f}, alignment {y:.2f}" for x, y in points)
        for name, points in groups.items()
    )
    return Scatter(
        "alignment-uniformity",
        "Alignment and uniformity",
        "A point is a run. Down: pairs that mean the same are near each other; left: all sentences are spread evenly. The "
        "lower left corner is the best place.",
        "uniformity",
        "alignment",
        groups,
        alt=f"{described}.",
    )


def _spectrum(named: Mapping[str, Results]) -> Figure:
    return Lines(
        "explained-variance",
        "Variance in the first directions",
        "The share of the variance that lies in the first directions: a line that starts high is a cloud that fills few of "
        "its dimensions. The numbers of directions are equally spaced.",
        "directions",
        "% of the variance",
        tuple(Series(name, tuple(_shares(by_seed))) for name, by_seed in named.items()),
    )


def _shares(by_seed: Results) -> Iterator[tuple[str, Value]]:
    """Give the numbers of directions as words, since they are far from equally spaced."""
    directions = next(iter(by_seed.values()))["explained"]
    for count in directions:
        known = {seed: 100 * result["explained"][count] for seed, result in by_seed.items() if result["explained"]}
        yield count, over_seeds(known)


def _of_one(number: str, name: str, result: Mapping[str, Any], edges: tuple[int, int]) -> Iterator[Figure]:
    start, end = edges
    bins = _grade_bins(*result["grades"])
    counts = {
        label: tuple(by_bin[start:end]) for label, by_bin in zip(bins, result["histograms"], strict=True) if sum(by_bin)
    }
    yield Histogram(
        f"cosines-{number}",
        f"Cosines by grade: {name}",
        "The cosines of the pairs, an outline for each fifth of the grades, as shares of its pairs. The scale is the same for "
        "all encoders. The further apart the outlines, the better cosines tell grades apart.",
        "cosine",
        EDGES[start : end + 1],
        counts,
        alt=f"Mean cosine by grade: {_means(counts, EDGES[start : end + 1])}.",
    )
    yield Scatter(
        f"grades-{number}",
        f"Grade against cosine: {name}",
        f"A point is a pair, {len(result['points']):,} of {result['pairs']:,}.",
        "grade",
        "cosine",
        {name: tuple((grade, cosine) for grade, cosine in result["points"])},
        alt=f"{len(result['points'])} pairs; positive pairs have the mean cosine {_shown(result['positive_cosine'])}, "
        f"negative ones {_shown(result['negative_cosine'])}.",
    )
    if result["map"]:
        kinds = {f"{kind} pairs": tuple((x, y) for x, y in points) for kind, points in result["map"].items()}
        yield Scatter(
            f"map-{number}",
            f"Map of pairs: {name}",
            "A point is a pair, described by how its two embeddings differ and placed by t-SNE. Distances on the map mean "
            "little; what counts is whether the two kinds are separated.",
            "t-SNE 1",
            "t-SNE 2",
            kinds,
            alt="; ".join(f"{len(points)} {kind}" for kind, points in kinds.items()) + ", placed by t-SNE.",
        )


def _used_edges(named: Mapping[str, Results]) -> tuple[int, int]:
    """Return the first and the last edge that any of the histograms needs."""
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
        f"{label} {sum(count * x for count, x in zip(by_bin, centres, strict=True)) / sum(by_bin):.2f}"
        for label, by_bin in counts.items()
    )


def _shown(number: float | None) -> str:
    return "unknown" if number is None else f"{number:.2f}"
