"""Throughput and latency of ``selfguide serve`` beside a plain FastAPI server, in turns of one run.

    OMP_NUM_THREADS=2 python -m experiments.serving.load --encoders mini all-MiniLM-L6-v2=FOLDER

Both servers run all the time on 127.0.0.1, each with its defaults and the same number of threads; the clients ask one, then the
other, with 1, 8, 64 and 256 of them, in rounds. The clients are a third process, whose share of a core is recorded. The
sentences are the embedded ones, one a request, and every answer is compared with its vector: that of ``encode`` for ``selfguide
serve``, that of ``SentenceTransformer.encode`` for the plain server. Then ``--soak`` requests in four forms go to ``selfguide
serve``, while the memory of its processes is watched.

Other programs on the machine would falsify the rates. What they use of the processor is recorded for every measurement (all that
is busy, less the server and its clients), and a round in which it is more than ``--others`` cores is measured again, at the most
``--attempts`` times.

Every round is written as soon as it is measured. ``--minutes`` ends the command after about so long; the same command goes on
with what is missing in the file, as long as versions and settings are the same.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from experiments.origins import NONE
from experiments.provenance import RESULTS, command_parser, folder_hash, provenance, text_facts, write
from selfguide.data.resources import demo_sentences, mini_folder

OURS, PLAIN, PLAIN_ASYNC = "selfguide serve", "plain FastAPI", "plain FastAPI, async def"
# The plain server's batches of one are compared with vectors that SentenceTransformer computes in batches of 32.
TOLERANCE = {OURS: 1e-6, PLAIN: 1e-5, PLAIN_ASYNC: 1e-5}
_SOAK_CLIENTS = 64
SENTENCES = 1000
_BEGAN = time.monotonic()


def main() -> None:
    """Measure, and write the results file."""
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers end, too
    setting: dict[str, Any] = {
        "cpu_threads": int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1)),
        "cores": os.cpu_count(),
        "fastapi": version("fastapi"),
        "uvicorn": version("uvicorn"),
        "rounds": arguments.rounds,
        "seconds_a_measurement": arguments.seconds,
        "other_programs_at_most_cores": arguments.others,
        "tolerance": TOLERANCE,
    }
    content = {
        **provenance(None, text=text_facts("the demonstration's sentences", demo_sentences()), seeds=NONE),
        **setting,
        "encoders": [],
    }
    earlier = _earlier(arguments.out, setting)
    for name, folder in arguments.encoders:
        row: dict[str, Any] = {"name": name, "weights": folder_hash(folder)}
        row = next((found for found in earlier if all(found.get(key) == row[key] for key in row)), row)
        content["encoders"].append(row)
    for place, (_, folder) in enumerate(arguments.encoders):
        measure(content, content["encoders"][place], folder, arguments.soak if place == 0 else 0, arguments)


def _earlier(path: Path, setting: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the encoders' rows of a file that a command with the same settings wrote; none if there is no such file."""
    if not path.exists():
        return []
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if any(found.get(key) != value for key, value in setting.items()):
        raise SystemExit(f"{path.name} was measured with other settings: move it away, or use its settings.")
    rows: list[dict[str, Any]] = found["encoders"]
    return rows


def measure(
    content: dict[str, Any], row: dict[str, Any], folder: Path, soak: int, arguments: argparse.Namespace
) -> None:
    """Measure with one encoder what its row does not hold yet, and write the file after every setting.

    Args:
        content: The file.
        row: The encoder's part of it, which grows: medians over the rounds by server and number of clients, and the ratios.
        folder: The encoder's folder.
        soak: Number of requests of the long run; 0 for none.
        arguments: The command's.
    """
    words = _servers(folder, arguments)
    rounds = row.setdefault("rounds", [])
    wanted = [] if arguments.soak_only else _missing(rounds, arguments)
    with tempfile.TemporaryDirectory() as scratch:
        vectors = _vectors(folder, Path(scratch))
        if wanted:
            with ExitStack() as stack:
                servers = {server: stack.enter_context(_running(start)) for server, start in words.items()}
                for server, (_, port) in servers.items():  # a warm-up that is not counted
                    ask(port, vectors[server], "--clients", "16", "--seconds", "3")
                while (wanted := _missing(rounds, arguments)) and not _used_up(arguments):
                    rounds.append(_round(servers, vectors, wanted[0], arguments))
                    _summarise(row, arguments)
                    write(arguments.out, content)
        if soak and "soak" not in row and not _used_up(arguments):
            with _running(_ours(folder)) as (process, port):
                row["soak"] = _soak(process, port, vectors[OURS], soak, arguments)
            write(arguments.out, content)


def _missing(rounds: list[dict[str, Any]], arguments: argparse.Namespace) -> list[int]:
    """Return the numbers of clients of which rounds are missing."""
    wanted = []
    for clients in arguments.clients:
        tried = [one for one in rounds if one["clients"] == clients]
        good = [one for one in tried if one["others"] <= arguments.others]
        if len(good) < arguments.rounds and len(tried) < arguments.attempts:
            wanted.append(clients)
    return wanted


def _summarise(row: dict[str, Any], arguments: argparse.Namespace) -> None:
    """Write medians over the rounds, and their ratios, into an encoder's row."""
    servers: dict[str, list[dict[str, Any]]] = {}
    for clients in arguments.clients:
        tried = sorted((one for one in row["rounds"] if one["clients"] == clients), key=lambda one: one["others"])
        # Where other programs were never quiet, all rounds: then only the ratios say something.
        kept = [one for one in tried if one["others"] <= arguments.others] or tried
        for server in kept[0]["servers"] if kept else ():
            found = _median([one["servers"][server] for one in kept])
            found["rounds"] = len(kept)
            found["other_programs_cores"] = max(one["others"] for one in kept)
            servers.setdefault(server, []).append(found)
    row["servers"], row["ratios"] = servers, _ratios(servers)


def _used_up(arguments: argparse.Namespace) -> bool:
    return arguments.minutes is not None and time.monotonic() - _BEGAN > 60 * arguments.minutes


def _round(
    servers: dict[str, tuple[subprocess.Popen[bytes], int]],
    vectors: dict[str, Path],
    clients: int,
    arguments: argparse.Namespace,
) -> dict[str, Any]:
    """Ask each server once with so many clients; say what other programs used meanwhile, in cores."""
    found: dict[str, Any] = {"clients": clients, "others": 0.0, "servers": {}}
    for server, (process, port) in servers.items():
        words = ["--clients", str(clients), "--seconds", str(arguments.seconds), "--tolerance", str(TOLERANCE[server])]
        before, busy, began = _seconds_of(process.pid), _busy_seconds(), time.monotonic()
        answer = ask(port, vectors[server], *words)
        wall = time.monotonic() - began
        used = _seconds_of(process.pid) - before
        own = used + answer["client_cpu_seconds"]
        answer["requests_per_cpu_second"] = answer["requests"] / max(used, 1e-9)
        found["others"] = max(found["others"], round((_busy_seconds() - busy - own) / wall, 3))
        found["servers"][server] = answer
        shown = f"{answer['requests_per_second']:.0f}/s, p50 {answer['p50_ms']:.0f} ms, p99 {answer['p99_ms']:.0f} ms"
        print(f"{clients} clients, {server}: {shown}; others {found['others']} cores", file=sys.stderr, flush=True)
    return found


def _busy_seconds() -> float:
    """Return the processor time that all programs have used since the machine started."""
    fields = [int(one) for one in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    return (sum(fields[:8]) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")  # less idle and waiting for the disk


def _seconds_of(parent: int) -> float:
    """Return the processor time of a process and its children."""
    total = 0
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = place.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if str(parent) in (place.parent.name, fields[1]):
            total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def _median(runs: list[dict[str, Any]]) -> dict[str, Any]:
    together = {key: sum(run[key] for run in runs) for key in ("requests", "errors", "wrong")}
    medians = {
        key: round(statistics.median(run[key] for run in runs), 3)
        for key in ("requests_per_second", "p50_ms", "p99_ms", "client_cpu_share_of_a_core", "requests_per_cpu_second")
    }
    rates = [run["requests_per_second"] for run in runs]
    return {
        "clients": runs[0]["clients"],
        **medians,
        "slowest_and_fastest_round": [round(min(rates), 3), round(max(rates), 3)],
        "largest_difference": max(run["largest_difference"] for run in runs),
        **together,
    }


def _ratios(found: dict[str, list[dict[str, Any]]]) -> dict[str, dict[str, dict[str, float]]]:
    """Return throughput and p99 of ours to those of each plain server, by number of clients."""
    ratios: dict[str, dict[str, dict[str, float]]] = {}
    for server in [name for name in found if name != OURS]:
        ratios[server] = {
            str(ours["clients"]): {
                "throughput": round(ours["requests_per_second"] / plain["requests_per_second"], 3),
                "requests_per_cpu_second": round(ours["requests_per_cpu_second"] / plain["requests_per_cpu_second"], 3),
                "p99": round(ours["p99_ms"] / plain["p99_ms"], 3),
            }
            for ours, plain in zip(found[OURS], found[server], strict=True)
        }
    return ratios


def ask(port: int, vectors: Path, *words: str) -> dict[str, Any]:
    """Run the clients in a process of their own, and return what they found."""
    command = [sys.executable, "-m", "experiments.serving.client", str(port), str(vectors), *words]
    done = subprocess.run(command, capture_output=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _soak(
    process: subprocess.Popen[bytes], port: int, vectors: Path, requests: int, arguments: argparse.Namespace
) -> dict[str, Any]:
    """Send many requests of several forms, and watch the memory of the server's processes."""
    words = [
        "--clients",
        str(_SOAK_CLIENTS),
        "--seconds",
        str(arguments.soak_seconds),
        "--requests",
        str(requests),
        "--mixed",
    ]
    command = [sys.executable, "-m", "experiments.serving.client", str(port), str(vectors), *words]
    began = time.monotonic()
    memory: list[tuple[float, dict[str, float]]] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE) as clients:
        try:
            while clients.poll() is None:
                memory.append((round(time.monotonic() - began, 1), _megabytes(process.pid)))
                time.sleep(2)
        except SystemExit:
            clients.kill()
            raise
        assert clients.stdout is not None
        found: dict[str, Any] = json.loads(clients.stdout.read())
    memory = [item for item in memory if sum(item[1].values())]  # the last may be after the end
    settled = [round(sum(value.values()), 1) for moment, value in memory if moment > 0.1 * memory[-1][0]]
    found["memory_mb"] = {
        "after_a_tenth": settled[0],
        "at_the_end": settled[-1],
        "largest": max(settled),
        "growth": round(settled[-1] / settled[0] - 1, 4),
        "seconds, front, worker": [
            [moment, *(round(one) for one in value.values())] for moment, value in memory[:: max(1, len(memory) // 20)]
        ],
    }
    print(json.dumps(found), file=sys.stderr, flush=True)
    return found


def _megabytes(parent: int) -> dict[str, float]:
    """Return the resident memory of a process, and that of its children together."""
    found = {"front": 0.0, "worker": 0.0}
    for place in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":", 1) for line in place.read_text().splitlines() if ":" in line)
        except OSError:  # it has ended
            continue
        own = place.parent.name == str(parent)
        if "VmRSS" in fields and (own or fields.get("PPid", "").strip() == str(parent)):
            found["front" if own else "worker"] += int(fields["VmRSS"].split()[0]) / 1024
    return found


def _vectors(folder: Path, scratch: Path) -> dict[str, Path]:
    """Write what the servers must answer; computed in a process that is gone when they run."""
    code = (
        "import sys, numpy as np, torch\n"
        "from sentence_transformers import SentenceTransformer\n"
        "import selfguide\n"
        "from selfguide.data.resources import demo_sentences\n"
        "folder, ours, plain = sys.argv[1:]\n"
        f"sentences = demo_sentences()[:{SENTENCES}]\n"
        "for place, vectors in (\n"
        "    (ours, selfguide.encode(folder, sentences, device='cpu', show_progress=False)),\n"
        "    (plain, SentenceTransformer(folder, device='cpu', model_kwargs={'dtype': torch.float32}).encode(sentences)),\n"
        "):\n"
        "    np.savez(place, sentences=np.array(sentences), vectors=vectors)\n"
    )
    ours, plain = scratch / "ours.npz", scratch / "plain.npz"
    subprocess.run([sys.executable, "-c", code, str(folder), str(ours), str(plain)], check=True)
    with np.load(ours) as found:
        assert len(found["vectors"]) == SENTENCES
    return {OURS: ours, PLAIN: plain, PLAIN_ASYNC: plain}


def _servers(folder: Path, arguments: argparse.Namespace) -> dict[str, list[str]]:
    """Return the words that start each server, by its name."""
    found = {OURS: _ours(folder), PLAIN: _plain(folder)}
    return found | ({PLAIN_ASYNC: _plain(folder, True)} if arguments.with_async else {})


def _ours(folder: Path) -> list[str]:
    return ["-m", "selfguide", "serve", f"encoder={folder}", "--port"]


def _plain(folder: Path, one_by_one: bool = False) -> list[str]:
    return ["-m", "experiments.serving.plain_server", str(folder), *(["--async"] if one_by_one else []), "--port"]


@contextmanager
def _running(words: list[str]) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run a server on a free port while the block runs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    process = subprocess.Popen([sys.executable, *words, str(port)], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120
        while not _ready(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"The server did not start: python {' '.join(words)}")
            time.sleep(0.2)
        yield process, port
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()


def _ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def _arguments() -> argparse.Namespace:
    parser = command_parser(__doc__)
    parser.add_argument("--encoders", nargs="+", default=[_named("mini")], type=_named, help="mini, or NAME=FOLDER")
    parser.add_argument("--clients", nargs="+", type=int, default=[1, 8, 64, 256])
    parser.add_argument("--with-async", action="store_true", help="a plain server with an async endpoint too")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6.0, help="length of a measurement")
    parser.add_argument("--soak", type=int, default=0, help="requests of the long run, with the first encoder")
    parser.add_argument("--soak-only", action="store_true", help="nothing but the long run")
    parser.add_argument("--soak-seconds", type=float, default=900.0, help="its maximal length")
    parser.add_argument("--others", type=float, default=0.2, help="cores that other programs may use in a round")
    parser.add_argument("--attempts", type=int, default=8, help="rounds at the most")
    parser.add_argument("--minutes", type=float, default=None, help="begin no further round after so long")
    parser.add_argument("--out", type=Path, default=RESULTS / "serving-load.json")
    return parser.parse_args()


def _named(word: str) -> tuple[str, Path]:
    name, equals, folder = word.partition("=")
    return (name, Path(folder)) if equals else (name, mini_folder())


if __name__ == "__main__":
    main()
