"""Compare the speed of ``selfguide encode`` with that of ``SentenceTransformer.encode``, as ratios of one run.

    SELFGUIDE_DATA=folder python -m experiments.speed.encoding --encoders mini bert-base all-MiniLM-L6-v2=FOLDER
    python -m experiments.speed.encoding --device cuda --encoders bert-base --parts speed

Texts: ``short`` (STS-B's sentences, or the embedded ones without ``SELFGUIDE_DATA``), ``mixed`` and ``long`` (text files with a
sentence or a paragraph a line: ``--mixed``, ``--long``; by default Wikipedia sentences and WikiText paragraphs of the data
folder, or embedded sentences joined). All backends encode the same sentences in the same process with the same number of
threads, in turn; the median of the rounds after the first is reported. ``bert-base`` is randomly initialised, with the embedded
encoder's tokenizer.

Parts: ``speed``; ``steps`` (what each optimisation contributes on a CPU, with the first encoder); ``int8`` (STS-B Spearman of
the int8 backend beside fp32); ``growth`` (time and peak memory for 1,000 to 1,000,000 sentences, with a tiny encoder, each in a
process of its own).
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from itertools import cycle, islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer

from experiments.origins import NONE
from experiments.provenance import RESULTS, command_parser, folder_hash, provenance, text_facts, write
from experiments.speed.contestants import random_bert
from experiments.speed.encoding_growth import growth
from selfguide.data.pairs import Pairs, read_pairs
from selfguide.data.resources import demo_pairs, demo_sentences, mini_folder
from selfguide.engine.encode import cosine, encode
from selfguide.engine.tokens import length_limit, tokenise
from selfguide.engine.torch_runner import FlatRunner, StockRunner
from selfguide.models.encoders import load_encoder, quiet_libraries

TEXTS = ("short", "mixed", "long")
PARTS = ("speed", "steps", "int8", "growth")
PEER, PEER_BEST = "SentenceTransformer", "SentenceTransformer, best batch"
PEER_BATCHES = {"cpu": (8, 16, 32, 64, 128), "cuda": (32, 256, 1024, 4096)}
# A pass has as many sentences as the peer encodes in --seconds, within these limits.
FEWEST = {"cpu": {"short": 192, "mixed": 96, "long": 24}, "cuda": {"short": 8192, "mixed": 4096, "long": 512}}
MOST = {"cpu": 4096, "cuda": 131_072}
TINY = {
    "hidden_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 16_384,
}

Way = Callable[[list[str]], Any]


def main() -> None:
    """Measure the chosen parts, and write the results file."""
    arguments = _arguments()
    with tempfile.TemporaryDirectory() as scratch:
        only_growth = arguments.parts == ["growth"]
        wanted = [] if only_growth else arguments.encoders
        folders = {name: _folder(name, folder, Path(scratch)) for name, folder in wanted}
        content: dict[str, Any] = {
            **provenance(
                None,
                text={
                    "name": "by measurement",
                    "digests": {name: text_facts(name, lines)["digest"] for name, lines in arguments.text.items()},
                },
                seeds=[1],
            ),
            "rounds": arguments.rounds,
            "cpu_threads": torch.get_num_threads(),
            "encoders": {
                name: {"weights": NONE if name == "bert-base" else folder_hash(folder)}
                for name, folder in folders.items()
            }
            or NONE,
        }
        if "speed" in arguments.parts:
            content["speed"] = _speed(folders, arguments)
        if "steps" in arguments.parts and arguments.device == "cpu":
            content["steps"] = _steps(next(iter(folders.values())), arguments)
        if "int8" in arguments.parts:
            content["int8"] = _int8_scores(folders, arguments)
        if "growth" in arguments.parts:
            tiny = random_bert(Path(scratch) / "tiny", **TINY)
            content["growth"] = growth(arguments.sentences, arguments.text["short"], tiny)
    write(arguments.out or RESULTS / f"encoding-speed-{arguments.device}.json", content)


def _speed(folders: dict[str, Path], arguments: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for name, folder in folders.items():
        peer, ours, ways = _ways(folder, arguments)
        for text in arguments.texts:
            lines = _enough(arguments.text[text], peer, text, arguments)
            batch = _best_batch(peer, lines, arguments)
            ways[PEER_BEST] = _peer(peer, batch)
            seconds, vectors = _rounds(ways, lines, arguments)
            row = {
                "encoder": name,
                "text": text,
                "sentences": len(lines),
                "tokens_a_sentence": round(
                    float(tokenise(ours.tokenizer, lines, length_limit(ours)).lengths.mean()), 1
                ),
                "best_batch": batch,
                "seconds": seconds,
                "ratio": {way: round(seconds[PEER] / value, 3) for way, value in seconds.items()},
                "ratio_to_best": {way: round(seconds[PEER_BEST] / value, 3) for way, value in seconds.items()},
                "largest_difference": _differences(vectors),
            }
            _check_equal(row, arguments.device)
            rows.append(row)
            _print(row)
    return rows


def _steps(folder: Path, arguments: argparse.Namespace) -> dict[str, dict[str, float]]:
    peer, ours, _ = _ways(folder, arguments)
    found = {}
    for text in ("short", "mixed"):
        lines = _enough(arguments.text[text], peer, text, arguments)
        seconds, _ = _rounds(_step_ways(peer, ours), lines, arguments)
        found[text] = {way: round(seconds[PEER] / value, 3) for way, value in seconds.items()}
        print(f"steps, {text}: " + "  ".join(f"{way} {value:.2f}" for way, value in found[text].items()), flush=True)
    return found


def _step_ways(peer: SentenceTransformer, ours: SentenceTransformer) -> dict[str, Way]:
    """Return ways to encode, each with one optimisation more than the one before."""
    return {
        "SentenceTransformer": lambda lines: peer.encode(lines, show_progress_bar=False),
        "+ batches by tokens": _way(StockRunner(ours), _one_after_the_other),
        "+ no padding": _way(FlatRunner(ours, torch.float32), _one_after_the_other),
        "+ a batch a core": _way(FlatRunner(ours, torch.float32), None),
    }


def _one_after_the_other(work: Callable[[Any], None], items: Iterable[Any], threads: int) -> None:
    """Process batches one by one, each operation split over the cores as PyTorch does by default."""
    for item in items:
        work(item)


def _way(runner: FlatRunner | StockRunner, workers: Callable[..., None] | None) -> Way:
    def run(lines: list[str]) -> np.ndarray[Any, Any]:
        found: Any = runner
        if workers is None:
            return found.start(found.tokenise(lines), None)()
        with patch("selfguide.engine.torch_runner.side_by_side", workers):
            return found.start(found.tokenise(lines), None)()

    return run


def _ways(
    folder: Path, arguments: argparse.Namespace
) -> tuple[SentenceTransformer, SentenceTransformer, dict[str, Way]]:
    """Return the peer, our encoder, and the ways to encode by name; the peer with its defaults comes first."""
    half = arguments.device == "cuda"
    dtype = torch.bfloat16 if half else torch.float32
    with quiet_libraries():
        peer = SentenceTransformer(str(folder), device=arguments.device, model_kwargs={"dtype": dtype})
    ours = load_encoder(folder, device=arguments.device)
    ours.max_seq_length = peer.max_seq_length

    def by(backend: str) -> Way:
        return lambda lines: encode(ours, lines, backend=backend, show_progress=False)

    ways: dict[str, Way] = {
        PEER: _peer(peer),
        PEER_BEST: _peer(peer),
        "torch": by("torch"),
    }
    ways |= {backend: by(backend) for backend in (["bf16"] if half else arguments.backends)}
    return peer, ours, ways


def _peer(peer: SentenceTransformer, batch: int = 32) -> Way:
    return lambda lines: peer.encode(lines, batch_size=batch, show_progress_bar=False)


def _rounds(
    ways: dict[str, Way], lines: list[str], arguments: argparse.Namespace
) -> tuple[dict[str, float], dict[str, Any]]:
    """Return the median seconds of each way, and the vectors it gave."""
    times: dict[str, list[float]] = {way: [] for way in ways}
    vectors: dict[str, Any] = {}
    for number in range(arguments.rounds + 1):
        for way, run in ways.items():
            start = time.perf_counter()
            vectors[way] = run(lines)
            if number > 0:  # the first round is a warm-up
                times[way].append(time.perf_counter() - start)
    return {way: statistics.median(values) for way, values in times.items()}, vectors


def _enough(lines: list[str], peer: SentenceTransformer, text: str, arguments: argparse.Namespace) -> list[str]:
    """Return as many sentences as the peer encodes in about ``--seconds``."""
    fewest, most = FEWEST[arguments.device][text], MOST[arguments.device]
    sample = list(islice(cycle(lines), fewest))
    peer.encode(sample[: fewest // 4], show_progress_bar=False)
    start = time.perf_counter()
    peer.encode(sample[: fewest // 2], show_progress_bar=False)
    rate = (fewest // 2) / (time.perf_counter() - start)
    return list(islice(cycle(lines), int(min(most, max(fewest, rate * arguments.seconds)))))


def _best_batch(peer: SentenceTransformer, lines: list[str], arguments: argparse.Namespace) -> int:
    """Return the batch size with which the peer is fastest on half of the sentences."""
    seconds = {}
    for batch in PEER_BATCHES[arguments.device]:
        start = time.perf_counter()
        peer.encode(lines[::2], batch_size=batch, show_progress_bar=False)
        seconds[batch] = time.perf_counter() - start
    return min(seconds, key=seconds.__getitem__)


def _differences(vectors: dict[str, Any]) -> dict[str, float]:
    plain = np.asarray(vectors[PEER], dtype=np.float32)
    return {way: float(np.abs(np.asarray(found) - plain).max()) for way, found in vectors.items() if way != PEER}


def _check_equal(row: dict[str, Any], device: str) -> None:
    """Check that vectors equal the peer's in fp32 on a CPU, and come close on a GPU, where the peer runs in bf16."""
    exact = {way: value for way, value in row["largest_difference"].items() if way in ("torch", "onnx")}
    allowed = 1e-5 if device == "cpu" else 0.5
    if any(not value <= allowed for value in exact.values()):
        raise SystemExit(
            f"vectors differ from SentenceTransformer's by more than {allowed}: {exact} ({row['encoder']})"
        )


def _print(row: dict[str, Any]) -> None:
    peer = row["sentences"] / row["seconds"][PEER]
    ratios = "  ".join(f"{way} {value:.2f}" for way, value in row["ratio"].items() if way != PEER)
    print(
        f"{row['encoder']:18s} {row['text']:6s} {row['tokens_a_sentence']:6.1f} tokens  {peer:8.0f} sentences/s   {ratios}",
        flush=True,
    )


def _int8_scores(folders: dict[str, Path], arguments: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Return Spearman × 100 of cosine and grade in fp32 and in int8, for encoders that are not random."""
    pairs = _graded(arguments.data)
    scores: dict[str, dict[str, float]] = {}
    for name, folder in folders.items():
        if name == "bert-base" or arguments.device != "cpu":
            continue
        model = load_encoder(folder, device="cpu")
        scores[name] = {backend: _score(model, pairs, backend) for backend in ("torch", "int8")}
        scores[name]["difference"] = scores[name]["int8"] - scores[name]["torch"]
        print(f"{name:18s} STS-B fp32 {scores[name]['torch']:.2f}, int8 {scores[name]['int8']:.2f}", flush=True)
    return scores


def _score(model: SentenceTransformer, pairs: Pairs, backend: str) -> float:
    first, second = (encode(model, side, backend=backend, show_progress=False) for side in (pairs.first, pairs.second))
    return 100 * float(spearmanr(cosine(first, second), pairs.scores).statistic)


def _graded(data: Path | None) -> Pairs:
    return read_pairs(data / "sts" / "stsb" / "test.tsv") if data else demo_pairs("test")


def _folder(name: str, folder: Path | None, scratch: Path) -> Path:
    if folder is not None:
        return folder
    return mini_folder() if name == "mini" else random_bert(scratch / name)


def _texts(arguments: argparse.Namespace) -> dict[str, list[str]]:
    own = demo_sentences()
    data: Path | None = arguments.data
    short = own
    if data:
        pairs = read_pairs(data / "sts" / "stsb" / "test.tsv")
        short = list(dict.fromkeys([*pairs.first, *pairs.second]))
    mixed = arguments.mixed or (data and data / "text" / "wiki1m_for_simcse.head.txt")
    long = arguments.long or (data and data / "text" / "wikitext2.test.paragraphs.txt")
    texts = {
        "short": short,
        "mixed": _lines(mixed) or [" ".join(own[at : at + 1 + at % 6]) for at in range(0, len(own) - 6, 3)],
        "long": [line for line in _lines(long) if len(line) > 400]
        or [" ".join(own[at : at + 12]) for at in range(0, len(own) - 12, 5)],
    }
    for lines in texts.values():  # files are ordered by source and topic
        random.Random(0).shuffle(lines)
    return texts


def _lines(path: Path | None) -> list[str]:
    if path is None or not path.is_file():
        return []
    return [line for line in (raw.strip() for raw in path.read_text(encoding="utf-8").splitlines()) if line]


def _named(item: str) -> tuple[str, Path | None]:
    name, _, folder = item.partition("=")
    if not folder and name not in ("mini", "bert-base"):
        raise argparse.ArgumentTypeError(f"{item}: use mini, bert-base or NAME=FOLDER")
    return name, Path(folder) if folder else None


def _arguments() -> argparse.Namespace:
    parser = command_parser(__doc__)
    parser.add_argument("--encoders", nargs="+", type=_named, default=[("mini", None), ("bert-base", None)])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--backends", nargs="*", default=["onnx", "int8"], help="beside torch, on a CPU")
    parser.add_argument("--texts", nargs="+", choices=TEXTS, default=list(TEXTS))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.8, help="approximate time of a pass by SentenceTransformer")
    parser.add_argument(
        "--sentences", type=int, nargs="+", default=[1000, 10_000, 100_000, 1_000_000], help="for growth"
    )
    parser.add_argument("--data", type=Path, default=os.environ.get("SELFGUIDE_DATA") or None)
    parser.add_argument("--mixed", type=Path, help="text of sentences of every length, one a line")
    parser.add_argument("--long", type=Path, help="text of paragraphs, one a line")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    arguments.data = Path(arguments.data) if arguments.data else None
    arguments.text = _texts(arguments)
    return arguments


if __name__ == "__main__":
    main()
