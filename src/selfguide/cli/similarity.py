"""``selfguide similarity``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from selfguide.cli import options as shared
from selfguide.data.pairs import read_sentence_pairs
from selfguide.errors import SelfguideError, UsageError

if TYPE_CHECKING:
    from selfguide.engine.similarity_scale import SimilarityScale


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
    pooling: shared.Pooling = None,
    device: shared.Device = "auto",
) -> None:
    """Print the cosine similarity of two sentences, or of each pair of a file.

    Beside the cosine stands how many of 1,000 random pairs of the encoder's text are closer, if its folder knows (what selfguide
    made does). For a file with scores, the Spearman correlation of cosine and score follows on standard error.

    **Examples**

        selfguide similarity "a late train" "the train has a delay"

        selfguide similarity --pairs pairs.tsv --encoder notes-encoder > scored.tsv
    """
    complete = second is not None if pairs is None else first is None
    if not complete:
        raise UsageError("Give two sentences, or --pairs FILE.")
    if pairs is None and not all(str(sentence).strip() for sentence in (first, second)):
        raise UsageError("One of the two sentences is empty.")
    read = None if pairs is None else read_sentence_pairs(pairs)

    # Imported only now, so that help and errors in the file do not wait for torch.
    from selfguide.correlation import spearman
    from selfguide.engine.encode import cosine, encode
    from selfguide.engine.vocabulary_fit import foreign_text
    from selfguide.models.encoders import load_encoder

    model = load_encoder(encoder, pooling, device=device)
    scale = _scale(encoder, pooling)
    compared = [str(first), str(second)] if read is None else [*read.first, *read.second]
    if foreign := foreign_text(model.tokenizer, compared):
        typer.echo(f"warning: {foreign}", err=True)
    if read is None:
        one, other = encode(model, [str(first), str(second)])
        value = float(cosine(one, other))
        typer.echo(f"{value:.4f}" + (f"\t{closer_pairs(scale.closer_of_thousand(value))}" if scale else ""))
        _explain(scale)
        return
    from selfguide.progress import counted

    cosines = cosine(encode(model, read.first), encode(model, read.second))
    for value, left, right in zip(cosines.tolist(), read.first, read.second, strict=True):
        closer = f"\t{scale.closer_of_thousand(value):.1f}" if scale else ""
        typer.echo(f"{value:.4f}\t{left}\t{right}{closer}")
    _explain(scale, "The last column is how many of 1,000 random pairs of the encoder's text are closer. ")
    if read.scores is None:
        return
    correlation = 100 * spearman(cosines, read.scores)
    if math.isnan(correlation):
        typer.echo("No Spearman correlation: the scores, or the cosines, are all the same.", err=True)
    else:
        typer.echo(f"Spearman of cosine and score over {counted(len(cosines), 'pair')}: {correlation:.2f}", err=True)


def closer_pairs(count: float) -> str:
    """Return in words how many of 1,000 random pairs are closer."""
    if 0 < count < 1:
        return "fewer than 1 of 1,000 random pairs of its text are closer"
    return f"{round(count):,} of 1,000 random pairs of its text {'is' if round(count) == 1 else 'are'} closer"


def _scale(encoder: str, pooling: str | None) -> SimilarityScale | None:
    """Return the similarity scale in the encoder's folder; it does not hold for another pooling."""
    from selfguide.engine.similarity_scale import read_scale

    folder = Path(encoder)
    if pooling is not None or not folder.is_dir():
        return None
    try:
        return read_scale(folder)
    except SelfguideError as error:
        typer.echo(f"warning: {error}", err=True)
        return None


def _explain(scale: SimilarityScale | None, before: str = "") -> None:
    if scale is not None:
        median = scale.at(50.0, nearest=True)
        typer.echo(
            f"{before}Measured on {scale.origin}; nearest neighbours there: {median:.2f} in the median.", err=True
        )
