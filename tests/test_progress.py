"""Progress where nobody watches: lines with rate and time left, rarely."""

from __future__ import annotations

import pytest

from selfguide import progress
from selfguide.progress import Reporter


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_lines_with_rate_and_time_left(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with Reporter().bar("encoding", 5000, "sentences") as advance:
        for _ in range(20):
            clock[0] += 10
            advance(100, "loss 0.5")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 6
    assert lines[0] == "encoding: 300 of 5,000 sentences, 10 sentences/s, about 7 min 50 s left (loss 0.5)"
    assert lines[-1].startswith("encoding: 1,800 of 5,000 sentences, 10 sentences/s, about 5 min 20 s left")


def test_without_a_total_there_is_no_time_left(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with Reporter().bar("reading", None, "sentences") as advance:
        clock[0] += 3600
        advance(60, "")
    assert capsys.readouterr().err == "reading: 60 sentences, 1.0 sentences/min\n"


def test_nothing_is_said_of_what_is_quick_or_quiet(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with Reporter().bar("encoding", 10, "sentences") as advance:
        clock[0] += 29
        advance(10, "")
    for silent in (Reporter(quiet=True), Reporter(main_process=False)):
        with silent.bar("encoding", 10, "sentences") as advance:
            clock[0] += 500
            advance(5, "")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("seconds", "said"), [(4, "4 s"), (59.6, "1 min 0 s"), (61, "1 min 1 s"), (7300, "2 h 1 min")])
def test_durations(seconds: float, said: str) -> None:
    assert progress._duration(seconds) == said


def test_one_of_something_is_singular() -> None:
    assert [progress.counted(count, "cell") for count in (0, 1, 2, 1200)] == [
        "0 cells",
        "1 cell",
        "2 cells",
        "1,200 cells",
    ]
    assert [progress.counted(count, "row", "is", "are") for count in (0, 1, 2)] == [
        "0 rows are",
        "1 row is",
        "2 rows are",
    ]


def test_the_share_of_a_stream_tells_the_time_left(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    """Where the total is not known, and where a stream that is gone on with is not at its beginning."""
    shares = iter([0.2, 0.4, 0.6, None, 1.0])
    with Reporter().bar("encoding", None, "sentences", lambda: next(shares)) as advance:
        for _ in range(4):
            clock[0] += 30
            advance(60, "")
    assert capsys.readouterr().err.splitlines() == [
        "encoding: 60 sentences, 2 sentences/s, about 1 min 30 s left",  # 20 % in 30 s, and 60 % to go
        "encoding: 120 sentences, 2 sentences/s, about 1 min 0 s left",
        "encoding: 180 sentences, 2 sentences/s",
        "encoding: 240 sentences, 2 sentences/s",
    ]


def test_streams_that_can_tell_are_known() -> None:
    class Stream:
        def share_read(self) -> float | None:
            return 0.5

    share = progress.share_of(Stream())
    assert share is not None
    assert share() == 0.5
    assert progress.share_of(["a list"]) is None
