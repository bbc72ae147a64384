"""Headless Chromium through chromedriver: a small client of the WebDriver protocol, for tests and for ``experiments.map_frames``.

chromedriver sends real pointer and wheel events and takes screenshots; scripts that it runs are not subject to a page's policy,
so pages are tested as they are.
"""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")
_FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars --disable-dev-shm-usage"
).split()


class Page:
    """One window of a browser.

    Args:
        address: Address of the session at chromedriver.
    """

    def __init__(self, address: str) -> None:
        self._address = address

    def open(self, url: str) -> None:
        """Open a page, and wait until it has been loaded."""
        self._command("url", {"url": url})

    def run(self, script: str, *values: Any) -> Any:
        """Run a script that may use ``arguments`` and ``await``, and return what it returns."""
        words = (
            "const done = arguments[arguments.length - 1], given = [...arguments].slice(0, -1); (async function () {"
        )
        script = f"{words} {script} }}).apply(null, given).then(done)"
        return self._command("execute/async", {"script": script, "args": list(values)})

    def until(self, script: str, seconds: float = 20) -> Any:
        """Wait until a script returns something true, and return it.

        Raises:
            AssertionError: It never does.
        """
        end = time.monotonic() + seconds
        while not (found := self.run(script)):
            assert time.monotonic() < end, f"never true: {script}"
            time.sleep(0.05)
        return found

    def act(self, *actions: dict[str, Any], wheel: bool = False) -> None:
        """Move, press and release the pointer, or turn the wheel, one action after the other."""
        source: dict[str, Any] = {"type": "wheel", "id": "wheel"}
        if not wheel:
            source = {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}}
        self._command("actions", {"actions": [source | {"actions": list(actions)}]})

    def click(self, selector: str) -> None:
        """Click in the middle of an element."""
        self._command(f"element/{self._found(selector)}/click", {})

    def write(self, selector: str, text: str) -> None:
        """Replace what a field holds, key by key."""
        found = self._found(selector)
        self._command(f"element/{found}/clear", {})
        self._command(f"element/{found}/value", {"text": text})

    def picture(self, path: Path) -> None:
        """Write what the window shows, as a PNG."""
        path.write_bytes(base64.b64decode(self._command("screenshot")))

    def resize(self, width: int, height: int, scale: float = 1, mobile: bool = False) -> None:
        """Give the page a size in CSS pixels, and the screen a number of pixels for each."""
        sizes = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": mobile}
        self._command("goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": sizes})

    def scheme(self, name: str) -> None:
        """Prefer ``light`` or ``dark`` colours."""
        features = {"features": [{"name": "prefers-color-scheme", "value": name}]}
        self._command("goog/cdp/execute", {"cmd": "Emulation.setEmulatedMedia", "params": features})

    def complaints(self) -> list[str]:
        """Return what the console says since the last time: errors, warnings, refusals of the policy, failed requests."""
        found = self._command("se/log", {"type": "browser"})
        return [f"{entry['level']}: {entry['message']}" for entry in found if entry["level"] in ("SEVERE", "WARNING")]

    def _found(self, selector: str) -> str:
        found: dict[str, str] = self._command("element", {"using": "css selector", "value": selector})
        return next(iter(found.values()))

    def _command(self, path: str, body: dict[str, Any] | None = None) -> Any:
        return _ask(f"{self._address}/{path}", body)


@contextmanager
def browser(profile: Path, flags: Sequence[str] = ()) -> Iterator[Page]:
    """Run a browser while the block runs.

    Args:
        profile: A folder for what it keeps.
        flags: Further flags of Chromium.

    Yields:
        Its window.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    driver = subprocess.Popen([str(DRIVER), f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    session = ""
    try:
        _wait_for(address)
        options = {"binary": CHROMIUM, "args": [*_FLAGS, *flags, f"--user-data-dir={profile}"]}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        made = _ask(f"{address}/session", {"capabilities": {"alwaysMatch": wanted}})
        session = f"{address}/session/{made['sessionId']}"
        _ask(f"{session}/timeouts", {"script": 120_000})
        yield Page(session)
    finally:
        if session:
            _ask(session, method="DELETE")
        driver.terminate()
        driver.wait(20)


def _wait_for(address: str) -> None:
    end = time.monotonic() + 30
    while True:
        try:
            _ask(f"{address}/status")
            return
        except OSError:
            assert time.monotonic() < end, "chromedriver does not start"
            time.sleep(0.05)


def _ask(url: str, body: dict[str, Any] | None = None, method: str | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        url, data, {"Content-Type": "application/json"}, method=method or ("GET" if data is None else "POST")
    )
    try:
        with urllib.request.urlopen(request, timeout=180) as answer:
            return json.loads(answer.read())["value"]
    except urllib.error.HTTPError as error:
        message = json.loads(error.read())["value"]["message"]
        raise AssertionError(message.splitlines()[0]) from None
