"""Few-shot classification: a logistic regression on a few examples of each label, scored by accuracy on the test rows.

The protocol of mteb's classification tasks: eight examples of each label, ten draws of them, vectors as the encoder gives them,
scikit-learn's default regularisation (C = 1). The score is the mean accuracy of the draws. Vectors are not standardised, so the
regularisation is weaker for encoders with long vectors; compare encoders that both normalise, or neither.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from selfguide.errors import SelfguideError
from selfguide.evaluation.metrics import draws, percentile_interval
from selfguide.evaluation.protocol import Protocol, Scored
from selfguide.evaluation.rows import TaskData
from selfguide.progress import counted

if TYPE_CHECKING:
    from selfguide.evaluation.protocol import Vectors

_ITERATIONS = 1000


def score_few_shot(
    data: TaskData,
    vectors: Vectors,
    protocol: Protocol,
    advance: Callable[[int, str], None] = lambda count, extra: None,
) -> Scored:
    """Train and test a classifier for each draw of examples.

    Args:
        data: A task with labelled parts ``train`` and ``test``.
        vectors: The encoder.
        protocol: The numbers of examples and draws, resamples and seed.
        advance: Called after each draw.

    Returns:
        The mean accuracy × 100; its interval is over the test rows.

    Raises:
        SelfguideError: A label of the test rows has no training rows.
    """
    from sklearn.linear_model import LogisticRegression

    train, test = data.part("train"), data.part("test")
    known, wanted = np.array(train.labels or []), np.array(test.labels or [])
    unknown = sorted(set(test.labels or []) - set(train.labels or []))
    if unknown:
        raise SelfguideError(f"{data.task.title} has test rows of {unknown[0]!r} and no training rows of that label.")
    features, new = vectors(train.first), vectors(test.first)
    correct = []
    for draw in range(protocol.draws):
        rows = _drawn(known, protocol.examples, np.random.default_rng([protocol.seed, draw]))
        classifier = LogisticRegression(max_iter=_ITERATIONS).fit(features[rows], known[rows])
        correct.append(classifier.predict(new) == wanted)
        advance(1, "")
    return _scored(np.array(correct), known, wanted, protocol)


def _drawn(labels: NDArray[Any], examples: int, generator: np.random.Generator) -> NDArray[np.intp]:
    """Draw some rows of each label without replacement; all of them where there are fewer."""
    rows = []
    for label in np.unique(labels):
        own = np.flatnonzero(labels == label)
        rows.append(generator.choice(own, size=min(examples, len(own)), replace=False))
    return np.concatenate(rows)


def _scored(correct: NDArray[np.bool_], known: NDArray[Any], wanted: NDArray[Any], protocol: Protocol) -> Scored:
    by_row = correct.mean(axis=0)
    accuracies = [100 * float(draw.mean()) for draw in correct]
    interval = None
    if protocol.bootstrap:
        generator = np.random.default_rng(protocol.seed)
        means = [counts @ by_row / len(by_row) for counts in draws(len(by_row), protocol.bootstrap, generator)]
        interval = percentile_interval(100 * np.concatenate(means))
    names, counts = np.unique(known, return_counts=True)
    details: dict[str, Any] = {
        "classes": len(names),
        "rows": {"train": len(known), "test": len(wanted)},
        "majority": 100 * float(np.unique(wanted, return_counts=True)[1].max() / len(wanted)),
        "accuracies": accuracies,
        "deviation": float(np.std(accuracies, ddof=1)) if len(accuracies) > 1 else 0.0,
        "classifier": "LogisticRegression(C=1) on vectors as they are",
    }
    few = int((counts < protocol.examples).sum())
    labels = counted(few, "label", "has", "have")
    notes = [f"{labels} fewer than {protocol.examples} training rows; all of theirs are used."] if few else []
    return Scored(
        f"accuracy, {protocol.examples} examples a label", 100 * float(by_row.mean()), interval, details, tuple(notes)
    )
