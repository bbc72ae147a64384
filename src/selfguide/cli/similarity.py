"""``selfguide similarity``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from selfguide.cli import options as shared
from selfguide.data.pairs import read_sentence_pairs
from selfguide.errors import UsageError


def similarity(
    first: Annotated[str | None, typer.Argument(help="A sentence.", show_default=False)] = None,
    second: Annotated[str | None, typer.Argument(help="Another one.", show_default=False)] = None,
    pairs: Annotated[
        Path | None,
        typer.Option(
            help="A tab-separated file: sentence, sentence; or score, sentence, sentence.", show_default=False
        ),
    ] = None,
    encoder: shared.Encoder = "mini",
    pooling: Annotated[
        str | None,
        typer.Option(help="cls, mean, max, last2 or first-last; default: the encoder's own.", show_default=False),
    ] = None,
    device: shared.Device = "auto",
) -> None:
    """Print the cosine similarity of two sentences, or of each pair of a file.

    For a file with scores, the Spearman correlation of cosine and score follows on standard error.

    **Examples**

        selfguide similarity "a late train" "the train has a delay"

        selfguide similarity --pairs pairs.tsv --encoder notes-encoder > scored.tsv
    """
    complete = second is not None if pairs is None else first is None
    if not complete:
        raise UsageError("Give two sentences, or --pairs FILE.")
    read = None if pairs is None else read_sentence_pairs(pairs)

    # Imported only now, so that help and errors in the file do not wait for torch.
    from selfguide.correlation import spearman
    from selfguide.engine.encode import cosine, encode
    from selfguide.models.encoders import load_encoder

    model = load_encoder(encoder, pooling, device=device)
    if read is None:
        one, other = encode(model, [str(first), str(second)])
        typer.echo(f"{float(cosine(one, other)):.4f}")
        return
    cosines = cosine(encode(model, read.first), encode(model, read.second))
    for value, left, right in zip(cosines.tolist(), read.first, read.second, strict=True):
        typer.echo(f"{value:.4f}\t{left}\t{right}")
    if read.scores is None:
        return
    correlation = 100 * spearman(cosines, read.scores)
    if math.isnan(correlation):
        typer.echo("No Spearman correlation: the scores, or the cosines, are all the same.", err=True)
    else:
        typer.echo(f"Spearman of cosine and score over {len(cosines):,} pairs: {correlation:.2f}", err=True)
