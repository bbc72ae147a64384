"""Measure time and peak memory of encoding more and more sentences to a file, each size in a process of its own.

The encoder is tiny, so that everything else is measured: reading, tokenising, batching and writing, whose memory must not grow
with the text. The peer is ``SentenceTransformer.encode`` of the same sentences, which it takes as a list.
``python -m experiments.speed.encoding --parts growth`` starts the processes.
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

from experiments.provenance import command_parser, peak_megabytes
from selfguide.data import Sentences, TextOptions
from selfguide.engine.encode import encode_to_file
from selfguide.models.encoders import load_encoder

OURS, PEER = "selfguide", "SentenceTransformer"
PEER_AT = 100_000


def growth(sizes: list[int], lines: list[str], encoder: Path) -> dict[str, Any]:
    """Measure every size.

    Args:
        sizes: Numbers of sentences.
        lines: Sentences, repeated as needed.
        encoder: The folder of a tiny encoder.

    Returns:
        A row for each size, the peer at 100,000 sentences, and the peak memory of the last size over that of 100,000.
    """
    rows: dict[int, dict[str, float]] = {}
    found: dict[str, Any] = {OURS: rows}
    with tempfile.TemporaryDirectory() as scratch:
        text = Path(scratch) / "text.txt"
        for size in sizes:
            with text.open("w", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in islice(cycle(lines), size))
            rows[size] = _in_process(OURS, encoder, text)
            print(
                f"{size:9,} sentences: {rows[size]['seconds']:6.1f} s, peak {rows[size]['megabytes']:6.0f} MB",
                flush=True,
            )
            if size == PEER_AT:
                peer = _in_process(PEER, encoder, text)
                found[PEER] = {PEER_AT: peer}
                print(f"{'':9s} {PEER}: {peer['seconds']:.1f} s, peak {peer['megabytes']:.0f} MB", flush=True)
    if PEER_AT in rows:
        found["memory_ratio"] = round(rows[sizes[-1]]["megabytes"] / rows[PEER_AT]["megabytes"], 3)
        print(f"peak memory of {sizes[-1]:,} over {PEER_AT:,} sentences: {found['memory_ratio']:.3f}")
    return found


def _in_process(way: str, encoder: Path, text: Path) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "experiments.speed.encoding_growth", way, str(encoder), str(text)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    measured: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return measured


def main() -> None:
    """Encode one file in this process, and print its time and peak memory as JSON."""
    parser = command_parser(__doc__)
    parser.add_argument("way", choices=(OURS, PEER))
    parser.add_argument("encoder", type=Path)
    parser.add_argument("text", type=Path)
    arguments = parser.parse_args()
    model = load_encoder(arguments.encoder, device="cpu")
    model.encode(["warm"])
    start = time.perf_counter()
    if arguments.way == OURS:
        options = TextOptions(keep_duplicates=True, keep_blank=True, long_lines="cut")
        encode_to_file(
            model, Sentences([str(arguments.text)], options), arguments.text.with_name("vectors.npy"), overwrite=True
        )
    else:
        model.encode(arguments.text.read_text(encoding="utf-8").splitlines(), show_progress_bar=False)
    seconds = time.perf_counter() - start
    print(json.dumps({"seconds": round(seconds, 2), "megabytes": round(peak_megabytes(), 1)}))


if __name__ == "__main__":
    main()
