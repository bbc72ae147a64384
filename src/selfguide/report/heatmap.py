"""The heat map of a probe: layers from left to right, poolings from top to bottom, the score in each cell."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from selfguide.errors import UsageError
from selfguide.report.figures import write_figure
from selfguide.report.plots import Measured, ProbeMatrix

if TYPE_CHECKING:
    from selfguide.evaluation.probe import ProbeResult

FORMATS = (".png", ".svg")


def check_plot_path(path: str | Path) -> Path:
    """Check that a figure can be written to a file, before anything is computed.

    Args:
        path: The file.

    Returns:
        The file.

    Raises:
        UsageError: The file has another suffix, or no folder to be in.
    """
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"{path} ends in {path.suffix or 'nothing'}; the plot is written as {' or '.join(FORMATS)}.")
    if path.is_dir():
        raise UsageError(f"{path} is a folder; name a file in it, such as {path / 'probe.png'}.")
    if not path.parent.is_dir():
        raise UsageError(f"{path} cannot be written: there is no folder {path.parent}. Make it first.")
    return path


def write_heatmap(result: ProbeResult, path: str | Path) -> None:
    """Draw the scores of a probe, the best cell outlined.

    Args:
        result: The probe.
        path: A ``.png`` or ``.svg`` file.
    """
    path = check_plot_path(path)
    best = result.best
    figure = ProbeMatrix(
        "probe",
        f"{result.encoder} on {result.task} ({result.rows:,} pairs), Spearman × 100\n"
        f"best: {best.pooling} of layer {best.layer}, {best.score:.1f}",
        "",
        "layer (0: embedding layer)",
        "pooling",
        tuple(map(str, result.layers)),
        result.poolings,
        tuple(tuple(None if math.isnan(score) else Measured(score) for score in row) for row in result.scores),
        outlined=(result.poolings.index(best.pooling), result.layers.index(best.layer)),
        alt=result.summary(),
    )
    write_figure(figure, path)
