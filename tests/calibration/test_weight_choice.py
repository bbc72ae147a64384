"""The weight of two views by dev pairs: compared with trying every weight on joined embeddings, and its record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import selfguide
from selfguide.calibration.text_statistics import STATISTICS_FILE
from selfguide.calibration.weight_choice import WEIGHTS, best_weight, graded_pairs
from selfguide.correlation import spearman
from selfguide.errors import SelfguideError
from selfguide.runs.calibrate import calibrate
from toys import toy_sentences

TEXT = toy_sentences(300)


def _fused(encoder: Path, **options: Any) -> Any:
    settings: dict[str, Any] = {"tune": "none", "frequencies": "text", "device": "cpu", "quiet": True, "report": False}
    return selfguide.train(encoder, TEXT, "fused", **(settings | options))


def test_it_is_the_best_of_joined_vectors() -> None:
    for seed in range(5):
        draw = np.random.default_rng(seed)
        parts = [tuple(draw.normal(size=(40, width)) for _ in range(2)) for width in (5, 8)]
        grades = draw.integers(0, 5, 40).astype(np.float64)
        scores = {}
        for weight in WEIGHTS:
            one, two = (
                np.concatenate([np.sqrt(weight) * parts[0][side], np.sqrt(1 - weight) * parts[1][side]], axis=1)
                for side in (0, 1)
            )
            cosines = (one * two).sum(1) / np.linalg.norm(one, axis=1) / np.linalg.norm(two, axis=1)
            scores[weight] = stats.spearmanr(cosines, grades).statistic
        found = best_weight((parts[0][0], parts[0][1]), (parts[1][0], parts[1][1]), grades, 0.5)
        assert scores[found] == pytest.approx(max(scores.values()), abs=2e-6)


def test_of_equal_weights_the_usual_one_is_taken() -> None:
    same = np.random.default_rng(1).normal(size=(2, 30, 4))
    grades = np.arange(30.0)
    assert best_weight((same[0], same[1]), (same[0], same[1]), grades, 0.4) == 0.4
    assert best_weight((same[0], same[1]), (same[0], same[1]), np.ones(30), 0.4) == 0.4


def test_dev_pairs_choose_it_and_calibrate_keeps_it(bert: Path, dev_file: Path, tmp_path: Path) -> None:
    _fused(bert, dev=dev_file, output=tmp_path / "out")
    record = json.loads((tmp_path / "out" / "run.json").read_text(encoding="utf-8"))
    chosen = record["chosen"]["weight"]
    scores = {weight: _dev_score(bert, dev_file, weight) for weight in (chosen, 0.05, 0.5, 0.95)}
    assert scores[chosen] >= max(scores.values()) - 1e-4
    given = _fused(bert, weight=chosen, output=tmp_path / "given")
    for name in ("more", "fresh"):
        made = calibrate(tmp_path / "out", TEXT[:150], tmp_path / f"{name}-out", fresh=name == "fresh", device="cpu")
        same = calibrate(
            tmp_path / "given", TEXT[:150], tmp_path / f"{name}-given", fresh=name == "fresh", device="cpu"
        )
        ours, theirs = (
            selfguide.load_encoder(folder, device="cpu").encode(TEXT[:20]).astype(np.float64) for folder in (made, same)
        )
        np.testing.assert_allclose(ours @ ours.T, theirs @ theirs.T, atol=1e-5)
        assert json.loads((made / "run.json").read_text(encoding="utf-8"))["chosen"] == {"weight": chosen}
    assert given.get_embedding_dimension() == ours.shape[1]


def test_a_damaged_file_of_statistics_does_not_matter_to_fresh(bert: Path, dev_file: Path, tmp_path: Path) -> None:
    _fused(bert, dev=dev_file, output=tmp_path / "out")
    whole = calibrate(tmp_path / "out", TEXT[:150], tmp_path / "whole", fresh=True, device="cpu")
    (tmp_path / "out" / STATISTICS_FILE).write_bytes(b"nothing")
    with pytest.raises(SelfguideError, match="use --fresh"):
        calibrate(tmp_path / "out", TEXT[:150], tmp_path / "more", device="cpu")
    made = calibrate(tmp_path / "out", TEXT[:150], tmp_path / "made", fresh=True, device="cpu")
    ours, theirs = (selfguide.load_encoder(folder, device="cpu").encode(TEXT[:20]) for folder in (made, whole))
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


def _dev_score(bert: Path, dev_file: Path, weight: float) -> float:
    rows = [line.split("\t") for line in dev_file.read_text(encoding="utf-8").splitlines() if line.strip()]
    made = _fused(bert, weight=weight)
    one, two = (made.encode([row[side] for row in rows]).astype(np.float64) for side in (1, 2))
    cosines = (one * two).sum(1) / np.linalg.norm(one, axis=1) / np.linalg.norm(two, axis=1)
    return float(spearman(np.array([float(row[0]) for row in rows]), cosines))


def test_without_dev_pairs_it_is_a_half(bert: Path, tmp_path: Path) -> None:
    _fused(bert, output=tmp_path / "out")
    half = _fused(bert, weight=0.5)
    ours = selfguide.load_encoder(tmp_path / "out", device="cpu").encode(TEXT[:20])
    np.testing.assert_allclose(ours, half.encode(TEXT[:20]), atol=1e-5)
    assert json.loads((tmp_path / "out" / "run.json").read_text(encoding="utf-8"))["chosen"] == {}


def test_an_evaluator_without_pairs_chooses_nothing() -> None:
    assert graded_pairs(None) is None
    assert graded_pairs(object()) is None
