"""How many tokens and sentences a second one process encodes on a device: in memory, and into a folder of parts."""

from __future__ import annotations

import importlib.util
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.provenance import text_facts
from experiments.scale.texts import write_lines
from experiments.speed.contestants import random_bert
from selfguide.data.options import TextOptions
from selfguide.data.resources import mini_folder
from selfguide.engine.encode import encode
from selfguide.engine.parts import PartsJob
from selfguide.engine.parts_run import encode_to_parts
from selfguide.engine.tokens import length_limit, tokenise
from selfguide.models.encoders import load_encoder

ENCODERS = ("bert-base", "mini")
PARTS = 8


def measured(
    encoders: Sequence[str], device: str, lines: int, rounds: int = 2
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Encode drawn lines.

    Args:
        encoders: Names of :data:`ENCODERS`.
        device: ``cuda``, in bf16, or ``cpu``, in fp32.
        lines: How many lines.
        rounds: Passes that count, after one that does not; the median is returned.

    Returns:
        A row for each encoder, and facts about the text.
    """
    backend = "bf16" if device == "cuda" else "torch"
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "lines.txt"
        write_lines(path, lines)
        text = path.read_text().splitlines()
        rows = []
        for name in encoders:
            folder = mini_folder() if name == "mini" else random_bert(Path(scratch) / name)
            model = load_encoder(folder, device=device)
            tokens = int(tokenise(model.tokenizer, text, length_limit(model)).lengths.sum())
            seconds = _seconds(model, text, backend, rounds)
            row = {
                "encoder": name,
                "backend": backend,
                "dimensions": int(model.get_embedding_dimension() or 0),
                "sentences": lines,
                "tokens": tokens,
                "tokens_a_sentence": tokens / lines,
                "seconds": seconds,
                "sentences_a_second": lines / seconds,
                "tokens_a_second": tokens / seconds,
                **_into_parts(folder, path, lines, device, backend, Path(scratch) / "parts"),
            }
            print(row, flush=True)
            rows.append(row)
            del model
    return rows, text_facts("drawn lines", text)


def _seconds(model: Any, text: list[str], backend: str, rounds: int) -> float:
    found = []
    for number in range(rounds + 1):
        began = time.perf_counter()
        encode(model, text, backend=backend, show_progress=False)
        if number > 0:
            found.append(time.perf_counter() - began)
    return statistics.median(found)


def _into_parts(folder: Path, text: Path, lines: int, device: str, backend: str, parts: Path) -> dict[str, float]:
    """Return rate and size of Parquet parts in fp32, from the first part to the last; nothing without pyarrow."""
    if importlib.util.find_spec("pyarrow") is None:
        return {}
    job = PartsJob(parts, str(folder), device=device, backend=backend)
    every_row = TextOptions(keep_duplicates=True, keep_blank=True, long_lines="cut")
    encode_to_parts(job, [text], every_row, part_rows=-(-lines // PARTS))
    made = sorted(parts.glob("part-*.parquet"))
    ends = sorted(path.stat().st_mtime for path in made)
    found = {
        "sentences_a_second_into_parts": lines * (len(made) - 1) / len(made) / (ends[-1] - ends[0]),
        "bytes_a_row": sum(path.stat().st_size for path in made) / lines,
    }
    shutil.rmtree(parts)
    return found
