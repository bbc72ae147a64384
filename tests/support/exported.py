"""Run an exported folder as its user would: the lines of its README, in a process that has neither torch nor selfguide."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_ABSENT = ("torch", "selfguide", "transformers", "sentence_transformers")
WITHOUT = f"""
import sys
for name in {_ABSENT}:
    sys.modules[name] = None  # importing it fails
"""


def readme_lines(folder: Path) -> list[str]:
    """The Python lines of a folder's README."""
    found = re.search(r"```python\n(.*?)```", (folder / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert found
    return found[1].strip().splitlines()


def run_readme(folder: Path, sentences: list[str], graph: str | None = None) -> NDArray[Any]:
    """Run the README's lines on other sentences, and on another graph where one is named; return the vectors."""
    lines = readme_lines(folder)
    assert len(lines) == 5
    given, named = f"encode_batch({sentences!r})", repr(graph)
    code = re.sub(r"encode_batch\(\[.*\]\)", lambda found: given, "\n".join(lines))
    if graph is not None:
        code = re.sub(r'"\w+/sentence_embedding\.\w+"', lambda found: named, code)
    end = "np.save(sys.stdout.buffer, vectors)"
    # A path of its own: an inherited PYTHONPATH must not bring selfguide back.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [sys.executable, "-c", "\n".join([WITHOUT, code, end])]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    return np.load(io.BytesIO(done.stdout), allow_pickle=False)
