"""Scores through mteb, on a task that lives in memory; skipped where mteb is not installed (it is an extra)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr

import selfguide
from selfguide.engine.encode import cosine
from selfguide.errors import SelfguideError, UsageError
from selfguide.evaluation import mteb_bridge
from selfguide.evaluation.mteb_bridge import MtebAdapter, evaluate_mteb
from toys import toy_sentences

FIRST, SECOND = toy_sentences(40), toy_sentences(200)[3::7][:28] + toy_sentences(12)
GRADES = [float(len(set(a.split()) & set(b.split()))) for a, b in zip(FIRST, SECOND, strict=True)]


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MTEB_CACHE", str(tmp_path / "mteb-cache"))  # importing mteb makes this folder


@pytest.fixture
def toy_task() -> Any:
    pytest.importorskip("mteb", reason="mteb is an extra: pip install 'selfguide[mteb]'")
    from datasets import Dataset, DatasetDict
    from mteb.abstasks.sts import AbsTaskSTS
    from mteb.abstasks.task_metadata import TaskMetadata

    class ToySTS(AbsTaskSTS):
        metadata = TaskMetadata(
            name="ToySTS",
            description="Pairs that share some words.",
            dataset={"path": "nowhere/toy", "revision": "1"},
            type="STS",
            category="t2t",
            modalities=["text"],
            eval_splits=["test"],
            eval_langs=["eng-Latn"],
            main_score="cosine_spearman",
            reference=None,
            date=None,
            domains=None,
            task_subtypes=None,
            license=None,
            annotations_creators=None,
            dialect=None,
            sample_creation=None,
            bibtex_citation=None,
        )

        def load_data(self, *_: Any, **__: Any) -> None:
            rows = {"sentence1": FIRST, "sentence2": SECOND, "score": GRADES}
            self.dataset = DatasetDict(test=Dataset.from_dict(rows))
            self.data_loaded = True

    return ToySTS()


def expected(vectors: tuple[NDArray[Any], NDArray[Any]]) -> float:
    return 100 * float(spearmanr(cosine(*vectors), GRADES).statistic)


class Letters:
    """An encoder that is no SentenceTransformer: it counts letters, and takes no batch size."""

    def encode(self, sentences: Sequence[str]) -> NDArray[Any]:
        return np.array([[text.count(letter) for letter in "abcdefghijklmnop"] for text in sentences], dtype=np.float64)


class Tensors(Letters):
    def __init__(self) -> None:
        self.batch_sizes: list[int] = []

    def encode(self, sentences: Sequence[str], batch_size: int = 1) -> Any:
        self.batch_sizes.append(batch_size)
        return torch.tensor(super().encode(sentences), requires_grad=True)


def test_a_sentence_transformer_scores_as_by_hand(bert: Path, toy_task: Any) -> None:
    (row,) = evaluate_mteb(bert, [toy_task], batch_size=7)
    by_hand = expected((selfguide.encode(bert, FIRST), selfguide.encode(bert, SECOND)))
    assert row.main_score == pytest.approx(by_hand, abs=1e-3)
    assert (row.task, row.type, row.metric, row.languages) == ("ToySTS", "STS", "cosine_spearman", ("eng",))
    assert row.scores["test"][0]["spearman"] == pytest.approx(by_hand / 100, abs=1e-5)
    assert row.to_dict()["main_score"] == row.main_score
    assert not toy_task.data_loaded


@pytest.mark.parametrize("encoder", [Letters(), Tensors()])
def test_anything_that_encodes_will_do(encoder: Any, toy_task: Any) -> None:
    (row,) = evaluate_mteb(encoder, [toy_task], batch_size=5)
    # Counts make ties, which single precision breaks by rounding: hence the tolerance.
    assert row.main_score == pytest.approx(expected((Letters().encode(FIRST), Letters().encode(SECOND))), abs=0.05)
    # without a similarity of the encoder's own, it is the cosine
    assert row.scores["test"][0]["spearman"] == pytest.approx(row.main_score / 100, abs=5e-4)
    if isinstance(encoder, Tensors):
        assert set(encoder.batch_sizes) == {5}


def test_result_files_name_no_folder_and_are_never_taken_for_new_results(
    bert: Path, toy_task: Any, tmp_path: Path
) -> None:
    output = tmp_path / "results"
    first = evaluate_mteb(bert, [toy_task], output=output)
    (file,) = output.rglob("ToySTS.json")
    assert json.loads(file.read_text())["task_name"] == "ToySTS"
    assert all(str(bert.parent) not in path.read_text() for path in output.rglob("*.json"))
    assert "selfguide__bert" in str(file)
    second = evaluate_mteb(Letters(), [toy_task], output=output, name="bert")  # another encoder of the same name
    assert second[0].main_score != first[0].main_score
    assert not (tmp_path / "mteb-cache" / "results").exists()


def test_wrong_rows_are_refused(toy_task: Any) -> None:
    class Short:
        def encode(self, sentences: Sequence[str]) -> NDArray[Any]:
            return np.zeros((3, 4))

    with pytest.raises(SelfguideError, match=r"Short.encode returned an array of shape \(3, 4\) for 40 sentences"):
        evaluate_mteb(Short(), [toy_task])


def test_an_object_without_encode_is_refused() -> None:
    with pytest.raises(UsageError, match=r"object has no encode\(sentences\)"):
        MtebAdapter(object(), "thing")  # type: ignore[arg-type]


def test_unknown_tasks_get_near_matches() -> None:
    pytest.importorskip("mteb")
    with pytest.raises(UsageError, match=r"mteb has no task 'stsbenchmark'. Did you mean 'STSBenchmark'"):
        evaluate_mteb(Letters(), "stsbenchmark")
    with pytest.raises(UsageError, match="mteb available-tasks"):
        evaluate_mteb(Letters(), ["zzzzqqqq"])
    with pytest.raises(UsageError, match="No task of mteb is named"):
        evaluate_mteb(Letters(), " , ")


def test_tasks_about_pictures_are_refused() -> None:
    mteb = pytest.importorskip("mteb")
    name = next(t.metadata.name for t in mteb.get_tasks(modalities=["image"], exclusive_modality_filter=True))
    with pytest.raises(UsageError, match="is about image; selfguide's encoders take text alone"):
        evaluate_mteb(Letters(), [name])


def test_without_a_network_the_error_says_the_way_out(toy_task: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*_: Any, **__: Any) -> None:
        raise ConnectionError("Couldn't reach the hub.")

    monkeypatch.setattr(toy_task, "load_data", no_network)
    with pytest.raises(SelfguideError, match=r"ToySTS could not be loaded: .*Couldn't reach the hub\. .*HF_HOME"):
        evaluate_mteb(Letters(), [toy_task])


def test_without_mteb_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mteb_bridge, "find_spec", lambda name: None)
    with pytest.raises(SelfguideError, match=r"pip install 'selfguide\[mteb\]'"):
        evaluate_mteb(Letters(), ["STS12"])
