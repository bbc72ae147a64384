"""The papers' sets themselves, where SELFGUIDE_DATA names a folder that has them: our scores against other people's code."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

import selfguide
from selfguide.evaluation.data import data_folder
from selfguide.evaluation.embedder import embedder
from selfguide.evaluation.evaluate import load_tasks
from selfguide.evaluation.protocol import Protocol
from selfguide.evaluation.sts import pair_similarities, score_pairs
from selfguide.evaluation.tasks import GROUPS
from toys import toy_sentences

pytestmark = pytest.mark.skipif(not os.environ.get("SELFGUIDE_DATA"), reason="SELFGUIDE_DATA names no data folder")


@pytest.fixture(scope="module")
def model() -> Any:
    """The bag of word-pieces: quick, and it knows the sets' words, so that hardly any two cosines are alike by accident."""
    return selfguide.train("mini", toy_sentences(50), method="bow", quiet=True)


@pytest.fixture(scope="module")
def vectors(model: Any) -> Any:
    return embedder(model)


@pytest.mark.parametrize("name", GROUPS["sts"])
def test_all_mean_and_wmean_are_what_scipy_gives(name: str, vectors: Any) -> None:
    data = load_tasks(name, (), data_folder(None), Protocol())[0]
    found = score_pairs(data, vectors, Protocol(bootstrap=0))
    cosines, grades = [], []
    for part, ours in zip(data.parts, pair_similarities(data, vectors, Protocol()), strict=True):
        left, right = vectors(part.first).astype(np.float64), vectors(part.second).astype(np.float64)
        norms = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
        assert np.allclose(ours.sims, (left * right).sum(axis=1) / norms, atol=1e-12, rtol=0)
        # Sentences of the same words in another order are all but ties: from here on both must rank the very same numbers.
        cosines.append(ours.sims)
        grades.append(np.array(part.grades))
    for metric, function in (("spearman", spearmanr), ("pearson", pearsonr)):
        each = [100 * function(c, g).statistic for c, g in zip(cosines, grades, strict=True)]
        sizes = [len(g) for g in grades]
        expected = {
            "all": 100 * function(np.concatenate(cosines), np.concatenate(grades)).statistic,
            "mean": np.mean(each),
            "wmean": np.average(each, weights=sizes),
        }
        for how, value in expected.items():
            assert found.details[metric]["cosine"][how] == pytest.approx(value, abs=1e-6)
    assert found.value == pytest.approx(found.details["spearman"]["cosine"]["all"])


@pytest.mark.parametrize("name", ["stsb", "sts13"])
def test_the_stock_evaluator_gives_the_same(name: str, model: Any, vectors: Any) -> None:
    from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

    data = load_tasks(name, (), data_folder(None), Protocol())[0]
    first, second, grades = [], [], []
    for part in data.parts:
        first += part.first
        second += part.second or []
        grades += part.grades or []
    stock = EmbeddingSimilarityEvaluator(first, second, grades, write_csv=False)(model)
    found = score_pairs(data, vectors, Protocol(bootstrap=0)).details
    # It ranks cosines in single precision, where sentences of the same words are ties or not as rounding will have it.
    for metric, tolerance in (("spearman", 0.01), ("pearson", 1e-4)):
        assert found[metric]["cosine"]["all"] == pytest.approx(100 * stock[f"{metric}_cosine"], abs=tolerance)


def test_partial_files_of_the_papers_are_refused(tmp_path: Path) -> None:
    from selfguide.errors import SelfguideError

    folder = data_folder(None)
    assert folder is not None
    lines = (folder / "sts/stsb/test.tsv").read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "sts/stsb").mkdir(parents=True)
    (tmp_path / "sts/stsb/test.tsv").write_text("".join(lines[:1000]), encoding="utf-8")
    with pytest.raises(SelfguideError, match="1,379"):
        load_tasks("stsb", (), tmp_path, Protocol(), download=False)
