"""``selfguide calibrate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from selfguide.cli import options as shared
from selfguide.cli.text_options import ReadingOptions


@shared.spread
def calibrate(
    folder: Annotated[
        Path, typer.Argument(help="A run folder whose calibration can be fitted again.", show_default=False)
    ],
    text: Annotated[
        list[str],
        typer.Argument(help="Files, folders, globs, - for standard input, or hf:owner/name.", show_default=False),
    ],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Folder to make.", show_default=False)] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Fit on the new text alone, without the statistics of the old one.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace --output, or the folder itself where --output is left out.")
    ] = False,
    batch_size: Annotated[int, typer.Option(help="Sentences per forward pass.", min=1)] = 64,
    device: shared.Device = "auto",
    quiet: shared.Quiet = False,
    *,
    reading: ReadingOptions,
) -> None:
    """Fit an encoder's statistics on more text, without training: seconds instead of minutes.

    The encoder's own weights and its token frequencies stay as they are. New text is merged with the text of the run
    exactly, as if both had been there from the start.

    **Examples**

        selfguide calibrate notes-fused more-notes.txt --output notes-fused-2

        selfguide calibrate notes-fused tickets.csv --column body --fresh --output tickets-fused
    """
    from selfguide.data import Sentences
    from selfguide.models.encoders import quiet_libraries
    from selfguide.progress import Reporter
    from selfguide.runs import calibrate as calibration

    reporter = Reporter(quiet=quiet)
    sentences = Sentences(text, reading.text_options())
    with quiet_libraries():
        made = calibration.calibrate(
            folder,
            sentences,
            output,
            fresh=fresh,
            overwrite=overwrite,
            batch_size=batch_size,
            device=device,
            reporter=reporter,
        )
    for note in sentences.described():
        reporter.note(note)
    reporter.note(f"Calibrated: {made}")
