"""``selfguide calibrate``: more text later is the same as all of it at once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from sentence_transformers import SentenceTransformer

import selfguide
from selfguide.calibration import frequencies
from selfguide.calibration.text_statistics import STATISTICS_FILE
from selfguide.calibration.token_statistics import TokenMeans
from selfguide.errors import SelfguideError, UsageError
from selfguide.files import exchange
from selfguide.runs.calibrate import calibrate
from toys import Outcome, toy_sentences

TABLE = frequencies.english_table()
EVERY = toy_sentences(500)[::-1]
OLD, NEW = EVERY[::2], EVERY[1::2]  # together, not alone, ten sentences for each of the 32 numbers


@pytest.fixture(autouse=True)
def _small_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """The most frequent words alone: splitting all of them takes a second each time."""
    words, total = TABLE
    top = dict(list(words.items())[:600])
    monkeypatch.setattr(frequencies, "english_table", lambda: (top, total))


def _fused(bert: Path, text: list[str], output: Path, **options: Any) -> None:
    settings = {"tune": "none", "frequencies": "table", "device": "cpu"} | options
    selfguide.train(bert, text, "fused", output=output, quiet=True, **settings)


def _products(folder: Path) -> Any:
    """What angles and lengths say; signs and axes are free."""
    vectors = SentenceTransformer(str(folder), device="cpu").encode(EVERY[:60]).astype(np.float64)
    return vectors @ vectors.T


@pytest.fixture
def _equal_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    """Token weights stay what the first text made them; here they shall not depend on the text."""
    monkeypatch.setattr(TokenMeans, "lengths", lambda self, spread, unseen=None: np.ones(len(self._row)))


@pytest.mark.usefixtures("_equal_lengths")
@pytest.mark.parametrize(
    "options", [{}, {"dim": 12, "weight": 0.3}, {"shrinkage": "0.2"}, {"whiten": "sentences"}, {"view_layer": 1}]
)
def test_old_and_new_are_the_same_as_both_at_once(bert: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    _fused(bert, OLD, tmp_path / "old", **options)
    _fused(bert, EVERY, tmp_path / "both", **options)
    made = calibrate(tmp_path / "old", NEW, tmp_path / "new", device="cpu")
    assert made == tmp_path / "new"
    np.testing.assert_allclose(_products(made), _products(tmp_path / "both"), atol=1e-5)
    record = json.loads((made / "run.json").read_text())
    (note,) = record["calibrations"]
    assert (note["sentences"], note["text"]["kept"], note["fresh"]) == (len(EVERY), len(NEW), False)
    assert record["config"]["method"] == "fused"
    assert f"{len(EVERY):,} in all" in (made / "README.md").read_text()
    assert "calibrations" not in json.loads((tmp_path / "old" / "run.json").read_text())
    assert {path.stat().st_mode & 0o777 for path in made.rglob("*") if path.is_file()} == {
        (tmp_path / "old" / "run.json").stat().st_mode & 0o777
    }


@pytest.mark.usefixtures("_equal_lengths")
def test_fresh_forgets_and_overwrite_replaces(bert: Path, tmp_path: Path) -> None:
    _fused(bert, OLD, tmp_path / "old")
    _fused(bert, NEW, tmp_path / "other")
    before = sorted(path.relative_to(tmp_path / "old") for path in (tmp_path / "old").rglob("*"))
    calibrate(tmp_path / "old", NEW, fresh=True, overwrite=True, device="cpu")
    np.testing.assert_allclose(_products(tmp_path / "old"), _products(tmp_path / "other"), atol=1e-5)
    assert sorted(path.relative_to(tmp_path / "old") for path in (tmp_path / "old").rglob("*")) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old", "other"]


def test_a_whitened_folder_starts_fresh_and_then_grows(bert: Path, tmp_path: Path) -> None:
    for name, text in (("old", OLD), ("both", EVERY)):
        selfguide.train(bert, text, "whitening", output=tmp_path / name, k=10, quiet=True, device="cpu")
    with pytest.raises(UsageError, match="--fresh fits it on the new text alone"):
        calibrate(tmp_path / "old", NEW, tmp_path / "new", device="cpu")
    calibrate(tmp_path / "old", OLD, tmp_path / "new", fresh=True, device="cpu")
    calibrate(tmp_path / "new", NEW, overwrite=True, device="cpu")
    np.testing.assert_allclose(_products(tmp_path / "new"), _products(tmp_path / "both"), atol=1e-3)
    assert len(json.loads((tmp_path / "new" / "run.json").read_text())["calibrations"]) == 2


def test_what_cannot_be_calibrated_is_refused_in_words(bert: Path, tmp_path: Path) -> None:
    _fused(bert, OLD, tmp_path / "old")
    with pytest.raises(UsageError, match="exists already; name a new folder"):
        calibrate(tmp_path / "old", NEW)
    with pytest.raises(UsageError, match="not made by selfguide"):
        calibrate(tmp_path / "old", NEW, bert, overwrite=True)
    with pytest.raises(SelfguideError, match=r"holds no run.json"):
        calibrate(bert, NEW, tmp_path / "new")
    with pytest.raises(SelfguideError, match="too little to calibrate on"):
        calibrate(tmp_path / "old", ["one"], tmp_path / "new", fresh=True, device="cpu")
    selfguide.train(bert, OLD, "mean", output=tmp_path / "mean", quiet=True, device="cpu")
    with pytest.raises(UsageError, match="made by the method mean"):
        calibrate(tmp_path / "mean", NEW, tmp_path / "new")
    record = tmp_path / "mean" / "run.json"
    record.write_text("[]")
    with pytest.raises(SelfguideError, match="cannot be read as a run's record"):
        calibrate(tmp_path / "mean", NEW, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_the_command(bert: Path, tmp_path: Path, command: Callable[..., Outcome]) -> None:
    _fused(bert, OLD, tmp_path / "old")
    (tmp_path / "new.txt").write_text("\n".join(NEW))
    words = ("calibrate", tmp_path / "old", tmp_path / "new.txt", "--device", "cpu")
    assert command(*words).code == 2
    done = command(*words, "--output", tmp_path / "new")
    assert done.code == 0, done.err
    assert str(tmp_path / "new") in done.err
    assert f"{len(NEW)} lines read from new.txt: {len(NEW)} kept" in done.err
    assert load_file(tmp_path / "new" / STATISTICS_FILE)["count"].tolist() == [len(EVERY)]
    piped = command("calibrate", tmp_path / "new", "-", "-o", tmp_path / "third", "-q", stdin="a late train\nthe bus")
    assert piped.code == 0, piped.err
    assert load_file(tmp_path / "third" / STATISTICS_FILE)["count"].tolist() == [len(EVERY) + 2]


def test_a_kill_at_any_rename_neither_loses_the_folder_nor_counts_a_text_twice(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Callable[..., Outcome]
) -> None:
    """What to do next is always the same command; the folder is there at every moment."""

    class Killed(BaseException):
        pass

    _fused(bert, OLD[:60], tmp_path / "first", report=False)
    (tmp_path / "more.txt").write_text("\n".join(NEW[:40]))
    whole = tmp_path / "whole"
    calibrate(tmp_path / "first", tmp_path / "more.txt", whole, device="cpu")
    for when in ("before the exchange", "after it"):
        folder = shutil.copytree(tmp_path / "first", tmp_path / when)

        def killed(source: Path, target: Path, when: str = when) -> None:
            if when == "after it":
                assert exchange(source, target)
            raise Killed

        with monkeypatch.context() as patch:
            patch.setattr("selfguide.files.exchange", killed)
            patch.setattr("shutil.rmtree", lambda *args, **kwargs: None)  # what a killed process does not do
            with pytest.raises(Killed):
                calibrate(folder, tmp_path / "more.txt", overwrite=True, device="cpu")
        assert SentenceTransformer(str(folder), device="cpu") is not None
        assert folder.with_name(f"{when}.calibrating").is_dir()
        outcome = command("calibrate", folder, tmp_path / "more.txt", "--overwrite", "--device", "cpu")
        assert outcome.code == 0, outcome.err
        assert ("was added to" in outcome.err) == (when == "after it")
        for name in ("model.safetensors", STATISTICS_FILE):
            (one,), (other,) = list(folder.rglob(name))[:1], list(whole.rglob(name))[:1]
            assert one.read_bytes() == other.read_bytes()
        assert not folder.with_name(f"{when}.calibrating").exists()
        assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("place", [0.1, 0.5, 0.9])
def test_damaged_statistics_are_refused(bert: Path, tmp_path: Path, place: float) -> None:
    _fused(bert, OLD[:60], tmp_path / "old", report=False)
    path = tmp_path / "old" / STATISTICS_FILE
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= 1
    path.write_bytes(bytes(content))
    record = json.loads((tmp_path / "old" / "run.json").read_text())
    for digests in (True, False):  # of the folder, and of the file itself
        with pytest.raises(SelfguideError, match="has changed since it was written"):
            calibrate(tmp_path / "old", NEW, tmp_path / "new", device="cpu")
        if digests:
            del record["files"]
            (tmp_path / "old" / "run.json").write_text(json.dumps(record))
    assert not (tmp_path / "new").exists()
