"""One command line in a child process: forked from this one, which has the libraries already, or started as anybody would."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from experiments.robustness import shim
from experiments.robustness.shim import Interference

LIMIT_S = 300.0
_LONGEST_GAP_S = 1.0
_PACKAGE = Path(importlib.import_module("selfguide").__path__[0]).resolve().parent
"""Where the package is that this process has; a command in a process of its own takes the same."""
_LIBRARIES = {
    *(
        "selfguide",
        "transformers",
        "sentence_transformers",
        "sklearn",
        "scipy",
        "numpy",
        "matplotlib",
        "rich",
        "jinja2",
        "umap",
    ),
    *(
        "pyarrow",
        "datasets",
        "accelerate",
        "typer",
        "PIL",
        "pandas",
        "torch",
        "safetensors",
        "tokenizers",
        "csv",
        "onnx",
    ),
    *("onnxruntime", "onnxscript", "sentencex", "pynndescent", "numba", "huggingface_hub", "tqdm", "packaging"),
}
"""Packages whose modules are imported here once a child has needed them."""


@dataclass(frozen=True)
class Ended:
    """How a process ended."""

    code: int
    """The exit code, or minus the signal."""
    out: str
    err: str
    seconds: float
    events: int = 0
    """How many events the shim counted, where the process lived to say so."""
    hits: int = 0
    writing: float = 0.0
    """Of a process of its own: the seconds from its first change of the folder to its end."""

    @property
    def words(self) -> str:
        """The last line of standard error."""
        lines = [line for line in self.err.splitlines() if line.strip()]
        return lines[-1] if lines else ""

    @property
    def in_words(self) -> bool:
        """Whether it ended as a command should: with code 0, 1, 2 or 130, without a traceback."""
        return self.code in (0, 1, 2, 130) and "Traceback" not in self.err


def preload() -> None:
    """Import what the commands need, before the first fork."""
    import warnings

    import matplotlib
    import torch

    warnings.filterwarnings("ignore", "lancedb fork support")  # nothing of it runs in this process

    torch.set_num_threads(1)
    matplotlib.use("Agg")
    for name in (
        "sentence_transformers",
        "transformers.trainer",
        "datasets",
        "sklearn.linear_model",
        "scipy.stats",
        "selfguide.cli.main",
        "selfguide.runs.run",
        "selfguide.comparison.compare",
        "selfguide.studies.run",
        "selfguide.engine.encode",
        "selfguide.evaluation.evaluate",
        "selfguide.mapping.text_map",
        "selfguide.exporting.static",
        "selfguide.search.build",
        "lancedb",
        "matplotlib.figure",
        "pyarrow.parquet",
    ):
        __import__(name)
    from selfguide.methods import registry

    for info in registry.builtin_methods():
        registry.method_class(info.name)
    gc.freeze()  # the collector of a child would touch, and so copy, all of this process's memory


def environment(world: Path) -> dict[str, str]:
    """Return the variables that keep a command's cache and temporary files in its own folder."""
    return {
        "SELFGUIDE_CACHE": str(world / "cache"),
        "TMPDIR": str(world / "tmp"),
        "HF_HOME": str(world / "hub"),
    } | shim.QUIET


def terminal_of(world: Path) -> Path:
    """Return the folder for what a command prints: beside its world, never on the world's own small file system."""
    beside = world.parent if os.path.ismount(world.parent) else world
    return beside.with_name(beside.name + ".terminal")


def forked(
    words: Sequence[str],
    world: Path,
    plan: Interference | None = None,
    stop: tuple[float, int] | None = None,
    stdin: bytes = b"",
) -> Ended:
    """Run ``selfguide WORDS`` in a child of this process.

    Args:
        words: The words after ``selfguide``.
        world: The folder that is the working directory.
        plan: Interference at its system calls.
        stop: After how many seconds to send which signal.
        stdin: Its standard input.

    Returns:
        How it ended.
    """
    terminal = _ready(words, world, stdin)
    begun = time.monotonic()
    child = os.fork()
    if child == 0:
        _be_the_command(words, world, terminal, plan)
    code = _awaited(child, begun, stop)
    return _ended(terminal, code, time.monotonic() - begun)


def together(lines: Sequence[Sequence[str]], world: Path, delay: float) -> list[Ended]:
    """Run several command lines in one folder, each in a child of this process.

    Args:
        lines: The words after ``selfguide`` of each.
        world: The folder that is their working directory.
        delay: Seconds between the starts.

    Returns:
        How they ended.
    """
    children: list[tuple[int, Path, float]] = []
    for number, words in enumerate(lines):
        if number:
            time.sleep(delay)
        terminal = _ready(words, world, part=str(number))
        child = os.fork()
        if child == 0:
            _be_the_command(words, world, terminal, None)
        children.append((child, terminal, time.monotonic()))
    ended = []
    for child, terminal, begun in children:
        code = _awaited(child, begun, None)
        ended.append(_ended(terminal, code, time.monotonic() - begun))
    return ended


def _ready(words: Sequence[str], world: Path, stdin: bytes = b"", part: str = "") -> Path:
    """Make the folder for what a command prints."""
    if words[0] == "map":
        _compile_layout()
    terminal = terminal_of(world) / part
    terminal.mkdir(exist_ok=True, parents=True)
    (terminal / "in").write_bytes(stdin)
    for name in ("out", "err"):  # a very early kill leaves them as they are
        (terminal / name).write_bytes(b"")
    for name in ("events", "modules"):
        (terminal / name).unlink(missing_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    return terminal


def _ended(terminal: Path, code: int, seconds: float) -> Ended:
    _learn(terminal / "modules")
    events, hits = 0, 0
    if (terminal / "events").exists():
        events, hits = map(int, (terminal / "events").read_text().split())
    out, err = ((terminal / name).read_text(encoding="utf-8", errors="replace") for name in ("out", "err"))
    return Ended(code, out, err, seconds, events, hits)


def _learn(modules: Path) -> None:
    """Import what a command has imported, so that the next child finds it here."""
    if modules.exists():
        for name in modules.read_text(encoding="utf-8").split():
            with contextlib.suppress(Exception):
                importlib.import_module(name)
        modules.unlink()
        gc.freeze()


@cache
def _compile_layout() -> None:
    """Let numba compile what a map needs once, in this process; it would take each child a minute."""
    import numpy as np

    from selfguide.mapping.layout import lay_out, nearest_neighbours
    from selfguide.progress import Reporter

    points = np.random.default_rng(1).normal(size=(96, 32)).astype(np.float32)
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    quiet = Reporter(quiet=True)
    lay_out(points, nearest_neighbours(points, 14, quiet), 1, quiet, None)


def _be_the_command(words: Sequence[str], world: Path, terminal: Path, plan: Interference | None) -> None:
    code: object = 70
    known = set(sys.modules)
    try:
        for name, number, flags in (
            ("in", 0, os.O_RDONLY),
            ("out", 1, os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
            ("err", 2, os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        ):
            opened = os.open(terminal / name, flags, 0o600)
            os.dup2(opened, number)
            os.close(opened)
        sys.stdin = os.fdopen(0, "r", encoding="utf-8", closefd=False)
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
        os.chdir(world)
        os.environ.update(environment(world))
        import tempfile

        tempfile.tempdir = None
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs inherit that it is ignored
        sys.argv = ["selfguide", *words]
        from selfguide.cli.main import run

        if plan is not None:
            shim.arm(world, plan)
        try:
            run()
            code = 0
        except SystemExit as end:
            code = end.code or 0
        if new := [name for name in sys.modules if name not in known and name.split(".")[0] in _LIBRARIES]:
            (terminal / "modules").write_text("\n".join(new), encoding="utf-8")
    except BaseException:
        traceback.print_exc()
    finally:
        if plan is not None:
            events, hits = shim.seen(), shim.hits()
            shim.arm(world, Interference(0))
            (terminal / "events").write_text(f"{events} {hits}")
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        os._exit(code if isinstance(code, int) else 70)


def in_a_child(work: Callable[[], bytes]) -> bytes:
    """Do something in a child of this process, and return its answer, or the error in words.

    Args:
        work: What to do; libraries that start threads do so in the child alone.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = work()
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}".encode()
        os.close(reading)
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(answer)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return answer


def _awaited(child: int, begun: float, stop: tuple[float, int] | None) -> int:
    paused, before = 0.0, begun
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        # A whole campaign may be stopped for a while (SIGSTOP): a long gap between two looks is not the command's time.
        now = time.monotonic()
        paused, before = paused + max(0.0, now - before - _LONGEST_GAP_S), now
        elapsed = now - begun - paused
        if stop is not None and elapsed >= stop[0]:
            os.kill(child, stop[1])
            stop = None
        elif elapsed > LIMIT_S:
            os.kill(child, signal.SIGKILL)
            raise TimeoutError(f"a command did not end within {LIMIT_S:.0f} s")
        time.sleep(0.002 if stop is not None else 0.005)


def started(
    words: Sequence[str], world: Path, plan: Interference | None = None, stop: tuple[float, int] | None = None
) -> Ended:
    """Run ``selfguide WORDS`` in a new process, as anybody would; see :func:`forked`.

    Args:
        words: The words after ``selfguide``.
        world: The folder that is the working directory.
        plan: Interference at its system calls.
        stop: How many seconds after its first change of the folder to send which signal; importing takes a new process most
            of its time, and a signal there would show little.

    Returns:
        How it ended.
    """
    terminal = terminal_of(world)
    terminal.mkdir(exist_ok=True)
    variables = os.environ | environment(world) | (shim.variable(world, plan) if plan else {})
    variables["PYTHONPATH"] = str(_PACKAGE)  # a relative path would mean another folder there
    if plan is None:
        variables.pop("LD_PRELOAD", None)
    with (terminal / "out").open("wb") as out, (terminal / "err").open("wb") as err:
        begun = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "selfguide", *words],
            cwd=world,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
        )
        try:
            _await_a_change(process, world)
            changed = time.monotonic()
            code = process.wait(stop[0] if stop else LIMIT_S)
        except subprocess.TimeoutExpired:
            process.send_signal(stop[1] if stop else signal.SIGKILL)
            code = process.wait()
        ended = time.monotonic()
    out_text, err_text = ((terminal / name).read_text(encoding="utf-8", errors="replace") for name in ("out", "err"))
    return Ended(code, out_text, err_text, ended - begun, writing=ended - changed)


def _await_a_change(process: subprocess.Popen[bytes], world: Path) -> None:
    """Wait until a process makes, renames or removes something, or is about to end."""

    def names() -> set[str]:
        with contextlib.suppress(OSError):
            return {entry.path for folder in (world, world / "tmp") for entry in os.scandir(folder)}
        return set()

    before, until = names(), time.monotonic() + LIMIT_S
    while names() == before and process.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
