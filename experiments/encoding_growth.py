"""Seconds and peak memory of encoding more and more sentences to a file, each number in a process of its own.

The encoder is tiny, so that what is measured is all the rest: reading, tokens, batches and writing, which must not hold on to
what they have seen. The peer is ``SentenceTransformer.encode`` of the same sentences, held in memory as it takes them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from experiments.results import peak_megabytes

TINY = {
    "hidden_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 16_384,
}
PEER_AT = 100_000


def growth(sizes: list[int], lines: list[str]) -> dict[str, Any]:
    """A row for each size, the peer at 100,000 sentences, and the last size's peak memory over 100,000 sentences'."""
    from experiments.encoding_speed import random_bert

    rows: dict[int, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        random_bert(folder / "tiny", **TINY)
        text = folder / "text.txt"
        for size in sizes:
            with text.open("w", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in islice(cycle(lines), size))
            rows[size] = _child("selfguide", folder)
            print(
                f"{size:9,} sentences: {rows[size]['seconds']:6.1f} s, peak {rows[size]['megabytes']:6.0f} MB",
                flush=True,
            )
            if size == PEER_AT:
                peer = _child("SentenceTransformer", folder)
                print(
                    f"{'':9s} SentenceTransformer: {peer['seconds']:.1f} s, peak {peer['megabytes']:.0f} MB", flush=True
                )
    found: dict[str, Any] = {"selfguide": rows}
    if PEER_AT in rows:
        found |= {"SentenceTransformer": {PEER_AT: peer}}
        found["memory_ratio"] = round(rows[sizes[-1]]["megabytes"] / rows[PEER_AT]["megabytes"], 3)
        print(f"peak memory of {sizes[-1]:,} over {PEER_AT:,} sentences: {found['memory_ratio']:.3f}")
    return found


def _child(way: str, folder: Path) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "experiments.encoding_growth", way, str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    return json.loads(done.stdout.strip().splitlines()[-1])


def _measure(way: str, folder: Path) -> dict[str, float]:
    from selfguide.data import Sentences, TextOptions
    from selfguide.engine.encode import encode_to_file
    from selfguide.models.encoders import load_encoder

    model = load_encoder(folder / "tiny", device="cpu")
    model.encode(["warm"])
    start = time.perf_counter()
    if way == "selfguide":
        options = TextOptions(keep_duplicates=True, keep_blank=True, long_lines="cut")
        encode_to_file(model, Sentences([str(folder / "text.txt")], options), folder / "vectors.npy")
    else:
        model.encode((folder / "text.txt").read_text(encoding="utf-8").splitlines(), show_progress_bar=False)
    seconds = time.perf_counter() - start
    return {"seconds": round(seconds, 2), "megabytes": round(peak_megabytes(), 1)}


if __name__ == "__main__":
    print(json.dumps(_measure(sys.argv[1], Path(sys.argv[2]))))
