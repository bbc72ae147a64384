"""The figures of ``study.json`` as PNG and SVG files. Needs matplotlib, from the extra ``plots``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfguide.errors import SelfguideError
from selfguide.evaluation.heatmap import COLOURS
from selfguide.studies.files import FIGURES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MISSING = "The figures were not drawn, since matplotlib is not installed: pip install 'selfguide[plots]'"
# Okabe and Ito's colours, told apart with every kind of colour vision; lines differ in their marks too.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
_MARKS = ("o", "s", "^", "D", "v", "P", "X")


def can_draw() -> bool:
    """Whether matplotlib is there."""
    return find_spec("matplotlib") is not None


def draw_figures(results: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw every figure into ``folder/figures``; returns their paths. Each file carries its alt text as a description."""
    from matplotlib.figure import Figure

    written = []
    for content in results["figures"]:
        figure = Figure(figsize=_size(content), dpi=150)
        figure.set_layout_engine("constrained")
        axes = figure.add_subplot()
        _KINDS[content["kind"]](axes, content)
        axes.set_title(content["title"], loc="left")
        for kind in ("png", "svg"):
            path = folder / FIGURES / f"{content['key']}.{kind}"
            _save(figure, path, content)
            written.append(path)
    return written


def _size(content: Mapping[str, Any]) -> tuple[float, float]:
    if content["kind"] == "dots":
        return 7.0, 1.4 + 0.32 * len(content["dots"])
    if content["kind"] == "matrix":
        return 2.6 + 1.05 * len(content["columns"]), 1.8 + 0.62 * len(content["rows"])
    return 7.0, 4.2


def _lines(axes: Axes, content: Mapping[str, Any]) -> None:
    words = _words(content)
    for place, series in enumerate(content["series"]):
        points = [(x, value) for x, value in series["points"] if value["mean"] is not None]
        axes.errorbar(
            [words.index(x) if words else x for x, _ in points],
            [value["mean"] for _, value in points],
            yerr=[value["deviation"] or 0.0 for _, value in points],
            label=series["name"],
            color=_COLOURS[place % len(_COLOURS)],
            marker=_MARKS[place % len(_MARKS)],
            capsize=3,
        )
    for name, level in content["levels"].items():
        if level is not None:
            axes.axhline(level, color="0.45", linestyle=":")
            axes.annotate(name, (1.0, level), xycoords=("axes fraction", "data"), ha="right", va="bottom", color="0.3")
    if content["log"]:
        axes.set_xscale("log")
    if words:
        axes.set_xticks(range(len(words)), words)
    else:
        across = sorted({x for series in content["series"] for x, _ in series["points"]})
        if len(across) <= 12:
            axes.set_xticks(across, [f"{x:g}" for x in across])
            axes.minorticks_off()
    axes.set_xlabel(content["across"])
    axes.set_ylabel(content["up"])
    if len(content["series"]) > 1:
        axes.legend(frameon=False)


def _words(content: Mapping[str, Any]) -> list[str]:
    """What stands across where it is words; nothing where it is numbers."""
    across = list(dict.fromkeys(x for series in content["series"] for x, _ in series["points"]))
    return across if any(isinstance(x, str) for x in across) else []


def _dots(axes: Axes, content: Mapping[str, Any]) -> None:
    for place, (_, value) in enumerate(content["dots"]):
        if value["mean"] is not None:
            seeds = list(value["by_seed"].values())
            if len(seeds) > 1:
                axes.scatter(seeds, [place + 0.28] * len(seeds), s=7, color="0.35", linewidths=0)
            axes.errorbar(
                value["mean"], place, xerr=value["deviation"] or 0.0, color=_COLOURS[0], marker="o", capsize=3
            )
    for name, level in content["levels"].items():
        if level is not None:
            axes.axvline(level, color="0.45", linestyle=":", label=name)
    axes.set_yticks(range(len(content["dots"])), [label for label, _ in content["dots"]])
    axes.invert_yaxis()
    axes.set_xlabel(content["across"])
    axes.grid(axis="x", color="0.9")
    if content["levels"]:
        axes.legend(frameon=False)


def _matrix(axes: Axes, content: Mapping[str, Any]) -> None:
    import numpy as np

    means = [[None if value is None else value["mean"] for value in row] for row in content["values"]]
    numbers = np.ma.masked_invalid(np.array([[np.nan if mean is None else mean for mean in row] for row in means]))
    axes.imshow(numbers, cmap=COLOURS, aspect="auto")
    low, high = (float(numbers.min()), float(numbers.max())) if numbers.count() else (0.0, 1.0)
    for row, values in enumerate(content["values"]):
        for column, value in enumerate(values):
            mean = means[row][column]
            text = "–" if mean is None else f"{mean:.1f}"
            if mean is not None and value["deviation"] is not None:
                text += f"\n± {value['deviation']:.1f}"
            # Black reads better than white from the scale's middle greys on.
            dark = mean is not None and mean < low + 0.4 * (high - low)
            axes.text(column, row, text, ha="center", va="center", fontsize=9, color="white" if dark else "black")
    axes.set_xticks(range(len(content["columns"])), content["columns"])
    axes.set_yticks(range(len(content["rows"])), content["rows"])
    axes.set_xlabel(content["across"])
    axes.set_ylabel(content["down"])


def _scatter(axes: Axes, content: Mapping[str, Any]) -> None:
    for place, (name, points) in enumerate(content["groups"].items()):
        axes.scatter(
            [x for x, _ in points],
            [y for _, y in points],
            s=14,
            alpha=0.6,
            label=name,
            color=_COLOURS[place % len(_COLOURS)],
            marker=_MARKS[place % len(_MARKS)],
            linewidths=0,
        )
    axes.set_xlabel(content["across"])
    axes.set_ylabel(content["up"])
    if len(content["groups"]) > 1:
        axes.legend()  # in a frame, or its marks would be lost among the points


def _histogram(axes: Axes, content: Mapping[str, Any]) -> None:
    for place, (name, counts) in enumerate(content["series"].items()):
        total = max(1, sum(counts))
        colour = _COLOURS[place % len(_COLOURS)]
        style = ("-", "--", ":", "-.")[place % 4]
        axes.stairs([count / total for count in counts], content["edges"], label=name, color=colour, linestyle=style)
    axes.set_xlabel(content["across"])
    axes.set_ylabel("share")
    axes.legend(frameon=False)


_KINDS: dict[str, Callable[[Any, Mapping[str, Any]], None]] = {
    "lines": _lines,
    "dots": _dots,
    "matrix": _matrix,
    "scatter": _scatter,
    "histogram": _histogram,
}


def _save(figure: Any, path: Path, content: Mapping[str, Any]) -> None:
    """The file gets its name only when it is complete."""
    import matplotlib

    fresh = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    kind = path.suffix[1:]
    metadata: dict[str, Any] = {"Title": content["title"], "Description": content["alt"]}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # A fixed salt for the names inside an SVG and no date: the same results give the same file.
        with matplotlib.rc_context({"svg.hashsalt": "selfguide"}):
            figure.savefig(fresh, format=kind, metadata=metadata | ({"Date": None} if kind == "svg" else {}))
        fresh.replace(path)
    except OSError as error:
        raise SelfguideError(f"{path} cannot be written: {error.strerror or error}.") from None
    finally:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
