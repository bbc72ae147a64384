"""Figures as plain data, before anything is drawn: :mod:`selfguide.report.figures` draws them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol


class ValueOverSeeds(Protocol):
    """A mean with the values behind it, such as :class:`selfguide.comparison.summary.Value`."""

    @property
    def mean(self) -> float:
        """The mean over seeds."""

    @property
    def deviation(self) -> float | None:
        """The sample deviation; ``None`` for one seed."""

    @property
    def by_seed(self) -> Mapping[Any, float]:
        """The value of each seed."""


@dataclass(frozen=True)
class Measured:
    """A value over seeds, read back from a results file."""

    mean: float
    deviation: float | None = None
    by_seed: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any] | None) -> Measured | None:
        """Read a value of ``comparison.json`` or ``study.json``.

        Args:
            values: The value, or None.

        Returns:
            The value; None where there is none.
        """
        if values is None or values["mean"] is None:
            return None
        seeds = {seed: value for seed, value in values["by_seed"].items() if value is not None}
        return cls(values["mean"], values["deviation"], seeds)


@dataclass(frozen=True)
class Figure:
    """What every kind of figure has."""

    kind: ClassVar[str]
    key: str
    """Names its file and its elements in a page: letters, digits and dashes."""
    title: str
    caption: str
    """How to read it."""
    alt: str = field(default="", kw_only=True)
    """The alternative text, for readers who do not see the figure."""


@dataclass(frozen=True)
class Series:
    """A line of a figure: its name, and its values over numbers or words."""

    name: str
    points: tuple[tuple[float | str, ValueOverSeeds], ...]


@dataclass(frozen=True)
class Lines(Figure):
    """Values over numbers or words, a line for each series; words are equally spaced."""

    kind = "lines"
    across: str
    up: str
    series: tuple[Series, ...]
    levels: Mapping[str, float] = field(default_factory=dict)
    """Named horizontal lines to compare with."""
    log: bool = False
    """Whether the horizontal axis is logarithmic."""


@dataclass(frozen=True)
class TrainingCurve(Lines):
    """Values over the steps of a training run."""

    kept: float | None = None
    """The step whose weights were kept."""


@dataclass(frozen=True)
class Dots(Figure):
    """One value for each label: the mean, its deviation and every seed."""

    kind = "dots"
    across: str
    dots: tuple[tuple[str, ValueOverSeeds], ...]
    levels: Mapping[str, float] = field(default_factory=dict)
    """Named vertical lines to compare with."""


@dataclass(frozen=True)
class Matrix(Figure):
    """A heat map with the number in each cell."""

    kind = "matrix"
    across: str
    down: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    values: tuple[tuple[ValueOverSeeds | None, ...], ...]
    """Row by row."""


@dataclass(frozen=True)
class ProbeMatrix(Matrix):
    """A heat map in which one cell is outlined."""

    outlined: tuple[int, int] = (0, 0)
    """Its row and column."""


@dataclass(frozen=True)
class Scatter(Figure):
    """Points in groups."""

    kind = "scatter"
    across: str
    up: str
    groups: Mapping[str, tuple[tuple[float, float], ...]]


@dataclass(frozen=True)
class Histogram(Figure):
    """Counts in bins, an outline for each series; drawn as shares of each series' sum."""

    kind = "histogram"
    across: str
    edges: tuple[float, ...]
    series: Mapping[str, tuple[int, ...]]


def figure_from_dict(content: Mapping[str, Any]) -> Figure:
    """Read a figure of ``study.json``.

    Args:
        content: The figure as :func:`selfguide.studies.outcome.plain` writes it.

    Returns:
        The figure without the points that have no number.
    """
    values = dict(content)
    made = {kind.kind: kind for kind in (Lines, Dots, Matrix, Scatter, Histogram)}[values.pop("kind")]
    if made is Lines:
        values["series"] = tuple(Series(item["name"], _known(item["points"])) for item in values["series"])
    elif made is Dots:
        values["dots"] = _known(values["dots"])
    elif made is Matrix:
        values["values"] = tuple(tuple(map(Measured.from_dict, row)) for row in values["values"])
    if "levels" in values:
        values["levels"] = {name: level for name, level in values["levels"].items() if level is not None}
    return made(**values)


def _known(points: list[tuple[Any, Mapping[str, Any]]]) -> tuple[tuple[Any, Measured], ...]:
    return tuple((x, value) for x, item in points if (value := Measured.from_dict(item)) is not None)
