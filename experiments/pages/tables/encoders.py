"""Tables about encoders: SG-OPT over seeds, the evaluation, the demonstration, the pre-training of mini."""

from __future__ import annotations

from collections.abc import Callable

from experiments.pages.figures import figure
from experiments.pages.sources import Spread, lookup
from experiments.pages.tables.markdown import SET_TITLES, SETS, best_in_bold, seven, table

POOLINGS = {
    "[CLS]": "mini (cls)",
    "mean": "mini (mean)",
    "max": "mini (max)",
    "last two layers": "mini (last2)",
    "first and last layer": "mini (first-last)",
    "[CLS] tuned with SG-OPT": "mini-sg-opt",
}
TRANSFER = ("mr", "cr", "subj", "mpqa", "sst2", "trec", "mrpc")
DEMO_PAIRS = {
    "mean of layer 0": "'mean, layer 0'",
    "max": "max",
    "whitening (last two layers)": "'whitening (last2)'",
    "[CLS]": "cls",
    "mean of the last two layers": "last2",
    "mean": "mean",
    "mean of the first and the last layer": "first-last",
    "SG-OPT": "sg-opt",
    "SimCSE": "simcse",
    "all-MiniLM-L6-v2 (trained with labels)": "all-MiniLM-L6-v2",
}
VARIANTS = {
    "as before": "base",
    "dropout 0.1": "dropout",
    "whole words, 30 % masked": "words",
    "[CLS] predicts masked words of its sentence, weight 0.3": "own",
    "[CLS] predicts words around its sentence, weight 0.3": "next",
}


def eight_seeds() -> str:
    """SG-OPT over eight seeds, by set."""
    rows = [
        seven(label, f"seeds:before/{row}") for label, row in (("[CLS], untuned", "cls"), ("mean, untuned", "mean"))
    ]
    mean, deviation = lookup("seeds:mean"), lookup("seeds:deviation")
    rows.append(["SG-OPT", *(f"{mean[key]:.2f} ± {deviation[key]:.2f}" for key in (*SETS, "average"))])
    return table(" | ".join(["", *SET_TITLES, "average"]), rows)


def each_seed() -> str:
    """SG-OPT by seed: score, dev score and checkpoint."""
    rows = []
    for seed, run in lookup("seeds:runs").items():
        ended = f"{run['steps']}, stopped early" if run["steps"] < FULL_STEPS else str(run["steps"])
        rows.append([seed, f"{run['average']:.2f}", f"{run['dev']:.2f}", run["checkpoint"].partition(",")[0], ended])
    return table("seed | average | STS-B dev | kept checkpoint | steps run", rows)


FULL_STEPS = 966
"""Steps of 16 of the 15,455 sentences."""


def sts_by_pooling() -> str:
    """The untuned poolings and one run of SG-OPT on STS."""
    keys = (*SETS, "sts17-en-en")
    rows = []
    for label, name in POOLINGS.items():
        values = {key: _score(name, key) for key in keys}
        average = sum(values[key] for key in SETS) / len(SETS)
        shown = [*(values[key] for key in SETS), average, values["sts17-en-en"]]
        rows.append([label, *(f"{value:.2f}" for value in shown)])
    return table(" | ".join(["", *SET_TITLES, "average", "STS17 en-en"]), best_in_bold(rows, range(1, 10)))


def transfer_by_pooling() -> str:
    """The same on the transfer tasks."""
    rows = []
    for label, name in POOLINGS.items():
        values = [_score(name, key) for key in TRANSFER]
        rows.append([label, *(f"{value:.2f}" for value in [*values, sum(values) / len(values)])])
    titles = ["", *map(str.upper, TRANSFER), "average"]
    return table(" | ".join(titles), best_in_bold(rows, range(1, 9)))


def _score(encoder: str, task: str) -> float:
    return float(lookup(f"scores:'{encoder}'/{task}")["value"])


def minilm() -> str:
    """all-MiniLM-L6-v2 as published and as evaluated here."""
    published = lookup("papers:'all-MiniLM-L6-v2'")
    keys = (*SETS, "sts17-en-en")
    theirs = [f"{published[key]:.2f}" if key in published else "–" for key in keys]
    ours = [f"{lookup(f'minilm:{key}')['value']:.2f}" for key in keys]
    titles = [*SET_TITLES[:-1], "SICK-R (4,927)", "STS17 en-en"]
    return table(" | ".join(["", *titles]), [["published", *theirs], ["`selfguide eval`", *ours]])


def demo() -> str:
    """The demonstration over five seeds."""
    rows = [
        ["[CLS], untuned", figure("demo:cls"), figure("demo:cls - demo:mean", sign=True)],
        ["mean, untuned", figure("demo:mean"), ""],
        [
            "SG-OPT, 5 seeds",
            f"**{figure('demo:sg-opt', spread=True)}**",
            figure("demo:sg-opt - demo:mean", sign=True) + " (p < 0.001, t-test over seeds)",
        ],
    ]
    value = lookup("demo:sg-opt/versus_baseline/p_value")
    assert value < 0.001, value
    return table(" | test half | over mean", rows)


def demo_pairs() -> str:
    """Demonstration pairs beside STS-B."""
    rows = [
        [label, figure(f"demo-pairs:rows/{row}/demo"), figure(f"demo-pairs:rows/{row}/stsb")]
        for label, row in DEMO_PAIRS.items()
    ]
    return table(" | demonstration pairs | STS-B test", rows)


def runs() -> str:
    """The three runs that made mini."""
    results = "../../experiments"
    rows = []
    minutes = tokens = 0.0
    ends = (("run 1", "run-1", "1"), ("run 2, averaged weights", "run-2", "2"), ("run 3: `mini`", "seeds", "3"))
    for label, scores, log in ends:
        minutes += lookup(f"log-{log}:0/settings/minutes")
        tokens += lookup(f"log-{log}:end")["tokens"]
        held = lookup(f"log-{log}:held-out")
        held = held[-1] if isinstance(held, list) else held
        average = Spread(lookup(f"{scores}:mean/average"), lookup(f"{scores}:deviation/average"))
        file = "results/stsb-sg-opt-mini.json" if scores == "seeds" else f"pretraining/mini/{scores}-sg-opt.json"
        rows.append(
            [
                label,
                f"{minutes:.1f}",
                f"{tokens / 1e9:.2f} billion",
                f"{held['loss_128']:.3f} / {held['loss_32']:.3f}",
                figure(f"{scores}:before/cls"),
                figure(f"{scores}:before/mean"),
                f"{average.mean:.2f} ± {average.deviation:.2f}",
                figure(f"{scores}:seeds/#", 0),
                f"[{file.rpartition('/')[2]}]({results}/{file})",
            ]
        )
    return table(
        "after | minutes in all | tokens in all | held-out loss, 128 / 32 | [CLS] | mean | SG-OPT | seeds | file", rows
    )


def variants() -> str:
    """Five recipes from the weights of run 1."""
    rows = []
    for label, name in VARIANTS.items():
        found = lookup(f"variants:{name}")
        held, scored = found["held_out"], found["sg_opt"]
        shown = (scored["before"]["cls"]["average"], scored["before"]["mean"]["average"], scored["mean"]["average"])
        dev = scored["runs"]["1"]["dev"]
        losses = f"{held['loss_128']:.3f} / {held['loss_32']:.3f}"
        rows.append([label, losses, *(f"{value:.2f}" for value in (*shown, dev))])
    return table("variant | held-out loss, 128 / 32 | [CLS] | mean | SG-OPT | STS-B dev", rows)


TABLES: dict[str, Callable[[], str]] = {
    "eight-seeds": eight_seeds,
    "each-seed": each_seed,
    "sts-by-pooling": sts_by_pooling,
    "transfer-by-pooling": transfer_by_pooling,
    "minilm": minilm,
    "demo": demo,
    "demo-pairs": demo_pairs,
    "runs": runs,
    "variants": variants,
}
