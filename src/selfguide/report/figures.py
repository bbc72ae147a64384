"""The one figure renderer: SVG that is part of a page, or PNG and SVG files.

matplotlib is imported when the first figure is drawn, its settings are left as they were, and the same figure gives the
same bytes.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from markupsafe import Markup

from selfguide.errors import SelfguideError
from selfguide.files import atomic_path
from selfguide.report.drawing import INK, LABEL_SIZE, QUIET, RULE, THEME, draw
from selfguide.report.plots import Dots, Figure, Histogram, Lines, Matrix, Scatter
from selfguide.report.svg import inline_svg

_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": RULE,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.labelcolor": QUIET,
    "axes.labelsize": LABEL_SIZE,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.family": "DejaVu Sans",
    "font.size": 11.5,
    "grid.color": RULE,
    "legend.borderaxespad": 0,
    "legend.fontsize": 11,
    "legend.frameon": False,
    "legend.handlelength": 2.4,
    "lines.linewidth": 1.6,
    "lines.markersize": 5.5,
    "savefig.dpi": 200,
    "svg.hashsalt": "selfguide",
    "text.color": INK,
    "text.parse_math": False,
    "xtick.labelcolor": QUIET,
    "xtick.labelsize": LABEL_SIZE,
    "xtick.major.size": 0,
    "ytick.labelcolor": QUIET,
    "ytick.labelsize": LABEL_SIZE,
    "ytick.major.size": 0,
}


def svg(figure: Figure) -> Markup:
    """Draw a figure as SVG for a page.

    Args:
        figure: What to draw.

    Returns:
        An ``svg`` element with a title and a description, whose marks have tooltips and their exact numbers as attributes;
        empty where the figure has no numbers.
    """
    if is_empty(figure):
        return Markup()
    figure = _printable(figure)
    with _settings({"svg.fonttype": "none"}):
        drawing = draw(figure)
        drawing.canvas.patch.set_visible(False)
        content = io.StringIO()
        drawing.canvas.savefig(content, format="svg", metadata={"Date": None})
    return inline_svg(content.getvalue(), figure.key, figure.title, figure.alt or figure.title, drawing.marks, THEME)


def write_figure(figure: Figure, *paths: Path) -> None:
    """Draw a figure into files, with its title, and its alternative text as description.

    Args:
        figure: What to draw.
        paths: ``.png`` and ``.svg`` files; their folders are created if need be.

    Raises:
        SelfguideError: A file cannot be written.
    """
    figure = _printable(figure)
    with _settings({}):
        canvas = draw(figure).canvas
        title = canvas.suptitle(figure.title, x=0.01, ha="left", fontsize=13)
        canvas.set_figheight(canvas.get_figheight() + 22 * len(title.get_text().splitlines()) / 72)
        for path in paths:
            kind = path.suffix.lower()[1:]
            metadata: dict[str, Any] = {"Title": figure.title, "Description": figure.alt}
            metadata |= {"Date": None} if kind == "svg" else {"Software": None}
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                with atomic_path(path) as temporary:
                    canvas.savefig(temporary, format=kind, metadata=metadata)
            except OSError as error:
                raise SelfguideError(f"{path} cannot be written: {error.strerror or error}.") from None


def is_empty(figure: Figure) -> bool:
    """Return whether a figure has no numbers to draw."""
    if isinstance(figure, Lines):
        return not any(series.points for series in figure.series)
    if isinstance(figure, Matrix):
        return not any(value for row in figure.values for value in row)
    if isinstance(figure, Histogram):
        return not any(map(sum, figure.series.values()))
    if isinstance(figure, Scatter):
        return not any(figure.groups.values())
    return isinstance(figure, Dots) and not figure.dots


@contextmanager
def _settings(more: Mapping[Any, Any]) -> Iterator[None]:
    """Draw with our settings alone, not the user's matplotlib configuration, and without warnings about rare letters."""
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({**_STYLE, **more})
        yield


def _printable(value: Any) -> Any:
    """Replace the characters of a figure's texts that neither XML nor a font can hold."""
    if isinstance(value, str):
        return _UNPRINTABLE.sub("\ufffd", value)
    if isinstance(value, tuple):
        return tuple(map(_printable, value))
    if isinstance(value, Mapping):
        return {_printable(key): _printable(item) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{item.name: _printable(getattr(value, item.name)) for item in fields(value)})
    return value
