"""Tables of large texts: reading from 10⁴ to 10⁸ lines, and what a billion sentences would take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from experiments.pages.sources import lookup
from experiments.pages.tables.markdown import table

SENTENCES = 10**9
GPUS, MACHINES, CORES = 8, 64, 16
WAYS = ("on disk", "in memory")


def reading() -> str:
    """Seconds of the processor and peak memory by lines, as the package does it and with all hashes in memory."""
    found: list[dict[str, Any]] = lookup("scale-reading:rows")
    rows = []
    for lines in dict.fromkeys(row["lines"] for row in found):
        cells = []
        for way in WAYS:
            one = next((row for row in found if (row["lines"], row["way"]) == (lines, way)), None)
            cells += ["–", "–"] if one is None else [f"{one['cpu_seconds']:,.1f}", f"{one['megabytes']:,.0f}"]
        facts = next(row for row in found if row["lines"] == lines)
        rows.append([f"{lines:,}", f"{facts['bytes'] / 1e6:,.1f}", f"{facts['kept']:,}", *cells])
    return table("lines | MB of text | kept | seconds | peak MB | all in memory: seconds | peak MB", rows)


def plan() -> str:
    """A billion sentences on 8 GPUs and on 64 machines: hours, GPU or core hours, and disk."""
    rows = []
    for name, encoder, dimensions, (rate, tokens), units, unit in _setups():
        hours = SENTENCES / (rate * units) / 3600
        size = bytes_a_row(dimensions)
        rows.append(
            [
                name,
                encoder,
                f"{rate:,.0f} a {unit}",
                f"{rate * tokens:,.0f}",
                f"{hours:,.1f}" if hours < 10 else f"{hours:,.0f}",
                f"{hours * units:,.0f} {unit} hours",
                f"{size:,.0f}",
                f"{SENTENCES * size / 1e12:.1f}",
            ]
        )
    columns = ("measured sentences a second", "tokens a second", "hours", "cost", "bytes a row in fp32", "TB")
    return table(" | ".join(("machines", "encoder", *columns)), rows)


def rates() -> str:
    """Two shards beside the process pool, Ray beside the plain command, and training with two processes beside one."""
    pool = lookup("scale-pool:sentences_a_second")
    peer, ours = pool["SentenceTransformer pool"], pool["selfguide shards"]
    overhead = lookup("scale-ray:overhead")
    training = lookup("scale-processes:sentences_a_second")
    shared = lookup("scale-processes:efficiency")["2"]
    rows = [
        [
            "encoding by two processes, sentences a second",
            f"{peer:,.0f}, pool",
            f"{ours:,.0f}, shards",
            f"{ours / peer:.2f} ×",
        ],
        [
            "encoding by one worker, Ray beside the plain command",
            "",
            "",
            f"{100 * overhead['without start']:+.0f} % time",
        ],
        ["the same with loading and starting", "", "", f"{100 * overhead['with start']:+.0f} % time"],
        ["starting and ending Ray, beside loading the encoder", "", "", f"{_ray_start():+.0f} s"],
        [
            "training, sentences a second",
            f"{training['1']:.1f}, one",
            f"{training['2']:.1f}, two",
            f"efficiency {shared:.2f}",
        ],
    ]
    return table("what | | | result", rows)


def _ray_start() -> float:
    """Return the seconds by which everything outside the parts takes longer with Ray."""
    seconds = lookup("scale-ray:medians")
    plain, ray = (seconds[f"{way}, with start"] - seconds[f"{way}, without start"] for way in ("plain", "ray"))
    return float(ray - plain)


def bytes_a_row(dimensions: int) -> float:
    """Return the bytes of a row of a part before compression: id, sentence (as in the measured text), embedding."""
    last: dict[str, Any] = lookup("scale-reading:rows")[-1]
    return 8 + float(last["bytes"]) / float(last["lines"]) + 4 * dimensions


def _setups() -> list[tuple[str, str, int, tuple[float, float], int, str]]:
    gpu = _rate("cuda", "bert-base", "bf16", 1)
    mini, minilm = (_rate("cpu", name, "int8", 2) for name in ("mini", "all-MiniLM-L6-v2"))
    cores = MACHINES * CORES
    return [
        (f"{GPUS} H200", "BERT-base, bf16", 768, gpu, GPUS, "GPU"),
        (f"{MACHINES} with an H200 each", "BERT-base, bf16", 768, gpu, MACHINES, "GPU"),
        (f"{MACHINES} with {CORES} cores", "all-MiniLM-L6-v2, int8", 384, minilm, cores, "core"),
        (f"{MACHINES} with {CORES} cores", "`mini`, int8", 384, mini, cores, "core"),
    ]


def _rate(file: str, encoder: str, backend: str, units: int) -> tuple[float, float]:
    """Return sentences a second of one GPU or core, of short sentences, and the tokens of a sentence."""
    row = next(row for row in lookup(f"{file}:speed") if (row["encoder"], row["text"]) == (encoder, "short"))
    return float(row["sentences"]) / float(row["seconds"][backend]) / units, float(row["tokens_a_sentence"])


TABLES: dict[str, Callable[[], str]] = {"scale-reading": reading, "scale-rates": rates, "scale-plan": plan}
