"""The order of an epoch and each process's share of a batch: every sentence once, and as many steps in each process."""

from __future__ import annotations

import numpy as np
import pytest
from torch.utils.data import BatchSampler, SequentialSampler

from selfguide.training.batches import ProcessBatches, ScatteredBatches, ScatteredOrder, share_of


@pytest.mark.parametrize("processes", [1, 2, 3, 5])
@pytest.mark.parametrize("sentences", [10, 30, 31, 32, 37, 59])
def test_the_shares_are_the_batch(processes: int, sentences: int) -> None:
    whole = BatchSampler(SequentialSampler(range(sentences)), 2 * processes, drop_last=False)
    shares = [ProcessBatches(whole, sentences, rank, processes) for rank in range(processes)]
    steps = [list(share) for share in shares]
    assert {len(batches) for batches in steps} == {len(shares[0])}
    for batch, *parts in zip(whole, *steps, strict=False):
        assert [row for part in parts for row in part] == batch
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
        assert min(map(len, parts)) >= 1
    assert sentences - sum(len(part) for batches in steps for part in batches) < processes


def test_uneven_shares() -> None:
    assert [share_of(range(5), rank, 3) for rank in range(3)] == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize("count", [1, 2, 3, 100, 4097, 70_000, 1 << 16])
def test_scattered_order_has_every_number_once(count: int) -> None:
    order = list(ScatteredOrder(count, 3))
    assert sorted(order) == list(range(count))
    assert order == list(ScatteredOrder(count, 3))
    if count > 3:
        assert order != list(ScatteredOrder(count, 4))
        assert order != sorted(order)


def test_scattered_order_looks_random() -> None:
    """Far places, neighbours and blocks are as in a shuffled list: no correlation beyond chance."""
    count = 100_000
    order = np.array(list(ScatteredOrder(count, 1)), dtype=np.float64)
    chance = 4 / np.sqrt(count)
    assert abs(np.corrcoef(np.arange(count), order)[0, 1]) < chance
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < chance
    assert abs(np.corrcoef(np.abs(np.diff(order))[:-1], np.abs(np.diff(order))[1:])[0, 1]) < 0.3
    means = order[: 64 * (count // 64)].reshape(-1, 64).mean(axis=1)
    assert means.std() == pytest.approx(count / np.sqrt(12 * 64), rel=0.1)


def test_each_epoch_has_its_order() -> None:
    batches = ScatteredBatches(1000, 64, seed=5)
    epochs = []
    for epoch in (0, 1, 0):
        batches.set_epoch(epoch)
        epochs.append([row for batch in batches for row in batch])
    assert epochs[0] == epochs[2] != epochs[1]
    assert sorted(epochs[1]) == list(range(1000))
    assert len(batches) == 16
