"""Do label-free scores rank encoders as grades do? From the files of :mod:`looking` to a table.

For each score and ground: Spearman over encoders with its 95 % interval (encoders drawn with replacement), Kendall, Spearman
among the tuned and among the untuned ones alone, and the regret, which is the best encoder's grade less that of the one with
the best score. A score is good enough if its Spearman is at least ``BAR`` on every ground.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kendalltau

from experiments.choosing.consensus import consensus, mean_of_ranks
from experiments.choosing.looking import FOLDER
from selfguide.correlation import spearman

BAR = 0.7
FEWEST = 8
"""Correlations over fewer encoders are left out."""
LABELLED = "(STS-B dev, labelled)"
"""What labels would give: the grade on the dev pairs in place of a score."""
Looked = dict[str, Any]


def read(work: Path, seed: int) -> list[Looked]:
    """What was found of every encoder with this seed."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((work / FOLDER).glob("*.json"))]
    return [one for one in found if one["seed"] == seed]


def left_out(looked: Sequence[Looked]) -> dict[str, str]:
    """Encoders without a score or a grade, and why."""
    found = {one["encoder"]: one["error"] for one in looked if one["error"] is not None}
    for one in looked:
        without = [name for name, ground in one["grounds"].items() if ground["grade"] is None]
        if one["error"] is None and without:
            found[one["encoder"]] = f"no grade on {', '.join(without)}"
    return found


def evaluated(looked: Sequence[Looked], fewest: int = FEWEST) -> dict[str, Any]:
    """Of every ground, all that is to be said."""
    usable = [one for one in looked if one["encoder"] not in left_out(looked)]
    if len(usable) < fewest:
        raise SystemExit(f"There are {len(usable)} encoders to compare, and {fewest} are the least.")
    return {name: on_ground(usable, name, fewest) for name in usable[0]["grounds"]}


def on_ground(looked: Sequence[Looked], name: str, fewest: int = FEWEST) -> dict[str, Any]:
    """Correlations of every score with the grades on one ground."""
    here = [one["grounds"][name] for one in looked]
    by_score: dict[str, list[float]] = {score: [one["scores"][score] for one in here] for score in here[0]["scores"]}
    by_score["consensus"] = consensus([np.array(one["cosines"]) for one in here])
    by_score["mean-of-ranks"] = mean_of_ranks(by_score)
    names = [one["encoder"] for one in looked]
    grades = np.array([one["grade"] for one in here])
    tuned = np.array([one["tuned"] for one in looked])
    held = dict(by_score)
    if name == "sts" and all(one["dev"] is not None for one in looked):
        held[LABELLED] = [one["dev"] for one in looked]
    rows = {score: correlations(np.array(values), grades, tuned, names, fewest) for score, values in held.items()}
    return {
        "encoders": len(looked),
        "tuned": int(tuned.sum()),
        "metric": here[0]["metric"],
        "pairs": here[0]["pairs"],
        "pairs_in_the_file": here[0]["pairs_there"],
        "sentences": here[0]["sentences"],
        "range_of_grades": [float(grades.min()), float(grades.max())],
        "scores": rows,
        "table": [
            {"encoder": names[row], "tuned": bool(tuned[row]), "grade": float(grades[row])}
            | {score: round(values[row], 5) for score, values in by_score.items()}
            for row in np.argsort(-grades, kind="stable").tolist()
        ],
    }


def correlations(
    values: NDArray[np.float64],
    grades: NDArray[np.float64],
    tuned: NDArray[np.bool_],
    names: Sequence[str],
    fewest: int = FEWEST,
) -> dict[str, Any]:
    """One score against the grades. A score that is the same for all has no correlation, which counts as none: 0."""
    best = int(np.argmax(values))
    return {
        "spearman": _spearman(values, grades),
        "interval": interval(values, grades),
        "kendall": float(np.nan_to_num(kendalltau(values, grades).statistic)),
        "spearman_tuned": _spearman(values[tuned], grades[tuned]) if tuned.sum() >= fewest else None,
        "spearman_untuned": _spearman(values[~tuned], grades[~tuned]) if (~tuned).sum() >= fewest else None,
        "regret": float(grades.max() - grades[best]),
        "chosen": names[best],
    }


def _spearman(values: NDArray[np.float64], grades: NDArray[np.float64]) -> float:
    return float(np.nan_to_num(spearman(values, grades)))


def interval(values: NDArray[np.float64], grades: NDArray[np.float64], resamples: int = 1000) -> list[float]:
    """The middle 95 % of Spearman over encoders drawn with replacement."""
    draws = np.random.default_rng(1).integers(0, len(values), (resamples, len(values)))
    found = [_spearman(values[draw], grades[draw]) for draw in draws]
    return [float(edge) for edge in np.percentile(found, [2.5, 97.5])]


def worst(found: Mapping[str, Any]) -> dict[str, float]:
    """Of every score the lowest Spearman of all grounds, the best score first."""
    names = [name for name in next(iter(found.values()))["scores"] if name != LABELLED]
    lowest = {name: min(ground["scores"][name]["spearman"] for ground in found.values()) for name in names}
    return dict(sorted(lowest.items(), key=lambda item: -item[1]))


def good_enough(found: Mapping[str, Any]) -> list[str]:
    """The scores that pass on every ground, the best first."""
    return [name for name, lowest in worst(found).items() if lowest >= BAR]


# -- for people --------------------------------------------------------------------------------------------------------


def markdown(found: Mapping[str, Any]) -> str:
    """The grounds, the scores, and the scores among tuned and untuned encoders alone, ordered by the worst ground."""
    grounds = list(found.items())
    facts = {
        "encoders (of them tuned)": [f"{one['encoders']} ({one['tuned']})" for _, one in grounds],
        "graded by": [one["metric"] for _, one in grounds],
        "graded pairs (of those in the files)": [
            f"{one['pairs']:,} ({one['pairs_in_the_file']:,})" for _, one in grounds
        ],
        "sentences that scores are computed on": [f"{one['sentences']:,}" for _, one in grounds],
        "lowest and highest grade": ["{:.1f} to {:.1f}".format(*one["range_of_grades"]) for _, one in grounds],
    }
    names = [name for name, _ in grounds]
    lines = [_line(["", *names]), _line(["---"] * (len(names) + 1))]
    lines += [_line([fact, *values]) for fact, values in facts.items()]
    lines += ["", _line(["score", *(f"{name}: Spearman [95 %] | Kendall | regret" for name in names)])]
    lines.append(_line(["---", *["--:"] * (3 * len(names))]))
    for score in _order(found):
        cells = [_cells(ground["scores"].get(score)) for _, ground in grounds]
        lines.append(_line([_called(score), *(cell for many in cells for cell in many)]))
    lines += ["", _line(["score", *(f"{name}: tuned | untuned" for name in names)])]
    lines.append(_line(["---", *["--:"] * (2 * len(names))]))
    for score in _order(found):
        parts = [_parts(ground["scores"].get(score)) for _, ground in grounds]
        lines.append(_line([_called(score), *(cell for many in parts for cell in many)]))
    return "\n".join(lines) + "\n"


def printed(found: Mapping[str, Any]) -> str:
    """The same for a terminal, with what each score would have chosen."""
    lines = []
    for name, ground in found.items():
        low, high = ground["range_of_grades"]
        head = f"{name}: {ground['encoders']} encoders ({ground['tuned']} tuned), grades {low:.1f} to {high:.1f}"
        lines += ["", head, f"{'score':24s} Spearman  95 %            Kendall   tuned untuned   regret  chosen"]
        for score, row in sorted(ground["scores"].items(), key=lambda item: -item[1]["spearman"]):
            tuned, untuned = _parts(row)
            edges = "[{:5.2f}, {:5.2f}]".format(*row["interval"])
            lines.append(
                f"{score:24s} {row['spearman']:8.2f}  {edges}  {row['kendall']:7.2f}  {tuned:>6s}  {untuned:>6s}   "
                f"{row['regret']:6.2f}  {row['chosen']}"
            )
    return "\n".join(lines)


def _order(found: Mapping[str, Any]) -> list[str]:
    labelled = any(LABELLED in ground["scores"] for ground in found.values())
    return [*worst(found), *([LABELLED] if labelled else [])]


def _cells(row: Mapping[str, Any] | None) -> list[str]:
    if row is None:
        return ["", "", ""]
    low, high = row["interval"]
    return [f"{row['spearman']:.2f} [{low:.2f}, {high:.2f}]", f"{row['kendall']:.2f}", f"{row['regret']:.1f}"]


def _parts(row: Mapping[str, Any] | None) -> list[str]:
    values = [None, None] if row is None else [row["spearman_tuned"], row["spearman_untuned"]]
    return ["" if value is None else f"{value:.2f}" for value in values]


def _called(score: str) -> str:
    return score if score == LABELLED else f"`{score}`"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
