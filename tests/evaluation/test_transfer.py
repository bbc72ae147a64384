"""Transfer scores against loops over plain scikit-learn, and what a strength may be chosen on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from selfguide.errors import SelfguideError, UsageError
from selfguide.evaluation import transfer
from selfguide.evaluation.protocol import Protocol
from selfguide.evaluation.rows import Rows, TaskData
from selfguide.evaluation.tasks import Kind, Part, Splits, Task
from selfguide.evaluation.transfer import INNER_FOLDS, STRENGTHS, pair_features, score_transfer

WIDTH = 12


def made(
    splits: Splits, sizes: dict[str, int], classes: int = 2, kind: Kind = "classification", seed: int = 0
) -> tuple[TaskData, NDArray[np.float32]]:
    """A task whose rows are named by their number, and a vector for every sentence, with labels that follow it."""
    generator = np.random.default_rng(seed)
    count = sum(sizes.values())
    encoded = (generator.normal(size=(count, WIDTH)) * generator.uniform(0.2, 3, WIDTH) + 1).astype(np.float32)
    others = (encoded + generator.normal(size=encoded.shape)).astype(np.float32)
    shown = encoded if kind == "classification" else pair_features(encoded, others)
    scores = (shown - shown.mean(0)) / shown.std(0) @ generator.normal(size=(shown.shape[1], classes))
    names = [f"class {number}" for number in np.argmax(scores + 3 * generator.gumbel(size=scores.shape), axis=1)]
    parts, start = [], 0
    for name, size in sizes.items():
        numbers = range(start, start + size)
        second = [f"b{number}" for number in numbers] if kind == "pair-classification" else None
        parts.append(Rows(name, [f"a{number}" for number in numbers], second, labels=names[start : start + size]))
        start += size
    task = Task("own", "own task", kind, tuple(Part(name) for name in sizes), "", splits=splits)
    return TaskData(task, tuple(parts), "folder", "0"), np.concatenate([encoded, others])


def look_up(table: NDArray[np.float32]) -> Any:
    def vectors(sentences: Sequence[str]) -> NDArray[np.float32]:
        rows = [int(sentence[1:]) + (len(table) // 2 if sentence[0] == "b" else 0) for sentence in sentences]
        return table[rows]

    return vectors


def fitted(features: Any, labels: Any, strength: float) -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=10_000, tol=1e-8))
    return model.fit(features, labels)


def assert_well_chosen(strength: float, features: Any, labels: Any, splits: Any) -> None:
    """As good as the best on the held-out rows, but for a row or two on the border that rounding may move."""
    means = {}
    for candidate in STRENGTHS:
        hits = [np.sum(fitted(features[a], labels[a], candidate).predict(features[b]) == labels[b]) for a, b in splits]
        means[candidate] = sum(hits)
    assert means[strength] >= max(means.values()) - 2
    assert max(means.values()) > min(means.values()) + 2


def stratified(features: Any, labels: Any, folds: int) -> Any:
    from sklearn.model_selection import StratifiedKFold

    return list(StratifiedKFold(folds, shuffle=True, random_state=1).split(features, labels))


def all_labels(data: TaskData) -> NDArray[Any]:
    return np.array([label for rows in data.parts for label in rows.labels or []])


def test_folds_are_those_of_a_plain_loop() -> None:
    data, table = made("folds", {"all": 300})
    features, labels = table[:300], all_labels(data)
    scored = score_transfer(data, look_up(table), Protocol(folds=5))
    outer = stratified(features, labels, 5)
    expected = []
    for (train, test), strength in zip(outer, scored.details["strengths"], strict=True):
        known, known_labels = features[train], labels[train]
        assert_well_chosen(strength, known, known_labels, stratified(known, known_labels, INNER_FOLDS))
        expected.append(100 * fitted(known, known_labels, strength).score(features[test], labels[test]))
    assert scored.metric == "accuracy"
    assert scored.details["folds"] == pytest.approx(expected, abs=100 / 60)
    assert scored.value == pytest.approx(np.mean(scored.details["folds"]))
    assert scored.value == pytest.approx(np.mean(expected), abs=100 / 300)
    assert scored.details["deviation"] == pytest.approx(np.std(scored.details["folds"], ddof=1))
    assert scored.details["majority"] == pytest.approx(100 * max(np.unique(labels, return_counts=True)[1]) / 300, abs=1)
    assert scored.details["classes"] == 2
    assert scored.interval is not None
    assert scored.interval[0] < scored.value < scored.interval[1]
    assert scored.notes == ()


def test_six_classes_with_a_test_set() -> None:
    data, table = made("train-test", {"train": 400, "test": 150}, classes=6)
    features, labels = table[:550], all_labels(data)
    scored = score_transfer(data, look_up(table), Protocol())
    (strength,) = scored.details["strengths"]
    assert_well_chosen(strength, features[:400], labels[:400], stratified(features[:400], labels[:400], INNER_FOLDS))
    expected = 100 * fitted(features[:400], labels[:400], strength).score(features[400:], labels[400:])
    assert scored.details["classes"] == 6
    # A row on the border between two of six classes may fall to either side.
    assert scored.value == pytest.approx(expected, abs=100 / 150)
    assert "folds" not in scored.details


def test_the_dev_rows_choose_where_there_are_any() -> None:
    data, table = made("train-dev-test", {"train": 300, "dev": 80, "test": 120})
    features, labels = table[:500], all_labels(data)
    scored = score_transfer(data, look_up(table), Protocol())
    (strength,) = scored.details["strengths"]
    assert_well_chosen(strength, features, labels, [(np.arange(300), np.arange(300, 380))])
    model = fitted(features[:300], labels[:300], strength)
    assert scored.value == pytest.approx(100 * model.score(features[380:], labels[380:]), abs=100 / 120)
    assert scored.details["rows"] == {"train": 300, "test": 120}


def test_pairs_are_seen_as_distance_and_product_and_have_an_f1() -> None:
    from sklearn.metrics import f1_score

    np.testing.assert_allclose(pair_features(np.array([[1.0, -2.0]]), np.array([[3.0, 4.0]])), [[2, 6, 3, -8]])
    data, table = made("train-test", {"train": 300, "test": 100}, kind="pair-classification")
    features, labels = pair_features(table[:400], table[400:]), all_labels(data)
    scored = score_transfer(data, look_up(table), Protocol())
    (strength,) = scored.details["strengths"]
    assert_well_chosen(strength, features[:300], labels[:300], stratified(features[:300], labels[:300], INNER_FOLDS))
    predicted = fitted(features[:300], labels[:300], strength).predict(features[300:])
    assert scored.value == pytest.approx(100 * np.mean(predicted == labels[300:]), abs=1)
    assert scored.details["f1"] == pytest.approx(100 * f1_score(labels[300:], predicted, pos_label="class 1"), abs=1)


def test_a_tie_goes_to_the_stronger_penalty() -> None:
    jobs: Any = [transfer._Job(np.arange(1), np.arange(1), [(np.arange(1), np.arange(1))] * 3)] * 2
    rising = [[0.1] * 2 + [0.7] * 5, [0.1] * 2 + [0.2] * 5, [0.1] * 2 + [0.1] * 5]
    assert transfer._best(jobs, rising + [[0.5] * 7] * 3) == [STRENGTHS[2], STRENGTHS[0]]


@pytest.mark.parametrize("splits", ["folds", "train-test", "train-dev-test"])
def test_no_test_row_is_seen_before_the_strength_is_chosen(splits: Splits, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {
        "folds": {"all": 120},
        "train-test": {"train": 100, "test": 40},
        "train-dev-test": {"train": 90, "dev": 30, "test": 40},
    }[splits]
    data, table = made(splits, sizes)
    chosen_on: list[tuple[set[int], set[int]]] = []
    tested: list[tuple[set[int], set[int]]] = []
    curve, test = transfer._curve, transfer._test

    def watched_curve(features: Any, classes: Any, train: Any, held_out: Any) -> Any:
        assert not tested
        chosen_on.append((set(train.tolist()), set(held_out.tolist())))
        return curve(features, classes, train, held_out)

    def watched_test(features: Any, classes: Any, job: Any, strength: float) -> Any:
        tested.append((set(job.train.tolist()), set(job.test.tolist())))
        return test(features, classes, job, strength)

    monkeypatch.setattr(transfer, "_curve", watched_curve)
    monkeypatch.setattr(transfer, "_test", watched_test)
    score_transfer(data, look_up(table), Protocol(folds=4), jobs=1)
    each = len(chosen_on) // len(tested)
    for number, (trained, unseen) in enumerate(tested):
        assert not trained & unseen
        for fitted_on, tried_on in chosen_on[number * each : (number + 1) * each]:
            assert not fitted_on & tried_on
            assert not unseen & (fitted_on | tried_on)
    if splits == "folds":
        assert sorted(row for _, unseen in tested for row in unseen) == list(range(120))


def test_a_curve_uses_no_rows_but_its_own() -> None:
    """Whatever the other rows hold, even nothing a classifier could read: neither fit, nor scale, nor score changes."""
    data, table = made("folds", {"all": 150})
    classes = np.unique(all_labels(data), return_inverse=True)[1]
    train, held_out = np.arange(80), np.arange(80, 110)
    before = transfer._curve(table[:150], classes, train, held_out)
    spoilt, turned = table[:150].copy(), classes.copy()
    spoilt[110:], turned[110:] = np.nan, 1 - turned[110:]
    assert transfer._curve(spoilt, turned, train, held_out) == before


@pytest.mark.parametrize("splits", ["train-test", "train-dev-test"])
def test_other_test_rows_leave_the_strength_as_it_is(splits: Splits) -> None:
    sizes = {"train": 200, "dev": 60, "test": 80} if splits == "train-dev-test" else {"train": 260, "test": 80}
    data, table = made(splits, sizes)
    before = score_transfer(data, look_up(table), Protocol())
    turned = [{"class 0": "class 1", "class 1": "class 0"}[label] for label in data.part("test").labels or []]
    changed = Rows("test", data.part("test").first, labels=turned)
    other = TaskData(data.task, (*data.parts[:-1], changed), "folder", "0")
    after = score_transfer(other, look_up(table), Protocol())
    assert after.details["strengths"] == before.details["strengths"]
    assert after.value == pytest.approx(100 - before.value)


def test_the_length_of_vectors_does_not_matter_and_threads_change_nothing() -> None:
    data, table = made("folds", {"all": 200})
    one = score_transfer(data, look_up(table), Protocol(folds=4), jobs=1)
    assert score_transfer(data, look_up(table), Protocol(folds=4), jobs=3) == one
    long = score_transfer(data, look_up(table * np.float32(1024)), Protocol(folds=4))
    assert (long.value, long.details["strengths"]) == (one.value, one.details["strengths"])
    assert score_transfer(data, look_up(table), Protocol(folds=4, seed=2)).details["folds"] != one.details["folds"]


def test_progress_goes_to_the_end() -> None:
    data, table = made("folds", {"all": 100})
    told: list[tuple[int, int]] = []
    score_transfer(data, look_up(table), Protocol(folds=3), report=lambda done, total: told.append((done, total)))
    assert told == [(number, 18) for number in range(1, 19)]


def test_classifiers_that_stop_early_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    data, table = made("train-test", {"train": 200, "test": 50})
    monkeypatch.setattr(transfer, "_ITERATIONS", 1)
    scored = score_transfer(data, look_up(table), Protocol())
    assert "of 36 classifiers stopped before they had converged" in scored.notes[0]


def test_a_constant_encoder_gets_the_largest_class() -> None:
    data, table = made("train-test", {"train": 200, "test": 50})
    scored = score_transfer(data, lambda sentences: np.ones((len(sentences), 4), dtype=np.float32), Protocol())
    assert scored.value == pytest.approx(scored.details["majority"])
    assert score_transfer(data, look_up(table), Protocol(bootstrap=0)).interval is None


def test_rare_classes_are_allowed_and_single_ones_refused() -> None:
    data, table = made("folds", {"all": 100})
    rare = Rows("all", data.parts[0].first, labels=["rare", *(data.parts[0].labels or [])[1:]])
    scored = score_transfer(TaskData(data.task, (rare,), "folder", "0"), look_up(table), Protocol(folds=3))
    assert scored.details["classes"] == 3
    single = TaskData(data.task, (Rows("all", data.parts[0].first, labels=["x"] * 100),), "folder", "0")
    with pytest.raises(SelfguideError, match="own task has only one class, too few for 10 folds"):
        score_transfer(single, look_up(table), Protocol())
    few = TaskData(data.task, (Rows("all", ["a1", "a2", "a3"], labels=["x", "x", "y"]),), "folder", "0")
    with pytest.raises(SelfguideError, match="only 1 rows in its second largest class"):
        score_transfer(few, look_up(table), Protocol())


def test_what_is_not_classification_is_refused() -> None:
    task = Task("own", "own pairs", "graded-pairs", (Part("test"),), "")
    with pytest.raises(UsageError, match="own pairs is not a classification task"):
        score_transfer(
            TaskData(task, (), "folder", "0"), lambda texts: np.ones((len(texts), 1), np.float32), Protocol()
        )
    data, _ = made("folds", {"all": 20})
    bare = TaskData(data.task, (Rows("all", ["a1"]),), "folder", "0")
    with pytest.raises(SelfguideError, match=r"own task \(all\) needs a label in every row"):
        score_transfer(bare, lambda texts: np.ones((len(texts), 1), np.float32), Protocol())
