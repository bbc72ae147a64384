"""``selfguide.evaluate``: one encoder, any tasks, one protocol."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from selfguide.errors import UsageError
from selfguide.evaluation.data import data_folder, find_data, own_pairs
from selfguide.evaluation.embedder import AnyEncoder, Embedder, embedder
from selfguide.evaluation.protocol import Protocol, Scored
from selfguide.evaluation.results import DataInfo, Evaluation, ScoreFolder, TaskScore
from selfguide.evaluation.rows import TaskData
from selfguide.evaluation.significance import PairedResult, paired_test
from selfguide.evaluation.sts import pair_similarities, score_pairs
from selfguide.evaluation.tasks import tasks_named
from selfguide.evaluation.transfer import score_transfer
from selfguide.progress import Reporter
from selfguide.versions import versions

# What a kind of task does not depend on is left out of the protocol that is written beside its score.
_OF_PAIRS = ("similarity", "aggregation", "text", "bootstrap", "seed")
_OF_BINARY = ("similarity", "text", "bootstrap", "seed")
_OF_TRANSFER = ("text", "bootstrap", "folds", "seed")


def evaluate(
    encoder: AnyEncoder,
    tasks: str | Iterable[str] = "demo",
    *,
    pairs: str | Path | Iterable[str | Path] = (),
    data: str | Path | None = None,
    pooling: str | None = None,
    layer: int | None = None,
    similarity: str = "cosine",
    aggregation: str = "all",
    text: str = "raw",
    bootstrap: int = 1000,
    seed: int = 1,
    output: str | Path | None = None,
    again: bool = False,
    allow_partial: bool = False,
    download: bool = True,
    device: str | None = None,
    batch_size: int = 64,
    name: str | None = None,
    quiet: bool = True,
) -> Evaluation:
    """Score an encoder on tasks.

    Args:
        encoder: ``"mini"``, a folder, a hub name, a SentenceTransformer, a function of a list of sentences, an object with
            ``encode``, or ``"package.module:function"``.
        tasks: names and groups: ``"sts"`` (the papers' seven sets), ``"transfer"``, ``"stsb,sts17-en-en"``, ``"demo"``.
        pairs: files of your own: grade, sentence, sentence; grades that are all 0 or 1 are taken as labels.
        data: folder with the tasks' files; ``None``: the environment variable ``SELFGUIDE_DATA``, else the hub.
        pooling, layer: another vector of a Transformer encoder than its own.
        similarity: ``cosine``, ``dot``, ``euclidean`` or ``manhattan``.
        aggregation: a task's subsets as one list (``all``, the papers' setting), or the ``mean`` or ``wmean`` of theirs.
        text: ``raw``, as released, or ``senteval``, tokenised and lower-cased as SentEval does it.
        bootstrap: resamples for the 95 % intervals; 0: none.
        output: folder for ``scores.json`` and ``scores.csv``; what it holds already is not computed again.
        again: compute it all the same.
        allow_partial: score files that have fewer rows than the papers' (a note says so) instead of refusing them.

    Example::

        found = selfguide.evaluate("mini", "sts", pooling="mean", data="data")
        print(found.averages()["sts"], found["stsb"].value, found["stsb"].interval)
    """
    reporter = Reporter(quiet=quiet)
    protocol = Protocol(similarity, aggregation, text, bootstrap, seed=seed)  # type: ignore[arg-type]
    rows = load_tasks(tasks, pairs, data, protocol, allow_partial=allow_partial, download=download)
    vectors = embedder(
        encoder, pooling=pooling, layer=layer, device=device, batch_size=batch_size, name=name, reporter=reporter
    )
    return score_all(vectors, rows, protocol, reporter, output=Path(output) if output else None, again=again)


def load_tasks(
    tasks: str | Iterable[str],
    pairs: str | Path | Iterable[str | Path],
    data: str | Path | None,
    protocol: Protocol,
    *,
    allow_partial: bool = False,
    download: bool = True,
) -> list[TaskData]:
    """The rows of every task and of the user's own files, before anything is encoded: what is missing is said at once."""
    files = [pairs] if isinstance(pairs, str | Path) else list(pairs)
    folder = data_folder(data)
    wanted = tasks_named(tasks) if tasks or not files else ()
    found = [
        find_data(task, folder=folder, text=protocol.text, allow_partial=allow_partial, download=download)
        for task in wanted
    ]
    found += [own_pairs(path) for path in files]
    names = [item.task.name for item in found]
    for task_name in names:
        if names.count(task_name) > 1:
            raise UsageError(f"Two sets of pairs are called {task_name!r}; rename one of the files.")
    return found


def score_all(
    vectors: Embedder,
    rows: list[TaskData],
    protocol: Protocol,
    reporter: Reporter,
    *,
    output: Path | None = None,
    again: bool = False,
) -> Evaluation:
    """Score every task that has no score yet; each distinct sentence of all of them is encoded once."""
    store = ScoreFolder(output) if output is not None else None
    known: dict[str, TaskScore] = {}
    if store is not None and not again:
        for item in rows:
            former = store.find(item.task.name, vectors.info, item.digest, spelt_out(item, protocol))
            if former is not None:
                known[item.task.name] = former
    if known:
        reporter.note(
            f"{vectors.info.name}: {len(known)} of {len(rows)} tasks were scored before; --again repeats them."
        )
    due = [item for item in rows if item.task.name not in known]
    # Pairs first and in one go; transfer tasks are larger and come with their own, so that their memory comes late.
    vectors.prepare(sentence for item in due if not _is_transfer(item) for sentence in item.sentences())
    for item in due:
        score = _score(item, vectors, protocol, reporter)
        known[item.task.name] = score
        if store is not None:
            store.add(score)
    return Evaluation(vectors.info, tuple(known[item.task.name] for item in rows))


def paired(
    first: Embedder, second: Embedder, rows: Iterable[TaskData], protocol: Protocol, resamples: int = 5000
) -> dict[str, PairedResult]:
    """``second`` minus ``first`` on each task of graded pairs, with the interval and p-value of a paired test."""
    found: dict[str, PairedResult] = {}
    for item in rows:
        if item.task.kind != "graded-pairs":
            continue
        both = zip(*(pair_similarities(item, vectors, protocol) for vectors in (first, second)), strict=True)
        triples = [(before.grades, after.sims, before.sims) for before, after in both]
        found[item.task.name] = paired_test(triples, protocol.aggregation, resamples=resamples, seed=protocol.seed)
    return found


def spelt_out(item: TaskData, protocol: Protocol) -> dict[str, object]:
    """The parts of the protocol that this task's score depends on."""
    kinds = {"graded-pairs": _OF_PAIRS, "binary-pairs": _OF_BINARY}
    names = kinds.get(item.task.kind, _OF_TRANSFER)
    return {name: value for name, value in asdict(protocol).items() if name in names} | {"text": item.text}


def _is_transfer(item: TaskData) -> bool:
    return item.task.kind in ("classification", "pair-classification")


def _score(item: TaskData, vectors: Embedder, protocol: Protocol, reporter: Reporter) -> TaskScore:
    began = time.monotonic()
    scored = (
        _transfer(item, vectors, protocol, reporter) if _is_transfer(item) else score_pairs(item, vectors, protocol)
    )
    return TaskScore(
        task=item.task.name,
        title=item.task.title,
        metric=scored.metric,
        value=scored.value,
        interval=scored.interval,
        details=scored.details,
        notes=(*item.notes, *scored.notes),
        encoder=vectors.info,
        data=DataInfo(item.source, item.digest, sum(len(part) for part in item.parts), item.text),
        protocol=spelt_out(item, protocol),
        versions=versions("scipy", "scikit-learn"),
        date=time.strftime("%Y-%m-%d"),
        seconds=round(time.monotonic() - began, 2),
    )


def _transfer(item: TaskData, vectors: Embedder, protocol: Protocol, reporter: Reporter) -> Scored:
    vectors.prepare(item.sentences())
    with reporter.bar(item.task.title, None, "fits") as advance:
        done = 0

        def report(finished: int, total: int) -> None:
            nonlocal done
            advance(finished - done, f"of {total}")
            done = finished

        return score_transfer(item, vectors, protocol, report=report)
