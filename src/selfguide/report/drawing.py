"""Draw each kind of figure with matplotlib. Lengths are in points, 72 to the inch; in an SVG a point is a user unit."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import singledispatch
from typing import TYPE_CHECKING, Any

from selfguide.report.formatting import number
from selfguide.report.plots import (
    Dots,
    Figure,
    Histogram,
    Lines,
    Matrix,
    ProbeMatrix,
    Scatter,
    TrainingCurve,
    ValueOverSeeds,
)
from selfguide.report.svg import Mark

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

INK, QUIET, RULE, PAPER = "#1d2024", "#5a6069", "#dedcd7", "#fcfbf9"
SERIES = ("#0b6b60", "#b5471b", "#2f62b5", "#8a3d92", "#8a6a00", "#1f7fa8", "#7b818a")
"""Colours of series; they also differ in dashes and markers, for readers who cannot distinguish the colours."""
THEME = {INK: "ink", QUIET: "quiet", RULE: "line", PAPER: "paper", SERIES[0]: "accent", SERIES[6]: "rest"}
THEME |= {colour: f"s{place}" for place, colour in enumerate(SERIES[1:6], 1)}
"""The variable of ``style.css`` that stands for a colour in a page, where it follows the reader's light or dark theme."""
COLOUR_MAP = "cividis"
"""From dark blue to yellow with steadily rising lightness: it reads the same with every colour vision, and in grey."""
_WIDTH, _HEIGHT, LABEL_SIZE = 480.0, 230.0, 10.5
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_DASHES: tuple[Any, ...] = ("-", *((0, dashes) for dashes in (
    (5, 3), (1.5, 2), (7, 2, 1.5, 2), (9, 3), (3, 1.5, 1, 1.5), (1, 3),
)))  # fmt: skip
_DOTTED: Any = (0, (1.5, 3))
_MOST_MARKED = 60
"""A line with more points is drawn without markers."""
_LONGEST = 60
"""Longer names are truncated."""


@dataclass
class Drawing:
    """A figure of matplotlib, and the numbers behind its marks."""

    canvas: Canvas
    axes: Axes
    marks: dict[str, Mark] = field(default_factory=dict)
    """By the identifier that the mark has in an SVG."""

    @classmethod
    def of_size(cls, width: float = _WIDTH, height: float = _HEIGHT) -> Drawing:
        """Make an empty drawing of a size in points.

        Args:
            width: In points.
            height: In points.

        Returns:
            The drawing.
        """
        from matplotlib.figure import Figure as Canvas
        from matplotlib.layout_engine import ConstrainedLayoutEngine

        layout = ConstrainedLayoutEngine(w_pad=2 / 72, h_pad=3 / 72)
        canvas = Canvas(figsize=(width / 72, height / 72), layout=layout)
        return cls(canvas, canvas.add_subplot())

    def mark(self, artist: Artist, text: str, **data: Any) -> None:
        """Give an artist a tooltip, and exact numbers as ``data-`` attributes; None is left out."""
        identifier = f"mark-{len(self.marks)}"
        artist.set_gid(identifier)
        known = {f"data-{name}": str(value) for name, value in data.items() if value is not None}
        self.marks[identifier] = Mark(text, known)

    def name_axes(self, across: str, up: str = "") -> None:
        """Name the axes at their ends."""
        self.axes.set_xlabel(across, loc="right")
        self.axes.set_ylabel(up, loc="top")


@singledispatch
def draw(figure: Figure) -> Drawing:
    """Draw a figure of any kind.

    Args:
        figure: What to draw.

    Returns:
        The drawing; it is laid out when it is saved.
    """
    raise TypeError(f"{type(figure).__name__} is not a figure that can be drawn")


@draw.register
def _draw_lines(figure: Lines) -> Drawing:
    names = [series.name for series in figure.series]
    drawing = Drawing.of_size(height=_HEIGHT + _legend_height(names))
    axes = drawing.axes
    places = list(dict.fromkeys(x for series in figure.series for x, _ in series.points))
    kept = figure.kept if isinstance(figure, TrainingCurve) else None
    if figure.log and all(not isinstance(x, str) and x > 0 for x in places):
        axes.set_xscale("log")
    for turn, series in enumerate(figure.series):
        colour, dashes, marker = _look(turn)
        xs = [places.index(x) if isinstance(x, str) else x for x, _ in series.points]
        axes.plot(xs, [value.mean for _, value in series.points], color=colour, linestyle=dashes, label=series.name)
        if len(xs) > _MOST_MARKED:
            continue
        for x, (label, value) in zip(xs, series.points, strict=True):
            is_kept = x == kept
            if value.deviation:
                ends = [value.mean - value.deviation, value.mean + value.deviation]
                axes.plot([x, x], ends, color=colour, alpha=0.4, linewidth=4)
            look: dict[str, Any] = {
                "markerfacecolor": colour if is_kept else PAPER,
                "markersize": 8.5 if is_kept else 5.5,
            }
            (mark,) = axes.plot([x], [value.mean], marker=marker, color=colour, **look)
            where = f"{figure.across if len(names) == 1 else series.name + ','} {_short(label)}"
            text = f"{where}: {_shown(value)}" + ", the checkpoint that was kept" * is_kept
            data = {"x": label, "value": value.mean, "deviation": value.deviation, "kept": "yes" if is_kept else None}
            drawing.mark(mark, text, series=series.name, **data)
    for name, level in figure.levels.items():
        line = axes.axhline(level, color=QUIET, linestyle=_DOTTED, linewidth=1, label=name)
        drawing.mark(line, f"{name}: {number(level)}", level=name, value=level)
        _write(axes, 1.0, level, name, ha="right", fontsize=LABEL_SIZE, color=QUIET)
    _name_places(axes, places)
    axes.locator_params(axis="y", nbins=6)
    drawing.name_axes(figure.across, figure.up)
    _legend(axes, names)
    return drawing


@draw.register
def _draw_dots(figure: Dots) -> Drawing:
    drawing = Drawing.of_size(height=36.0 * len(figure.dots) + (58 if figure.levels else 42))
    axes = drawing.axes
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x", visible=True)
    axes.margins(x=0.04)
    axes.set_ylim(len(figure.dots) - 0.35, -0.75)
    axes.set_yticks([])
    for name, level in figure.levels.items():
        line = axes.axvline(level, color=QUIET, linestyle=_DOTTED, linewidth=1.2)
        drawing.mark(line, f"{name}: {number(level)}", level=name, value=level)
        above: dict[str, Any] = {"transform": axes.get_xaxis_transform(), "ha": "center", "va": "bottom"}
        axes.text(level, 1.0, _clipped(name), fontsize=LABEL_SIZE, color=QUIET, **above)
    for place, (label, value) in enumerate(figure.dots):
        axes.axhline(place, color=RULE, linewidth=1)
        if value.deviation:
            ends = [value.mean - value.deviation, value.mean + value.deviation]
            axes.plot(ends, [place, place], color=SERIES[0], alpha=0.4, linewidth=5, solid_capstyle="round")
        if len(value.by_seed) > 1:
            seeds = list(value.by_seed.values())
            look: dict[str, Any] = {"markerfacecolor": PAPER, "markersize": 4, "markeredgewidth": 0.8}
            axes.plot(seeds, [place] * len(seeds), "o", color=SERIES[0], **look)
        (dot,) = axes.plot([value.mean], [place], "o", color=SERIES[0], markersize=7.5)
        drawing.mark(dot, f"{label}: {_shown(value)}", label=label, value=value.mean, deviation=value.deviation)
        _write(axes, 0.0, place - 0.2, _clipped(label))
        _write(axes, 1.0, place - 0.2, _shown(value), ha="right")
    drawing.name_axes(figure.across)
    return drawing


@draw.register
def _draw_matrix(figure: Matrix) -> Drawing:
    from matplotlib import colormaps
    from matplotlib.patches import Rectangle

    known = [value for row in figure.values for value in row if value]
    low, high = min((value.mean for value in known), default=0.0), max((value.mean for value in known), default=1.0)
    tall = 40 if any(value.deviation is not None for value in known) else 30
    drawing = Drawing.of_size(max(_WIDTH, 100 + 46 * len(figure.columns)), 68 + tall * len(figure.rows))
    axes = drawing.axes
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    for row, values in enumerate(figure.values):
        for column, value in enumerate(values):
            label = f"{figure.rows[row]}, {figure.columns[column]}"
            colour: Any = "#dddddd"
            text, shown = "–", "none"
            data: dict[str, Any] = {}
            if value is not None:
                colour = colormaps[COLOUR_MAP]((value.mean - low) / (high - low) if high > low else 0.5)
                text, shown = number(value.mean, 1), _shown(value)
                text += "" if value.deviation is None else f"\n± {number(value.deviation, 1)}"
                data = {"value": value.mean, "deviation": value.deviation}
            corner = (column - 0.5, row - 0.5)
            cell = axes.add_patch(Rectangle(corner, 1, 1, facecolor=colour, edgecolor=PAPER, linewidth=1.5))
            drawing.mark(cell, f"{label}: {shown}", label=label, **data)
            look: dict[str, Any] = {"fontsize": 10, "linespacing": 1.15, "color": readable_on(colour)}
            axes.text(column, row, text, ha="center", va="center", **look)
    if isinstance(figure, ProbeMatrix):
        row, column = figure.outlined
        outline = Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor="#d62728", linewidth=2.5, zorder=3)
        outline.set_clip_on(False)
        axes.add_patch(outline)
    axes.set_xlim(-0.5, len(figure.columns) - 0.5)
    axes.set_ylim(len(figure.rows) - 0.5, -0.5)
    axes.set_xticks(range(len(figure.columns)), [_broken(name) for name in figure.columns])
    axes.set_yticks(range(len(figure.rows)), list(figure.rows))
    drawing.name_axes(figure.across, figure.down)
    return drawing


@draw.register
def _draw_scatter(figure: Scatter) -> Drawing:
    names = list(figure.groups)
    drawing = Drawing.of_size(height=_HEIGHT + 40 + _legend_height(names))
    for turn, points in enumerate(figure.groups.values()):
        colour, _, marker = _look(turn)
        many = len(points) > 30
        look: dict[str, Any] = {"markersize": 5 if many else 8, "alpha": 0.6 if many else 0.9, "markeredgewidth": 0}
        xs, ys = [x for x, _ in points], [y for _, y in points]
        drawing.axes.plot(xs, ys, linestyle="none", marker=marker, color=colour, **look)
    drawing.name_axes(figure.across, figure.up)
    _legend(drawing.axes, names, lines=False)
    return drawing


@draw.register
def _draw_histogram(figure: Histogram) -> Drawing:
    series = {name: counts for name, counts in figure.series.items() if sum(counts)}
    drawing = Drawing.of_size(height=_HEIGHT - 20 + _legend_height([*series]))
    for turn, counts in enumerate(series.values()):
        colour, dashes, _ = _look(turn)
        shares = [count / sum(counts) for count in counts]
        if turn == 0 and len(series) == 2:
            drawing.axes.stairs(shares, figure.edges, fill=True, color=colour, alpha=0.2)
        drawing.axes.stairs(shares, figure.edges, color=colour, linestyle=dashes, linewidth=1.6)
    drawing.axes.set_ylim(bottom=0)
    drawing.name_axes(figure.across, "share")
    _legend(drawing.axes, [*series], markers=False)
    return drawing


# -- pieces of figures ---------------------------------------------------------------------------------------------------


def _look(turn: int) -> tuple[str, Any, str]:
    """Return the colour, the dashes and the marker of a series."""
    return SERIES[turn % len(SERIES)], _DASHES[turn % len(_DASHES)], _MARKERS[turn % len(_MARKERS)]


def _legend(axes: Axes, names: Sequence[str], lines: bool = True, markers: bool = True) -> None:
    """Name the series above the axes, where there are several."""
    from matplotlib.lines import Line2D

    if len(names) < 2:
        return
    handles = []
    for turn in range(len(names)):
        colour, dashes, marker = _look(turn)
        style: dict[str, Any] = {"linestyle": dashes if lines else "none", "marker": marker if markers else ""}
        handles.append(Line2D([], [], color=colour, markerfacecolor=PAPER if lines else colour, **style))
    shown = [_clipped(name) for name in names]
    axes.legend(handles, shown, loc="lower left", bbox_to_anchor=(0.0, 1.02), ncols=_legend_columns(names))


def _legend_columns(names: Sequence[str]) -> int:
    return max(1, min(4, int(_WIDTH // (52 + 7 * max(len(_clipped(name)) for name in names)))))


def _legend_height(names: Sequence[str]) -> float:
    return 18.0 * math.ceil(len(names) / _legend_columns(names)) + 4 if len(names) > 1 else 0.0


def _write(axes: Axes, x: float, y: float, text: str, **style: Any) -> None:
    """Write above a height of the axes, at a share of their width, with paper behind the text to keep lines out of it."""
    paper = {"facecolor": PAPER, "edgecolor": "none", "pad": 0.8, "alpha": 0.85}
    axes.text(x, y, text, transform=axes.get_yaxis_transform(), va="bottom", bbox=paper, zorder=3, **style)


def _name_places(axes: Axes, places: Sequence[float | str]) -> None:
    """Label the places across where they are few, except those that would run into the one before."""
    from matplotlib.ticker import NullLocator

    at: dict[float, str]
    if any(isinstance(x, str) for x in places):
        at = {float(place): str(x) for place, x in enumerate(places)}
    elif 0 < len(places) <= 12:
        at = {float(x): _short(x) for x in sorted(places, key=float)}
    else:
        return
    position = {x: math.log(x) if axes.get_xscale() == "log" else x for x in at}
    first, last = min(position.values()), max(position.values())
    named: dict[float, str] = {}
    end = -math.inf
    for x, name in at.items():
        middle = (_WIDTH - 70) * (position[x] - first) / ((last - first) or 1.0)
        if middle - 3.6 * len(name) > end:
            named[x] = name
            end = middle + 3.6 * len(name)
    axes.set_xticks(list(named), list(named.values()))
    axes.xaxis.set_minor_locator(NullLocator())


def readable_on(background: Any) -> str:
    """Choose the colour of a text by its contrast: the ratio of relative luminances (WCAG 2).

    Args:
        background: A colour as matplotlib takes it.

    Returns:
        ``black`` or ``white``.
    """
    from matplotlib.colors import to_rgb

    parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(background)]
    luminance = 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]
    return "white" if 1.05 / (luminance + 0.05) > (luminance + 0.05) / 0.05 else "black"


def _shown(value: ValueOverSeeds) -> str:
    return number(value.mean) + ("" if value.deviation is None else f" ± {number(value.deviation)}")


def _short(x: float | str) -> str:
    return x if isinstance(x, str) else f"{x:,}" if isinstance(x, int) else f"{x:g}"


def _clipped(name: str) -> str:
    return name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…"


def _broken(name: str) -> str:
    """Break a long name of a column after a hyphen or at a blank."""
    if len(name) <= 8:
        return name
    return re.sub("(?<=.{3})[- ]", lambda found: found.group().strip() + "\n", name, count=1)
