"""From the comparisons of a block to its results file: the choices, both kinds of row, and where everything comes from."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.main_table.rows import label_of
from experiments.protocol.blocks import PUBLISHED, TUNED, Block
from experiments.protocol.space import SEED, Trial
from experiments.provenance import provenance

RULES = (
    "Every method with two rows has the same number of trials, drawn uniformly from the space that its class declares; the "
    "first has its published settings. All trials train on the same text, see at most the same number of rows of it, are "
    "judged on STS-B dev after the same number of rows and stop by the same rule. The best mean over the trials' seeds wins. "
    "Published rows keep the method's own settings, epochs and stopping. No test set is scored before all trials are finished."
)


def choose(trials: Mapping[str, Sequence[Trial]], tried: Mapping[str, Any]) -> dict[str, Trial]:
    """Return the trial of each method with the best mean dev score; the earlier one of equals."""
    winners: dict[str, Trial] = {}
    for method, drawn in trials.items():
        scores = {trial.number: dev_score(trial.label, tried) for trial in drawn}
        known = [trial for trial in drawn if scores[trial.number] is not None]
        if known:
            winners[method] = max(known, key=lambda trial: (scores[trial.number], -trial.number))
    return winners


def dev_score(label: str, comparison: Mapping[str, Any]) -> float | None:
    """Return a row's mean dev score; ``None`` if a seed failed."""
    row = comparison["rows"].get(label)
    if row is None or row["errors"]:
        return None
    if row["dev"]:
        return float(row["dev"]["mean"])
    # A row without training has no checkpoints to choose by dev; its score on the dev pairs as a task says the same.
    return float(next(iter(row["values"].values()))["mean"]) if row["values"] else None


def unfinished(labels: Sequence[str], comparison: Mapping[str, Any]) -> list[str]:
    """Return the rows that have neither a score nor an error yet."""
    rows = comparison["rows"]
    return [label for label in labels if label not in rows or not (rows[label]["values"] or rows[label]["errors"])]


def results(
    block: Block,
    trials: Mapping[str, Sequence[Trial]],
    tried: Mapping[str, Any],
    scored: Mapping[str, Any],
    arguments: argparse.Namespace,
) -> dict[str, Any]:
    """Return the content of the results file.

    Args:
        block: The rows.
        trials: The trials of each method.
        tried: The comparison of the trials.
        scored: The comparison of the rows.
        arguments: Those of the command.

    Returns:
        Origin, rules, trials, winners and rows.
    """
    winners = choose(trials, tried)
    setting = scored["setting"]
    text = {
        "name": ", ".join(setting["text"]),
        "sentences": setting["sentences"],
        "fingerprint": setting["fingerprint"],
    }
    seeds = {"trials": arguments.trial_seeds, "rows": arguments.seeds, "draws": SEED}
    origin = {
        **provenance(None, text=text, seeds=seeds),
        "date": scored["date"],
        "device": ", ".join(scored["devices"]),
        "encoder": {"name": arguments.name, "digest": setting["encoder_digest"]},
        "dev": {"name": setting["dev"], "digest": setting["dev_digest"]},
        "versions": scored["versions"],
    }
    return {
        **origin,
        "block": block.name,
        "rules": RULES,
        "budget": block.budget.as_dict(),
        "trials": {
            method: [
                {
                    "changes": dict(trial.changes),
                    **_row(tried["rows"].get(trial.label)),
                    "won": trial == winners.get(method),
                }
                for trial in drawn
            ]
            for method, drawn in trials.items()
        },
        "rows": {label: {"kind": kind_of(label, block)} | _row(row) for label, row in scored["rows"].items()},
    }


def kind_of(label: str, block: Block) -> str:
    """Return whether a row is as published, tuned by dev, or has no choices."""
    for searched in block.searched:
        if label in (f"{searched.method}-{PUBLISHED}", f"{searched.method}-{TUNED}"):
            return PUBLISHED if label.endswith(PUBLISHED) else TUNED
    return "single" if label in {label_of(spec) for spec in block.single} else "?"


def _row(row: Mapping[str, Any] | None) -> dict[str, Any]:
    if row is None:
        return {"errors": {"all": "not run"}}
    return {name: row[name] for name in ("words", "values", "dev", "steps", "seconds", "errors", "warnings")}
