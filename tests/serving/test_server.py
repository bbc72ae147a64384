"""A real server, real clients. The order matters: the last test ends the server that all of them share."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import selfguide
from served import Served, curl, is_closed, refusal
from toys import toy_sentences

KEY = "correct-horse"
SECRET = "xylophone-in-the-cellar"
TEXTS = toy_sentences(60)
LIMITS = "--max-inputs 40 --max-waiting 48 --max-body-mb 0.2 --queue-timeout 3 --max-batch-tokens 64".split()


@pytest.fixture(scope="module")
def server(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    (folder / "keys").write_text(f"another-key\n{KEY}\n")
    words = [f"tiny={bert}", "--api-key-file", folder / "keys", *LIMITS]
    found = Served(*words, log=folder / "log", key=KEY)
    yield found
    found.stop()


@pytest.fixture(scope="module")
def expected(bert: Path) -> np.ndarray[Any, Any]:
    return selfguide.encode(str(bert), TEXTS, show_progress=False)


@contextmanager
def frozen(server: Served) -> Iterator[None]:
    """The worker does not move while the block runs, so that everything waits."""
    (worker,) = server.workers()
    os.kill(worker, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(worker, signal.SIGCONT)


def until(true: Callable[[], bool], seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_vectors_are_those_of_encode_whatever_they_are_batched_with(
    server: Served, expected: np.ndarray[Any, Any]
) -> None:
    def ask(place: int) -> float:
        answer = server.post(input=TEXTS[place], model="tiny")
        assert answer.status_code == 200, answer.text
        return float(np.abs(np.array(answer.json()["data"][0]["embedding"]) - expected[place]).max())

    with ThreadPoolExecutor(12) as pool:
        assert max(pool.map(ask, range(len(TEXTS)))) < 1e-6
    together = server.post(input=TEXTS[:40]).json()["data"]
    assert [row["index"] for row in together] == list(range(40))
    assert np.abs(np.array([row["embedding"] for row in together]) - expected[:40]).max() < 1e-6
    assert server.metric('selfguide_batch_inputs_bucket{encoder="tiny",le="1.0"}') < server.metric(
        'selfguide_batch_inputs_count{encoder="tiny"}'
    )  # some were computed together


def test_openais_client_gets_them_as_text_and_ids_in_both_formats(
    server: Served, bert: Path, expected: np.ndarray[Any, Any]
) -> None:
    from openai import NotFoundError, OpenAI

    client = OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0)
    assert [model.id for model in client.models.list()] == ["tiny"]
    ids = selfguide.load_encoder(bert).tokenizer(TEXTS[:2])["input_ids"]
    for given_ in (TEXTS[:2], ids):
        packed = client.embeddings.create(model="tiny", input=given_)  # the client asks for base64
        plain = client.embeddings.create(model="tiny", input=given_, encoding_format="float")
        assert packed.usage.prompt_tokens == plain.usage.total_tokens == sum(map(len, ids))
        for answer in (packed, plain):
            assert np.abs(np.array([row.embedding for row in answer.data]) - expected[:2]).max() < 1e-6
    alone = client.embeddings.create(model="tiny", input=ids[0], dimensions=5)
    assert np.abs(np.array(alone.data[0].embedding) - expected[0, :5]).max() < 1e-6
    with pytest.raises(NotFoundError, match="this server has tiny"):
        client.embeddings.create(model="text-embedding-3-small", input="a")


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl here")
def test_curl_gets_vectors_cosines_and_sentences(server: Served, expected: np.ndarray[Any, Any]) -> None:
    words = ["-H", "Content-Type: application/json", "-H", f"Authorization: Bearer {KEY}", "-d"]
    body = json.dumps({"input": TEXTS[0], "encoding_format": "base64"})
    status, answer = curl(f"{server.url}/v1/embeddings", *words, body)
    assert status == 200
    decoded = np.frombuffer(base64.b64decode(answer["data"][0]["embedding"]), "<f4")
    assert np.abs(decoded - expected[0]).max() < 1e-6
    status, answer = curl(
        f"{server.url}/similarity", *words, json.dumps({"first": TEXTS[0], "second": [TEXTS[0], TEXTS[1]]})
    )
    cosine = expected[0] @ expected[1] / np.linalg.norm(expected[0]) / np.linalg.norm(expected[1])
    assert answer["cosine"] == pytest.approx([1.0, float(cosine)], abs=1e-6)
    assert curl(f"{server.url}/v1/embeddings", *words, "{")[0] == 400
    assert curl(f"{server.url}/nowhere", *words[:-1])[0] == 404


def test_any_script_comes_through_and_the_page_runs_in_its_direction(server: Served, bert: Path) -> None:
    said = ["الطفلة الصغيرة رسمت الساعة", "小女孩画了那首歌。", "la niña pintó", "👩‍👩‍👧 قهوة 本 the old man"]
    answer = server.post(input=said).json()
    ids = selfguide.load_encoder(bert).tokenizer(said)["input_ids"]
    assert answer["usage"]["prompt_tokens"] == sum(map(len, ids))
    ours = selfguide.encode(str(bert), said, show_progress=False)
    assert np.abs(np.array([row["embedding"] for row in answer["data"]]) - ours).max() < 1e-6
    page = server.client.get("/").text
    assert page.count('rows="2" dir="auto"') == 2
    assert 'text.dir = "auto"' in page


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ({}, "has no input"),
        ({"input": []}, "it is empty"),
        ({"input": [[]]}, "at least one in each"),
        ({"input": [1, "a"]}, "lists of whole numbers"),
        ({"input": ["a", 1]}, "others are not"),
        ({"input": [True]}, "lists of whole numbers"),
        ({"input": [[0, 10**40, 2]]}, "has the token id"),
        ({"input": [[0, -4, 2]]}, "has the token id -4"),
        ({"input": [[20, 21]]}, "between the special tokens"),
        ({"input": "a", "dimensions": 33}, "32 dimensions, which is less than 33"),
        ({"input": "a", "dimensions": 0}, "dimensions is wrong"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format is wrong"),
        ({"input": "a", "dimension": 3}, "a field dimension, which there is not"),
        ({"input": ["a"] * 41}, "41 inputs, and this server takes at most 40"),
        ({"input": "a " * 300}, "has 302 tokens, and this server takes at most 64"),
        ({"input": ["a", "a " * 300]}, r"Input 1 \(counted from 0\) has 302 tokens"),
        ({"input": [[0, *[30] * 80, 2]]}, "has 82 tokens"),
        ([], "must be a JSON object"),
    ],
)
def test_wrong_bodies_are_refused_in_a_sentence(server: Served, body: Any, part: str) -> None:
    assert re.search(part, refusal(server.client.post("/v1/embeddings", json=body), 400))


def test_inputs_can_be_truncated_one_and_many_alike(server: Served, bert: Path) -> None:
    long = "the old man repairs a broken clock " * 20
    wanted = selfguide.encode(str(bert), long, show_progress=False)
    ids = selfguide.load_encoder(bert).tokenizer(long, verbose=False)["input_ids"]
    for given_ in (long, [long, "a"], ids, [ids, ids[:3] + ids[-1:]]):
        answer = server.post(input=given_, truncate=True).json()
        assert np.abs(np.array(answer["data"][0]["embedding"]) - wanted).max() < 1e-6
        assert answer["usage"]["prompt_tokens"] <= 64 + 4


def test_limits_of_bodies_types_and_paths(server: Served) -> None:
    big = json.dumps({"input": "a" * 250_000}).encode()
    kind = {"Content-Type": "application/json"}
    assert "0.2 MB" in refusal(server.client.post("/v1/embeddings", content=big, headers=kind), 413)

    def pieces() -> Iterator[bytes]:  # without a length
        for start in range(0, len(big), 50_000):
            yield big[start : start + 50_000]

    assert "0.2 MB" in refusal(server.client.post("/v1/embeddings", content=pieces(), headers=kind), 413)
    assert "Content-Type" in refusal(server.client.post("/v1/embeddings", content=b"{}"), 415)
    assert "POST" in refusal(server.client.get("/v1/embeddings"), 405)
    assert "/docs" in refusal(server.client.get("/v1/nothing"), 404)


def test_keys_and_host_names(server: Served) -> None:
    for given_ in ("", "Bearer", "Bearer wrong", f"Basic {KEY}", f"Bearer {KEY}x", "Bearer ключ"):
        answer = server.client.post(
            "/v1/embeddings", json={"input": "a"}, headers={"Authorization": given_.encode("utf-8")}
        )
        assert "key" in refusal(answer, 401)
        assert answer.headers["www-authenticate"] == "Bearer"
    other = {"Authorization": "Bearer another-key"}
    assert server.client.post("/v1/embeddings", json={"input": "a"}, headers=other).status_code == 200
    for path in ("/health", "/ready", "/", "/docs", "/openapi.json"):
        assert server.client.get(path, headers={"Authorization": ""}).status_code == 200
    assert "key" in refusal(server.client.get("/metrics", headers={"Authorization": ""}), 401)
    assert "--allowed-host" in refusal(server.client.get("/health", headers={"Host": "evil.example"}), 403)


def test_the_description_names_every_path(server: Served) -> None:
    paths = server.client.get("/openapi.json").json()["paths"]
    assert {"/v1/embeddings", "/v1/models", "/similarity", "/health", "/ready", "/metrics"} <= set(paths)
    page = server.client.get("/docs")
    assert "encoding_format" in page.text
    assert "https://" not in page.text
    for path in ("/", "/docs"):
        assert "default-src 'none'" in server.client.get(path).headers["content-security-policy"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    ["input", "model", "dimensions", "encoding_format", "truncate", "user", "first", "second", "x"]
)
BODIES = st.one_of(
    st.binary(max_size=60),
    JSON.map(lambda value: json.dumps(value).encode()),
    st.dictionaries(FIELDS, JSON, max_size=5).map(lambda value: json.dumps(value).encode()),
    st.fixed_dictionaries({"input": JSON}, optional={"truncate": st.booleans(), "dimensions": JSON}).map(
        lambda value: json.dumps(value).encode()
    ),
    st.sampled_from(
        [b'{"input": "\\ud800"}', b'{"input": "a\\u0000b"}', b"[" * 5000, b'{"input": 1e999}', b"\xff\xfe"]
    ),
)


def _fuzzed(server: Served, examples: int) -> None:
    @settings(
        max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck), derandomize=True
    )
    @given(path=st.sampled_from(["/v1/embeddings", "/similarity"]), body=BODIES)
    def check(path: str, body: bytes) -> None:
        answer = server.client.post(path, content=body, headers={"Content-Type": "application/json"})
        if answer.status_code != 200:
            assert 400 <= answer.status_code < 500, (body, answer.text)
            refusal(answer, answer.status_code)

    check()
    assert server.client.get("/ready").status_code == 200


def test_fuzzed_bodies_get_sentences(server: Served) -> None:
    _fuzzed(server, 100)


@pytest.mark.slow
def test_a_thousand_fuzzed_bodies_get_sentences(server: Served) -> None:
    _fuzzed(server, 1000)


def test_a_full_queue_answers_429_and_clients_that_hang_up_free_their_places(server: Served) -> None:
    body = json.dumps({"input": TEXTS[:12]}).encode()
    head = (
        f"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()

    def call() -> socket.socket:
        found = socket.create_connection(("127.0.0.1", server.port), timeout=30)
        found.sendall(head + body)
        return found

    def under_way() -> float:
        return server.metric("selfguide_inputs_under_way")

    with frozen(server):
        callers = [call() for _ in range(4)]
        until(lambda: under_way() == 48)
        full = server.post(input="a")
        assert "queue is full" in refusal(full, 429)
        assert int(full.headers["retry-after"]) >= 1
        assert under_way() == 48
        for caller in callers[:3]:
            caller.close()
        until(lambda: under_way() == 12, 2)
        refused = server.post(input="a")  # it waits with the other one until its time is up
        assert "waited 3 seconds" in refusal(refused, 503)
        until(lambda: under_way() == 0)
    assert b" 503 " in callers[3].recv(100)
    callers[3].close()
    assert server.post(input="a").status_code == 200
    assert server.metric('selfguide_requests_total{path="/v1/embeddings",status="499"}') == 3


def test_a_taken_port_is_a_sentence(server: Served) -> None:
    words = [sys.executable, "-m", "selfguide", "serve", "mini", "--port", str(server.port)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith(f"selfguide: Cannot listen on 127.0.0.1, port {server.port}")
    assert "choose another --port" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_no_text_in_logs_and_sigterm_finishes_what_was_taken(server: Served) -> None:
    server.post(input=SECRET)
    server.post(input=[SECRET, 1])
    server.client.get(f"/{SECRET}")
    answers: list[int] = []
    with frozen(server):
        caller = threading.Thread(target=lambda: answers.append(server.post(input=TEXTS[:20]).status_code))
        caller.start()
        until(lambda: server.metric("selfguide_inputs_under_way") == 20)
        (worker,) = server.workers()
        server.process.send_signal(signal.SIGTERM)
        until(lambda: is_closed(server.url))
        assert answers == []
    caller.join()
    assert answers == [200]
    assert server.process.wait(timeout=10) == 0
    assert not Path(f"/proc/{worker}").exists()
    assert SECRET not in server.log.read_text()
    assert "Stopped." in server.log.read_text()
