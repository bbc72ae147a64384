"""A real server process for tests."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import httpx


class Served:
    """``selfguide serve`` in a process of its own, on a free port.

    Args:
        words: What follows ``selfguide serve``.
        log: File for its standard error.
        environment: Further variables.
    """

    def __init__(self, *words: str | Path, log: Path, key: str = "", **environment: str) -> None:
        self.log, self.key = log, key
        command = [sys.executable, "-m", "selfguide", "serve", *map(str, words), "--port", "0"]
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                command, stdout=errors, stderr=errors, env={**os.environ, **environment}, start_new_session=True
            )
        self.url = self._announced()
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.client = httpx.Client(base_url=self.url, headers=headers, timeout=60)

    def _announced(self) -> str:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            found = re.search(r"at (http://\S+) ", self.log.read_text())
            if found:
                return found[1]
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise AssertionError(f"The server did not start: {self.log.read_text()}")

    @property
    def port(self) -> int:
        """Its port."""
        return int(self.url.rpartition(":")[2])

    def workers(self) -> list[int]:
        """Process ids of its workers."""
        found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(self.process.pid)], capture_output=True, text=True)
        return [int(word) for word in found.stdout.split()]

    def post(self, path: str = "/v1/embeddings", **body: Any) -> httpx.Response:
        """Send JSON."""
        return self.client.post(path, json=body)

    def metric(self, line: str) -> float:
        """Value of a line of the metrics."""
        text = self.client.get("/metrics").text
        return next((float(row.rpartition(" ")[2]) for row in text.splitlines() if row.startswith(line + " ")), 0.0)

    def stop(self) -> None:
        """End it, whatever state it is in."""
        self.client.close()
        for worker in self.workers():
            os.kill(worker, signal.SIGCONT)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def curl(url: str, *words: str) -> tuple[int, Any]:
    """Status and JSON answer as the program curl gets them."""
    done = subprocess.run(
        ["curl", "-s", "-w", "\n%{http_code}", *words, url], capture_output=True, text=True, check=True, timeout=60
    )
    body, _, status = done.stdout.rpartition("\n")
    return int(status), json.loads(body)


def refusal(answer: httpx.Response, status: int) -> str:
    """The one sentence of a refused request."""
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"].endswith(".")
    assert "\n" not in error["message"]
    assert "Traceback" not in error["message"]
    return str(error["message"])


def is_closed(url: str) -> bool:
    """Whether nothing listens there any more."""
    try:
        urllib.request.urlopen(url + "/health", timeout=5).close()
    except OSError:
        return True
    return False
