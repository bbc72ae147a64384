"""Places in the plane: exact nearest neighbours, then UMAP on their graph."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from selfguide.errors import SelfguideError
from selfguide.progress import Reporter

if TYPE_CHECKING:
    from numpy.typing import NDArray

NEIGHBOURS = 15
"""Neighbours that UMAP tries to keep near, its own default."""
# The widest strip of a map that may be empty, as a share of its width, and as a multiple of the mean step between few points.
_WIDEST_GAP, _WIDEST_STEP = 0.03, 10
_BLOCK = 1024  # sentences whose cosines with all others are held at a time


@dataclass(frozen=True)
class Neighbours:
    """The nearest other sentences of each sentence, the nearest first."""

    indices: NDArray[np.int64]
    """(count, k)."""
    cosines: NDArray[np.float32]
    """(count, k)."""


def nearest_neighbours(vectors: NDArray[np.float32], k: int, reporter: Reporter) -> Neighbours:
    """Find the nearest neighbours by cosine exactly, in blocks.

    Args:
        vectors: Unit vectors (count, dim).
        k: Neighbours of each; fewer where there are fewer other sentences.
        reporter: Shows progress.

    Returns:
        The neighbours.
    """
    count = len(vectors)
    k = min(k, count - 1)
    indices = np.empty((count, k), dtype=np.int64)
    cosines = np.empty((count, k), dtype=np.float32)
    with reporter.bar("finding neighbours", count, "sentences") as advance:
        for start in range(0, count, _BLOCK):
            near = vectors[start : start + _BLOCK] @ vectors.T
            rows = np.arange(len(near))
            near[rows, start + rows] = -np.inf  # a sentence is no neighbour of itself
            chosen = np.argpartition(-near, k - 1, axis=1)[:, :k]
            order = np.argsort(-np.take_along_axis(near, chosen, axis=1), axis=1, kind="stable")
            chosen = np.take_along_axis(chosen, order, axis=1)
            indices[start : start + len(near)] = chosen
            cosines[start : start + len(near)] = np.take_along_axis(near, chosen, axis=1)
            advance(len(near), "")
    return Neighbours(indices, cosines)


def lay_out(
    vectors: NDArray[np.float32],
    neighbours: Neighbours,
    seed: int,
    reporter: Reporter,
    start: NDArray[np.float32] | None = None,
) -> NDArray[np.float32]:
    """Give every sentence a place in the unit square, near its neighbours.

    Args:
        vectors: Unit vectors (count, dim).
        neighbours: Their nearest neighbours.
        seed: Of UMAP's random numbers; one seed gives one map.
        reporter: Shows progress.
        start: Places to start from: those of another encoder, so that the two maps can be compared.

    Returns:
        The places (count, 2), in [0, 1].

    Raises:
        SelfguideError: UMAP is not installed.
    """
    try:
        with _quiet():
            import umap
    except ImportError:
        raise SelfguideError("A map needs UMAP: pip install 'selfguide[map]'.") from None
    count = len(vectors)
    own = np.arange(count)[:, None]
    # UMAP counts a sentence as its own first neighbour, at distance 0.
    graph = (
        np.hstack([own, neighbours.indices]).astype(np.int64),
        np.hstack([np.zeros((count, 1)), np.maximum(1 - neighbours.cosines, 0)]).astype(np.float32),
    )
    reporter.note(f"Laying out {count:,} sentences with UMAP; its first use on a machine compiles it.")
    # From principal components, parts without a link between them start side by side; a spectral start throws them far apart.
    init: Any = "pca" if start is None else 20 * (start - 0.5)  # UMAP's own coordinates are about this wide
    model = umap.UMAP(
        n_neighbors=graph[0].shape[1],
        min_dist=0.1,
        metric="cosine",
        init=init,
        random_state=seed,
        n_jobs=1,
        precomputed_knn=graph,
        tqdm_kwds={"disable": not reporter.live, "desc": "laying out", "unit": " passes", "leave": False},
    )
    with _quiet():
        places = np.asarray(model.fit_transform(vectors), dtype=np.float32)
    return _unit_square(_closed_up(places))


def _closed_up(places: NDArray[np.float32]) -> NDArray[np.float32]:
    """Narrow the empty strips of a map, across it and down it, to a share of its width.

    UMAP may leave a group that has few links to the others far outside, and the rest of the map would then be tiny. How far
    apart distant points are says nothing, so what is empty can go; the order of the points on each axis stays, and so do the
    distances within a group.
    """
    found = np.empty_like(places)
    share = max(_WIDEST_GAP, _WIDEST_STEP / len(places))
    for axis in range(2):
        order = np.argsort(places[:, axis], kind="stable")
        steps = np.diff(places[order, axis].astype(np.float64))
        for _ in range(20):  # a narrower map has a narrower limit
            limit = share * steps.sum()
            if steps.max(initial=0.0) <= limit * (1 + 1e-6):
                break
            steps = np.minimum(steps, limit)
        found[order, axis] = places[order[0], axis] + np.concatenate([[0.0], np.cumsum(steps)])
    return found


def _unit_square(places: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale to [0, 1] without distortion; single sentences far out do not shrink the rest."""
    low, high = np.percentile(places, [0.2, 99.8], axis=0)
    middle, width = (low + high) / 2, max(float((high - low).max()), 1e-9)
    return np.clip((places - middle) / width + 0.5, -0.02, 1.02) / 1.04 + 0.02 / 1.04


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence UMAP's notes on what was chosen here on purpose: one thread with a seed, and neighbours given beforehand."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
