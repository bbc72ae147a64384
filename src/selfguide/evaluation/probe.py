"""The score of every layer × pooling of an encoder, from one pass over the text (Figure 1 of Kim, Yoo and Lee, ACL 2021).

For each layer k = 0..l and each pooling, the sentence vector is the pooled hidden state of that layer, and the score is
the Spearman correlation of cosine and grade over the pairs of a task.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from selfguide.correlation import spearman
from selfguide.errors import SelfguideError, UsageError
from selfguide.evaluation.rows import TaskData
from selfguide.files import reserve
from selfguide.models.encoders import backbone, input_names, load_encoder
from selfguide.models.layers import hidden_states, model_inputs, pool
from selfguide.options import AtLeast, check
from selfguide.progress import Reporter
from selfguide.versions import versions

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer

PROBE_POOLINGS = ("cls", "mean", "max")
# Vectors are kept in memory up to this many bytes, and in a temporary file beyond. Half precision would not do: the
# [CLS] vectors of low layers are so alike that their cosines differ only in the fifth decimal.
MEMORY_LIMIT = 4 * 2**30
# A range of cosines smaller than this is rounding, whose ranks would mean nothing.
_ROUNDING = 1e-6


class LayerScore(NamedTuple):
    """The score of one layer with one pooling."""

    pooling: str
    layer: int
    score: float


@dataclass(frozen=True)
class ProbeResult:
    """Spearman × 100 for every pooling and layer of one encoder on one task."""

    encoder: str
    task: str
    """The task's title."""
    rows: int
    sentences: int
    """The number of distinct sentences."""
    source: str
    digest: str
    """Digest of the task's rows."""
    text: str
    layers: tuple[int, ...]
    poolings: tuple[str, ...]
    scores: tuple[tuple[float, ...], ...]
    """``scores[pooling][layer]``; NaN where all pairs have the same cosine, as with [CLS] in layer 0."""
    notes: tuple[str, ...]
    date: str
    versions: dict[str, str]

    @property
    def best(self) -> LayerScore:
        """The layer and pooling with the highest score."""
        return max(self.cells(), key=lambda cell: cell.score)

    @property
    def worst(self) -> LayerScore:
        """The layer and pooling with the lowest score."""
        return min(self.cells(), key=lambda cell: cell.score)

    def cells(self) -> list[LayerScore]:
        """Return every layer and pooling that has a score."""
        return [
            LayerScore(pooling, layer, score)
            for pooling, row in zip(self.poolings, self.scores, strict=True)
            for layer, score in zip(self.layers, row, strict=True)
            if not math.isnan(score)
        ]

    def table(self) -> list[tuple[str, ...]]:
        """Return rows of text: a heading, then a row for each layer with a column for each pooling."""
        body = [
            (str(layer), *("–" if math.isnan(score) else f"{score:.2f}" for score in scores))
            for layer, scores in zip(self.layers, zip(*self.scores, strict=True), strict=True)
        ]
        return [("layer", *self.poolings), *body]

    def summary(self) -> str:
        """Return the best and the worst cell in a sentence."""
        best, worst = self.best, self.worst
        return (
            f"Best: {best.pooling} of layer {best.layer} with {best.score:.2f}; "
            f"worst: {worst.pooling} of layer {worst.layer} with {worst.score:.2f}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the fields and the best and worst cell for JSON; a cell without a score is None."""
        known = [[None if math.isnan(score) else score for score in row] for row in self.scores]
        extremes = {"best": self.best._asdict(), "worst": self.worst._asdict()}
        return asdict(self) | {"metric": "spearman cosine all", "scores": known} | extremes


def probe(
    encoder: str | Path | SentenceTransformer,
    data: TaskData,
    *,
    poolings: Sequence[str] = PROBE_POOLINGS,
    batch_size: int = 64,
    reporter: Reporter | None = None,
    name: str | None = None,
) -> ProbeResult:
    """Score every layer and pooling of an encoder on a task of graded pairs.

    Args:
        encoder: ``"mini"``, a folder, a hub name or a loaded SentenceTransformer.
        data: The pairs, as :func:`selfguide.evaluation.data.find_data` returns them; all parts count as one list.
        poolings: Some of ``cls``, ``mean`` and ``max``.
        batch_size: Sentences in a forward pass.
        reporter: Where the progress bar and the notes go; by default, nowhere.
        name: Name of the encoder in the result; by default, its folder or hub name.

    Returns:
        The scores.

    Raises:
        UsageError: A pooling is unknown, or the task has no graded pairs.
        SelfguideError: All pairs have the same grade, or the same cosine in every layer.
    """
    poolings = check_poolings(poolings)
    check("batch_size", batch_size, AtLeast(1))
    first, second, grades = _pairs(data)
    reporter = reporter or Reporter(quiet=True)
    model = load_encoder(encoder)

    sentences = list(dict.fromkeys([*first, *second]))
    vectors = layer_vectors(model, sentences, poolings, batch_size, reporter)
    index = {sentence: number for number, sentence in enumerate(sentences)}
    left, right = [index[sentence] for sentence in first], [index[sentence] for sentence in second]
    scores = tuple(tuple(_spearman(layer[left], layer[right], grades) for layer in rows) for rows in vectors)
    if all(math.isnan(score) for row in scores for score in row):
        raise SelfguideError(
            f"{data.task.title}: all pairs have the same cosine with this encoder, so there is nothing to rank."
        )
    return ProbeResult(
        encoder=_encoder_name(name or encoder),
        task=data.task.title,
        rows=len(grades),
        sentences=len(sentences),
        source=data.source,
        digest=data.digest,
        text=data.text,
        layers=tuple(range(vectors.shape[1])),
        poolings=poolings,
        scores=scores,
        notes=data.notes,
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        versions=versions("scipy"),
    )


def check_poolings(poolings: Sequence[str]) -> tuple[str, ...]:
    """Return the poolings, if they are known and each is named once.

    Raises:
        UsageError: One is unknown or named twice, or there is none.
    """
    for pooling in poolings:
        if pooling not in PROBE_POOLINGS:
            raise UsageError(f"There is no pooling {pooling!r} to probe; choose among {', '.join(PROBE_POOLINGS)}.")
    if not poolings or len(set(poolings)) != len(poolings):
        raise UsageError(f"Name at least one of the poolings {', '.join(PROBE_POOLINGS)}, and none twice.")
    return tuple(poolings)


def _encoder_name(encoder: str | Path | SentenceTransformer) -> str:
    if not isinstance(encoder, str | Path):
        encoder = str(getattr(backbone(encoder).config, "_name_or_path", "") or "unnamed encoder")
    return Path(encoder).resolve().name if Path(encoder).is_dir() else str(encoder)


def layer_vectors(
    encoder: SentenceTransformer, sentences: Sequence[str], poolings: Sequence[str], batch_size: int, reporter: Reporter
) -> NDArray[np.float32]:
    """Compute the vectors of sentences in every layer, from one forward pass for each batch.

    Args:
        encoder: The encoder.
        sentences: The sentences; at least one.
        poolings: The poolings.
        batch_size: Sentences in a forward pass.
        reporter: Where the progress bar and the notes go.

    Returns:
        Vectors of length 1, shape (poolings, layers, sentences, dimension), in a temporary file where they are large.
    """
    model, names = backbone(encoder), input_names(encoder)
    model.eval()
    vectors: NDArray[np.float32] | None = None
    # Sentences of similar length share a batch, so that there is hardly any padding to compute (packing them would gain
    # nothing more); the longest come first, so that a batch too large for the device fails at once.
    order = sorted(range(len(sentences)), key=lambda number: -len(sentences[number]))
    with torch.inference_mode(), reporter.bar("encoding", len(sentences), "sentences") as advance:
        for start in range(0, len(order), batch_size):
            numbers = order[start : start + batch_size]
            features = encoder.preprocess([sentences[number] for number in numbers])
            inputs = {name: value.to(encoder.device) for name, value in model_inputs(features, names).items()}
            states = hidden_states(model, inputs)
            views = torch.stack(
                [
                    torch.nn.functional.normalize(pool(layer, inputs["attention_mask"], pooling).float(), dim=-1)
                    for pooling in poolings
                    for layer in states
                ]
            )
            shape = (len(poolings), len(states), len(sentences), views.shape[-1])
            if vectors is None:
                vectors = _allocated(shape, reporter)
            vectors[:, :, numbers] = views.view(*shape[:2], *views.shape[1:]).cpu().numpy()
            advance(len(numbers), "")
    assert vectors is not None
    return vectors


def _allocated(shape: tuple[int, int, int, int], reporter: Reporter) -> NDArray[np.float32]:
    """Allocate all vectors in memory, or in a temporary file that goes away with the array."""
    size = 4 * math.prod(shape)
    if size <= MEMORY_LIMIT:
        return np.empty(shape, dtype=np.float32)
    folder = tempfile.gettempdir()
    takes = f"The vectors of {shape[2]:,} sentences in {shape[1]} layers take {size / 2**30:.1f} GiB"
    # Checked beforehand: a memory-mapped file on a full disk ends the process without a message.
    if shutil.disk_usage(folder).free < size:
        raise SelfguideError(
            f"{takes}, more than is free in {folder}. Name fewer --poolings, or a folder with more room in TMPDIR."
        )
    reporter.note(f"{takes}; they are kept in a temporary file.")
    with tempfile.TemporaryFile() as file:
        vectors = np.memmap(file, dtype=np.float32, mode="w+", shape=shape)
        reserve(file)
        return vectors


def _pairs(data: TaskData) -> tuple[list[str], list[str], list[float]]:
    """Return all parts of a task as one list of pairs."""
    first: list[str] = []
    second: list[str] = []
    grades: list[float] = []
    for rows in data.parts:
        if rows.second is None or rows.grades is None:
            raise UsageError(f"{data.task.title} has no graded pairs; probe a task that has, such as stsb.")
        first += rows.first
        second += rows.second
        grades += rows.grades
    if len(set(grades)) < 2:
        raise SelfguideError(
            f"{data.task.title} has {len(grades)} pairs with {len(set(grades))} different grades; a rank correlation needs "
            "at least two."
        )
    return first, second, grades


def _spearman(left: NDArray[Any], right: NDArray[Any], grades: Sequence[float]) -> float:
    cosines = np.einsum("pd,pd->p", left, right, dtype=np.float64)
    if not np.isfinite(cosines).all():
        raise SelfguideError("The encoder gives vectors that are not finite numbers; its weights are damaged.")
    if np.ptp(cosines) < _ROUNDING:
        return math.nan
    return 100 * spearman(cosines, grades)
