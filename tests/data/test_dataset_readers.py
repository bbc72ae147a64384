"""Parquet files and Hugging Face datasets, and the errors about those that cannot be read."""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reading import counts, early_refusal, read, refusal
from selfguide.data import Sentences
from selfguide.errors import SelfguideError

# -- Parquet


def write_parquet(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    pq.write_table(pa.table(columns), path, **options)
    return path


def test_parquet(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", {"id": [1, 2, 3], "body": ["one", None, " two "]}, row_group_size=2)
    assert read(path, column="body") == ["one", "two"]
    assert read(path, column="1") == ["one", "two"]
    assert counts(path, column="body") == {"read": 3, "kept": 2, "missing": 1}


@pytest.mark.parametrize("kind", [pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.string()])
def test_parquet_kinds_of_text(tmp_path: Path, kind: pa.DataType) -> None:
    path = write_parquet(tmp_path / "a.parquet", {"text": pa.array(["one", "two", None, "one"]).cast(kind)})
    assert read(path) == ["one", "two"]


def test_parquet_over_many_batches(tmp_path: Path) -> None:
    lines = [f"sentence {number}" for number in range(20_000)]
    path = write_parquet(tmp_path / "a.parquet", {"Sentence": lines, "id": range(20_000)}, row_group_size=7_000)
    assert read(path) == lines
    assert read(path, limit=5_000) == lines[:5_000]


def test_parquet_that_cannot_be_read(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", {"id": [1], "body": ["one"]})
    assert "columns id, body: say which" in early_refusal(path)
    assert "no column 'text': set column to one of id, body" in early_refusal(path, column="text")
    assert "row 1: column 'id' holds int64, not text" in early_refusal(path, column="id")
    broken = tmp_path / "b.parquet"
    broken.write_bytes(path.read_bytes()[:-20])
    assert "cannot be read as Parquet" in early_refusal(broken)
    packed = tmp_path / "a.parquet.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert "unpack it first" in early_refusal(packed)


def test_parquet_with_bad_utf8(tmp_path: Path) -> None:
    bad = pa.Array.from_buffers(pa.string(), 2, pa.array([b"good", b"caf\xe9"]).buffers())
    path = write_parquet(tmp_path / "a.parquet", {"text": bad})
    assert "row 2 is not valid UTF-8: fix it, or pass --replace-bad-utf8" in refusal(path)
    assert counts(path, on_bad_utf8="replace") == {"read": 2, "kept": 2, "replaced": 1}


# -- the hub


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """A hub with one dataset, which records the requests."""
    import datasets
    import huggingface_hub

    def offer(**columns: Any) -> list[Any]:
        asked: list[Any] = []

        def load_dataset(name: str, **options: Any) -> Any:
            asked.append((name, options))
            return datasets.Dataset.from_dict(columns).to_iterable_dataset()

        monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda *_, **__: None)
        monkeypatch.setattr(datasets, "load_dataset", load_dataset)
        return asked

    return offer


def test_a_dataset(hub: Callable[..., list[Any]]) -> None:
    asked = hub(text=["one", None, "two", "one"], label=[1, 2, 3, 4])
    sentences = Sentences(["hf:owner/name"])
    assert list(sentences) == list(sentences) == ["one", "two"]
    assert sentences.summary.describe() == "4 lines read from hf:owner/name: 2 kept, 1 repeat, 1 missing"
    assert read("hf:owner/name:test") == ["one", "two"]
    assert asked == [
        ("owner/name", {"split": "train", "streaming": True}),
        ("owner/name", {"split": "test", "streaming": True}),
    ]


def test_the_column_of_a_dataset(hub: Callable[..., list[Any]]) -> None:
    hub(body=["one"], label=[1])
    assert read("hf:owner/name", column="body") == ["one"]
    assert "hf:owner/name has the columns body, label: say which" in early_refusal("hf:owner/name")
    assert "no column 'text': set column to one of body, label" in early_refusal("hf:owner/name", column="text")
    assert "hf:owner/name, row 1: column 'label' holds int 1, not text" in refusal("hf:owner/name", column="label")


def test_a_dataset_without_a_name() -> None:
    with pytest.raises(SelfguideError, match="write hf:owner/name"):
        Sentences(["hf:"])


@pytest.mark.parametrize("offline", [True, False])
def test_a_hub_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch, offline: bool) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
    # Nothing listens on this port, so the connection is refused on every machine without a name lookup.
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("huggingface_hub.hf_api.constants.ENDPOINT", "http://127.0.0.1:9")
    begun = time.monotonic()
    message = early_refusal("hf:owner/name")
    assert "hf:owner/name: the Hugging Face hub cannot be reached" in message
    assert ("Offline" in message) is offline
    assert "download the data and pass the file" in message
    assert time.monotonic() - begun < 8


def test_a_dataset_that_does_not_exist(hub: Callable[..., list[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets
    import huggingface_hub

    hub(text=["one"])

    def not_found(*_: object, **__: object) -> None:
        raise huggingface_hub.errors.HFValidationError("no such name")

    def no_split(*_: object, **__: object) -> None:
        raise ValueError("Bad split: dev. Available splits: ['train']\nand a long story")

    monkeypatch.setattr(datasets, "load_dataset", no_split)
    message = early_refusal("hf:owner/name:dev")
    assert "(split dev) cannot be opened (Bad split: dev. Available splits: ['train'])" in message
    assert "download the data and pass the file" in message
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", not_found)
    message = early_refusal("hf:owner/name")
    assert "does not exist on the Hugging Face hub, or is private: check the name, or download the data" in message


def test_a_dataset_that_breaks_off(monkeypatch: pytest.MonkeyPatch, hub: Callable[..., list[Any]]) -> None:
    import datasets

    def rows() -> Iterator[dict[str, str]]:
        yield from ({"text": f"sentence {number}"} for number in range(3000))
        raise RuntimeError("connection lost")

    hub()
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: datasets.IterableDataset.from_generator(rows))
    sentences = Sentences(["hf:owner/name"])
    with pytest.raises(SelfguideError, match=r"hf:owner/name broke off after .*download the data and pass the file"):
        list(sentences)
    assert sentences.summary.kept > 1000
