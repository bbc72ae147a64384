"""One cell, from its method to its scores, in this process."""

from __future__ import annotations

import math
import pickle
import time
import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from selfguide.comparison.cells import Cell, CellFolder, CellRecord, SharedSetting
from selfguide.comparison.reuse import ENCODERS, ReusableCell, find_reusable_cell
from selfguide.comparison.texts import read_sentences
from selfguide.errors import InterruptedRun, SelfguideError, one_line
from selfguide.evaluation.embedder import embedder
from selfguide.evaluation.evaluate import score_all
from selfguide.evaluation.protocol import Protocol
from selfguide.evaluation.rows import TaskData
from selfguide.evaluation.sts import score_pairs
from selfguide.progress import Reporter
from selfguide.system import debugging, timestamp
from selfguide.training.configuration import RunConfig
from selfguide.versions import versions

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

TEXT, DEV, ROWS, ENCODER = "text.txt", "dev.tsv", "rows.pickle", "encoder"
"""Names in the work folder, which all cells of a comparison share."""


@dataclass(frozen=True)
class ScoringData:
    """What cells are scored on."""

    tasks: list[TaskData]
    dev: TaskData | None
    protocol: Protocol


@dataclass(frozen=True)
class CellJob:
    """A cell and the locations of everything it needs; a :class:`~selfguide.comparison.runner.SubprocessJob`."""

    cell: Cell
    setting: SharedSetting
    work: Path
    """Folder with the text, the dev pairs and the rows."""
    output: Path
    encoder: str
    """Name of the encoder to load; empty where it was given in Python and a copy of it is in the work folder."""
    keep: bool = False
    device: str = "auto"
    batch_size: int = 64
    command: str | None = None

    @property
    def kept_encoder(self) -> Path:
        """The folder of the finished encoder, if it is kept."""
        return self.output / ENCODERS / self.cell.stem

    @property
    def stem(self) -> str:
        """The name of its files."""
        return self.cell.stem

    def remove_record(self) -> None:
        """Remove the record that a former run left."""
        CellFolder(self.output).remove(self.cell)

    def find_record(self) -> CellRecord | None:
        """Return the record of the cell, or None."""
        return CellFolder(self.output).find(self.cell)

    def run(self) -> CellRecord:
        """Run the cell in this process.

        Returns:
            The record.
        """
        return run_cell(self)

    def record_failure(self, reason: str) -> CellRecord:
        """Write and return the record of a cell whose process left none.

        Args:
            reason: What is known about the end of the process.

        Returns:
            The record.
        """
        record = failed_record(self, reason)
        CellFolder(self.output).write(self.cell, record)
        return record


def run_cell(job: CellJob) -> CellRecord:
    """Train and score a cell, and write its file.

    Args:
        job: The cell.

    Returns:
        The record; an error becomes the record of a failed cell.

    Raises:
        InterruptedRun: The user stopped the run.
    """
    reporter = Reporter(quiet=True, main_process=False)  # warnings reach the cell's file
    try:
        record = _scored(job, reporter)
    except (InterruptedRun, KeyboardInterrupt):
        raise
    except SelfguideError as error:
        record = failed_record(job, str(error), reporter.warnings)
    except Exception as error:
        if debugging():
            traceback.print_exc()
        record = failed_record(job, f"{type(error).__name__}: {one_line(error)}", reporter.warnings)
    CellFolder(job.output).write(job.cell, record)
    return record


def failed_record(job: CellJob, error: str, warnings: list[str] | None = None) -> CellRecord:
    """Return the record of a cell without scores."""
    return CellRecord.of(
        job.cell, job.setting, error=error, warnings=tuple(warnings or ()), command=job.command, finished=timestamp()
    )


def _scored(job: CellJob, reporter: Reporter) -> CellRecord:
    import torch

    rows: ScoringData = pickle.loads((job.work / ROWS).read_bytes())
    began = time.monotonic()
    reused = find_reusable_cell(job.cell, job.setting, job.output) if job.keep else None
    encoder, steps = _trained(job, reused, reporter)
    trained = time.monotonic()
    vectors = embedder(encoder, batch_size=job.batch_size, name=job.cell.spec.label, reporter=reporter)
    found = score_all(vectors, rows.tasks, rows.protocol, reporter)
    # The dev score is that of the finished encoder, with all stages of a chain; training knows only the first one's.
    dev = score_pairs(rows.dev, vectors, replace(rows.protocol, bootstrap=0)).value if rows.dev else math.nan
    return CellRecord.of(
        job.cell,
        job.setting,
        scores=found.scores,
        dev_score=None if math.isnan(dev) else dev,  # JSON has no NaN
        steps=steps,
        seconds={"train": round(trained - began, 2), "evaluate": round(time.monotonic() - trained, 2)},
        warnings=tuple(dict.fromkeys(reporter.warnings)),
        begun_by=reused.label if reused else None,
        device=str(encoder.device),
        threads=torch.get_num_threads(),
        versions=versions("scipy", "scikit-learn"),
        command=job.command,
        finished=timestamp(),
    )


def _trained(job: CellJob, reused: ReusableCell | None, reporter: Reporter) -> tuple[SentenceTransformer, int]:
    """Return the encoder after the last stage, and the number of steps of all stages."""
    from selfguide.models.encoders import load, load_encoder
    from selfguide.runs.run import GIVEN_ENCODER, run

    encoder: SentenceTransformer | None = None
    steps, done = 0, 0
    if reused is not None:
        encoder, steps, done = load(reused.folder, device=job.device), reused.steps, reused.stages
    elif not job.encoder:
        encoder = load_encoder(job.work / ENCODER, device=job.device)
    for stage in job.cell.spec.stages[done:]:
        seed = {} if job.cell.seed is None else {"seed": job.cell.seed}
        config = RunConfig(
            text=job.setting.text,
            encoder=job.encoder or GIVEN_ENCODER,
            method=stage.method,
            options=stage.options,
            training=stage.training | seed,
            dev=str(job.work / DEV) if stage.tuned and job.setting.dev is not None else None,
        )
        output = job.kept_encoder if job.keep and stage is job.cell.spec.stages[-1] else None
        sentences = read_sentences(job.work / TEXT)
        encoder, record = run(config, output, reporter, sentences, encoder, overwrite=True, report=False)
        steps += record.steps
    assert encoder is not None
    return encoder, steps
