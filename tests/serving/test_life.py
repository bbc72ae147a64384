"""What happens over the life of a server: workers that die, encoders that cannot be loaded."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import selfguide
from refusals import the_refusal
from served import Served, refusal
from toys import Outcome, toy_sentences

TEXTS = toy_sentences(40)


def until(true: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.slow
def test_a_worker_that_dies_is_started_again_and_its_requests_get_sentences(bert: Path, tmp_path: Path) -> None:
    server = Served(f"one={bert}", f"two={bert}", log=tmp_path / "log")
    try:
        workers = server.workers()
        assert len(workers) == 2
        answers: list[str] = []
        os.kill(workers[0], signal.SIGSTOP)
        caller = threading.Thread(
            target=lambda: answers.append(refusal(server.post(input=TEXTS, model="one"), 503)), daemon=True
        )
        caller.start()
        until(lambda: server.metric("selfguide_inputs_under_way") == 40)
        os.kill(workers[0], signal.SIGKILL)
        caller.join(10)
        assert "being started again" in answers[0]
        assert server.client.get("/ready").status_code == 503
        again = server.post(input="a", model="one")
        assert "being started again" in refusal(again, 503)
        assert int(again.headers["retry-after"]) >= 1
        assert server.post(input="a", model="two").status_code == 200  # the other one goes on
        until(lambda: server.client.get("/ready").status_code == 200)
        assert server.post(input="a", model="one").status_code == 200
        assert server.metric('selfguide_worker_restarts_total{encoder="one"}') == 1
        new = server.workers()
        server.process.kill()  # without a chance to clear up: the workers end by themselves
        server.process.wait()
        until(lambda: not any(Path(f"/proc/{worker}").exists() for worker in new), 20)
    finally:
        server.stop()


@pytest.mark.slow
def test_a_worker_that_hangs_is_replaced(bert: Path, tmp_path: Path) -> None:
    server = Served(f"one={bert}", "--request-timeout", "1.5", log=tmp_path / "log")
    try:
        (worker,) = server.workers()
        os.kill(worker, signal.SIGSTOP)
        assert "1.5 seconds" in refusal(server.post(input="a"), 503)
        callers = [threading.Thread(target=server.post, kwargs={"input": "a"}, daemon=True) for _ in range(3)]
        for caller in callers:
            caller.start()
            time.sleep(0.7)
        until(lambda: server.workers() not in ([], [worker]))
        until(lambda: server.client.get("/ready").status_code == 200)
        assert server.post(input="a").status_code == 200
    finally:
        server.stop()


@pytest.mark.slow
def test_a_second_signal_ends_the_server_at_once(bert: Path, tmp_path: Path) -> None:
    server = Served(f"one={bert}", log=tmp_path / "log")
    try:
        (worker,) = server.workers()
        os.kill(worker, signal.SIGSTOP)
        caller = threading.Thread(target=lambda: server.client.post("/v1/embeddings", json={"input": "a"}), daemon=True)
        caller.start()
        until(lambda: server.metric("selfguide_inputs_under_way") == 1)
        server.process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        assert server.process.poll() is None
        server.process.send_signal(signal.SIGINT)
        server.process.wait(10)
        assert "Traceback" not in server.log.read_text()
    finally:
        server.stop()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        (["/nowhere"], 1, "There is no encoder called '/nowhere'"),
        (["mini", "--device", "cuda"], 2, "CUDA"),
    ],
)
def test_an_encoder_that_cannot_be_loaded_ends_the_server_with_a_sentence(
    words: list[str], code: int, part: str
) -> None:
    command = [sys.executable, "-m", "selfguide", "serve", *words, "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    *_, last = done.stderr.splitlines()
    assert last.startswith("selfguide: ")
    assert part in last
    assert done.returncode == code
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["mini", "--host", "203.0.113.7"], "not an address of this machine"),
        (["mini", "--host", "no.such.host.invalid"], "is not known"),
        (["mini", "--map", "nowhere.html"], "There is no map at nowhere.html"),
        (["mini", "--api-key-file", "nowhere"], "cannot be read"),
        (["mini", "mini"], "Two encoders"),
        (["mini", "--max-length", "1"], "max_length"),
    ],
)
def test_wrong_words_are_refused_before_a_worker_starts(
    command: Callable[..., Outcome], words: list[str], part: str
) -> None:
    found = command("serve", *words)
    assert found.code in (1, 2)
    assert part in the_refusal(found)


def test_wrong_options_in_python() -> None:
    with pytest.raises(selfguide.SelfguideError, match="serve has no option prot; it takes host, port"):
        selfguide.serve("mini", prot=8000)
