"""The folder of scores: several processes add to it, and none loses what another wrote."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from reported import score
from selfguide.errors import FolderInUse
from selfguide.evaluation.results import ScoreFolder
from selfguide.locks import held, inside
from selfguide.progress import Reporter


def _tasks(folder: Path) -> tuple[set[str], set[str]]:
    with (folder / "scores.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    return {row["task"] for row in json.loads((folder / "scores.json").read_text())}, {line["task"] for line in lines}


def test_two_writers_keep_each_others_scores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = ScoreFolder(tmp_path), ScoreFolder(tmp_path)
    with one.announced(Reporter()):
        assert capsys.readouterr().err == ""
        with other.announced(Reporter()):
            note = capsys.readouterr().err
            assert "is also being written by" in note
            assert "since 20" in note
            for number in range(5):
                one.add(score(f"a{number}", 50.0))
                other.add(score(f"b{number}", 60.0))
    assert _tasks(tmp_path) == ({f"{which}{number}" for which in "ab" for number in range(5)},) * 2
    found = one.find("b4", score("b4", 60.0).encoder, "34cd", {"similarity": "cosine"})
    assert found is not None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["scores.csv", "scores.json"]


def test_a_kill_between_the_two_files_is_put_right(tmp_path: Path) -> None:
    store = ScoreFolder(tmp_path)
    store.add(score("a", 50.0))
    former = (tmp_path / "scores.csv").read_bytes()
    store.add(score("b", 50.0))
    (tmp_path / "scores.csv").write_bytes(former)
    (tmp_path / ".scores.123-0.tmp.json").write_text("half")
    with ScoreFolder(tmp_path).announced(Reporter()):
        pass
    assert _tasks(tmp_path) == ({"a", "b"}, {"a", "b"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["scores.csv", "scores.json"]


def test_a_folder_that_another_command_owns_is_refused(tmp_path: Path) -> None:
    with held(inside(tmp_path), tmp_path), pytest.raises(FolderInUse), ScoreFolder(tmp_path).announced(Reporter()):
        pass


def test_a_folder_that_stays_empty_is_not_left_behind(tmp_path: Path) -> None:
    with ScoreFolder(tmp_path / "a" / "scores").announced(Reporter()):
        pass
    assert not (tmp_path / "a" / "scores").exists()
