"""Places in the plane: what is empty is narrowed, and nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest

from selfguide.mapping.layout import _closed_up


def test_an_island_far_out_comes_near_and_keeps_its_form() -> None:
    generator = np.random.default_rng(0)
    heap, island = generator.random((2000, 2)) * [10, 4], generator.random((200, 2)) + np.array([3, 90])
    places = np.vstack([heap, island]).astype(np.float32)
    found = _closed_up(places)
    for axis in range(2):  # who is left of whom, and above whom
        np.testing.assert_array_equal(
            np.argsort(found[:, axis], kind="stable"), np.argsort(places[:, axis], kind="stable")
        )
    for rows in (slice(0, 2000), slice(2000, None)):
        np.testing.assert_allclose(found[rows] - found[rows].mean(0), places[rows] - places[rows].mean(0), atol=1e-4)
    height = np.ptp(found[:, 1])
    gap = found[2000:, 1].min() - found[:2000, 1].max()
    assert gap == pytest.approx(0.03 * height, rel=1e-3)
    assert np.ptp(found[:2000, 1]) > 0.75 * height  # before, it had a twentieth of it


@pytest.mark.parametrize("count", [2, 20, 5000])
def test_points_that_lie_evenly_stay_where_they_are(count: int) -> None:
    places = np.random.default_rng(count).random((count, 2)).astype(np.float32)
    np.testing.assert_allclose(_closed_up(places), places, atol=1e-5)


def test_all_in_one_place() -> None:
    np.testing.assert_array_equal(_closed_up(np.ones((30, 2), np.float32)), np.ones((30, 2), np.float32))
