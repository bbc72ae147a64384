"""A probe as a picture: layers from left to right, poolings from top to bottom, the score in each cell."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfguide.errors import SelfguideError, UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from selfguide.evaluation.probe import ProbeResult

FORMATS = (".png", ".svg")
# Dark blue to yellow with steadily rising lightness: it reads the same with every kind of colour vision, and in grey.
COLOURS = "cividis"
MARK = "#d62728"


def check(path: str | Path) -> Path:
    """Refuse in words what :func:`draw` could not do; worth asking before anything is computed."""
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"{path} ends in {path.suffix or 'nothing'}; the plot is written as {' or '.join(FORMATS)}.")
    if path.is_dir():
        raise UsageError(f"{path} is a folder; name a file in it, such as {path / 'probe.png'}.")
    if not path.parent.is_dir():
        raise UsageError(f"{path} cannot be written: there is no folder {path.parent}. Make it first.")
    if find_spec("matplotlib") is None:
        raise SelfguideError("A plot needs matplotlib, which is not installed: pip install 'selfguide[plots]'")
    return path


def draw(result: ProbeResult, path: str | Path) -> None:
    """Draw a probe's heat map to ``.png`` or ``.svg``; the file gets its name only when it is complete."""
    path = check(path)
    import matplotlib
    from matplotlib.figure import Figure

    # Wide enough for the numbers, and for the title where there are few layers.
    figure = Figure(figsize=(max(6.5, 2.2 + 0.6 * len(result.layers)), 1.9 + 0.55 * len(result.poolings)), dpi=150)
    figure.set_layout_engine("constrained")
    _fill(figure.add_subplot(), result)

    fresh = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    kind = path.suffix.lower()[1:]
    try:
        # A fixed salt for the names inside an SVG and no date: the same probe gives the same file.
        with matplotlib.rc_context({"svg.hashsalt": "selfguide"}):
            figure.savefig(fresh, format=kind, metadata={"Date": None} if kind == "svg" else None)
        fresh.replace(path)
    except OSError as error:
        raise SelfguideError(f"{path} cannot be written: {error.strerror or error}.") from None
    finally:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)


def _fill(axes: Axes, result: ProbeResult) -> None:
    import numpy as np
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.patches import Rectangle

    # The ends of the scale are the worst and the best score; a cell without a score is grey.
    scale = Normalize(result.worst.score, result.best.score)
    colours = ScalarMappable(scale, colormaps[COLOURS].with_extremes(bad="#dddddd"))
    painted = colours.to_rgba(np.ma.masked_invalid(result.scores))
    axes.imshow(painted, aspect="auto")
    for row, scores in enumerate(result.scores):
        for column, score in enumerate(scores):
            text = "–" if math.isnan(score) else f"{score:.1f}"
            axes.text(column, row, text, ha="center", va="center", fontsize=9, color=_readable(painted[row, column]))

    best = result.best
    corner = (result.layers.index(best.layer) - 0.5, result.poolings.index(best.pooling) - 0.5)
    axes.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=MARK, linewidth=2.5, clip_on=False, zorder=3))
    axes.set_title(
        f"{result.encoder} on {result.task} ({result.rows:,} pairs)\n"
        f"best: {best.pooling} of layer {best.layer}, {best.score:.1f}",
        fontsize=11,
    )
    axes.set_xticks(range(len(result.layers)), [str(layer) for layer in result.layers])
    axes.set_yticks(range(len(result.poolings)), list(result.poolings))
    axes.set_xlabel("layer (0: embedding layer)")
    axes.set_ylabel("pooling")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.figure.colorbar(colours, ax=axes, label="Spearman × 100", pad=0.02)


def _readable(background: NDArray[Any]) -> str:
    """Black or white, whichever stands out more: contrast is the ratio of relative luminances (WCAG 2)."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in background[:3]]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "white" if 1.05 / (luminance + 0.05) > (luminance + 0.05) / 0.05 else "black"
