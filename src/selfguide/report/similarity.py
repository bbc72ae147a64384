"""What a cosine means for an encoder on its text, as a curve and a table."""

from __future__ import annotations

from selfguide.engine.similarity_scale import LEVELS, SimilarityScale
from selfguide.report.formatting import number
from selfguide.report.plots import Lines, Measured, Series
from selfguide.report.table import Cell, Heading, Table

_SHOWN = (50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9)


def scale_curve(scale: SimilarityScale) -> Lines:
    """Make the figure of the share of pairs that are closer than a cosine.

    Args:
        scale: What was measured.

    Returns:
        A line for random pairs and a line for nearest neighbours.
    """
    return Lines(
        "similarity-scale",
        "Pairs that are closer than a cosine",
        "How many of 1,000 random pairs of the text, and of 1,000 sentences with their nearest neighbours, are closer than the "
        "cosine on the horizontal axis.",
        "cosine",
        "closer, of 1,000",
        (_series("random pairs", scale.random_pairs), _series("nearest neighbours", scale.nearest)),
        alt=f"Half of the random pairs are closer than {number(scale.at(50.0))}, one of 1,000 is closer than "
        f"{number(scale.at(99.9))}; half of the nearest neighbours are closer than {number(scale.at(50.0, nearest=True))}.",
    )


def _series(name: str, cosines: tuple[float, ...]) -> Series:
    # Of equal cosines the last one gives the share of pairs that are closer.
    points = dict(zip(cosines, LEVELS, strict=True))
    return Series(name, tuple((cosine, Measured(round(1000 - 10 * level, 1))) for cosine, level in points.items()))


def scale_table(scale: SimilarityScale) -> Table:
    """Make the table of a few cosines of the curve.

    Args:
        scale: What was measured.

    Returns:
        A row for each of a few shares of closer pairs.
    """
    headings = [Heading("closer, of 1,000"), Heading("random pairs"), Heading("nearest neighbours")]
    rows = [
        [
            Cell(f"{1000 - 10 * level:g}", value=1000 - 10 * level),
            *(Cell(number(scale.at(level, near)), value=scale.at(level, near)) for near in (False, True)),
        ]
        for level in _SHOWN
    ]
    return Table(headings, rows, "Cosines, by how many random pairs are closer", sortable=False)
