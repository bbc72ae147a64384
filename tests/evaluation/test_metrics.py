"""Scores of pairs against scipy, scikit-learn, sentence-transformers and plain loops."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from selfguide.correlation import pearson, spearman
from selfguide.errors import SelfguideError, UsageError
from selfguide.evaluation.metrics import (
    aggregate,
    binary_scores,
    bootstrap_interval,
    draws,
    precision_resampled,
    similarities,
    spearman_resampled,
)
from selfguide.evaluation.protocol import SIMILARITIES, Protocol, Similarity
from selfguide.evaluation.rows import Rows, TaskData
from selfguide.evaluation.significance import paired_over_seeds, paired_test
from selfguide.evaluation.sts import pair_similarities, score_pairs
from selfguide.evaluation.tasks import Kind, Part, Task
from toys import toy_sentences


@pytest.fixture(autouse=True)
def _no_warnings() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield


def graded(size: int, seed: int = 0, noise: float = 1.0) -> tuple[NDArray[Any], NDArray[Any]]:
    """Grades with many ties, and similarities that follow them."""
    generator = np.random.default_rng(seed)
    grades = np.round(generator.uniform(0, 5, size) * 2) / 2
    return grades, np.round(grades + noise * generator.normal(size=size), 2)


def pair_task(sizes: dict[str, int], kind: Kind = "graded-pairs", seed: int = 3) -> TaskData:
    generator = np.random.default_rng(seed)
    sentences = toy_sentences(400)
    parts = []
    for name, size in sizes.items():
        first = [sentences[index] for index in generator.integers(0, 400, size)]
        second = [sentences[index] for index in generator.integers(0, 400, size)]
        grades = generator.integers(0, 2 if kind == "binary-pairs" else 6, size).astype(float).tolist()
        parts.append(Rows(name, first, second, grades))
    task = Task("own", "own pairs", kind, tuple(Part(name) for name in sizes), "")
    return TaskData(task, tuple(parts), "folder", "0")


def fixed_vectors(width: int = 8, seed: int = 5) -> Callable[[Sequence[str]], NDArray[np.float32]]:
    """Sentence → vector, the same one every time."""
    table = dict(
        zip(toy_sentences(512), np.random.default_rng(seed).normal(size=(512, width)).astype(np.float32), strict=True)
    )
    return lambda sentences: np.stack([table[sentence] for sentence in sentences])


def test_similarities_are_those_of_a_plain_loop() -> None:
    generator = np.random.default_rng(0)
    first, second = generator.normal(size=(2, 50, 7)).astype(np.float32)
    expected = {
        "cosine": [u @ v / (np.linalg.norm(u) * np.linalg.norm(v)) for u, v in zip(first, second, strict=True)],
        "dot": [u @ v for u, v in zip(first, second, strict=True)],
        "euclidean": [-np.linalg.norm(u - v) for u, v in zip(first, second, strict=True)],
        "manhattan": [-np.abs(u - v).sum() for u, v in zip(first, second, strict=True)],
    }
    for kind in SIMILARITIES:
        np.testing.assert_allclose(similarities(first, second, kind), expected[kind], atol=1e-5)
    with pytest.raises(UsageError, match=r"similarity must be one of .*, got 'near'"):
        similarities(first, second, "near")  # type: ignore[arg-type]


def test_cosine_of_equal_vectors_is_one_and_of_no_vector_is_zero() -> None:
    vectors = np.random.default_rng(1).normal(size=(20_000, 31)).astype(np.float32)
    assert set(similarities(vectors, vectors, "cosine")) == {1.0}
    vectors[0] = 0
    assert similarities(vectors[:1], vectors[1:2], "cosine")[0] == 0.0


def test_similarities_are_added_up_in_double_precision() -> None:
    ones = np.ones((1, 5), dtype=np.float32)
    large = np.array([[1e8, 1, 1, 1, 1]], dtype=np.float32)
    assert similarities(ones, large, "dot")[0] == 1e8 + 4


@pytest.mark.parametrize("seed", range(5))
def test_correlations_are_scipys(seed: int) -> None:
    grades, sims = graded(200, seed)
    assert spearman(grades, sims) == pytest.approx(stats.spearmanr(grades, sims).statistic, abs=1e-12)
    assert pearson(grades, sims) == pytest.approx(stats.pearsonr(grades, sims).statistic, abs=1e-12)


def test_correlation_is_nan_for_a_constant_side_and_keeps_its_range() -> None:
    for of in (spearman, pearson):
        assert np.isnan(of([1, 2, 3], [0.1, 0.1, 0.1]))
        assert np.isnan(of([2, 2], [1, 5]))
        assert np.isnan(of([1], [1]))
        assert np.isnan(of([1, 2, 3], [1, float("nan"), 2]))
        assert of([1, 2, 3], [1e-200, 2e-200, 3e-200]) == pytest.approx(1)
        assert of([1, 2, 3], [1e200, 2e200, 3e200]) == pytest.approx(1)


def test_aggregation_is_sentevals() -> None:
    parts = [graded(30, 1), graded(90, 2, noise=3), graded(60, 3, noise=0.3)]
    by_part = [stats.spearmanr(*part).statistic for part in parts]
    together = [np.concatenate(side) for side in zip(*parts, strict=True)]
    assert aggregate(parts, "all") == pytest.approx(stats.spearmanr(*together).statistic)
    assert aggregate(parts, "mean") == pytest.approx(np.mean(by_part))
    assert aggregate(parts, "wmean") == pytest.approx(np.average(by_part, weights=[30, 90, 60]))
    linear = [stats.pearsonr(*part).statistic for part in parts]
    assert aggregate(parts, "wmean", "pearson") == pytest.approx(np.average(linear, weights=[30, 90, 60]))
    assert np.isnan(aggregate([*parts, (np.ones(4), np.arange(4.0))], "mean"))
    assert np.isnan(aggregate([], "all"))


def test_resampled_statistics_are_those_of_drawn_pairs() -> None:
    from sklearn.metrics import average_precision_score

    grades, sims = graded(80, 4)
    sims = np.round(sims, 1)
    labels = (grades > 2.5).astype(float)
    counts = np.concatenate(list(draws(80, 30, np.random.default_rng(0))))
    assert (counts.sum(axis=1) == 80).all()
    ranked, precise = spearman_resampled(grades, sims)(counts), precision_resampled(labels, sims)(counts)
    for number, row in enumerate(counts.astype(int)):
        picked = np.repeat(np.arange(80), row)
        assert ranked[number] == pytest.approx(stats.spearmanr(grades[picked], sims[picked]).statistic, abs=1e-12)
        assert precise[number] == pytest.approx(average_precision_score(labels[picked], sims[picked]), abs=1e-12)


def test_bootstrap_interval_holds_the_value_and_shrinks_with_more_pairs() -> None:
    widths = []
    for size in (100, 400, 1600):
        parts = [graded(size, 6), graded(size // 2, 7)]
        for how in ("all", "mean", "wmean"):
            interval = bootstrap_interval(parts, how, resamples=500)
            assert interval is not None
            assert interval[0] < aggregate(parts, how) < interval[1]
        widths.append(interval[1] - interval[0])
    assert widths[0] > 1.5 * widths[1] > 2.25 * widths[2]


def test_bootstrap_interval_covers_the_true_value() -> None:
    truth = spearman(*graded(200_000, 1000))
    inside = 0
    for seed in range(200):
        interval = bootstrap_interval([graded(150, seed)], resamples=300, seed=seed)
        assert interval is not None
        inside += interval[0] <= truth <= interval[1]
    assert 0.89 <= inside / 200 <= 0.99


def test_bootstrap_interval_is_seeded_quick_and_none_without_a_value() -> None:
    parts = [graded(4927)]
    before = time.perf_counter()
    first = bootstrap_interval(parts)
    assert time.perf_counter() - before < 10
    assert first == bootstrap_interval(parts)
    assert first != bootstrap_interval(parts, seed=2)
    assert bootstrap_interval(parts, resamples=0) is None
    assert bootstrap_interval([(np.arange(5.0), np.ones(5))]) is None
    assert bootstrap_interval([(np.arange(0.0), np.ones(0))]) is None
    assert bootstrap_interval([]) is None


@pytest.mark.parametrize("digits", [1, 6])
def test_binary_scores_are_sklearns_and_a_plain_loops(digits: int) -> None:
    from sklearn.metrics import accuracy_score, average_precision_score, f1_score, roc_auc_score

    generator = np.random.default_rng(digits)
    labels = generator.integers(0, 2, 120)
    sims = np.round(labels * 0.4 + generator.normal(size=120), digits)
    scores = binary_scores(labels, sims)
    assert scores.average_precision == pytest.approx(average_precision_score(labels, sims))
    assert scores.auc == pytest.approx(roc_auc_score(labels, sims))
    limits = [*sims, np.inf]
    assert scores.accuracy == pytest.approx(max(accuracy_score(labels, sims >= limit) for limit in limits))
    assert scores.accuracy == pytest.approx(accuracy_score(labels, sims >= scores.threshold))
    assert scores.f1 == pytest.approx(max(f1_score(labels, sims >= limit, zero_division=0) for limit in limits))
    assert scores.f1 == pytest.approx(f1_score(labels, sims >= scores.f1_threshold))


def test_binary_scores_of_one_label_and_of_equal_similarities() -> None:
    assert np.isnan(binary_scores([1, 1], [0.1, 0.2]).auc)
    nothing = binary_scores([0, 0, 0], [0.1, 0.2, 0.3])
    assert np.isnan(nothing.average_precision)
    assert nothing.accuracy == 1
    flat = binary_scores([0, 1, 0, 0], [0.5] * 4)
    assert (flat.auc, flat.average_precision, flat.accuracy) == (0.5, 0.25, 0.75)
    assert np.isnan(binary_scores([], []).accuracy)


@pytest.mark.parametrize("how", ["all", "mean", "wmean"])
def test_a_task_is_scored_as_scipy_would(how: Any) -> None:
    data, vectors = pair_task({"one": 40, "two": 90}), fixed_vectors()
    scored = score_pairs(data, vectors, Protocol(aggregation=how))
    sides = [(vectors(rows.first), vectors(rows.second or []), rows.grades) for rows in data.parts]
    cosines = [(u * v).sum(1) / np.linalg.norm(u, axis=1) / np.linalg.norm(v, axis=1) for u, v, _ in sides]
    by_part = [stats.spearmanr(side[2], cosine).statistic * 100 for side, cosine in zip(sides, cosines, strict=True)]
    grades = np.concatenate([side[2] for side in sides])
    expected = {
        "all": stats.spearmanr(grades, np.concatenate(cosines)).statistic * 100,
        "mean": np.mean(by_part),
        "wmean": np.average(by_part, weights=[40, 90]),
    }
    assert scored.metric == f"spearman cosine {how}"
    assert scored.value == pytest.approx(expected[how], abs=1e-4)
    assert scored.interval is not None
    assert scored.interval[0] < scored.value < scored.interval[1]
    assert scored.details["spearman"]["cosine"] == pytest.approx(expected, abs=1e-4)
    assert [scored.details["subsets"][name]["rows"] for name in ("one", "two")] == [40, 90]
    assert scored.details["subsets"]["one"]["spearman"] == pytest.approx(by_part[0], abs=1e-4)
    assert scored.details["pairs"] == 130
    assert scored.notes == ()


def test_all_sentences_are_encoded_in_one_call_and_similarities_can_be_kept() -> None:
    data, vectors, calls = pair_task({"one": 40, "two": 90}), fixed_vectors(), []

    def counting(sentences: Sequence[str]) -> NDArray[np.float32]:
        calls.append(len(sentences))
        return vectors(sentences)

    kept = pair_similarities(data, counting, Protocol(similarity="dot"))
    assert [(part.part, len(part.grades), len(part.sims)) for part in kept] == [("one", 40, 40), ("two", 90, 90)]
    np.testing.assert_array_equal(kept[0].sims, kept[0].every["dot"])
    scored = score_pairs(data, counting, Protocol(similarity="dot"), kept)
    assert calls == [260]
    assert scored == score_pairs(data, vectors, Protocol(similarity="dot"))


def test_scores_are_those_of_sentence_transformers(bert: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

    model = SentenceTransformer(str(bert), device="cpu")
    data = pair_task({"test": 150})
    rows = data.parts[0]
    kinds: list[Similarity] = list(SIMILARITIES)
    evaluator = EmbeddingSimilarityEvaluator(
        rows.first, rows.second or [], rows.grades or [], similarity_fn_names=kinds, write_csv=False
    )
    theirs = evaluator(model)
    ours = score_pairs(data, lambda sentences: model.encode(list(sentences)), Protocol(bootstrap=0)).details
    for kind in kinds:
        for name in ("spearman", "pearson"):
            assert ours[name][kind]["all"] / 100 == pytest.approx(theirs[f"{name}_{kind}"], abs=1e-6), (name, kind)


def test_equal_similarities_are_counted_and_told() -> None:
    data = pair_task({"test": 50})
    few = score_pairs(data, fixed_vectors(), Protocol())
    assert few.details["ties"] <= 5
    signs = fixed_vectors(width=2)
    many = score_pairs(data, lambda sentences: np.sign(signs(sentences)), Protocol())
    assert many.details["ties"] > 40
    assert f"{many.details['ties']} of 50 pairs have the same cosine similarity as another pair" in many.notes[0]


def test_an_encoder_that_gives_one_vector_has_no_score_and_says_why() -> None:
    data = pair_task({"one": 40, "two": 90})

    def same(sentences: Sequence[str]) -> NDArray[np.float32]:
        return np.full((len(sentences), 4), 0.1, dtype=np.float32)

    scored = score_pairs(data, same, Protocol())
    assert np.isnan(scored.value)
    assert scored.interval is None
    assert scored.notes[0] == "All 130 pairs have the same cosine similarity, so there is no correlation."
    by_part = score_pairs(data, same, Protocol(aggregation="mean"))
    assert by_part.notes[0] == "In one all 40 pairs have the same cosine similarity, so there is no correlation."


def test_constant_grades_in_a_subset_are_told() -> None:
    data = pair_task({"one": 40, "two": 90})
    flat = Rows("one", data.parts[0].first, data.parts[0].second, [3.0] * 40)
    changed = TaskData(data.task, (flat, data.parts[1]), "folder", "0")
    assert np.isfinite(score_pairs(changed, fixed_vectors(), Protocol()).value)
    scored = score_pairs(changed, fixed_vectors(), Protocol(aggregation="wmean"))
    assert np.isnan(scored.value)
    assert scored.notes == ("In one all 40 pairs have the same grade, so there is no correlation.",)


def test_binary_pairs() -> None:
    from sklearn.metrics import average_precision_score

    data = pair_task({"test": 80}, "binary-pairs")
    scored = score_pairs(data, fixed_vectors(), Protocol(similarity="euclidean"))
    part = pair_similarities(data, fixed_vectors(), Protocol(similarity="euclidean"))[0]
    assert scored.metric == "average precision euclidean"
    assert scored.value == pytest.approx(100 * average_precision_score(part.grades, part.sims))
    assert scored.interval is not None
    assert scored.interval[0] < scored.value < scored.interval[1]
    assert {"accuracy", "threshold", "auc", "f1", "spearman"} <= set(scored.details)
    same = TaskData(data.task, (Rows("test", ["a"] * 3, ["a"] * 3, [1.0, 1.0, 1.0]),), "folder", "0")
    alone = score_pairs(same, lambda sentences: np.ones((len(sentences), 2), dtype=np.float32), Protocol())
    assert np.isnan(alone.value)
    assert alone.interval is None
    assert "same label" in alone.notes[0]


def test_what_is_not_pairs_is_refused() -> None:
    task = Task("own", "own labels", "classification", (Part("all"),), "")
    with pytest.raises(UsageError, match="own labels is not a task of graded or binary pairs"):
        score_pairs(TaskData(task, (Rows("all", ["a"], labels=["1"]),), "folder", "0"), fixed_vectors(), Protocol())
    strange = pair_task({"test": 9}, "binary-pairs")
    (strange.parts[0].grades or [])[4] = 3.0
    with pytest.raises(SelfguideError, match="labelled 0 or 1, but there is a label 3"):
        score_pairs(strange, fixed_vectors(), Protocol())


def two_encoders(seed: int, size: int, first: float, second: float, heavy: bool = False) -> tuple[Any, Any, Any]:
    """Grades and two encoders' similarities, which share what is hard about a pair and live on different scales."""
    generator = np.random.default_rng(seed)
    grades = np.round(generator.uniform(0, 5, size) * 2) / 2
    hard = generator.normal(size=size)
    noise = generator.laplace(size=size) / 2**0.5 if heavy else generator.normal(size=size)
    one = 0.9 + 0.01 * np.tanh((grades + hard + first * generator.normal(size=size)) / 4)
    return grades, one, (grades + hard + second * noise) / 5


@pytest.mark.parametrize("heavy", [False, True])
def test_paired_test_seldom_finds_a_difference_where_there_is_none(heavy: bool) -> None:
    results = [paired_test([two_encoders(seed, 120, 1, 1, heavy)], resamples=200, seed=seed) for seed in range(400)]
    assert 0.02 <= np.mean([result.p_value <= 0.05 for result in results]) <= 0.09
    excluded = [result.interval is None or not result.interval[0] <= 0 <= result.interval[1] for result in results]
    assert np.mean(excluded) <= 0.11


def test_paired_test_finds_a_difference_where_there_is_one() -> None:
    results = [paired_test([two_encoders(seed, 300, 0.5, 1.2)], resamples=200) for seed in range(40)]
    assert np.mean([result.p_value <= 0.05 for result in results]) >= 0.9
    assert all(result.difference > 0 for result in results)


@pytest.mark.parametrize("how", ["all", "mean", "wmean"])
def test_paired_test_gives_the_difference_of_the_scores(how: Any) -> None:
    parts = [two_encoders(1, 80, 0.6, 1), two_encoders(2, 200, 0.6, 1)]
    result = paired_test(parts, how, resamples=300)
    first = aggregate([(grades, one) for grades, one, _ in parts], how)
    second = aggregate([(grades, two) for grades, _, two in parts], how)
    assert result.difference == pytest.approx(100 * (first - second))
    assert result.interval is not None
    assert result.interval[0] < result.difference < result.interval[1]
    assert result == paired_test(parts, how, resamples=300)
    turned = paired_test([(grades, two, one) for grades, one, two in parts], how, resamples=300)
    assert turned.difference == pytest.approx(-result.difference)
    assert turned.p_value == result.p_value


def test_swaps_are_those_of_a_plain_loop() -> None:
    """Every swap there is for eight pairs, against what the random ones give."""
    grades, one, two = two_encoders(3, 8, 0.2, 2)
    a, b = stats.rankdata(one), stats.rankdata(two)
    seen, count = abs(spearman(grades, one) - spearman(grades, two)), 0
    for number in range(256):
        swap = np.array([number >> bit & 1 for bit in range(8)], dtype=bool)
        first, second = np.where(swap, b, a), np.where(swap, a, b)
        graded_ranks = stats.rankdata(grades)
        count += abs(pearson(graded_ranks, first) - pearson(graded_ranks, second)) >= seen - 1e-12
    assert paired_test([(grades, one, two)], resamples=20_000).p_value == pytest.approx(count / 256, abs=0.02)


def test_paired_test_without_a_difference() -> None:
    grades, one, _ = two_encoders(4, 50, 1, 1)
    same = paired_test([(grades, one, 2 * one)], resamples=100)
    assert (same.difference, same.interval, same.p_value) == (0, (0, 0), 1)
    nothing = paired_test([(grades, one, np.ones(50))], resamples=100)
    assert np.isnan(nothing.difference)
    assert nothing.interval is None
    assert np.isnan(nothing.p_value)
    with pytest.raises(UsageError, match="resamples must be at least 1"):
        paired_test([(grades, one, one)], resamples=0)


def test_methods_are_compared_over_seeds_by_a_paired_t_test() -> None:
    first, second = [75.1, 74.8, 75.9, 75.5], [74.0, 74.4, 74.9, 74.1]
    result = paired_over_seeds(first, second)
    theirs = stats.ttest_rel(first, second)
    low, high = theirs.confidence_interval(0.95)
    assert result.difference == pytest.approx(0.975)
    assert result.p_value == pytest.approx(theirs.pvalue)
    assert result.interval == pytest.approx((low, high))
    assert np.isnan(paired_over_seeds([1.0], [2.0]).p_value)
    with pytest.raises(UsageError, match="each seed needs both"):
        paired_over_seeds([1.0], [2.0, 3.0])
