"""The demonstration: tune on the embedded sentences, and compare before and after on the embedded pairs.

In its first act it tunes a raw language model with SG-OPT, and puts ``fused`` on top, which combines the tuned [CLS] vector with
the embedding layer (which SG-OPT leaves unchanged) without further training. In its second act the tuned encoder is what most
users start from, a sentence encoder that is good already, and is adapted to a quarter of these sentences without labels: the
run itself decides what it keeps of that.

The pairs are a demonstration, not a benchmark (see ``resources/demo/README.md``): the dev half selects the checkpoint, the
test half gives the scores of the table. The sentences whose neighbours are shown are drawn at random by the run, and printed as
they come.
"""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from selfguide.correlation import spearman
from selfguide.data.pairs import Pairs
from selfguide.data.resources import demo_file, demo_pairs, demo_sentences
from selfguide.engine.encode import cosine, encode
from selfguide.errors import SelfguideError, UsageError
from selfguide.models.encoders import load_encoder
from selfguide.options import SEED, check
from selfguide.progress import Reporter
from selfguide.report.table import Cell, Heading, Table, print_table
from selfguide.runs.folder import partial_folder
from selfguide.runs.run import adapt, run, train
from selfguide.training.configuration import RUN_FILE, RunConfig, RunRecord

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

# Not a row of the papers.
FUSED = "fused: tuned [CLS] and layer 0 (ours, not in the papers)"
ADAPTED = "tuned with SG-OPT, then adapted (ours, not in the papers)"


def score(encoder: SentenceTransformer, pairs: Pairs) -> float:
    """Return the Spearman correlation × 100 of cosine similarity and grade."""
    cosines = cosine(
        encode(encoder, pairs.first, show_progress=False), encode(encoder, pairs.second, show_progress=False)
    )
    return 100 * spearman(cosines, pairs.scores)


def run_demo(encoder: str, output: Path, seed: int) -> dict[str, float]:
    """Run the demonstration and print it.

    Args:
        encoder: Name or folder of the encoder to start from.
        output: Folder for the tuned encoder; that of an earlier demonstration is replaced. The fused and the adapted one are
            saved inside.
        seed: Seed of the training.

    Returns:
        The test score of each row of the table.

    Raises:
        UsageError: There is something else at ``output``.
    """
    check("seed", seed, SEED)
    for folder in (output, partial_folder(output)):
        _refuse_what_is_no_demonstration(folder)
    console = Console(highlight=False)
    started = time.monotonic()
    pairs, sentences = demo_pairs("test"), demo_sentences()
    counts = f"{len(sentences):,} sentences without labels; {len(pairs.scores)} graded pairs to check with"
    console.print(f"Encoder [bold]{encoder}[/bold]; {counts}.")
    before = {pooling: load_encoder(encoder, pooling=pooling) for pooling in ("cls", "mean")}
    table = {f"{name}, untuned": score(model, pairs) for name, model in before.items()}
    config = RunConfig(
        text=(str(demo_file("sentences.txt")),),
        encoder=encoder,
        # The best weights come early on so little text: evaluate often, and stop soon.
        training={"seed": seed, "dev_every": 25, "patience": 4},
        dev=str(demo_file("pairs-dev.tsv")),
    )
    console.print("Tuning its [CLS] vector with SG-OPT (self-guided contrastive learning) ...", markup=False)
    tuned, record = run(config, output, Reporter(), overwrite=True)
    table["cls, tuned with SG-OPT"] = score(tuned, pairs)
    console.print("Joining it with the embedding layer (fused), nothing more is trained ...")
    table[FUSED] = score(_fused(output, sentences), pairs)
    console.print(
        "Second act: adapting the tuned encoder, a sentence encoder now, to a quarter of the sentences, without labels ..."
    )
    adapted, chosen = _adapted(output, sentences, seed)
    console.print(f"  {chosen}", markup=False)
    table[ADAPTED] = score(adapted, pairs)
    _show_table(console, table, len(pairs.scores))
    console.print(
        f"{record.steps} steps at {record.sentences_per_second:.0f} sentences/s, {time.monotonic() - started:.0f} s in all. "
        f"The encoder is in [bold]{output}[/bold], a plain sentence-transformers folder; [bold]{output}/report.html[/bold] shows "
        f"what changed. [bold]{output}/fused[/bold] is the fused one, "
        f"[bold]{output}/adapted[/bold] the adapted one."
    )
    console.print("\nNext:")
    for line in (
        "selfguide train your-sentences.txt              tune a raw language model on text of your own",
        "selfguide adapt your-sentences.txt -e ENCODER   adapt a sentence encoder that you have",
        f'selfguide similarity "a late train" "the train has a delay" --encoder {shlex.quote(str(output))}',
        f"selfguide encode your-sentences.txt --encoder {shlex.quote(str(output))} --output vectors.npy",
        "selfguide eval mini --pooling cls,mean          score any encoder",
        "selfguide compare your-sentences.txt --methods mean,whitening,simcse,sg-opt,fused",
        "selfguide methods                               what else there is",
    ):
        console.print("  " + line, markup=False)
    return table


def _refuse_what_is_no_demonstration(folder: Path) -> None:
    """Refuse to replace anything but what an earlier demonstration made."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    try:
        text = [Path(name).parts[-2:] for name in RunConfig.from_file(folder / RUN_FILE).text]
    except SelfguideError:
        text = []
    if text != [demo_file("sentences.txt").parts[-2:]]:
        raise UsageError(f"{folder} exists already, and is no earlier demonstration: choose another --output.")


def _fused(tuned: Path, sentences: list[str]) -> SentenceTransformer:
    """Do what ``selfguide train --method fused --encoder TUNED --tune none`` does, in a folder inside the tuned one's.

    A sixth of the sentences keeps it to a few seconds. The dev pairs select the weight, as they did the checkpoint.
    """
    some, dev = sentences[::6], demo_file("pairs-dev.tsv")
    output = tuned / "fused"
    return train(tuned, some, "fused", output=output, tune="none", dev=dev, overwrite=True, report=False, quiet=True)


def _adapted(tuned: Path, sentences: list[str], seed: int) -> tuple[SentenceTransformer, str]:
    """Do what ``selfguide adapt --encoder TUNED`` does, in a folder inside the tuned one's; return what was chosen as well.

    A quarter of the sentences keeps it to half a minute.
    """
    some, output = sentences[::4], tuned / "adapted"
    encoder = adapt(tuned, some, output=output, seed=seed, overwrite=True, report=False, quiet=True)
    return encoder, str(RunRecord.from_file(output / RUN_FILE).choice["sentence"])


def _show_table(console: Console, table: dict[str, float], count: int) -> None:
    headings = [Heading("sentence vector"), Heading("Spearman x 100", better="high")]
    rows = [[Cell(name.replace("cls", "[CLS]")), Cell(f"{value:.1f}", value=value)] for name, value in table.items()]
    print_table(Table(headings, rows, caption=f"{count} graded pairs (test half)"), console)
