"""``selfguide.evaluate``: one encoder, any tasks, one protocol."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from selfguide.engine.vocabulary_fit import foreign_text
from selfguide.errors import UsageError
from selfguide.evaluation.clustering import score_clustering
from selfguide.evaluation.data import data_folder, find_data, own_pairs, retrieval_tasks
from selfguide.evaluation.embedder import AnyEncoder, Embedder, EncoderInfo, embedder
from selfguide.evaluation.few_shot import score_few_shot
from selfguide.evaluation.protocol import Protocol, Scored
from selfguide.evaluation.results import DataInfo, Evaluation, ScoreFolder, TaskScore
from selfguide.evaluation.retrieval import score_retrieval
from selfguide.evaluation.rows import TaskData
from selfguide.evaluation.significance import PairedResult, paired_test
from selfguide.evaluation.sts import pair_similarities, score_pairs
from selfguide.evaluation.tasks import RETRIEVAL, Kind, Task, split_names, tasks_named
from selfguide.evaluation.transfer import score_transfer
from selfguide.progress import Reporter, counted
from selfguide.versions import versions

# What a task's score depends on; nothing else is in the protocol that is written beside it.
_SAMPLED = 500
_PROTOCOL: dict[Kind, tuple[str, ...]] = {
    "graded-pairs": ("similarity", "aggregation", "text", "bootstrap", "seed"),
    "binary-pairs": ("similarity", "text", "bootstrap", "seed"),
    "classification": ("text", "bootstrap", "folds", "seed"),
    "pair-classification": ("text", "bootstrap", "folds", "seed"),
    "few-shot": ("text", "bootstrap", "seed", "examples", "draws"),
    "clustering": ("text", "bootstrap", "seed", "draws"),
    "retrieval": ("similarity", "text", "bootstrap", "seed"),
}


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
    """Score an encoder on similarity, transfer and retrieval tasks, or on pairs and retrieval sets of your own.

    Each distinct sentence is encoded once. Every score comes with its 95 % interval, the protocol, the digests of the
    encoder and of the rows, and the versions of the libraries.

    Args:
        encoder: ``"mini"``, a folder, a hub name, a SentenceTransformer, a function of a list of sentences, an object with
            ``encode``, or ``"package.module:function"``.
        tasks: Names and groups: ``"sts"`` (the papers' seven sets), ``"transfer"``, ``"stsb,sts17-en-en"``, ``"demo"``,
            ``"retrieval"`` (every retrieval set of the data folder, BEIR's among them).
        pairs: Files of your own: grade, sentence, sentence. Pairs whose grades are all 0 or 1 are scored as binary.
        data: Folder with the tasks' files. Default: the environment variable ``SELFGUIDE_DATA``, else the hub.
        pooling: Another pooling of a Transformer encoder than its own: ``cls``, ``mean``, ``max``, ``last2``, ``first-last``.
        layer: Another layer of a Transformer encoder than its own; 0 is the embedding layer's output, -1 the last.
        similarity: ``cosine``, ``dot``, ``euclidean`` or ``manhattan``.
        aggregation: A task's subsets as one list (``all``, the papers' setting), or the ``mean`` or ``wmean`` of theirs.
        text: ``raw``, as released, or ``senteval``, tokenised and lower-cased as SentEval does it.
        bootstrap: Resamples for the 95 % intervals; 0: none.
        seed: Seed of the resamples and of the folds of transfer tasks.
        output: Folder for ``scores.json`` and ``scores.csv``; scores that it holds are not computed again.
        again: Recompute them.
        allow_partial: Score files that have fewer rows than the papers' (a note says so) instead of refusing them.
        download: Whether to look on the Hugging Face hub for what the data folder does not have.
        device: ``"cpu"``, ``"cuda"``, ``"mps"``; None for the best there is.
        batch_size: Sentences in a forward pass.
        name: Name of the encoder in the results. Default: its folder or hub name.
        quiet: Show no progress bars and notes.

    Returns:
        The scores, all × 100: by task (``found["stsb"]``), and averaged over complete groups (``found.averages()``).

    Raises:
        UsageError: A task, an option or the encoder is unknown.
        SelfguideError: The data of a task is missing or incomplete, or the encoder does not return one finite vector for
            each sentence.

    Example::

        found = selfguide.evaluate("mini", "sts", pooling="mean", data="data", output="scores")
        print(found.averages()["sts"])                               # the average of the papers' tables
        print(found["stsb"].value, found["stsb"].interval)           # a score and its 95 % interval
        selfguide.evaluate(my_function, "", pairs="mydomain.tsv")    # any function of a list of sentences
    """
    reporter = Reporter(quiet=quiet)
    protocol = Protocol(similarity, aggregation, text, bootstrap, seed=seed)  # type: ignore[arg-type]
    rows = load_tasks(tasks, pairs, data, protocol, allow_partial=allow_partial, download=download, reporter=reporter)
    vectors = embedder(
        encoder, pooling=pooling, layer=layer, device=device, batch_size=batch_size, name=name, reporter=reporter
    )
    warn_of_languages(vectors.tokenizer, vectors.info.name, rows, reporter)
    return score_all(vectors, rows, protocol, reporter, output=Path(output) if output else None, again=again)


def load_tasks(
    tasks: str | Iterable[str],
    pairs: str | Path | Iterable[str | Path],
    data: str | Path | None,
    protocol: Protocol,
    *,
    allow_partial: bool = False,
    download: bool = True,
    reporter: Reporter | None = None,
) -> list[TaskData]:
    """Read the rows of every task and of the user's own files, in the order given, before anything runs.

    The arguments are those of :func:`evaluate`.

    Returns:
        The rows of each task.

    Raises:
        SelfguideError: Rows are missing, or a task is unknown.
        UsageError: Two files or tasks have the same name.
    """
    files = [pairs] if isinstance(pairs, str | Path) else list(pairs)
    folder = data_folder(data)
    found = [
        find_data(
            task,
            folder=folder,
            text=protocol.text,
            allow_partial=allow_partial,
            download=download,
            reporter=reporter,
        )
        for task in (_tasks(tasks, folder) if tasks or not files else ())
    ]
    found += [own_pairs(path) for path in files]
    names = [item.task.name for item in found]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"Two sets are called {name!r}; rename one of the files or folders.")
    return found


def _tasks(names: str | Iterable[str], folder: Path | None) -> tuple[Task, ...]:
    """Return the tasks of some names; ``retrieval`` stands for the retrieval sets that the data folder has, if any."""
    words = split_names(names)
    own = retrieval_tasks(folder) if folder is not None and RETRIEVAL in words else ()
    if not own:
        return tasks_named(words)
    found = [task for word in words for task in (own if word == RETRIEVAL else tasks_named(word))]
    return tuple({task.name: task for task in found}.values())


def score_all(
    vectors: Embedder,
    rows: list[TaskData],
    protocol: Protocol,
    reporter: Reporter,
    *,
    output: Path | None = None,
    again: bool = False,
    command: str | None = None,
) -> Evaluation:
    """Score an encoder on every task that has no score yet.

    Args:
        vectors: The encoder.
        rows: The tasks.
        protocol: How scores are made.
        reporter: Where notes and progress bars go.
        output: Folder that keeps the scores, each as soon as it is computed.
        again: Recompute scores that the folder holds already.
        command: The command line, for the record.

    Returns:
        The scores in the order of the tasks.
    """
    if output is None:
        return _score_due(vectors, rows, protocol, reporter, None, again)
    store = ScoreFolder(output, command)
    with store.announced(reporter):
        return _score_due(vectors, rows, protocol, reporter, store, again)


def _score_due(
    vectors: Embedder,
    rows: list[TaskData],
    protocol: Protocol,
    reporter: Reporter,
    store: ScoreFolder | None,
    again: bool,
) -> Evaluation:
    known: dict[str, TaskScore] = {}
    if store is not None and not again:
        for item in rows:
            former = store.find(item.task.name, vectors.info, item.digest, _task_protocol(item, protocol))
            if former is not None:
                known[item.task.name] = _as_score_of(former, vectors.info, store)
    if known:
        reporter.note(
            f"{vectors.info.name}: {len(known)} of {counted(len(rows), 'task')} scored before; --again repeats them."
        )
    due = [item for item in rows if item.task.name not in known]
    # All pairs together; other tasks are larger and are encoded one by one, so that their memory is needed late.
    vectors.prepare(sentence for item in due if item.task.has_pairs for sentence in item.sentences())
    for item in due:
        score = None
        if store is not None and not again:  # another process may have scored it meanwhile
            score = store.find(item.task.name, vectors.info, item.digest, _task_protocol(item, protocol))
            score = score and _as_score_of(score, vectors.info, store)
        if score is None:
            score = _score(item, vectors, protocol, reporter)
            if store is not None:
                score = store.add(replace(score, device=vectors.device))
        known[item.task.name] = score
    return Evaluation(vectors.info, tuple(known[item.task.name] for item in rows))


def warn_of_languages(tokenizer: Any, name: str, rows: Iterable[TaskData], reporter: Reporter) -> None:
    """Warn of tasks of graded pairs whose language an encoder's tokenizer hardly knows.

    Args:
        tokenizer: The tokenizer; nothing is said without one, as for a Python function.
        name: What to call the encoder.
        rows: The tasks.
        reporter: Gets the warning.
    """
    foreign = []
    for item in rows:
        sentences = item.sentences() if item.task.has_pairs else []
        if foreign_text(tokenizer, sentences[:: max(1, len(sentences) // _SAMPLED)]):
            foreign.append(item.task.title)
    if foreign:
        reporter.warn(
            f"the tokenizer of {name} hardly knows the language of {', '.join(foreign)}; choose an encoder that was made for it."
        )


def _as_score_of(found: TaskScore, encoder: EncoderInfo, store: ScoreFolder) -> TaskScore:
    """Return a stored score under the name of this encoder, whose weights are the same; another name gets a row of its own."""
    if found.encoder.name == encoder.name:
        return found
    return store.add(replace(found, encoder=encoder))


def paired(
    first: Embedder, second: Embedder, rows: Iterable[TaskData], protocol: Protocol, resamples: int = 5000
) -> dict[str, PairedResult]:
    """Test the difference of two encoders on each task of graded pairs.

    Args:
        first: The encoder to compare with.
        second: The other encoder.
        rows: The tasks; those without graded pairs are left out.
        protocol: How scores are made.
        resamples: Resamples of each test; see :func:`~selfguide.evaluation.significance.paired_test`.

    Returns:
        For each task, the score of ``second`` minus that of ``first`` with its interval and p-value.
    """
    found: dict[str, PairedResult] = {}
    for item in rows:
        if item.task.kind == "graded-pairs":
            both = zip(*(pair_similarities(item, vectors, protocol) for vectors in (first, second)), strict=True)
            triples = [(before.grades, after.sims, before.sims) for before, after in both]
            found[item.task.name] = paired_test(triples, protocol.aggregation, resamples=resamples, seed=protocol.seed)
    return found


def _task_protocol(item: TaskData, protocol: Protocol) -> dict[str, object]:
    """Return the settings that this task's score depends on, with the form of text that was found."""
    used = _PROTOCOL[item.task.kind]
    return {name: value for name, value in asdict(protocol).items() if name in used} | {"text": item.text}


def _score(item: TaskData, vectors: Embedder, protocol: Protocol, reporter: Reporter) -> TaskScore:
    began = time.monotonic()
    return _record(item, _SCORERS[item.task.kind](item, vectors, protocol, reporter), vectors, protocol, began)


def _record(item: TaskData, scored: Scored, vectors: Embedder, protocol: Protocol, began: float) -> TaskScore:
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
        protocol=_task_protocol(item, protocol),
        versions=versions("scipy", "scikit-learn"),
        date=time.strftime("%Y-%m-%d"),
        seconds=round(time.monotonic() - began, 2),
    )


def _transfer(item: TaskData, vectors: Embedder, protocol: Protocol, reporter: Reporter) -> Scored:
    vectors.prepare(item.sentences())
    with reporter.bar(item.task.title, None, "fits") as advance:
        return score_transfer(item, vectors, protocol, report=lambda _, total: advance(1, f"of {total}"))


def _pairs(item: TaskData, vectors: Embedder, protocol: Protocol, reporter: Reporter) -> Scored:
    return score_pairs(item, vectors, protocol)


def _few_shot(item: TaskData, vectors: Embedder, protocol: Protocol, reporter: Reporter) -> Scored:
    vectors.prepare(item.sentences())
    with reporter.bar(item.task.title, protocol.draws, "draws") as advance:
        return score_few_shot(item, vectors, protocol, advance)


def _clustering(item: TaskData, vectors: Embedder, protocol: Protocol, reporter: Reporter) -> Scored:
    vectors.prepare(item.sentences())
    with reporter.bar(item.task.title, protocol.draws, "draws") as advance:
        return score_clustering(item, vectors, protocol, advance)


def _retrieval(item: TaskData, vectors: Embedder, protocol: Protocol, reporter: Reporter) -> Scored:
    documents = len(item.retrieval) if item.retrieval is not None else None
    with reporter.bar(item.task.title, documents, "documents") as advance:
        return score_retrieval(item, vectors, protocol, advance)


_SCORERS: dict[Kind, Callable[[TaskData, Embedder, Protocol, Reporter], Scored]] = {
    "graded-pairs": _pairs,
    "binary-pairs": _pairs,
    "classification": _transfer,
    "pair-classification": _transfer,
    "few-shot": _few_shot,
    "clustering": _clustering,
    "retrieval": _retrieval,
}
