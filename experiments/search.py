"""Index and search a million sentences: time, memory, recall of the vector index, and where comparing with every row is faster.

    python -m experiments.search prepare --text 'corpus/*.txt.xz' --work FOLDER
    python -m experiments.search build --encoder potion-base-8M=FOLDER --work FOLDER
    python -m experiments.search sizes|queries|duplicates --encoder potion-base-8M=FOLDER --work FOLDER

Each step adds to the results file. The sentences are the first million different ones of 20 to 300 characters in the text; the
queries are the ones that follow, which are not in the index. The number of partitions that a query looks into was chosen on the
first hundred of them; ``recall@10`` is that of the other four hundred.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

import selfguide
from experiments.provenance import RESULTS, command_parser, folder_hash, peak_megabytes, provenance, text_facts, write
from selfguide.data import Sentences, TextOptions
from selfguide.progress import Reporter
from selfguide.search.index import EXACT_NUMBERS, PROBES, REFINED, Index
from selfguide.search.store import Store
from selfguide.versions import versions

ROWS = 1_000_000
QUERIES = 500
TIMED = 100
TIMED_EXACT = 5
ADDED = 10_000
SIZES = (5_000, 10_000, 20_000, 50_000, 200_000)
COMPARED = (20_000, 50_000)
HITS = 10
_BOUNDARY = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'])")


def main() -> None:
    """Do one step, and add what it measured to the results file."""
    arguments = _arguments()
    if arguments.step == "prepare":
        _prepare(arguments)
        return
    if arguments.step == "one-comparison":
        _one_comparison(arguments)
        return
    steps: dict[str, Callable[[argparse.Namespace], Any]] = {
        "build": _build,
        "queries": _queries,
        "sizes": _sizes,
        "duplicates": _duplicates,
    }
    before = os.getloadavg()[0]
    found = steps[arguments.step](arguments)
    # Above the number of cores, other programs were at work, and times are longer than they need to be.
    found["load before and after"] = [before, os.getloadavg()[0]]
    content = json.loads(arguments.out.read_text()) if arguments.out.is_file() else {}
    name, folder = arguments.encoder
    prose = "English prose (Wikipedia, news, books, textbooks ...), cut into sentences"
    text = text_facts(prose, _sentences(arguments, 0, arguments.rows))
    origin = provenance(None, text=text, seeds=[1])
    origin["encoders"] = [{"name": name, "weights": folder_hash(folder)}]
    settings = {"probes": PROBES, "refined": REFINED, "exact numbers": EXACT_NUMBERS, "hits": HITS}
    done = content.get("steps", {}) | {arguments.step: {"command": origin["command"], "date": origin["date"], **found}}
    lancedb = versions("lancedb")["lancedb"]
    write(arguments.out, {**origin, "lancedb": lancedb, "rows": arguments.rows, **settings, "steps": done})


def _prepare(arguments: argparse.Namespace) -> None:
    seen: set[int] = set()
    wanted = arguments.rows + ADDED + QUERIES
    with (arguments.work / "sentences.txt").open("w", encoding="utf-8") as file:
        for line in Sentences([arguments.text], TextOptions(keep_duplicates=True)):
            for sentence in _BOUNDARY.split(line):
                if 20 <= len(sentence) <= 300 and hash(sentence) not in seen:
                    seen.add(hash(sentence))
                    file.write(sentence + "\n")
            if len(seen) >= wanted:
                break


def _sentences(arguments: argparse.Namespace, start: int, count: int) -> Iterator[str]:
    with (arguments.work / "sentences.txt").open(encoding="utf-8") as file:
        for line in islice(file, start, start + count):
            yield line.rstrip("\n")


class _Timed(Reporter):
    """Remembers how long each bar stood."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.seconds: dict[str, float] = {}

    @contextmanager
    def bar(self, description: str, total: int | None, unit: str) -> Iterator[Callable[[int, str], None]]:
        """See :meth:`Reporter.bar`."""
        started = time.perf_counter()
        yield _ignore
        self.seconds[description] = self.seconds.get(description, 0.0) + time.perf_counter() - started


def _ignore(count: int, extra: str = "") -> None:
    """Stand in for a bar's progress."""


def _build(arguments: argparse.Namespace) -> dict[str, Any]:
    """Make the index, and add to it."""
    target = arguments.work / "index"
    shutil.rmtree(target, ignore_errors=True)
    reporter = _Timed()
    started = time.perf_counter()
    index = selfguide.build_index(
        _sentences(arguments, 0, arguments.rows), arguments.encoder[1], output=target, overwrite=True, reporter=reporter
    )
    seconds = time.perf_counter() - started
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    found = {
        "seconds": seconds,
        "parts": dict(reporter.seconds),
        "peak MB": peak_megabytes(),
        "disk MB": size / 2**20,
        "rows": len(index),
        "dimensions": index.record.dim,
    }
    print(json.dumps(found, indent=1), flush=True)
    started = time.perf_counter()
    more = _sentences(arguments, arguments.rows - ADDED, 2 * ADDED)
    added = selfguide.add_to_index(target, more, encoder=arguments.encoder[1])
    found["add"] = {"seconds": time.perf_counter() - started, "given": 2 * ADDED, "added": added}
    assert added == ADDED
    return found


def _vectors_of_queries(arguments: argparse.Namespace) -> tuple[list[str], Any]:
    texts = list(_sentences(arguments, arguments.rows + ADDED, QUERIES))
    return texts, selfguide.encode(arguments.encoder[1], texts, normalise=True, show_progress=False)


def _queries(arguments: argparse.Namespace) -> dict[str, Any]:
    """Ask the index, by words, by meaning and by both; the vectors of the queries are there already."""
    index = selfguide.open_index(arguments.work / "index")
    texts, vectors = _vectors_of_queries(arguments)
    found: dict[str, Any] = {"queries": TIMED}
    hits: dict[str, list[list[str]]] = {}
    for label, mode, exact in (
        ("vector", "vector", False),
        ("text", "text", False),
        ("hybrid", "hybrid", False),
        ("vector, exact", "vector", True),
    ):
        seconds, hits[label] = [], []
        for text, vector in list(zip(texts, vectors, strict=True))[: TIMED_EXACT if exact else TIMED]:
            before = time.perf_counter()
            answer = index.query(text, HITS, None, mode, vector, exact)
            seconds.append(time.perf_counter() - before)
            hits[label].append([hit.text for hit in answer.hits])
        found[label] = {
            "median ms": 1000 * statistics.median(seconds),
            "p95 ms": 1000 * float(np.percentile(seconds, 95)),
        }
        print(label, found[label], flush=True)
    truth = _nearest(index, vectors)
    assert [set(one) for one in truth[:TIMED_EXACT]] == [set(one) for one in hits["vector, exact"]]
    others = [
        [hit.text for hit in index.query(text, HITS, None, "vector", vector).hits]
        for text, vector in list(zip(texts, vectors, strict=True))[TIMED:]
    ]
    found["recall@10"] = _recall(others, truth[TIMED:])
    found["queries of the recall"] = len(others)
    found["recall@10 of the queries that chose"] = _recall(hits["vector"], truth[:TIMED])
    found["peak MB"] = peak_megabytes()
    print(found, flush=True)
    return found


def _recall(found: list[list[str]], truth: list[list[str]]) -> float:
    """Return the share of the nearest rows that were found."""
    return statistics.fmean(len(set(one) & set(other)) / HITS for one, other in zip(found, truth, strict=True))


def _nearest(index: Index, vectors: Any) -> list[list[str]]:
    """Return the rows that are nearest to each query, by a matrix product with every row."""
    best: list[list[tuple[float, str]]] = [[] for _ in vectors]
    for batch in index.store.batches("text", "_vector"):
        rows = batch.column("_vector").flatten().to_numpy().reshape(-1, index.store.dim)
        cosines = vectors @ rows.T
        texts = batch.column("text")
        for place, near in enumerate(cosines):
            top = np.argpartition(-near, HITS)[:HITS] if len(near) > HITS else range(len(near))
            some = [(float(near[row]), texts[int(row)].as_py()) for row in top]
            best[place] = sorted([*best[place], *some], reverse=True)[:HITS]
    return [[text for _, text in found] for found in best]


def _sizes(arguments: argparse.Namespace) -> dict[str, Any]:
    """Compare the vector index with comparing every row, for indexes of growing size."""
    source = selfguide.open_index(arguments.work / "index")
    _, queries = _vectors_of_queries(arguments)
    rows = []
    for size in (size for size in SIZES if size <= arguments.rows):
        folder = arguments.work / f"size-{size}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        store = Store(folder, [], source.record.dim)
        store.create()
        for batch in source.store.batches("text", "_key", "_vector", count=size):
            vectors = batch.column("_vector").flatten().to_numpy().reshape(-1, store.dim)
            texts, keys = batch.column("text").to_pylist(), batch.column("_key").to_pylist()
            store.append([(text, {}, key) for text, key in zip(texts, keys, strict=True)], vectors)
        store.tidy()
        started = time.perf_counter()
        store.index_vectors()
        made = time.perf_counter() - started
        record = store.publish(source.record)
        index = Index(folder)
        row: dict[str, Any] = {"rows": record.rows, "numbers": record.rows * store.dim, "index seconds": made}
        found: dict[bool, list[set[str]]] = {}
        for exact in (True, False):
            seconds, found[exact] = [], []
            for vector in queries[:50]:
                before = time.perf_counter()
                answer = index.query("x", HITS, None, "vector", vector, exact)
                seconds.append(time.perf_counter() - before)
                found[exact].append({hit.text for hit in answer.hits})
            row["exact ms" if exact else "index ms"] = 1000 * statistics.median(seconds)
        row["recall@10"] = statistics.fmean(len(a & b) / HITS for a, b in zip(found[True], found[False], strict=True))
        rows.append(row)
        print(row, flush=True)
        shutil.rmtree(folder)
    return {"sizes": rows}


def _duplicates(arguments: argparse.Namespace) -> dict[str, Any]:
    """Compare all pairs of some rows, each number in a process of its own, whose memory is measured."""
    rows = []
    for size in COMPARED:
        command = [sys.executable, "-m", "experiments.search", "one-comparison", "--rows", str(size)]
        command += ["--work", str(arguments.work), "--encoder", "=".join(map(str, arguments.encoder))]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print(rows[-1], flush=True)
    return {"comparisons": rows}


def _one_comparison(arguments: argparse.Namespace) -> None:
    folder = arguments.work / f"near-{arguments.rows}"
    if not folder.is_dir():
        selfguide.build_index(_sentences(arguments, 0, arguments.rows), arguments.encoder[1], output=folder)
    index = selfguide.open_index(folder)
    before = peak_megabytes()
    started = time.perf_counter()
    found = selfguide.near_duplicates(index, 99.999)
    done = found.write()
    row = {
        "rows": arguments.rows,
        "seconds": time.perf_counter() - started,
        "peak MB": peak_megabytes(),
        "peak before MB": before,
        "threshold": found.threshold,
        "pairs": done.pairs,
        "expected": found.expected,
        "near an earlier one": done.dropped,
    }
    print(json.dumps(row))


def _named(word: str) -> tuple[str, Path]:
    name, _, folder = word.partition("=")
    return name, Path(folder)


def _arguments() -> argparse.Namespace:
    parser = command_parser(__doc__)
    parser.add_argument("step", choices=["prepare", "build", "queries", "sizes", "duplicates", "one-comparison"])
    parser.add_argument("--encoder", type=_named, help="NAME=FOLDER of a fast encoder")
    parser.add_argument("--text", help="files of prose, for prepare")
    parser.add_argument("--work", type=Path, required=True, help="folder for sentences and indexes")
    parser.add_argument("--rows", type=int, default=ROWS, help="rehearsal: fewer sentences")
    parser.add_argument("--out", type=Path, default=RESULTS / "search.json")
    arguments = parser.parse_args()
    if arguments.step != "prepare" and arguments.encoder is None:
        parser.error("--encoder NAME=FOLDER is needed")
    return arguments


if __name__ == "__main__":
    main()
