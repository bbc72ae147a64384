"""Write the results file of a multilingual pre-training: shares, learning curve, held-out loss by language.

python -m experiments.multilingual.pretrained RUN --tokenizer TOKENIZER --data DATA
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from experiments.provenance import RESULTS, command_parser, folder_hash, provenance, write

_LEFT_OUT = ("kind", "date", "torch", "device")


def main(words: list[str] | None = None) -> int:
    """Write the file, and return the exit code.

    Args:
        words: The command's words; by default those of this process.
    """
    parser = command_parser(__doc__)
    parser.add_argument("run", type=Path, help="the run's folder")
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True, help="the prepared parts")
    parser.add_argument("--name", default="multi")
    parser.add_argument("--out", type=Path, help="results file; by default in experiments/results/multilingual")
    arguments = parser.parse_args(words)
    out = arguments.out or RESULTS / "multilingual" / f"pretraining-{arguments.name}.json"
    write(out, results(arguments.run, arguments.tokenizer, arguments.data, arguments.name))
    return 0


def results(run: Path, tokenizer: Path, data: Path, name: str) -> dict[str, Any]:
    """Return the content of the results file.

    Args:
        run: The run's folder, with its ``results.jsonl`` and its encoder.
        tokenizer: The tokenizer's folder.
        data: The folder of prepared parts.
        name: What to call the encoder.

    Returns:
        Origin, settings, languages, the curve and the held-out losses of all stretches.
    """
    rows = [json.loads(line) for line in (run / "results.jsonl").read_text(encoding="utf-8").splitlines()]
    starts = [row for row in rows if row["kind"] == "start"]
    parts = json.loads((data / "parts.json").read_text(encoding="utf-8"))
    text = {
        "name": "the prepared parts of the pre-training text",
        "digest": hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16],
        "parts": parts,
    }
    vocabulary = json.loads((tokenizer / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    return {
        **provenance(None, text=text, seeds=sorted({row["settings"]["seed"] for row in starts})),
        "date": starts[-1]["date"],
        "device": starts[-1]["device"],
        "torch": starts[-1]["torch"],
        "encoder": {"name": name, "weights": folder_hash(run / "encoder")},
        "vocabulary": {"entries": len(vocabulary), "digest": _digest(tokenizer / "tokenizer.json")},
        "languages": {"tokens": starts[-1]["language_tokens"], "shares of a step": starts[-1]["language_shares"]},
        "shape": starts[-1]["shape"],
        "settings": starts[-1]["settings"],
        "calls": len(starts),
        "curve": [_plain(row) for row in rows if row["kind"] == "curve"],
        "held-out": [_plain(row) for row in rows if row["kind"] == "held-out"],
        "end": [_plain(row) for row in rows if row["kind"] == "end"],
    }


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in _LEFT_OUT}


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


if __name__ == "__main__":
    raise SystemExit(main())
