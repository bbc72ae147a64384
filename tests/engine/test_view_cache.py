"""Cached views in several files: the values of one file, and a damaged file is made again alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from selfguide.engine import view_cache
from selfguide.engine.tokens import TokenisedText
from selfguide.engine.view_cache import CachedViews, ViewsKey, find, find_or_make, shards_of
from selfguide.losses import SelfGuidedLoss
from selfguide.models.encoders import load_encoder
from selfguide.progress import Reporter
from toys import toy_sentences

SENTENCES = toy_sentences(60)
LAYERS, WIDTH = (0, 1, 2, 3), 32
KEY = ViewsKey("encoder", "text", "max", LAYERS, "float32", "float32")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SELFGUIDE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(view_cache, "_BATCH_TOKENS", 40)
    return tmp_path / "cache" / "views"


class Guide:
    """A real guide and its text; counts the sentences that it computes."""

    def __init__(self, bert: Path) -> None:
        self.loss = SelfGuidedLoss(load_encoder(bert, pooling="cls"), head_size=8)
        self.text = TokenisedText(self.loss.encoder, SENTENCES)
        self.computed = 0

    def compute(self, features: dict[str, Tensor]) -> Tensor:
        self.computed += len(features["input_ids"])
        return self.loss.views(features)

    def made(self) -> CachedViews:
        store = find_or_make(KEY, self.text, self.compute, WIDTH, 10**9, Reporter(quiet=True))
        assert store is not None
        return store


@pytest.fixture
def guide(bert: Path) -> Guide:
    return Guide(bert)


def in_shards(monkeypatch: pytest.MonkeyPatch, sentences: int) -> None:
    monkeypatch.setattr(view_cache, "_SHARD_BYTES", sentences * len(LAYERS) * WIDTH * 4)


def test_several_files_hold_what_one_holds(guide: Guide, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = guide.made()
    assert [path.name for path in whole.paths] == [KEY.name]
    expected = whole.rows(range(60))
    in_shards(monkeypatch, 7)
    parts = guide.made()
    assert len(parts.paths) > 4
    assert sorted(cache.glob("views-*.npy")) == sorted([*whole.paths, *parts.paths])
    assert len(parts) == 60
    assert torch.equal(parts.rows(range(60)), expected)
    some = [59, 0, 7, 7, 31]
    assert torch.equal(parts.rows(some), expected[some])


def test_shards_have_every_sentence_once(guide: Guide, monkeypatch: pytest.MonkeyPatch) -> None:
    class WithEmpty:
        lengths = np.array([3, 0, 9, 1, 0, 30, 2, 2])

        def __len__(self) -> int:
            return len(self.lengths)

    in_shards(monkeypatch, 2)
    nothing: Any = WithEmpty()
    for text in (guide.text, nothing):
        shards = shards_of(KEY, text, WIDTH)
        assert sorted(np.concatenate([shard.rows for shard in shards]).tolist()) == list(range(len(text)))
        assert len({shard.path for shard in shards}) == len(shards) > 1
    monkeypatch.setattr(view_cache, "_MOST_SHARDS", 3)
    assert len(shards_of(KEY, guide.text, WIDTH)) <= 4


@pytest.mark.parametrize("damage", ["changed", "cut", "gone"])
def test_a_damaged_file_is_made_again_alone(
    guide: Guide, monkeypatch: pytest.MonkeyPatch, damage: str, tmp_path: Path
) -> None:
    in_shards(monkeypatch, 7)
    store = guide.made()
    assert guide.computed == 60
    expected = store.rows(range(60)).clone()
    number, before = 2, {path: path.stat().st_ino for path in store.paths}
    broken = store.paths[number]
    content = bytearray(broken.read_bytes())
    content[-200] ^= 1
    harm: dict[str, Callable[[], object]] = {
        "changed": lambda: broken.write_bytes(content),
        "cut": lambda: broken.write_bytes(content[:-50]),
        "gone": broken.unlink,
    }
    harm[damage]()
    assert find(KEY, guide.text, WIDTH) is None
    guide.computed = 0
    again = guide.made()
    assert guide.computed == len(shards_of(KEY, guide.text, WIDTH)[number].rows)
    assert torch.equal(again.rows(range(60)), expected)
    assert [path for path in store.paths if path.stat().st_ino != before[path]] in ([], [broken])


def test_room_is_not_made_by_deleting_the_other_files_of_the_store(
    guide: Guide, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_shards(monkeypatch, 7)
    store = guide.made()
    store.paths[0].unlink()
    guide.computed = 0
    again = find_or_make(KEY, guide.text, guide.compute, WIDTH, 1, Reporter(quiet=True))
    assert again is not None
    assert guide.computed < 30
