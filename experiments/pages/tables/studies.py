"""Tables of the studies at full size."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from experiments.pages.expressions import evaluate
from experiments.pages.figures import figure
from experiments.pages.tables.markdown import table

NONE = "–"
# What was changed, the row of the study, and the row of the paper's ablation.
ABLATION = (
    ("objective `opt2`", "'opt2 instead of sg-opt'", "opt2"),
    ("objective `opt1`", "'opt1 instead of sg-opt'", "opt1"),
    ("objective `sg`", "'sg instead of sg-opt'", "sg"),
    ("temperature τ 0.1", "'0.1 instead of 0.01'", "temperature 0.1"),
    ("stay-close λ 0", "'0.0 instead of 0.1'", "stay close 0"),
    ("stay-close λ 1", "'1.0 instead of 0.1'", "stay close 1"),
    ("no head", "'0 instead of 4096'", "no head"),
    ("head of 256", "'256 instead of 4096'", ""),
    ("views of the last layer alone", "'last instead of all'", ""),
    ("of the upper half (7 to 12)", "'upper instead of all'", ""),
    ("of the lower half (0 to 6)", "'lower instead of all'", ""),
    ("views pooled by mean, not max", "'view pooling'/'mean instead of max'", ""),
    ("student's embedding the mean, not [CLS]", "'mean instead of cls'", ""),
    ("guide trained too", "'guide tuned'", ""),
)
SIZES = (100, 300, 1000, 3000, 10000, 15455)
TEXTS = {
    "STS-B": "sts",
    "NLI": "nli",
    "Wikipedia": "wiki",
    "everyday sentences": "everyday",
    "medical questions": "medical",
    "tweets": "tweets",
}
TESTS = {"seven STS sets": "'sts avg'", "medical questions": "mqp", "tweets": "twitter-url"}
METHODS = ("sg-opt", "simcse", "fused")


def ablation() -> str:
    """One part of SG-OPT changed at a time, beside the paper's differences."""
    whole = "ablation:SG-OPT"
    rows = [["SG-OPT as it is", figure(whole, spread=True), NONE, NONE, NONE]]
    for label, row, paper in ABLATION:
        path = f"ablation:{row}"
        theirs = figure(f"papers:'SG-OPT ablation'/'{paper}' - papers:'SG-OPT ablation'/sg-opt") if paper else ""
        gap = figure(f"{path} - {whole}", sign=True)
        rows.append([label, figure(path, spread=True), gap, figure(f"p({path}, {whole})", 3), theirs])
    return table("one thing changed | average of seven sets | to SG-OPT | p | in the paper", rows)


def temperature() -> str:
    """Scores by temperature."""
    values = ("0.001", "0.003", "0.01", "0.03", "0.05", "0.1", "0.3", "1")
    rows = [[name, *(figure(f"temperature:{name}/{value}", spread=True) for value in values)] for name in METHODS[:2]]
    return table(" | ".join(["τ", *values]), rows)


def batch() -> str:
    """Scores and steps by batch size."""
    sizes = ("8", "16", "32", "64", "128", "256")
    rows = []
    for name in ("sg-opt", "simcse", "consert"):
        rows.append([name, *(figure(f"batch:{name}/{size}", spread=True) for size in sizes)])
        rows.append(["steps run", *(figure(f"batch:{name}/{size}/steps", 0) for size in sizes)])
    return table(" | ".join(["sentences in a batch", *sizes]), rows)


def few() -> str:
    """Scores by number of sentences."""
    rows = [
        [name, *(figure(f"few:{name}/{size}", spread=True) for size in SIZES)]
        for name in ("sg-opt", "simcse", "whitening")
    ]
    return table(" | ".join(["sentences", *(f"{size:,}" for size in SIZES)]), rows)


def domains() -> str:
    """Scores by text, test set and method."""
    rows = []
    for label, text in TEXTS.items():
        paths = [f"domains:{method}/{text}/{test}" for test in TESTS.values() for method in METHODS]
        rows.append([label, *(figure(path, 1, spread=True) for path in paths)])
    for label, row in (("nothing: the mean", "mean"), ("nothing: `bow`", "bow")):
        cells = [[figure(f"domains:{row}/{test}", 1, spread=True), "", ""] for test in TESTS.values()]
        rows.append([label, *(cell for three in cells for cell in three)])
    heads = [f"{test}: {METHODS[0]} | {METHODS[1]} | {METHODS[2]}" for test in TESTS]
    return table(" | ".join(["trained on 4,000 sentences of", *heads]), rows)


def geometry() -> str:
    """Where the embeddings lie."""
    measures = (("'sts avg'", 2), ("anisotropy", 3), ("alignment", 3), ("uniformity", 3))
    cosines = (("positive_cosine", 3), ("negative_cosine", 3))
    rows = []
    for label, row in (
        ("[CLS], untuned", "'[CLS], untuned'"),
        ("mean, untuned", "'mean, untuned'"),
        ("sg-opt", "sg-opt"),
        ("simcse", "simcse"),
    ):
        first = figure(f"geometry:{row}/first", 1, spread=True) + " %"
        rows.append([label, *_cells(row, measures), first, *_cells(row, cosines)])
    return table(
        "embeddings, on STS-B test | average of seven sets | mean cosine of two sentences | alignment | uniformity | "
        "variance in 1 direction | cosine of positive pairs | of negative pairs",
        rows,
    )


def _cells(row: str, measures: Sequence[tuple[str, int]]) -> list[str]:
    return [figure(f"geometry:{row}/{key}", decimals, spread=True) for key, decimals in measures]


def cost() -> str:
    """Time and memory on a GPU, by method."""
    rows = []
    for name in ("mean", "wk", "flow", "sg-opt"):
        path, trains = f"cost:{name}", name in ("flow", "sg-opt")
        rows.append(
            [
                name,
                figure(f"{path}/'training seconds'", 1, spread=True) if trains else NONE,
                figure(f"{path}/'training ratio'", 1, spread=True) if trains else NONE,
                figure(f"{path}/'inference seconds'", spread=True),
                "1" if name == "mean" else figure(f"{path}/'inference ratio'", spread=True),
                _memory(f"{path}/'training memory'") if trains else NONE,
                _memory(f"{path}/'inference memory'"),
            ]
        )
    return table(
        "method | training, s | training, in passes over the text | encoding the text, s | against the mean, by round | "
        "memory in training, MiB | in encoding, MiB",
        rows,
    )


def _memory(path: str) -> str:
    value = evaluate(path)
    wide = getattr(value, "deviation", None)
    return figure(path, 0, spread=wide is not None and wide >= 1)


def cost_on_two_cores() -> str:
    """Time and memory on two cores, by method."""
    rows = []
    for name in ("mean", "wk", "whitening", "flow", "fused", "simcse", "sg-opt"):
        path = f"cost-2:{name}"
        passes = NONE if name in ("mean", "wk") else figure(f"{path}/'training ratio'", 1)
        rows.append([name, figure(f"{path}/'sentences a second'", 0), passes, figure(f"{path}/'inference memory'", 0)])
    return table(
        "method | sentences/s | training, in passes over the text | memory of a pass, MiB above the libraries'", rows
    )


TABLES: dict[str, Callable[[], str]] = {
    "ablation": ablation,
    "temperature": temperature,
    "batch": batch,
    "few": few,
    "domains": domains,
    "geometry": geometry,
    "cost": cost,
    "cost-2": cost_on_two_cores,
}
