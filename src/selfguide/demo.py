"""The demonstration: tune on the embedded sentences, show before and after on the embedded pairs.

Two encoders come of it: one tuned with SG-OPT, and ``fused`` on top of it, which joins the tuned [CLS] and the embedding
layer (SG-OPT leaves that layer as it was) in one vector and trains nothing more.

The pairs are a demonstration, not a benchmark (see ``resources/demo/README.md``): the dev half chooses the checkpoint, the
test half is what the table shows.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from selfguide import correlation
from selfguide.data.pairs import Pairs
from selfguide.data.resources import demo_file, demo_pairs, demo_sentences
from selfguide.engine.encode import cosine, encode
from selfguide.models.encoders import load_encoder
from selfguide.progress import Reporter
from selfguide.runs.run import run, train
from selfguide.training.configuration import RunConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer

# Questions a reader can judge at a glance: the nearest sentence before and after tells the story better than a number.
QUERIES = (
    "The flight was cancelled because of the storm.",
    "How can I get my money back for a damaged parcel?",
    "The company cut hundreds of jobs after a weak quarter.",
    "Take the tablets with food to avoid an upset stomach.",
)

# How the row of our own method is named: nobody should look for it in the papers.
FUSED = "fused: tuned [CLS] and layer 0 (ours, not in the papers)"


def spearman(encoder: SentenceTransformer, pairs: Pairs) -> float:
    """Spearman × 100 of cosine and grade."""
    cosines = cosine(
        encode(encoder, pairs.first, show_progress=False), encode(encoder, pairs.second, show_progress=False)
    )
    return 100 * correlation.spearman(cosines, pairs.scores)


def run_demo(encoder: str, output: Path, seed: int) -> dict[str, float]:
    """Do the demonstration and print it; returns the table."""
    from rich.console import Console

    console = Console(highlight=False)
    started = time.monotonic()
    pairs, sentences = demo_pairs("test"), demo_sentences()
    counts = f"{len(sentences):,} sentences without labels; {len(pairs.scores)} graded pairs to check with"
    console.print(f"Encoder [bold]{encoder}[/bold]; {counts}.")
    before = {pooling: load_encoder(encoder, pooling=pooling) for pooling in ("cls", "mean")}
    table = {f"{name}, untuned": spearman(model, pairs) for name, model in before.items()}
    config = RunConfig(
        text=(str(demo_file("sentences.txt")),),
        encoder=encoder,
        # The best weights come early on so little text: look often, and stop when nothing more comes.
        training={"seed": seed, "dev_every": 25, "patience": 4},
        dev=str(demo_file("pairs-dev.tsv")),
    )
    console.print("Tuning its [CLS] vector with SG-OPT (self-guided contrastive learning) ...", markup=False)
    tuned, record = run(config, output, Reporter(), overwrite=True)
    table["cls, tuned with SG-OPT"] = spearman(tuned, pairs)
    console.print("Joining it with the embedding layer (fused), nothing more is trained ...")
    table[FUSED] = spearman(_fused(output, sentences), pairs)
    _show_table(console, table, len(pairs.scores))
    _show_neighbours(console, sentences, before["cls"], tuned)
    console.print(
        f"{record.steps} steps at {record.sentences_per_second:.0f} sentences/s, {time.monotonic() - started:.0f} s in all. "
        f"The encoder is in [bold]{output}[/bold], a plain sentence-transformers folder; [bold]{output}/report.html[/bold] shows "
        f"what changed. [bold]{output}/fused[/bold] is the fused one."
    )
    console.print("\nNext:")
    for line in (
        "selfguide train your-sentences.txt              tune on text of your own",
        f'selfguide similarity "a late train" "the train has a delay" --encoder {output}',
        f"selfguide encode your-sentences.txt --encoder {output} --output vectors.npy",
        "selfguide eval mini --pooling cls,mean          score any encoder",
        "selfguide compare your-sentences.txt --methods mean,whitening,simcse,sg-opt,fused",
        "selfguide methods                               what else there is",
    ):
        console.print("  " + line, markup=False)
    return table


def _fused(tuned: Path, sentences: list[str]) -> SentenceTransformer:
    """What ``selfguide train --method fused --encoder TUNED --tune none`` makes, in a folder inside the tuned one's.

    A sixth of the sentences keeps it to a few seconds. The dev pairs, which chose the checkpoint, choose the weight too.
    """
    some, dev = sentences[::6], demo_file("pairs-dev.tsv")
    return train(tuned, some, "fused", output=tuned / "fused", tune="none", dev=dev, overwrite=True, report=False)


def _show_table(console: Any, table: dict[str, float], count: int) -> None:
    from rich.table import Table

    best = max(table.values())
    shown = Table("sentence vector", "Spearman x 100", title=f"{count} graded pairs (test half)", title_justify="left")
    for name, score in table.items():
        cell = f"{score:.1f}"
        shown.add_row(
            name.replace("cls", "[CLS]").replace("[", r"\["), f"[bold]{cell}[/bold]" if score == best else cell
        )
    console.print(shown)


def _show_neighbours(
    console: Any, sentences: list[str], before: SentenceTransformer, after: SentenceTransformer
) -> None:
    console.print("Nearest of the embedded sentences by the \\[CLS] vector, before and after tuning:")
    sentences = sentences[::4]  # a quarter is enough to show it, and keeps the demonstration short
    nearest = [_nearest(encode(model, [*QUERIES, *sentences], normalise=True)) for model in (before, after)]
    for query, old, new in zip(QUERIES, *nearest, strict=True):
        console.print(f"  [bold]{query}[/bold]")
        console.print(f"    before  {sentences[old]}", markup=False)
        console.print(f"    after   {sentences[new]}", markup=False)


def _nearest(vectors: NDArray[np.float32]) -> list[int]:
    queries, others = vectors[: len(QUERIES)], vectors[len(QUERIES) :]
    return [int(row) for row in (queries @ others.T).argmax(axis=1)]
