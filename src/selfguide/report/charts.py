"""Inline SVG. Across, places are in percent, and down in pixels: a chart is as wide as there is room, and its letters keep
their size on a phone. Lines are drawn in a box of 100 by 100 that is stretched, with strokes that are not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from selfguide.report.markup import escape, number

_LABEL = 34
_LEFT, _RIGHT = 2.0, 98.0


@dataclass(frozen=True)
class Dot:
    """A row of a dot chart: a mean, its deviation, and what it is the mean of."""

    label: str
    mean: float
    deviation: float | None = None
    points: tuple[float, ...] = ()
    best: bool = False
    mark: str = ""


def dot_chart(title: str, description: str, dots: Sequence[Dot], levels: Sequence[float] = ()) -> str:
    """One line for each row: faint dots for the single runs, a bar for mean ± deviation, a dot for the mean.

    ``levels`` are drawn from top to bottom, to compare with.
    """
    low = min([*levels, *(min([dot.mean - (dot.deviation or 0), *dot.points]) for dot in dots)])
    high = max([*levels, *(max([dot.mean + (dot.deviation or 0), *dot.points]) for dot in dots)])
    scale = Scale.around(low, high)
    row, top = 40, 8
    bottom = top + row * len(dots)
    parts = []
    for tick in scale.ticks:
        x = scale.percent(tick)
        parts.append(f'<line class="grid" x1="{x}%" x2="{x}%" y1="{top}" y2="{bottom}"/>')
        parts.append(f'<text class="tick" x="{x}%" y="{bottom + 18}" text-anchor="middle">{scale.show(tick)}</text>')
    for level in levels:
        x = scale.percent(level)
        parts.append(f'<line class="level" x1="{x}%" x2="{x}%" y1="{top}" y2="{bottom}" data-value="{level!r}"/>')
    for place, dot in enumerate(dots):
        parts.append(_dot(dot, scale, top + row * place))
    return svg(title, description, bottom + 26, "".join(parts))


def _dot(dot: Dot, scale: Scale, y: int) -> str:
    line = y + 26
    spread = f" ± {number(dot.deviation)}" if dot.deviation is not None else ""
    exact = f' data-deviation="{dot.deviation!r}"' if dot.deviation is not None else ""
    parts = [
        f'<g class="row{" best" if dot.best else ""}" data-label="{escape(dot.label)}" data-value="{dot.mean!r}"{exact}>',
        f"<title>{escape(dot.label)}: {number(dot.mean)}{spread}</title>",
        f'<text class="label" x="0" y="{y + 13}">{escape(_clipped(dot.label) + dot.mark)}</text>',
        f'<text class="label" x="100%" y="{y + 13}" text-anchor="end">{number(dot.mean)}'
        f'<tspan class="note">{spread}</tspan></text>',
        f'<line class="track" x1="0" x2="100%" y1="{line}" y2="{line}"/>',
    ]
    if dot.deviation:
        ends = scale.percent(dot.mean - dot.deviation), scale.percent(dot.mean + dot.deviation)
        parts.append(f'<line class="spread" x1="{ends[0]}%" x2="{ends[1]}%" y1="{line}" y2="{line}"/>')
    parts += [f'<circle class="single" cx="{scale.percent(point)}%" cy="{line}" r="3"/>' for point in dot.points]
    parts.append(f'<circle class="mean" cx="{scale.percent(dot.mean)}%" cy="{line}" r="5.5"/></g>')
    return "".join(parts)


def curve(
    title: str,
    description: str,
    points: Sequence[tuple[float, float]],
    across: str,
    references: Mapping[str, float] | None = None,
    chosen: float | None = None,
) -> str:
    """Values over steps; ``references`` are levels to compare with, ``chosen`` is the step whose weights were kept."""
    levels = dict(references or {})
    heights = [value for _, value in points] + list(levels.values())
    scale = Scale.around(min(heights), max(heights))
    steps = Scale.from_zero(max(step for step, _ in points))
    height, top = 190, 14

    def y(value: float) -> float:
        return round(top + height * (1 - (value - scale.low) / (scale.high - scale.low)), 2)

    parts = []
    for tick in scale.ticks:
        parts.append(f'<line class="grid" x1="0" x2="100%" y1="{y(tick)}" y2="{y(tick)}"/>')
        parts.append(f'<text class="tick" x="0" y="{y(tick) - 4}">{scale.show(tick)}</text>')
    for tick in steps.ticks:
        x = steps.percent(tick, 10.0)
        parts.append(
            f'<text class="tick" x="{x}%" y="{top + height + 20}" text-anchor="middle">{steps.show(tick)}</text>'
        )
    for name, level in levels.items():
        parts.append(f'<line class="level" x1="0" x2="100%" y1="{y(level)}" y2="{y(level)}"/>')
        parts.append(f'<text class="tick" x="100%" y="{y(level) - 4}" text-anchor="end">{escape(name)}</text>')
    route = " ".join(f"{steps.percent(step, 10.0)},{y(value)}" for step, value in points)
    parts.append(stretched(f'<polyline class="line" points="{route}"/>', top + height + 1))
    for step, value in points if len(points) <= 60 else ():
        kept = step == chosen
        parts.append(
            f'<circle class="{"mean" if kept else "knot"}" cx="{steps.percent(step, 10.0)}%" cy="{y(value)}" '
            f'r="{5.5 if kept else 3}" data-step="{step:g}" data-value="{value!r}"><title>{escape(across)} {step:g}: '
            f"{number(value)}{', the checkpoint that was kept' if kept else ''}</title></circle>"
        )
    parts.append(f'<text class="tick" x="100%" y="{top + height + 38}" text-anchor="end">{escape(across)}</text>')
    return svg(title, description, top + height + 44, "".join(parts))


def histogram(title: str, description: str, edges: Sequence[float], before: Sequence[int], after: Sequence[int]) -> str:
    """Two histograms over each other: before as a dashed outline, after as a filled one, told apart without colour too."""
    used = [place for place, pair in enumerate(zip(before, after, strict=True)) if any(pair)]
    first, last = used[0], used[-1] + 1
    low, high = edges[first], edges[last]
    height, top = 170, 26
    shares = [[count / max(1, sum(side)) for count in side[first:last]] for side in (before, after)]
    tallest = max(max(side) for side in shares)

    def x(value: float) -> float:
        return round(_LEFT + (_RIGHT - _LEFT) * (value - low) / (high - low), 3)

    def outline(side: Sequence[float]) -> str:
        heights = [round(top + height * (1 - share / tallest), 2) for share in side]
        steps = [
            f"H{x(edges[first + place])}V{level}H{x(edges[first + place + 1])}" for place, level in enumerate(heights)
        ]
        return f"M{x(low)},{top + height}{''.join(steps)}V{top + height}"

    drawn = f'<path class="after" d="{outline(shares[1])}"/><path class="before" d="{outline(shares[0])}"/>'
    parts = [stretched(drawn, top + height + 1)]
    parts.append(f'<line class="grid" x1="0" x2="100%" y1="{top + height}" y2="{top + height}"/>')
    for tick in _ticks(low, high, 5):
        parts.append(
            f'<text class="tick" x="{x(tick)}%" y="{top + height + 18}" text-anchor="middle">{number(tick, 1)}</text>'
        )
    parts.append(
        '<rect class="before" x="1" y="2" width="14" height="11"/><text class="label" x="22" y="12">before</text>'
        '<rect class="after" x="91" y="2" width="14" height="11"/><text class="label" x="112" y="12">after</text>'
        f'<text class="tick" x="100%" y="{top + height + 36}" text-anchor="end">cosine of two sentences</text>'
    )
    return svg(title, description, top + height + 42, "".join(parts))


@dataclass(frozen=True)
class Scale:
    """Values from ``low`` to ``high`` across the chart, and round numbers to write beside it."""

    low: float
    high: float
    ticks: tuple[float, ...]

    @classmethod
    def around(cls, low: float, high: float) -> Scale:
        """With a little air on both sides."""
        air = 0.06 * (high - low) or 1.0
        return cls(low - air, high + air, _ticks(low - air, high + air, 5))

    @classmethod
    def from_zero(cls, high: float) -> Scale:
        return cls(0.0, high, _ticks(0.0, high, 5))

    def percent(self, value: float, left: float = _LEFT) -> float:
        return round(left + (_RIGHT - left) * (value - self.low) / (self.high - self.low), 3)

    def show(self, tick: float) -> str:
        step = self.ticks[1] - self.ticks[0] if len(self.ticks) > 1 else 1.0
        return number(tick, max(0, -math.floor(math.log10(step) + 1e-9)))


def _ticks(low: float, high: float, about: int) -> tuple[float, ...]:
    """Multiples of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    return tuple(place * step for place in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1))


def stretched(shapes: str, height: int) -> str:
    """Shapes whose x is in percent and whose y is in pixels, over the whole chart."""
    return (
        f'<svg x="0" y="0" width="100%" height="{height}" viewBox="0 0 100 {height}" preserveAspectRatio="none" '
        f'class="stretched">{shapes}</svg>'
    )


def svg(title: str, description: str, height: int, body: str) -> str:
    """A drawing with a name and a description for those who do not see it."""
    key = "".join(character if character.isascii() and character.isalnum() else "-" for character in title.lower())
    return (
        f'<svg class="chart" role="img" aria-labelledby="{key}-title {key}-text" width="100%" height="{height}">'
        f'<title id="{key}-title">{escape(title)}</title><desc id="{key}-text">{escape(description)}</desc>{body}</svg>'
    )


def _clipped(label: str) -> str:
    return label if len(label) <= _LABEL else label[: _LABEL - 1] + "…"
