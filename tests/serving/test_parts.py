"""Frames, capacity, keys, host names, options."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selfguide.errors import SelfguideError, UsageError
from selfguide.serving.admission import Capacity, Hosts, Keys
from selfguide.serving.frames import FrameReader, Kind, frame, result_frame
from selfguide.serving.refusals import Refusal
from selfguide.serving.settings import ServeOptions, ServeSettings, named_encoders, read_keys


@settings(max_examples=40, deadline=None)
@given(cuts=st.lists(st.integers(0, 200), max_size=6))
def test_frames_survive_however_the_stream_is_cut(cuts: list[int]) -> None:
    vectors = np.arange(6, dtype="f4").reshape(2, 3)
    stream = (
        frame(Kind.ENCODE, 7, {"inputs": ["שלום", "\u2028"]}) + result_frame(2**40, vectors, 11) + frame(Kind.CANCEL, 8)
    )
    places = sorted({0, *(cut for cut in cuts if cut < len(stream)), len(stream)})
    reader, found = FrameReader(), []
    for start, end in itertools.pairwise(places):
        found += list(reader.feed(stream[start:end]))
    assert [(item.kind, item.request) for item in found] == [(Kind.ENCODE, 7), (Kind.RESULT, 2**40), (Kind.CANCEL, 8)]
    assert found[0].json() == {"inputs": ["שלום", "\u2028"]}
    values, tokens = found[1].result()
    assert (values.tolist(), tokens) == (vectors.tolist(), 11)


def test_places_never_grow_and_are_given_back() -> None:
    capacity = Capacity(10, body=100)
    with capacity.reserve() as one:
        one.hold(8)
        with capacity.reserve() as two:
            with pytest.raises(Refusal, match="queue is full") as caught:
                two.hold(3)
            assert (caught.value.status, caught.value.retry_after) == (429, 1)
            two.hold(2)
            with pytest.raises(Refusal), capacity.reserve():
                pass
            two.keep(1600)
            with pytest.raises(Refusal, match="large requests"):
                one.keep(1)
        assert (capacity.taken, capacity.held) == (8, 0)
    assert capacity.taken == 0


def test_host_names_of_a_loopback_address() -> None:
    hosts = Hosts("127.0.0.1", ["proxy.example"])
    for name in (b"localhost", b"LOCALHOST:80", b"127.0.0.1:8000", b"[::1]:8000", b"proxy.example"):
        hosts.check(name)
    for name in (None, b"", b"evil.example", b"localhost.evil.example", b"127.0.0.1.evil.example:8000"):
        with pytest.raises(Refusal, match="--allowed-host"):
            hosts.check(name)
    Hosts("0.0.0.0").check(b"anything")


def test_keys_from_a_file_or_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("one\n\n two \n")
    assert read_keys(path, "ignored") == ("one", "two")
    assert read_keys(None, "three") == ("three",)
    assert read_keys(None, None) == ()
    assert not Keys(())
    Keys(()).check(None)
    for content in ("", "a key\n", "ключ\n"):
        path.write_text(content)
        with pytest.raises(SelfguideError, match="key"):
            read_keys(path, None)
    with pytest.raises(SelfguideError, match="cannot be read: No such file"):
        read_keys(tmp_path / "missing", None)
    with pytest.raises(SelfguideError, match="set but empty"):
        read_keys(None, "")


def test_names_of_encoders(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    assert named_encoders([str(tmp_path / "notes"), "mini", "a=b"]) == {
        "notes": str(tmp_path / "notes"),
        "mini": "mini",
        "a": "b",
    }
    with pytest.raises(UsageError, match="Two encoders are called mini"):
        named_encoders(["mini", "mini=other"])
    with pytest.raises(UsageError, match="neither a folder nor NAME=FOLDER"):
        named_encoders(["mini="])


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"port": 70_000}, "port"),
        ({"max_length": 2}, "max_length"),
        ({"too_long": "cut"}, "refuse, truncate"),
        ({"queue_timeout": 0.0}, "queue_timeout"),
        ({"backend": "tpu"}, "backend"),
        ({"max_inputs": 5000}, "could never be taken"),
    ],
)
def test_wrong_options_are_refused_before_anything_starts(options: dict[str, object], part: str) -> None:
    with pytest.raises(UsageError, match=part):
        ServeSettings({"mini": "mini"}, ServeOptions(**options))  # type: ignore[arg-type]
