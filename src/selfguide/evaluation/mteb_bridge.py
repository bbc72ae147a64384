"""Scores from mteb, the Massive Text Embedding Benchmark, for any encoder that turns a list of sentences into an array.

mteb has well over a thousand tasks and fetches their data itself. :class:`MtebAdapter` gives it an object of its encoder
protocol, from a SentenceTransformer as well as from anything else with an ``encode``.
"""

from __future__ import annotations

import difflib
import inspect
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from sentence_transformers.util import cos_sim, pairwise_cos_sim

from selfguide.errors import SelfguideError, UsageError, one_line
from selfguide.evaluation.embedder import AnyEncoder, EncoderInfo, checked_vectors
from selfguide.models.encoders import load_encoder
from selfguide.progress import Reporter, quiet_datasets, quiet_loggers

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class MtebRow:
    """mteb's result for one encoder on one task."""

    task: str
    type: str
    """STS, Classification, Retrieval, …"""
    metric: str
    """The name of the task's main metric."""
    main_score: float
    """The main metric × 100, as everywhere in selfguide: the mean over the task's splits and subsets."""
    languages: tuple[str, ...]
    scores: dict[str, list[dict[str, Any]]]
    """Every metric as mteb returns it (not × 100): a list of subsets for each split."""
    dataset_revision: str
    mteb_version: str
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


def evaluate_mteb(
    encoder: AnyEncoder,
    task_names: str | Sequence[Any],
    *,
    output: str | Path | None = None,
    batch_size: int = 64,
    name: str | None = None,
    reporter: Reporter | None = None,
) -> list[MtebRow]:
    """Evaluate an encoder on tasks of mteb.

    Args:
        encoder: ``"mini"``, a folder, a hub name, or an object with ``encode(sentences)``.
        task_names: Names such as ``["STS12", "STSBenchmark"]`` or ``"STS12,STSBenchmark"``, or task objects of mteb.
        output: Folder for mteb's own result files, which its tools read; by default, none are written.
        batch_size: Sentences in a forward pass.
        name: Name of the encoder in these files; by default, the name it was loaded by.
        reporter: Where the progress bar goes; by default, nowhere.

    Returns:
        The results in the order of the tasks.

    Raises:
        UsageError: A task is unknown or not about text, or the object has no ``encode``.
        SelfguideError: mteb is not installed, or the data of a task cannot be loaded.
    """
    mteb = _mteb()
    tasks = [_task(mteb, item) for item in _items(task_names)]
    if isinstance(encoder, str | Path):
        adapter = MtebAdapter(load_encoder(encoder), name or str(encoder))
    else:
        adapter = MtebAdapter(encoder, name or type(encoder).__name__)

    rows = []
    with _quiet_mteb(), (reporter or Reporter(quiet=True)).bar("mteb", len(tasks), "tasks") as advance:
        store = None if output is None else mteb.ResultCache(cache_path=output)
        for task in tasks:
            with _loaded(task):
                # Never from the cache: mteb would take an older result for an encoder of the same name, whatever its weights.
                found = mteb.evaluate(
                    adapter,
                    task,
                    cache=store,
                    overwrite_strategy="always",
                    encode_kwargs={"batch_size": batch_size, "show_progress_bar": False},
                    show_progress_bar=False,
                    co2_tracker=False,
                )
                rows.append(_row(task, found.task_results[0]))
            advance(1, task.metadata.name)
    return rows


class MtebAdapter:
    """An encoder in mteb's encoder protocol: batches of a data loader in, vectors and similarities out.

    Sentences reach the encoder as they are; of the prompts that some encoders have, only one that the encoder sets itself
    is used. The similarity is the encoder's own where it has one, else the cosine.

    Args:
        encoder: An object with ``encode(sentences)``; ``batch_size`` is passed on if it takes one.
        name: Its name in mteb's result files.

    Raises:
        UsageError: The object has no ``encode``.
    """

    def __init__(self, encoder: AnyEncoder, name: str) -> None:
        if not callable(getattr(encoder, "encode", None)):
            raise UsageError(
                f"{type(encoder).__name__} has no encode(sentences); pass a SentenceTransformer, or an object that has one."
            )
        from mteb.models.model_meta import ModelMeta

        self.encoder = encoder
        accepted = inspect.signature(encoder.encode).parameters.values()
        self._takes_batch_size = any(item.name == "batch_size" or item.kind is item.VAR_KEYWORD for item in accepted)
        # mteb asks for owner/name. A folder is named by its last part, so that result files do not disclose its path.
        label = Path(name).resolve().name if Path(name).is_dir() else name
        label = label if "/" in label else f"selfguide/{label}"
        self.mteb_model_meta = ModelMeta.create_empty(overwrites={"name": label, "modalities": ["text"]})

    def encode(self, inputs: Iterable[Mapping[str, Any]], *, batch_size: int = 64, **_: Any) -> NDArray[np.float32]:
        """Return the vectors of all texts of a data loader, in order."""
        texts = [text for batch in inputs for text in batch["text"]]
        options = {"batch_size": batch_size} if self._takes_batch_size else {}
        info = EncoderInfo(f"{type(self.encoder).__name__}.encode", "", 0)
        return checked_vectors(self.encoder.encode(texts, **options), texts, info)

    def similarity(self, first: Any, second: Any) -> torch.Tensor:
        """Return the similarity of every vector of one side with every vector of the other."""
        return self._similarity("similarity", cos_sim, first, second)

    def similarity_pairwise(self, first: Any, second: Any) -> torch.Tensor:
        """Return the similarity of each vector of one side with the same row of the other."""
        return self._similarity("similarity_pairwise", pairwise_cos_sim, first, second)

    def _similarity(self, own: str, default: Any, first: Any, second: Any) -> torch.Tensor:
        measure = getattr(self.encoder, own, default)
        return torch.as_tensor(measure(torch.as_tensor(first).float(), torch.as_tensor(second).float()))


def _mteb() -> Any:
    if find_spec("mteb") is None:
        raise SelfguideError("Tasks of mteb need mteb, which is not installed: pip install 'selfguide[mteb]'")
    with _quiet_mteb():
        import mteb
    return mteb


def _items(task_names: str | Sequence[Any]) -> list[Any]:
    given = task_names.split(",") if isinstance(task_names, str) else task_names
    items = [item for item in (item.strip() if isinstance(item, str) else item for item in given) if item != ""]
    if not items:
        raise UsageError("No task of mteb is named; name at least one, such as STSBenchmark.")
    return items


def _task(mteb: Any, item: Any) -> Any:
    """Return the task of a name, or a task object itself, if its data are texts."""
    if isinstance(item, str):
        from mteb.get_tasks import TASK_LIST

        names = [task.metadata.name for task in TASK_LIST]
        if item not in names:
            by_lower_case = {name.lower(): name for name in names}
            close = difflib.get_close_matches(item.lower(), by_lower_case, n=3)
            near = " or ".join(repr(by_lower_case[name]) for name in close)
            hint = f"Did you mean {near}?" if near else "`mteb available-tasks` lists them."
            raise UsageError(f"mteb has no task {item!r}. {hint}")
        with _quiet_mteb():
            item = mteb.get_task(item)
    if "text" not in (modalities := list(item.metadata.modalities)) or len(modalities) > 1:
        raise UsageError(
            f"{item.metadata.name} is about {' and '.join(modalities)}; selfguide's encoders take text alone."
        )
    return item


@contextmanager
def _loaded(task: Any) -> Iterator[None]:
    """Load a task's data before mteb does, so that a missing network is not mistaken for a failure of the evaluation."""
    fresh = [part for part in getattr(task.metadata, "tasks", None) or [task] if not part.data_loaded]
    for part in fresh:
        try:
            part.load_data()
        except Exception as error:
            reason = one_line(error)[:300].rstrip(".")
            raise SelfguideError(
                f"The data of the mteb task {part.metadata.name} could not be loaded: {type(error).__name__}: {reason}. "
                "mteb fetches data from the Hugging Face hub; without a network, run it once where there is one and "
                "bring the cache along (HF_HOME names its folder), or use selfguide's own tasks with --data."
            ) from error
    try:
        yield
    finally:
        for part in fresh:
            part.unload_data()


def _row(task: Any, result: Any) -> MtebRow:
    newer = getattr(task.metadata, "superseded_by", None)
    return MtebRow(
        task=result.task_name,
        type=str(task.metadata.type),
        metric=str(task.metadata.main_score),
        main_score=100 * float(result.get_score()),
        languages=tuple(sorted(result.languages)),
        scores={split: [dict(subset) for subset in subsets] for split, subsets in result.scores.items()},
        dataset_revision=str(result.dataset_revision),
        mteb_version=str(result.mteb_version),
        notes=(f"mteb has a newer version of this task: {newer}.",) if newer else (),
    )


@contextmanager
def _quiet_mteb() -> Iterator[None]:
    """Silence the messages and bars of mteb and datasets; the results hold the same information."""
    with warnings.catch_warnings(), quiet_loggers("mteb", "datasets"), quiet_datasets():
        warnings.simplefilter("ignore")
        yield
