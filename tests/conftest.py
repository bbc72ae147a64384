"""Tiny random encoders, made on the fly: every test runs offline and in seconds."""

from __future__ import annotations

import atexit
import gc
import io
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Tiny models gain nothing from threads, and two workers of two threads each would fight over two cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Nothing that a test keeps may be found by the next run, or by the user's own runs.
os.environ["SELFGUIDE_CACHE"] = tempfile.mkdtemp(prefix="selfguide-tests-")

import pytest

from reading import COMPRESS
from toys import Outcome, save_tokenizer, tiny_config, toy_sentences
from translations import write_fake_apertium, write_pairs

if TYPE_CHECKING:
    from selfguide.comparison.cells import CellRecord
    from selfguide.comparison.worker import CellJob

atexit.register(shutil.rmtree, os.environ["SELFGUIDE_CACHE"], ignore_errors=True)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave the libraries' million objects out of the garbage collections that the trainer asks for after every run."""
    if "torch" in sys.modules:
        import transformers.trainer  # noqa: F401

    gc.freeze()


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A folder with a tiny random encoder of the given family, as `save_pretrained` writes it."""
    made: dict[str, Path] = {}

    def build(family: str = "bert") -> Path:
        if family not in made:
            import torch
            from transformers import AutoModel

            folder = tmp_path_factory.mktemp("encoders") / family
            vocabulary = save_tokenizer(folder)
            torch.manual_seed(7)
            AutoModel.from_config(tiny_config(family, vocabulary)).save_pretrained(folder)
            made[family] = folder
        return made[family]

    return build


@pytest.fixture(scope="session")
def bert(tiny: Callable[[str], Path]) -> Path:
    return tiny("bert")


@pytest.fixture
def text_file(tmp_path: Path) -> Path:
    path = tmp_path / "notes.txt"
    path.write_text("\n".join(toy_sentences(120)) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def dev_file(tmp_path: Path) -> Path:
    """Graded pairs: grades fall with the number of differing words."""
    sentences = toy_sentences(200)
    rows = []
    for number in range(40):
        first, second = sentences[number], sentences[(number * 7 + 3) % 200]
        shared = len(set(first.split()) & set(second.split()))
        rows.append(f"{min(5, shared)}\t{first}\t{second}")
    path = tmp_path / "dev.tsv"
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Outcome]]:
    """Run ``selfguide WORDS``, in this process: a new one would spend seconds importing torch."""
    import torch

    from selfguide.cli.main import run

    # Encoders this small are slower with two threads than with one, and far slower where the cores are shared.
    # It has to be put back: other tests compare weights with those of other processes, and threads change the last bit.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)

    def call(*words: str | Path, stdin: str | bytes = b"") -> Outcome:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        monkeypatch.setattr(sys, "argv", ["selfguide", *map(str, words)])
        capfd.readouterr()
        code: Any = 0
        try:
            run()
        except SystemExit as end:
            code = end.code or 0
        return Outcome(code, *capfd.readouterr())

    yield call
    torch.set_num_threads(threads)


@pytest.fixture
def put(tmp_path: Path) -> Callable[..., Path]:
    """Write a file into a fresh folder, compressed if its name says so."""

    def write(name: str, data: str | bytes) -> Path:
        path = tmp_path / name
        raw = data.encode() if isinstance(data, str) else data
        path.write_bytes(COMPRESS.get(path.suffix, bytes)(raw))
        return path

    return write


@pytest.fixture
def translated_pairs(tmp_path: Path) -> Path:
    """Sentences and their back-translations."""
    return write_pairs(tmp_path / "pairs.tsv")


@pytest.fixture
def fake_apertium(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A command called apertium, first on the path."""
    folder = write_fake_apertium(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the cells that are run in this process."""
    from selfguide.comparison import runner, worker

    names: list[str] = []

    def counted(job: CellJob) -> CellRecord:
        names.append(job.cell.name)
        return worker.run_cell(job)

    monkeypatch.setattr(runner, "run_cell", counted)
    return names
