"""Tables about the method `fused`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from experiments.pages.figures import Form, figure, written
from experiments.pages.sources import Spread, lookup, value
from experiments.pages.tables.markdown import best_in_bold, bold, table

ROW = "fused:simcse-0.05"
WHOLE = "weight, cls centred only: 0.50"
BINS = (
    ("up to 8 words", "by length", "0 to 8 words"),
    ("8 to 14", "by length", "8 to 14 words"),
    ("14 to 22", "by length", "14 to 22 words"),
    ("22 and more", "by length", "22 to 10000 words"),
    ("share less than 0.15 of their content words", "by overlap", "0 to 0.15"),
    ("0.15 to 0.35", "by overlap", "0.15 to 0.35"),
    ("0.35 to 0.6", "by overlap", "0.35 to 0.6"),
    ("more than 0.6", "by overlap", "0.6 to 1"),
)
TEXTS = ("twitter-url-test", "demo", "mqp")
# The lines of the ablation: what, the variants, and whether deviations are shown.
ABLATION: tuple[tuple[str, Sequence[str], bool], ...] = (
    ("the tuned embedding alone; whitened", ("part: cls", "part: cls, whitened"), True),
    (
        "the view alone; whitened by sentences; not whitened",
        ("part: view, tokens whitened", "part: view, whitened", "part: view"),
        False,
    ),
    ("both parts whitened; neither", ("part: cls whitened, tokens of the view whitened", "part: both"), True),
    ("view whitened by sentences", ("exponent, sentences, of view alone: 0.5",), True),
    (
        "weight 0.2, 0.35, 0.45, 0.55, 0.65, 0.8",
        [f"weight, cls centred only: {weight}" for weight in ("0.20", "0.35", "0.45", "0.55", "0.65", "0.80")],
        False,
    ),
    (
        "view layer 1, 2, 6, 12 (whitened by sentences)",
        [f"view layer, sentences whitened: {layer}" for layer in (1, 2, 6, 12)],
        False,
    ),
    (
        "frequencies of the table, the text, both, none",
        [*(f"frequencies: {name}, a=0.001" for name in ("table", "text", "both")), "frequencies: none (plain mean)"],
        False,
    ),
    ("a = 0.0003, 0.003, 0.01", [f"frequencies: both, a={a}" for a in ("0.0003", "0.003", "0.01")], False),
    ("piece weight 0.2, 0.4, 0.8, 1", [f"piece weight: {weight}" for weight in ("0.2", "0.4", "0.8", "1")], False),
    (
        "calibrated on tweets, the demonstration's sentences, medical questions",
        [f"calibration text: {text}" for text in TEXTS],
        False,
    ),
    (
        "the same without the prior of general English",
        [f"calibration text, without general English: {text}" for text in TEXTS],
        False,
    ),
    ("`--dim` 512, 384, 256, 192, 128, 64", [f"k: {k}" for k in (512, 384, 256, 192, 128, 64)], False),
)
IDEAS: tuple[tuple[str, Sequence[str]], ...] = (
    ("token weights learnt so that the view predicts the tuned part (1 seed)", ("idea, learnt token weights",)),
    ("bigrams as a third part", ("idea, bigrams",)),
    ("the tuned part less what the view predicts of it", ("idea, tuned part less",)),
    ("low-rank covariance of the tuned part", ("idea, low-rank",)),
    ("robust covariance of the tuned part", ("idea, robust",)),
    ("both parts whitened as one", ("idea, whitened jointly",)),
)
OBJECTIVES = {
    "hard negatives: those that the view finds alike count more (3 seeds)": ("hard-5",),
    "the same count less, two strengths (3 seeds)": ("hard--5", "hard--20"),
    "a tuned part trained to differ from the view, two strengths (3 seeds)": ("differ-0.3", "differ-3"),
    "SG-OPT beside SimCSE on the same vector, three strengths (3 seeds)": ("guided-0.03", "guided-0.1", "guided-0.5"),
}
DOMAIN = {"mean, untuned": "mean", "SimCSE": "simcse", "ConSERT": "consert", "SG-OPT": "sg-opt", "`fused`": "fused"}


def evidence() -> str:
    """What each part is good at: the parts as they stand in the folder, and the tuned part without its map."""
    columns = ("tuned [CLS]", "tuned [CLS], whitened", "view, whitened", "both, whitened")
    rows = [
        [label, *(figure(f"evidence:'{kind}'/'{name}'/'{column}'", 1) for column in columns)]
        for label, kind, name in BINS
    ]
    for place, row in enumerate(rows):
        best = max(range(1, 5), key=lambda column: float(rows[place][column]))
        row[best] = bold(row[best])
    return table("pairs | the tuned encoder's [CLS] itself | tuned part | view | both: `fused`", rows)


def ablation() -> str:
    """One thing changed at a time."""
    rows = [["**as it is** (weight 0.5)", bold(_average(ROW, WHOLE, True)), _dev(ROW, WHOLE)]]
    for label, variants, spread in ABLATION:
        mark = "; " if ";" in label else ", "
        averages = mark.join(_average(ROW, variant, spread) for variant in variants)
        rows.append([label, averages, mark.join(_dev(ROW, variant) for variant in variants)])
    for dropout in ("0.02", "0.1"):
        row = f"fused:simcse-{dropout}"
        rows.append([f"dropout {dropout}", _average(row, WHOLE, True), _dev(row, WHOLE)])
    return table(" | average | STS-B dev", rows)


def ideas() -> str:
    """What was tried to get further; of several settings, the one that STS-B dev prefers."""
    rows = []
    for label, starts in IDEAS:
        tried = [name for name in lookup(ROW) if name.startswith(tuple(starts))]
        best = max(tried, key=lambda name: lookup(ROW)[name]["stsb-dev"])
        count = f" ({len(tried)} settings)" if len(tried) > 1 else ""
        rows.append([label + count, _average(ROW, best, False), _dev(ROW, best)])
    for label, names in OBJECTIVES.items():
        averages = "; ".join(_average(f"fused:{name}", WHOLE, True) for name in names)
        rows.append([label, averages, "; ".join(_dev(f"fused:{name}", WHOLE) for name in names)])
    two = ("fused:two-parts-0.1", "two parts: both and view")
    label = "two tuned parts in one network, SimCSE on [CLS] and SG-OPT on the mean (3 seeds)"
    rows.append([label, _average(*two, True), _dev(*two)])
    return table("idea | average | STS-B dev", rows)


def _average(row: str, variant: str, spread: bool) -> str:
    return figure(f"{row}/'{variant}'", spread=spread)


def _dev(row: str, variant: str) -> str:
    return figure(f"{row}/'{variant}'/stsb-dev")


def domain() -> str:
    """Methods on the text of other domains."""
    rows = []
    for label, name in DOMAIN.items():
        both = f"fused-domain:'mean of the files'/{name}"
        files = [figure(f"fused-domain:rows/{file}/{name}", spread=True) for file in ("mqp", "twitter-url-test")]
        over = ""
        if name not in ("mean", "simcse"):
            gap = value(f"{both}/'over simcse'")
            assert isinstance(gap, Spread)
            over = written(gap, Form(2, 2, sign=True))
        rows.append([label, *files, figure(both, spread=True), over])
    return table(" | medical questions | tweets | mean of both | over SimCSE", best_in_bold(rows, (1, 2)))


def small_text() -> str:
    """Few sentences: the tuned embedding, fused, and fused with a weight by dev."""
    rows = []
    for size in (50, 200, 1000, 10000):
        cells = []
        for kind in ("own: simcse", "tuned: simcse", "tuned: sg-opt"):
            known = str(size) in lookup(f"small:'{kind}'")
            keys = ("plain", "fused", "fused by dev")
            cells.append(", ".join(figure(f"small:'{kind}'/{size}/'{key}'", 1) for key in keys) if known else "")
        rows.append([f"{size:,}" + (" (of STS-B; 3 samples)" if size == 10000 else ""), *cells])
    return table(
        "sentences | trained on them too (simcse, 2 samples): tuned embedding, fused, by dev | "
        "trained before on all of the demonstration's (10 samples): simcse, fused, by dev | sg-opt, fused, by dev",
        rows,
    )


TABLES: dict[str, Callable[[], str]] = {
    "fused-evidence": evidence,
    "fused-ablation": ablation,
    "fused-ideas": ideas,
    "fused-domain": domain,
    "fused-small-text": small_text,
}
