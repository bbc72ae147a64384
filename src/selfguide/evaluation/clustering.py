"""Clustering: k-means with as many clusters as there are labels, scored by the V-measure.

The V-measure is the harmonic mean of homogeneity (a cluster holds one label) and completeness (a label is in one cluster), 1 for
the labels themselves whatever the clusters are called. k-means finds a local optimum that depends on where it starts, so that the
score is the mean of several starts (k-means++, one run each, all rows, vectors as the encoder gives them).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from selfguide.evaluation.metrics import draws, percentile_interval
from selfguide.evaluation.protocol import Protocol, Scored
from selfguide.evaluation.rows import TaskData

if TYPE_CHECKING:
    from selfguide.evaluation.protocol import Vectors


def score_clustering(
    data: TaskData,
    vectors: Vectors,
    protocol: Protocol,
    advance: Callable[[int, str], None] = lambda count, extra: None,
) -> Scored:
    """Cluster the rows of a labelled set from several starts.

    Args:
        data: A task with labels; all parts are clustered together.
        vectors: The encoder.
        protocol: The number of starts, resamples and seed.
        advance: Called after each start.

    Returns:
        The mean V-measure × 100; its interval is over the rows, with the clusters as they are.
    """
    from sklearn.cluster import KMeans

    labels = np.unique([label for part in data.parts for label in part.labels or []], return_inverse=True)[1]
    classes = int(labels.max()) + 1
    features = vectors(data.sentences())
    # A pair of label and cluster as one number, for each start.
    cells = np.empty((protocol.draws, len(labels)), dtype=np.int64)
    for draw in range(protocol.draws):
        generator = np.random.RandomState(np.random.MT19937(np.random.SeedSequence([protocol.seed, draw])))
        clusters = KMeans(min(classes, len(labels)), n_init=1, random_state=generator).fit_predict(features)
        cells[draw] = labels * classes + clusters
        advance(1, "")
    values = [100 * v_measure(_table(found, classes)) for found in cells]
    interval = None
    if protocol.bootstrap:
        resampled = [
            float(np.mean([v_measure(_table(found, classes, counts)) for found in cells]))
            for rows in draws(len(labels), protocol.bootstrap, np.random.default_rng(protocol.seed))
            for counts in rows
        ]
        interval = percentile_interval(100 * np.array(resampled))
    details: dict[str, Any] = {
        "classes": classes,
        "rows": len(labels),
        "values": values,
        "deviation": float(np.std(values, ddof=1)) if len(values) > 1 else 0.0,
        "clustering": "KMeans(n_init=1, init='k-means++') on vectors as they are",
    }
    return Scored("V-measure", float(np.mean(values)), interval, details)


def _table(cells: NDArray[np.int64], classes: int, counts: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """Return how many rows there are of each label in each cluster, each row counted as often as it was drawn."""
    return np.bincount(cells, counts, classes * classes).reshape(classes, classes).astype(np.float64)


def v_measure(table: NDArray[np.float64]) -> float:
    """Compute the V-measure.

    Args:
        table: The number of rows of each label (row) in each cluster (column).

    Returns:
        The V-measure; 1 where there is only one label and one cluster.
    """
    shares = table / table.sum()
    of_labels, of_clusters = _entropy(shares.sum(axis=1)), _entropy(shares.sum(axis=0))
    mutual = of_labels + of_clusters - _entropy(shares)
    homogeneity = mutual / of_labels if of_labels else 1.0
    completeness = mutual / of_clusters if of_clusters else 1.0
    total = homogeneity + completeness
    return 2 * homogeneity * completeness / total if total > 0 else 0.0


def _entropy(shares: NDArray[np.float64]) -> float:
    positive = shares[shares > 0]
    return float(-(positive * np.log(positive)).sum())
