"""Rows and encoders for tests of the index."""

from __future__ import annotations

import json
from pathlib import Path

from toys import toy_sentences


def rows_file(path: Path, count: int = 60) -> Path:
    """JSON lines with columns of every type; some values are missing."""
    lines = []
    for number, sentence in enumerate(toy_sentences(count)):
        row: dict[str, object] = {
            "text": sentence,
            "year": 2000 + number % 10,
            "weight": number / 4,
            "done": number % 2 == 0,
        }
        if number % 3:
            row["source"] = f"o'clock {number % 4}"
        lines.append(json.dumps({**row, "meta": {"kind": "a" if number % 5 else "b"}}))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
