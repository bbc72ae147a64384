"""``selfguide demo``, which ``make demo`` runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from selfguide.cli import options as shared


def demo(
    encoder: shared.Encoder = "mini",
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="Folder for the tuned encoder (an earlier demonstration is replaced); the fused and the adapted one are inside.",
        ),
    ] = Path("demo-output"),
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 1,
) -> None:
    """Tune the embedded encoder on the embedded sentences, combine it with its embedding layer, adapt it, show before and after.

    **Examples**

        selfguide demo

        selfguide demo --encoder bert-base-uncased --output bert-demo
    """
    from selfguide.demo import run_demo

    run_demo(encoder, output, seed)
