"""Transfer tasks in SentEval's protocol: a logistic regression on frozen sentence vectors, scored by accuracy.

As in SentEval: ten stratified folds for tasks without splits (MR, CR, SUBJ, MPQA), train/dev/test for SST2, train/test
for TREC and MRPC, features (|u − v|, u · v) for pairs, the regularisation strength chosen on training rows only, ties going
to the stronger regularisation. Unlike SentEval: every feature is standardised by its mean and standard deviation on the
training rows, so that the score does not depend on the length of an encoder's vectors; strengths are therefore searched over a
wider range. The strength of a fold is chosen by five folds inside its training rows.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from joblib import cpu_count  # type: ignore[import-untyped]
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from selfguide.errors import SelfguideError, UsageError
from selfguide.evaluation.metrics import percentile_interval
from selfguide.evaluation.protocol import Protocol, Scored
from selfguide.evaluation.rows import Rows, TaskData

if TYPE_CHECKING:
    from selfguide.evaluation.protocol import Vectors

STRENGTHS: tuple[float, ...] = tuple(2.0**power for power in range(-12, 1, 2))
"""scikit-learn's C, from the strongest regularisation to the weakest: each fit starts from the one before."""
INNER_FOLDS = 5
_ITERATIONS = 1000

Features = NDArray[np.float32]
"""Single precision, which gives the same accuracies as double precision in less time."""
Indices = NDArray[np.intp]
Classes = NDArray[np.int64]
Report = Callable[[int, int], None]
"""Called with the number of fits that are done and the number of all."""


@dataclass(frozen=True)
class _Job:
    """A classifier to train and test."""

    train: Indices
    test: Indices
    choices: list[tuple[Indices, Indices]]
    """Rows to fit on and rows to validate on, by which the strength is chosen; all of them training or dev rows."""


@dataclass(frozen=True)
class _Outcome:
    strength: float
    predicted: Classes
    truth: Classes

    @property
    def accuracy(self) -> float:
        return float(np.mean(self.predicted == self.truth))


def score_transfer(
    data: TaskData, vectors: Vectors, protocol: Protocol, jobs: int | None = None, report: Report | None = None
) -> Scored:
    """Train and test classifiers on an encoder's vectors of a task.

    Args:
        data: A task with labels.
        vectors: The encoder.
        protocol: Number of folds, resamples and seed.
        jobs: Threads that share the work; None for as many as there are cores.
        report: Called after each fit.

    Returns:
        The accuracy × 100, averaged over folds.

    Raises:
        UsageError: The task has no labels.
        SelfguideError: A row lacks its label or sentence, or a class has too few rows for the folds.
    """
    if not data.task.is_classification:
        raise UsageError(f"{data.task.title} is not a classification task.")
    labels = [label for rows in data.parts for label in _labels(data, rows)]
    names = sorted(set(labels))
    classes = np.array([names.index(label) for label in labels], dtype=np.int64)
    features = _features(data, vectors(data.sentences()))
    work = _jobs(data, classes, protocol)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        # scikit-learn's deprecation warnings do not concern this score.
        for category in (DeprecationWarning, PendingDeprecationWarning, FutureWarning):
            warnings.simplefilter("ignore", category)
        outcomes = _run(work, features, classes, jobs or cpu_count(), report)
    return _scored(data, protocol, names, classes, work, outcomes, _notes(seen, work))


def _labels(data: TaskData, rows: Rows) -> list[str]:
    if rows.labels is None or len(rows.labels) != len(rows):
        raise SelfguideError(f"{data.task.title} ({rows.part}) needs a label in every row.")
    return rows.labels


def _features(data: TaskData, encoded: NDArray[np.float32]) -> Features:
    """Return the features of every row of the task, part after part."""
    if data.task.kind == "classification":
        return encoded.astype(np.float32, copy=False)
    blocks, start = [], 0
    for rows in data.parts:
        if rows.second is None:
            raise SelfguideError(f"{data.task.title} ({rows.part}) needs a second sentence in every row.")
        blocks.append(pair_features(encoded[start : start + len(rows)], encoded[start + len(rows) :][: len(rows)]))
        start += 2 * len(rows)
    return np.concatenate(blocks)


def pair_features(first: NDArray[Any], second: NDArray[Any]) -> Features:
    """Return the features of pairs: the distance and the product of the two vectors, element by element."""
    one, two = first.astype(np.float32, copy=False), second.astype(np.float32, copy=False)
    return np.concatenate([np.abs(one - two), one * two], axis=1)


def _jobs(data: TaskData, classes: Classes, protocol: Protocol) -> list[_Job]:
    """Return the classifiers of a task; row numbers count through all its parts."""
    ends = np.cumsum([len(rows) for rows in data.parts])
    rows = {
        part.part: np.arange(end - len(part), end, dtype=np.intp) for part, end in zip(data.parts, ends, strict=True)
    }
    if data.task.splits == "train-dev-test":
        return [_Job(rows["train"], rows["test"], [(rows["train"], rows["dev"])])]
    if data.task.splits == "train-test":
        return [_Job(rows["train"], rows["test"], _inner(data, rows["train"], classes, protocol.seed))]
    everything = np.concatenate(list(rows.values()))
    outer = _folds(data, everything, classes, protocol.folds, protocol.seed)
    return [_Job(train, test, _inner(data, train, classes, protocol.seed)) for train, test in outer]


def _inner(data: TaskData, train: Indices, classes: Classes, seed: int) -> list[tuple[Indices, Indices]]:
    rarest = min(Counter(classes[train].tolist()).values())
    return _folds(data, train, classes, max(2, min(INNER_FOLDS, rarest)), seed)


def _folds(data: TaskData, rows: Indices, classes: Classes, count: int, seed: int) -> list[tuple[Indices, Indices]]:
    sizes = Counter(classes[rows].tolist()).most_common()
    # A classifier needs two classes in every training part; rarer classes may be missing from a fold.
    if len(sizes) < 2 or sizes[1][1] < count:
        most = "only one class" if len(sizes) < 2 else f"only {sizes[1][1]} rows in its second largest class"
        raise SelfguideError(f"{data.task.title} has {most}, too few for {count} folds.")
    splitter = StratifiedKFold(count, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The least populated class")
        return [(rows[train], rows[test]) for train, test in splitter.split(np.zeros((len(rows), 1)), classes[rows])]


def _run(
    work: Sequence[_Job], features: Features, classes: Classes, jobs: int, report: Report | None
) -> list[_Outcome]:
    """Choose all strengths, then run all tests: pieces that threads can share evenly.

    Threads are enough, since most time is spent in matrix products, which release the interpreter's lock. Each product is
    limited to its share of the cores, because nested threads are slower than none.
    """
    choices = [choice for job in work for choice in job.choices]

    def tell(done: int) -> None:
        if report is not None:
            report(done, len(choices) + len(work))

    with threadpool_limits(max(1, jobs // len(choices))), ThreadPoolExecutor(jobs) as pool:
        try:
            curves = []
            for curve in pool.map(lambda choice: _curve(features, classes, *choice), choices):
                curves.append(curve)
                tell(len(curves))
            strengths = _best(work, curves)
            outcomes: list[_Outcome] = []
            for outcome in pool.map(lambda item: _test(features, classes, *item), zip(work, strengths, strict=True)):
                outcomes.append(outcome)
                tell(len(curves) + len(outcomes))
        except BaseException:
            # A user who interrupts does not wait for fits that have not started.
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return outcomes


def _curve(features: Features, classes: Classes, train: Indices, held_out: Indices) -> list[float]:
    """Return the accuracy on held-out rows for every strength, each fit starting from the one before."""
    scaler, classifier = StandardScaler(), _classifier(warm_start=True)
    known, new = scaler.fit_transform(features[train]), scaler.transform(features[held_out])
    accuracies = []
    for strength in STRENGTHS:
        classifier.set_params(C=strength).fit(known, classes[train])
        accuracies.append(float(np.mean(classifier.predict(new) == classes[held_out])))
    return accuracies


def _best(work: Sequence[_Job], curves: Sequence[list[float]]) -> list[float]:
    """Return each classifier's best strength on its held-out rows; the stronger regularisation where there is a tie."""
    strengths, start = [], 0
    for job in work:
        mean = np.mean(curves[start : start + len(job.choices)], axis=0)
        # Rounded, because means of the same accuracies may differ in the last bit by the order of summation.
        strengths.append(STRENGTHS[int(np.argmax(np.round(mean, 10)))])
        start += len(job.choices)
    return strengths


def _test(features: Features, classes: Classes, job: _Job, strength: float) -> _Outcome:
    scaler, classifier = StandardScaler(), _classifier()
    classifier.set_params(C=strength).fit(scaler.fit_transform(features[job.train]), classes[job.train])
    return _Outcome(strength, classifier.predict(scaler.transform(features[job.test])), classes[job.test])


def _classifier(warm_start: bool = False) -> Any:
    # lbfgs was faster than both Newton solvers along the path of strengths: 8,600 × 384 and × 768, 60,000 × 384.
    # The tolerance is a tenth of the default, so that the starting point of a fit does not show in its accuracy.
    return LogisticRegression(solver="lbfgs", tol=1e-5, max_iter=_ITERATIONS, warm_start=warm_start)


def _notes(seen: Sequence[warnings.WarningMessage], work: Sequence[_Job]) -> list[str]:
    fits = len(work) + sum(len(job.choices) for job in work) * len(STRENGTHS)
    early = sum(issubclass(warning.category, ConvergenceWarning) for warning in seen)
    others = dict.fromkeys(str(item.message) for item in seen if not issubclass(item.category, ConvergenceWarning))
    notes = [f"{early:,} of {fits:,} classifiers stopped before they had converged."] if early else []
    return notes + [f"While classifiers were trained there was a warning: {message}" for message in others]


def _scored(
    data: TaskData,
    protocol: Protocol,
    names: list[str],
    classes: Classes,
    work: Sequence[_Job],
    outcomes: Sequence[_Outcome],
    notes: list[str],
) -> Scored:
    value = float(np.mean([outcome.accuracy for outcome in outcomes]))
    truth = np.concatenate([outcome.truth for outcome in outcomes])
    predicted = np.concatenate([outcome.predicted for outcome in outcomes])
    largest = [Counter(classes[job.train].tolist()).most_common(1)[0][0] for job in work]
    guessed = np.concatenate([outcome.truth == guess for outcome, guess in zip(outcomes, largest, strict=True)])
    details: dict[str, Any] = {
        "majority": 100 * float(guessed.mean()),
        "classes": len(names),
        "rows": {"train": len(work[0].train), "test": len(truth)},
        "strengths": [outcome.strength for outcome in outcomes],
        "grid": list(STRENGTHS),
        "features": "standardised on the training rows",
    }
    if len(outcomes) > 1:
        folds = [100 * outcome.accuracy for outcome in outcomes]
        details |= {"folds": folds, "deviation": float(np.std(folds, ddof=1))}
    if data.task.kind == "pair-classification" and len(names) == 2:
        hits = int(np.sum((predicted == 1) & (truth == 1)))
        called = int(np.sum(predicted == 1)) + int(np.sum(truth == 1))
        details["f1"] = 200 * hits / called if called else 0.0
    return Scored("accuracy", 100 * value, _interval(predicted == truth, protocol), details, tuple(notes))


def _interval(correct: NDArray[np.bool_], protocol: Protocol) -> tuple[float, float] | None:
    """Bootstrap the test rows: the number of correct ones among the drawn follows a binomial distribution."""
    if not protocol.bootstrap:
        return None
    generator = np.random.default_rng(protocol.seed)
    right = generator.binomial(len(correct), correct.mean(), protocol.bootstrap)
    return percentile_interval(100 * right / len(correct))
