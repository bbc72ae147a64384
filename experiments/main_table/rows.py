"""The rows of the main table in their order, and the settings to choose among for the embedded encoder.

Paths are relative to the folder of inputs, in which the comparison runs: they are part of a cell's record.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from selfguide.comparison import grammar

MANIFEST = "manifest.json"
VECTORS, PAIRS, NLI = "vectors.txt", "back-translations.tsv", "nli.tsv"
SETTINGS_FILE = Path(__file__).with_name("settings.txt")

_SUP = f"nli={NLI}"
STOPPING = "patience=10"
"""Ten dev evaluations without a new best end a run, for every tuned row alike, as in the SG-OPT authors' script. The results of
2026-11-16 have five."""

UNTRAINED = (
    "bow",
    f"glove=glove:vectors={VECTORS}",
    f"glove-sif=glove:vectors={VECTORS}:sif=true:remove=1",
    "cls",
    "mean",
    "max",
    "last2",
    "first-last",
    "wk",
    "sif-plain=sif:whiten=false",
    "sif-removal=sif:whiten=false:remove=1",
    "sif",
    "whitening",
    "whitening-last2=whitening:pooling=last2",
    "whitening-first-last=whitening:pooling=first-last",
    "whitening-256=whitening:k=256",
    "whitening-128=whitening:k=128",
    "flow",
)
# The longest come first, so that the last cells of a run are short.
TUNED = (
    "sg-opt",
    "sg",
    f"sg-opt+bt=sg-opt+bt:pairs={PAIRS}",
    "tsdae",
    "ct",
    f"bt=bt:pairs={PAIRS}",
    f"bt-moco=bt-cert:pairs={PAIRS}:optimiser=adamw",
    "is-bert",
    "consert",
    "fused",
    "simcse",
    "clear",
    "ct-in-batch",
    "mirror",
)
CALIBRATED = ("simcse+whitening", "sg-opt+whitening", "consert+whitening", "ct+whitening", "mirror+whitening")
SUPERVISED = (
    f"sbert-nli=sbert-nli:{_SUP}",
    f"consert-joint=consert-joint:{_SUP}",
    f"consert-joint-adversarial=consert-joint:{_SUP}:second=adversarial",
    f"consert-sup-unsup=consert-sup-unsup:{_SUP}",
    f"consert-joint-unsup=consert-joint-unsup:{_SUP}",
    f"infersent=infersent:{_SUP}:vectors={VECTORS}",
)
# Last, so that with --keep they reuse the encoder of sbert-nli. sg-opt tunes [CLS], as everywhere in this table.
ON_SUPERVISED = (f"sbert-nli+sg-opt=sbert-nli:{_SUP}+sg-opt:pooling=cls", f"sbert-nli+flow=sbert-nli:{_SUP}+flow")
LABEL_FREE = UNTRAINED + TUNED + CALIBRATED
ROWS = LABEL_FREE + SUPERVISED + ON_SUPERVISED


@dataclass(frozen=True)
class Choice:
    """Settings of one method to choose among; the first is the published one or close to it."""

    method: str
    tried: tuple[tuple[str, ...], ...]
    source: str = ""
    """The option that names the file the method needs."""


GRID = (
    Choice("ct", (("learning_rate=1e-5",), ("learning_rate=3e-5",))),
    # Batch size 16 instead of 8 halves the number of steps.
    Choice("tsdae", tuple((f"learning_rate={rate}", "batch_size=16") for rate in ("3e-5", "1e-4"))),
    Choice("sg-opt", (("learning_rate=5e-5",), ("learning_rate=2e-5",))),
    # Batch size 64 instead of 16 makes a quarter of the steps, so the rate is higher.
    Choice("sbert-nli", tuple((f"learning_rate={rate}", "batch_size=64") for rate in ("2e-5", "5e-5", "1e-4")), _SUP),
    Choice("bt", (("learning_rate=5e-5",), ("learning_rate=1e-4",)), f"pairs={PAIRS}"),
    Choice("is-bert", (("learning_rate=1e-5",), ("learning_rate=5e-5",), ("learning_rate=2e-4",))),
    Choice("consert-joint", (("learning_rate=2e-5",), ("learning_rate=5e-5",), ("learning_rate=1e-4",)), _SUP),
    # Ten epochs at 5e-7 hardly change this encoder on so few sentences: fewer epochs at a higher rate.
    Choice("consert", tuple((f"learning_rate={rate}", "epochs=2") for rate in ("2e-5", "5e-5", "1e-4"))),
    Choice("simcse", (("learning_rate=3e-5",), ("learning_rate=5e-5",), ("learning_rate=1e-4",))),
    Choice(
        "clear",
        (
            ("learning_rate=3e-5",),
            ("learning_rate=1e-4",),
            ("learning_rate=3e-5", "mlm_weight=0.1"),
            ("learning_rate=1e-4", "mlm_weight=0.1"),
        ),
    ),
    Choice("mirror", tuple((f"learning_rate={rate}", "epochs=2") for rate in ("2e-5", "5e-5", "1e-4"))),
    Choice("ct-in-batch", (("learning_rate=5e-5",), ("learning_rate=1e-4",))),
)


def label_of(spec: str) -> str:
    """Return the label of a row."""
    label, equals, _ = spec.partition("=")
    return label if equals and ":" not in label else spec


def read_settings(path: Path) -> list[str]:
    """Read the lines of a settings file, as ``--set`` takes them; a # starts a comment."""
    lines = (line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line]


def settings_for(specs: tuple[str, ...], settings: list[str]) -> list[str]:
    """Return the settings that one of the rows can use, since a comparison refuses any other."""
    present: set[str] = set()
    for spec in specs:
        label, words = grammar.labelled(spec)
        present |= {label, *(grammar.named_stage(part)[0] for part in grammar.chain(words))}
    return [line for line in settings if grammar.change(line).target in present or not grammar.change(line).target]
