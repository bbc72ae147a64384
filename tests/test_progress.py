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
