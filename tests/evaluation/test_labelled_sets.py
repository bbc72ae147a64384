"""Few-shot classification and clustering, against plain scikit-learn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import v_measure_score

import selfguide
from selfguide.errors import SelfguideError
from selfguide.evaluation.clustering import score_clustering, v_measure
from selfguide.evaluation.few_shot import score_few_shot
from selfguide.evaluation.protocol import Protocol
from selfguide.evaluation.rows import Rows, TaskData
from selfguide.evaluation.tasks import Part, Task

LABELS = 5


def made(*sizes: tuple[str, int], noise: float = 1.5) -> tuple[TaskData, Any]:
    """A labelled set whose rows are named by their number, and vectors that follow the labels."""
    draw = np.random.default_rng(5)
    total = sum(size for _, size in sizes)
    labels = draw.integers(0, LABELS, total)
    table = (draw.normal(size=(LABELS, 8))[labels] + noise * draw.normal(size=(total, 8))).astype(np.float32)
    parts, start = [], 0
    for name, size in sizes:
        rows = range(start, start + size)
        parts.append(Rows(name, [str(row) for row in rows], labels=[f"label {labels[row]}" for row in rows]))
        start += size
    task = Task("own", "own", "few-shot", tuple(Part(name) for name, _ in sizes), "")
    return TaskData(task, tuple(parts), "folder", "0"), lambda texts: table[[int(text) for text in texts]]


def test_few_shot_accuracy_is_that_of_a_plain_loop() -> None:
    from sklearn.linear_model import LogisticRegression

    data, vectors = made(("train", 200), ("test", 150))
    scored = score_few_shot(data, vectors, Protocol(draws=4, examples=6))
    train, test = data.parts
    known, wanted = np.array(train.labels), np.array(test.labels)
    accuracies = []
    for number in range(4):
        draw = np.random.default_rng([1, number])
        rows = np.concatenate(
            [draw.choice(np.flatnonzero(known == label), 6, replace=False) for label in sorted(set(known))]
        )
        assert np.unique(known[rows], return_counts=True)[1].tolist() == [6] * LABELS
        model = LogisticRegression(max_iter=1000).fit(vectors(train.first)[rows], known[rows])
        accuracies.append(100 * model.score(vectors(test.first), wanted))
    assert scored.metric == "accuracy, 6 examples a label"
    assert scored.details["accuracies"] == pytest.approx(accuracies)
    assert scored.value == pytest.approx(np.mean(accuracies))
    assert scored.details["deviation"] == pytest.approx(np.std(accuracies, ddof=1))
    assert len(set(accuracies)) > 1
    assert scored.interval is not None
    assert scored.interval[0] < scored.value < scored.interval[1]


def test_few_shot_with_too_few_rows() -> None:
    data, vectors = made(("train", 20), ("test", 30))
    scored = score_few_shot(data, vectors, Protocol(draws=2, bootstrap=0))
    assert scored.interval is None
    assert "labels have fewer than 8 training rows" in scored.notes[0]
    lacking = Rows("train", data.parts[0].first[:2], labels=["x", "y"])
    with pytest.raises(SelfguideError, match="has test rows of 'label 0' and no training rows of that label"):
        score_few_shot(TaskData(data.task, (lacking, data.parts[1]), "folder", "0"), vectors, Protocol())


def test_the_v_measure_is_scikit_learn_s() -> None:
    draw = np.random.default_rng(0)
    for clusters in (1, 3, 9):
        labels, found = draw.integers(0, 4, 60), draw.integers(0, clusters, 60)
        table = np.zeros((9, 9))
        np.add.at(table, (labels, found), 1)
        assert v_measure(table) == pytest.approx(v_measure_score(labels, found))
    assert v_measure(np.diag([3.0, 4.0])) == pytest.approx(1)
    assert v_measure(np.array([[7.0]])) == 1


def test_clustering_is_a_mean_over_starts() -> None:
    data, vectors = made(("test", 300), noise=0.8)
    scored = score_clustering(data, vectors, Protocol(draws=3, bootstrap=40))
    assert scored.metric == "V-measure"
    assert len(scored.details["values"]) == 3
    assert scored.value == pytest.approx(np.mean(scored.details["values"]))
    assert 40 < scored.value < 100
    assert scored.interval is not None
    assert scored.interval[0] < scored.value < scored.interval[1] + 3  # resampled rows have a little more V-measure
    assert score_clustering(data, vectors, Protocol(draws=3, bootstrap=0)).value == scored.value
    perfect, vectors = made(("test", 100), noise=0.01)
    assert score_clustering(perfect, vectors, Protocol(draws=5, bootstrap=0)).value > 85


def test_both_are_read_from_a_data_folder_with_their_protocol(tmp_path: Path) -> None:
    texts = [
        "where is my card",
        "my card is lost",
        "what is the rate",
        "rates of exchange",
        "top up failed",
        "no top up",
    ]
    rows = [f"{texts[n % 6].split()[-1]}\t{texts[n % 6]} {n}" for n in range(60)]
    for name, part in (("banking77", "train"), ("banking77", "test"), ("stackoverflow_titles", "test")):
        file = tmp_path / "retrieval" / name / f"{part}.tsv"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(rows) + "\n")
    with pytest.raises(SelfguideError, match="has 60 rows where Banking77 train has 10,003"):
        selfguide.evaluate("mini", "banking77", data=tmp_path)
    found = selfguide.evaluate("mini", "banking77,stackoverflow", data=tmp_path, allow_partial=True, bootstrap=20)
    assert found["banking77"].value > 90
    assert found["banking77"].protocol == {"text": "raw", "bootstrap": 20, "seed": 1, "examples": 8, "draws": 10}
    assert found["stackoverflow"].protocol == {"text": "raw", "bootstrap": 20, "seed": 1, "draws": 10}
    assert found["stackoverflow"].value > 30
