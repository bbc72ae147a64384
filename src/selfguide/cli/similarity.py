"""``selfguide similarity``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from selfguide.cli import options as shared
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
        typer.Option(help="cls, mean, max, last2 or first-last; empty: the encoder's own.", show_default=False),
    ] = None,
    device: shared.Device = "auto",
) -> None:
    """Cosine similarity of two sentences, or of each pair of a file.

    For a file with scores, the Spearman correlation of cosine and score follows on standard error.

    **Examples**

        selfguide similarity "a late train" "the train has a delay"

        selfguide similarity --pairs pairs.tsv --encoder notes-encoder > scored.tsv
    """
    complete = second is not None if pairs is None else first is None
    if not complete:
        raise UsageError("Give two sentences, or --pairs FILE.")

    if pairs is None:
        from selfguide.engine.encode import cosine, encode
        from selfguide.models.encoders import load_encoder

        vectors = encode(
            load_encoder(encoder, pooling, device=None if device == "auto" else device), [str(first), str(second)]
        )
        typer.echo(f"{float(cosine(vectors[0], vectors[1])):.4f}")
        return

    from selfguide.data.pairs import read_sentence_pairs

    graded = read_sentence_pairs(pairs)

    from selfguide.engine.encode import cosine, encode
    from selfguide.models.encoders import load_encoder

    model = load_encoder(encoder, pooling, device=None if device == "auto" else device)
    cosines = cosine(encode(model, graded.first), encode(model, graded.second))
    for value, left, right in zip(cosines.tolist(), graded.first, graded.second, strict=True):
        typer.echo(f"{value:.4f}\t{left}\t{right}")
    if graded.scores is not None:
        if min(len(set(graded.scores)), len(set(cosines.tolist()))) < 2:
            typer.echo("No Spearman correlation: the scores, or the cosines, are all the same.", err=True)
            return
        from selfguide.correlation import spearman

        value = 100 * spearman(cosines, graded.scores)
        typer.echo(f"Spearman of cosine and score over {len(cosines):,} pairs: {value:.2f}", err=True)
