"""The process that draws the map of an index."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from selfguide.search.store import RECORD

pytest.importorskip("lancedb")

SERVER = """
import os, signal, sys
from pathlib import Path
from selfguide.serving.map_source import MapSource
source = MapSource(Path(sys.argv[2]), Path(sys.argv[1]))
source.begin()
print(source._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_it_ends_with_a_server_that_is_killed(tmp_path: Path) -> None:
    index = tmp_path / "index"
    index.mkdir()
    os.mkfifo(index / RECORD)  # nobody writes to it: reading it never ends
    words = [sys.executable, "-c", SERVER, str(index), str(tmp_path / "map.html")]
    server = subprocess.run(words, stdout=subprocess.PIPE, timeout=60)
    assert server.returncode == -signal.SIGKILL
    drawing = int(server.stdout)
    end = time.monotonic() + 60
    try:
        while _lives(drawing):
            assert time.monotonic() < end, "the process that draws goes on without its server"
            time.sleep(0.05)
    finally:
        if _lives(drawing):
            os.kill(drawing, signal.SIGKILL)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{process}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"
