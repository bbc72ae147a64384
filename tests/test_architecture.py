"""The direction of imports, imports inside functions included, is a contract that `make check` runs."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from selfguide.methods import registry

ROOT = Path(__file__).resolve().parents[1]


def _lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """Check the package in a folder against the contracts of this repository."""
    words = [str(Path(sys.executable).with_name("lint-imports")), "--no-logo", "--no-cache"]
    words += ["--config", str(ROOT / "pyproject.toml")]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    ignored = shutil.ignore_patterns("resources", "__pycache__", "templates")
    shutil.copytree(ROOT / "src" / "selfguide", tmp_path / "selfguide", ignore=ignored)
    return tmp_path


def test_the_contracts_hold(copied: Path) -> None:
    found = _lint(copied)
    assert found.returncode == 0, found.stdout
    assert "2 kept, 0 broken" in found.stdout


@pytest.mark.parametrize(
    ("module", "statement", "contract"),
    [
        ("models/layers.py", "from selfguide.cli import main", "Rooms"),
        ("evaluation/protocol.py", "def late():\n    from selfguide.methods import registry", "Rooms"),
        ("errors.py", "def late():\n    from selfguide.data import sentences", "Rooms"),
        ("models/layers.py", "def late():\n    from selfguide.models import encoders", "No cycles"),
    ],
)
def test_an_arrow_turned_round_breaks_them(copied: Path, module: str, statement: str, contract: str) -> None:
    path = copied / "selfguide" / module
    path.write_text(path.read_text(encoding="utf-8") + f"\n\n{statement}\n", encoding="utf-8")
    found = _lint(copied)
    assert found.returncode == 1
    broken = [line for line in found.stdout.splitlines() if line.rstrip().endswith("BROKEN")]
    assert any(line.startswith(contract) for line in broken), found.stdout


@pytest.mark.parametrize("room", ["calibration", "cli", "comparison", "evaluation", "runs", "training"])
def test_no_method_is_named_where_methods_are_used(room: str) -> None:
    """Names of poolings are left out: there the same words say how tokens are averaged."""
    names = {info.name for info in registry.builtin_methods() if info.family != "pooling"}
    assert len(names) > 20
    named = []
    for path in (ROOT / "src" / "selfguide" / room).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " not in node.value:
                named += [f"{path.name}: {word}" for word in names & set(re.split(r"[,+:]", node.value))]
    assert named == []


def test_tests_of_the_package_use_nothing_of_the_experiments() -> None:
    """Pages are written from results files by a package of ``experiments/``, so its tests are in ``tests/docs``."""
    importing = re.compile(r"^\s*(from|import) experiments\b", re.MULTILINE)
    found = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if importing.search(path.read_text(encoding="utf-8"))
    ]
    assert found
    assert [path for path in found if not path.startswith(("tests/experiments/", "tests/docs/"))] == []


def test_the_folders_of_tests_are_the_rooms() -> None:
    rooms = {path.name for path in (ROOT / "src" / "selfguide").iterdir() if path.is_dir() and any(path.glob("*.py"))}
    folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and any(path.rglob("test_*.py"))}
    assert folders - {"docs", "experiments"} == rooms
