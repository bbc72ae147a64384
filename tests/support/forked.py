"""``selfguide WORDS`` in a process of its own that starts at once: a copy of this one, with the libraries loaded already.

It is a real process with its own standard streams, signals and limits, and can be killed; a new interpreter would do the same
after five seconds of imports.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from toys import Outcome


class Forked:
    """A running command.

    Args:
        words: The words after ``selfguide``.
        before: Called in the process before the command, to set a limit for instance.
    """

    def __init__(self, *words: str | Path, before: Callable[[], None] | None = None) -> None:
        self._streams = [tempfile.TemporaryFile() for _ in ("standard output", "standard error")]  # noqa: SIM115
        self._status: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            self._run([str(word) for word in words], before)

    def poll(self) -> int | None:
        """Return the exit code, minus the signal for a process that one ended; None while it runs."""
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._status = os.waitstatus_to_exitcode(status) if pid else None
        return self._status

    def wait(self, seconds: float = 60) -> Outcome:
        """Wait for the end, and return the exit code and what was printed."""
        until = time.monotonic() + seconds
        while self.poll() is None:
            assert time.monotonic() < until, "it does not end"
            time.sleep(0.005)
        for stream in self._streams:
            stream.seek(0)
        assert self._status is not None
        return Outcome(self._status, *(stream.read().decode() for stream in self._streams))

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End the process without a warning, and wait until it is gone."""
        self.send_signal(signal.SIGKILL)
        self.wait()

    def _run(self, words: list[str], before: Callable[[], None] | None) -> NoReturn:
        code = 70
        try:
            for number, stream in enumerate(self._streams, 1):
                os.dup2(stream.fileno(), number)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            sys.stdin, sys.stdout, sys.stderr = (
                open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115
                for number, mode in enumerate("rww")
            )
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            sys.argv = ["selfguide", *words]
            if before is not None:
                before()
            from selfguide.cli.main import run

            try:
                run()
                code = 0
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
