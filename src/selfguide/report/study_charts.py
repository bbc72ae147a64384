"""The figures of a study as inline SVG, from what ``study.json`` holds of them. See :mod:`charts` for how they are laid out.

Every mark carries its number in full (``data-value``), so that a reader of the page's source finds the file's numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from selfguide.report.charts import Dot, Scale, dot_chart, stretched, svg
from selfguide.report.markup import escape, number

_LEFT = 10.0
_HEIGHT = 230
_SERIES = 7
"""Kinds of lines that the style sheet knows."""


def drawing(figure: Mapping[str, Any]) -> str:
    """The figure as SVG; nothing where it has no numbers."""
    return _KINDS[figure["kind"]](figure)


# -- lines ---------------------------------------------------------------------------------------------------------------


def _lines(figure: Mapping[str, Any]) -> str:
    series = [
        (item["name"], [(x, value) for x, value in item["points"] if value["mean"] is not None])
        for item in figure["series"]
    ]
    levels = {name: level for name, level in figure["levels"].items() if level is not None}
    drawn = [value for _, points in series for _, value in points]
    if not drawn:
        return ""
    low = min([value["mean"] - (value["deviation"] or 0) for value in drawn] + list(levels.values()))
    high = max([value["mean"] + (value["deviation"] or 0) for value in drawn] + list(levels.values()))
    scale = Scale.around(low, high)
    place = _across([x for _, points in series for x, _ in points], bool(figure["log"]))
    top = _legend_height([name for name, _ in series])

    def y(value: float) -> float:
        return round(top + _HEIGHT * (1 - (value - scale.low) / (scale.high - scale.low)), 2)

    parts = [_legend([name for name, _ in series]) if len(series) > 1 else ""]
    for tick in scale.ticks:
        parts.append(f'<line class="grid" x1="0" x2="100%" y1="{y(tick)}" y2="{y(tick)}"/>')
        parts.append(f'<text class="tick" x="0" y="{y(tick) - 4}">{scale.show(tick)}</text>')
    for x in dict.fromkeys(x for _, points in series for x, _ in points):
        parts.append(
            f'<text class="tick" x="{place(x)}%" y="{top + _HEIGHT + 20}" text-anchor="middle">{escape(_short(x))}</text>'
        )
    for name, level in levels.items():
        parts.append(f'<line class="level" x1="0" x2="100%" y1="{y(level)}" y2="{y(level)}" data-value="{level!r}"/>')
        parts.append(f'<text class="tick" x="100%" y="{y(level) - 4}" text-anchor="end">{escape(name)}</text>')
    routes = []
    for turn, (_, points) in enumerate(series):
        route = " ".join(f"{place(x)},{y(value['mean'])}" for x, value in points)
        routes.append(f'<polyline class="line s{turn % _SERIES}" points="{route}"/>')
    parts.append(stretched("".join(routes), top + _HEIGHT + 1))
    for turn, (name, points) in enumerate(series):
        parts += [_knot(name, x, value, place(x), y, turn % _SERIES) for x, value in points]
    bottom = top + _HEIGHT + 38
    parts.append(f'<text class="tick" x="100%" y="{bottom}" text-anchor="end">{escape(figure["across"])}</text>')
    parts.append(f'<text class="tick" x="0" y="{bottom}">{escape(figure["up"])}</text>')
    return svg(figure["title"], figure["alt"], bottom + 8, "".join(parts))


def _knot(
    name: str, x: float | str, value: Mapping[str, Any], left: float, y: Callable[[float], float], turn: int
) -> str:
    mean, deviation = value["mean"], value["deviation"]
    bar = ""
    if deviation:
        bar = f'<line class="whisker s{turn}" x1="{left}%" x2="{left}%" y1="{y(mean - deviation)}" y2="{y(mean + deviation)}"/>'
    exact = f' data-deviation="{deviation!r}"' if deviation is not None else ""
    spread = f" ± {number(deviation)}" if deviation is not None else ""
    return (
        f'{bar}<circle class="knot s{turn}" cx="{left}%" cy="{y(mean)}" r="4" data-series="{escape(name)}" '
        f'data-x="{escape(x)}" data-value="{mean!r}"{exact}><title>{escape(name)}, {escape(_short(x))}: {number(mean)}{spread}'
        "</title></circle>"
    )


def _across(places: Sequence[float | str], log: bool) -> Callable[[float | str], float]:
    """Where a number or a word stands across, in percent."""
    distinct = list(dict.fromkeys(places))
    if any(isinstance(x, str) for x in distinct):
        step = (96.0 - _LEFT - 4) / max(1, len(distinct) - 1)
        return lambda x: round(_LEFT + 4 + step * distinct.index(x), 3)
    numbers = [float(x) for x in distinct]
    if log and min(numbers) > 0:
        return lambda x: _between(math.log(float(x)), math.log(min(numbers)), math.log(max(numbers)))
    return lambda x: _between(float(x), min(numbers), max(numbers))


def _between(value: float, low: float, high: float) -> float:
    share = (value - low) / (high - low) if high > low else 0.5
    return round(_LEFT + 2 + (94.0 - _LEFT) * share, 3)


# -- the other kinds -----------------------------------------------------------------------------------------------------


def _dots(figure: Mapping[str, Any]) -> str:
    known = [(label, value) for label, value in figure["dots"] if value["mean"] is not None]
    if not known:
        return ""
    best = max(value["mean"] for _, value in known)
    dots = [
        Dot(label, value["mean"], value["deviation"], _singles(value), best=value["mean"] == best)
        for label, value in known
    ]
    levels = [level for level in figure["levels"].values() if level is not None]
    return dot_chart(figure["title"], figure["alt"], dots, levels)


def _singles(value: Mapping[str, Any]) -> tuple[float, ...]:
    points = [point for point in value["by_seed"].values() if point is not None]
    return tuple(points) if len(points) > 1 else ()


def _matrix(figure: Mapping[str, Any]) -> str:
    """The darker the field, the higher the number, which stands in it."""
    means = [value["mean"] for row in figure["values"] for value in row if value and value["mean"] is not None]
    if not means:
        return ""
    low, high = min(means), max(means)
    left, top, tall = 24.0, 58, 46
    wide = (100.0 - left) / len(figure["columns"])
    parts = [f'<text class="tick" x="0" y="14">{escape(figure["down"])} ↓, {escape(figure["across"])} →</text>']
    for column, name in enumerate(figure["columns"]):
        parts.append(_name(name, round(left + wide * (column + 0.5), 3), top - 8, "middle"))
    for row, (name, values) in enumerate(zip(figure["rows"], figure["values"], strict=True)):
        y = top + tall * row
        parts.append(_name(name, 0.0, y + tall // 2 + 11, "start"))
        for column, value in enumerate(values):
            mean = value["mean"] if value else None
            x = round(left + wide * column, 3)
            middle = round(x + wide / 2, 3)
            # From light to half dark: letters in the ink's colour stay readable on every shade.
            shade = 0.0 if mean is None else 0.06 + 0.5 * ((mean - low) / (high - low) if high > low else 0.5)
            label = escape(f"{name}, {figure['columns'][column]}")
            exact = f' data-value="{mean!r}"' if mean is not None else ""
            spread = value["deviation"] if value else None
            exact += f' data-deviation="{spread!r}"' if spread is not None else ""
            parts.append(
                f'<g class="field" data-label="{label}"{exact}><title>{label}: {number(mean) or "none"}</title>'
                f'<rect x="{x}%" y="{y}" width="{round(wide, 3)}%" height="{tall}" fill-opacity="{shade:.3f}"/>'
                f'<text class="plain" x="{middle}%" y="{y + (20 if spread is not None else 27)}" text-anchor="middle">'
                f"{number(mean, 1) or '–'}</text>"
                + (
                    f'<text class="plain small" x="{middle}%" y="{y + 36}" text-anchor="middle">± {number(spread, 1)}</text>'
                    if spread is not None
                    else ""
                )
                + "</g>"
            )
    return svg(figure["title"], figure["alt"], top + tall * len(figure["rows"]) + 6, "".join(parts))


def _name(name: str, x: float, bottom: int, anchor: str) -> str:
    """A name of a row or column, in two lines where it has a hyphen or a blank: on a phone there is little room."""
    cut = next((place + 1 for place in range(3, len(name)) if name[place] in "- "), 0)
    lines = [name[:cut].rstrip(), name[cut:]] if cut and cut < len(name) else [name]
    return "".join(
        f'<text class="tick" x="{x}%" y="{bottom - 14 * (len(lines) - 1 - turn)}" text-anchor="{anchor}">{escape(line)}</text>'
        for turn, line in enumerate(lines)
    )


def _scatter(figure: Mapping[str, Any]) -> str:
    groups = {name: points for name, points in figure["groups"].items() if points}
    everything = [point for points in groups.values() for point in points]
    if not everything:
        return ""
    across = Scale.around(min(x for x, _ in everything), max(x for x, _ in everything))
    up = Scale.around(min(y for _, y in everything), max(y for _, y in everything))
    top = _legend_height(list(groups))

    def y(value: float) -> float:
        return round(top + _HEIGHT * (1 - (value - up.low) / (up.high - up.low)), 2)

    parts = [_legend(list(groups)) if len(groups) > 1 else ""]
    for tick in up.ticks:
        parts.append(f'<line class="grid" x1="0" x2="100%" y1="{y(tick)}" y2="{y(tick)}"/>')
        parts.append(f'<text class="tick" x="0" y="{y(tick) - 4}">{up.show(tick)}</text>')
    for tick in across.ticks:
        x = across.percent(tick, _LEFT)
        parts.append(
            f'<text class="tick" x="{x}%" y="{top + _HEIGHT + 20}" text-anchor="middle">{across.show(tick)}</text>'
        )
    for turn, points in enumerate(groups.values()):
        parts += [
            f'<circle class="spot s{turn % _SERIES}" cx="{across.percent(x, _LEFT)}%" cy="{y(up_)}" r="2.6"/>'
            for x, up_ in points
        ]
    bottom = top + _HEIGHT + 38
    parts.append(f'<text class="tick" x="100%" y="{bottom}" text-anchor="end">{escape(figure["across"])}</text>')
    parts.append(f'<text class="tick" x="0" y="{bottom}">{escape(figure["up"])}</text>')
    return svg(figure["title"], figure["alt"], bottom + 8, "".join(parts))


def _histogram(figure: Mapping[str, Any]) -> str:
    """Outlines over each other, each as shares of its own sum."""
    series = {name: counts for name, counts in figure["series"].items() if sum(counts)}
    if not series:
        return ""
    edges = figure["edges"]
    shares = {name: [count / sum(counts) for count in counts] for name, counts in series.items()}
    tallest = max(max(values) for values in shares.values())
    across = Scale(edges[0], edges[-1], Scale.around(edges[0], edges[-1]).ticks)
    top = _legend_height(list(series))

    def y(share: float) -> float:
        return round(top + _HEIGHT * (1 - share / tallest), 2)

    parts = [_legend(list(series))]
    outlines = []
    for turn, values in enumerate(shares.values()):
        steps = [
            f"H{across.percent(edges[bin_])}V{y(value)}H{across.percent(edges[bin_ + 1])}"
            for bin_, value in enumerate(values)
        ]
        route = f"M{across.percent(edges[0])},{top + _HEIGHT}{''.join(steps)}V{top + _HEIGHT}"
        outlines.append(f'<path class="line s{turn % _SERIES}" d="{route}"/>')
    parts.append(stretched("".join(outlines), top + _HEIGHT + 1))
    parts.append(f'<line class="grid" x1="0" x2="100%" y1="{top + _HEIGHT}" y2="{top + _HEIGHT}"/>')
    for tick in across.ticks:
        if edges[0] <= tick <= edges[-1]:
            x = across.percent(tick)
            parts.append(
                f'<text class="tick" x="{x}%" y="{top + _HEIGHT + 18}" text-anchor="middle">{across.show(tick)}</text>'
            )
    bottom = top + _HEIGHT + 36
    parts.append(f'<text class="tick" x="100%" y="{bottom}" text-anchor="end">{escape(figure["across"])}</text>')
    return svg(figure["title"], figure["alt"], bottom + 8, "".join(parts))


_KINDS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "lines": _lines,
    "dots": _dots,
    "matrix": _matrix,
    "scatter": _scatter,
    "histogram": _histogram,
}


# -- legends -------------------------------------------------------------------------------------------------------------


def _legend(names: Sequence[str]) -> str:
    """A line for each series: names may be long, and a phone narrow."""
    return "".join(
        f'<line class="line s{turn % _SERIES}" x1="2" x2="26" y1="{10 + 20 * turn}" y2="{10 + 20 * turn}"/>'
        f'<circle class="knot s{turn % _SERIES}" cx="14" cy="{10 + 20 * turn}" r="4"/>'
        f'<text class="label" x="34" y="{15 + 20 * turn}">{escape(name)}</text>'
        for turn, name in enumerate(names)
    )


def _legend_height(names: Sequence[str]) -> int:
    return 16 + (20 * len(names) if len(names) > 1 else 0)


def _short(x: float | str) -> str:
    return x if isinstance(x, str) else f"{x:g}" if isinstance(x, float) else f"{x:,}"
