"""``selfguide report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    folder: Annotated[
        Path,
        typer.Argument(help="Folder that `selfguide compare`, `study`, `train` or `eval` wrote.", show_default=False),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write; default: report.html in the folder.", show_default=False),
    ] = None,
) -> None:
    """Make one self-contained HTML page of a comparison, a study, a run or a folder of scores. No model is loaded.

    **Examples**

        selfguide report comparison

        selfguide report notes-encoder --output notes.html
    """
    from selfguide.report.folders import write_report

    typer.echo(f"Report: {write_report(folder, output)}")
