"""What every results file says about its origin, and the earlier files that do not say all of it.

A results file names the command that wrote it, the date, the machine, the versions, the seeds, and digests of the encoder and
of the text. :func:`found` looks for these in a file of any of our kinds, and ``experiments.provenance.write`` warns about a file
without one. :data:`EARLIER` lists what files from before that rule lack, with the reason; nothing was filled in afterwards. A
test walks all files, refuses one that is neither complete nor listed, and compares the list with the files. "How the numbers were
made" shows it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FOLDERS = ("experiments/results", "experiments/pretraining/mini")
FIELDS = ("command", "date", "machine", "versions", "seeds", "encoder", "text")
NONE = "none"
"""For a field that does not apply: nothing random, no encoder, no text."""


def files() -> list[str]:
    """Return the results files of the repository, by path.

    Returns:
        Every JSON and JSON Lines file of :data:`FOLDERS`, cells of comparisons included.
    """
    paths = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in (".json", ".jsonl"))
    return sorted(path.relative_to(ROOT).as_posix() for path in paths)


def missing(path: str) -> set[str]:
    """Return the fields that a results file lacks.

    Args:
        path: Its path in the repository.

    Returns:
        Names of :data:`FIELDS`.
    """
    text = (ROOT / path).read_text(encoding="utf-8")
    content = [json.loads(line) for line in text.splitlines()] if path.endswith(".jsonl") else json.loads(text)
    return set(FIELDS) - found(content)


def found(content: Any) -> set[str]:
    """Return the fields that are there.

    Args:
        content: The content of a results file: of an experiment, a comparison, a cell, a study, or a list of scores.

    Returns:
        Names of :data:`FIELDS`; of a list, those that every entry has.
    """
    if isinstance(content, list):
        return set.intersection(*(found(entry) for entry in content)) if content else set()
    setting, protocol = content.get("setting") or {}, content.get("protocol")
    has = {
        "command": content.get("command") or content.get("commands"),
        "date": content.get("date") or content.get("finished"),
        "machine": content.get("device") or content.get("devices"),
        "versions": content.get("versions") or ("python" in content and "torch" in content),
        "seeds": "seed" in content
        or content.get("seeds")
        or setting.get("seeds")
        or "seed" in (protocol if isinstance(protocol, Mapping) else {})
        or _seeds_of_rows(content),
        "encoder": setting.get("encoder_digest")
        or _digest(content.get("encoder"))
        or _digests(content.get("encoders")),
        "text": setting.get("fingerprint")
        or setting.get("text_digest")
        or _digest(content.get("text"))
        or _digest(content.get("data")),
    }
    return {name for name, value in has.items() if value}


def _digest(value: Any) -> bool:
    """Return whether a value has a digest, or says that there is nothing to have one of."""
    if value == NONE:
        return True
    return isinstance(value, Mapping) and any(
        value.get(name) for name in ("digest", "digests", "fingerprint", "weights")
    )


def _digests(value: Any) -> bool:
    if value == NONE:
        return True
    parts = list(value.values()) if isinstance(value, Mapping) else value
    return isinstance(parts, list) and bool(parts) and all(isinstance(part, str) or _digest(part) for part in parts)


def _seeds_of_rows(content: Mapping[str, Any]) -> bool:
    """Return whether the rows of a comparison keep their values by seed."""
    rows = content.get("rows")
    if not isinstance(rows, Mapping) or "setting" not in content:
        return False
    values: Iterator[Any] = (value for row in rows.values() for value in (row.get("values") or {}).values())
    return all(isinstance(value, Mapping) and "by_seed" in value for value in values)


_R, _P = "experiments/results", "experiments/pretraining/mini"
_NAMED = "the text is named, and its number of sentences or source given; a digest was not written then"
_OWN = "made from the package's own demonstration sentences, which are in the repository; the file does not say so"
_NO_SEED = "the file does not state its seeds"
_EVAL = "`selfguide eval` kept digests, versions and date then, and neither its command nor its machine"
_RANDOM = "a randomly initialised encoder of a given shape, which has no digest"

EARLIER: dict[str, dict[str, str]] = {
    f"{_R}/choosing.json": {"text": _NAMED},
    f"{_R}/demo-pairs.json": {"text": _OWN, "seeds": "one seed, as its protocol says; the number is not stated"},
    f"{_R}/encoding-speed-cpu.json": {
        "text": "each measurement names its text; digests were not written",
        "seeds": "time is measured, nothing is drawn",
    },
    f"{_R}/encoding-speed-cuda.json": {
        "text": "each measurement names its text; digests were not written",
        "seeds": "time is measured, nothing is drawn",
        "encoder": _RANDOM,
    },
    f"{_R}/evaluation-all-MiniLM-L6-v2/scores.json": {
        "command": _EVAL,
        "machine": _EVAL,
    },
    f"{_R}/evaluation-mini/scores.json": {
        "command": _EVAL,
        "machine": _EVAL,
    },
    f"{_R}/fused-ablation.json": {"text": _NAMED},
    f"{_R}/fused-cost.json": {"text": _OWN, "seeds": _NO_SEED},
    f"{_R}/fused-domain.json": {"text": _NAMED},
    f"{_R}/fused-evidence.json": {"text": _NAMED, "seeds": _NO_SEED},
    f"{_R}/fused-small-text.json": {
        "text": _OWN,
        "seeds": "it gives the number of draws for each row, not their seeds",
    },
    f"{_R}/fused-tuners.json": {"text": _NAMED},
    f"{_R}/gpu-training.json": {"text": _NAMED, "seeds": "time is measured; the seed of the weights is not stated"},
    f"{_R}/main-table/manifest.json": {
        "command": "the list of inputs was written without its origin; `main_table.prepare` makes it",
        "date": "as the command",
        "machine": "as the command",
        "versions": "as the command",
        "seeds": "nothing is drawn",
        "encoder": "no encoder is involved",
        "text": "it holds the digests of the inputs under `hashes`",
    },
    f"{_R}/main-table/rates.json": {
        "command": "written from a comparison whose origin was not copied; `main_table.rates` made it",
        "versions": "as the command",
        "encoder": "as the command",
        "text": "as the command",
    },
    f"{_R}/stsb-sg-opt-mini.json": {"text": _NAMED},
    f"{_R}/training-growth.json": {"text": _NAMED, "seeds": "time is measured; the seed of the weights is not stated"},
    f"{_R}/training-parts.json": {"text": _NAMED, "seeds": "time is measured; the seed of the weights is not stated"},
    f"{_R}/training-speed.json": {"text": _NAMED, "seeds": "time is measured; the seed of the weights is not stated"},
    **{
        f"{_P}/run-{number}-results.jsonl": dict.fromkeys(
            FIELDS, "the log of a pre-training run: settings, seed and losses, no origin"
        )
        for number in (1, 2, 3)
    },
    f"{_P}/run-1-sg-opt.json": {"text": _NAMED},
    f"{_P}/run-2-sg-opt.json": {"text": _NAMED},
    f"{_P}/variants.json": {
        "versions": "gathered from five runs by a shell script that did not write them",
        "seeds": "stated as a sentence (seed 1)",
        "encoder": "stated as a sentence (the digest of the start)",
        "text": "as the versions",
    },
}
