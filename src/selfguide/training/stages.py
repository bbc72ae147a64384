"""Training in stages: an earlier stage runs once, and a resumed run reuses its weights.

The last stage of a method trains in the run's own work folder, like the only stage of others. An earlier one trains in a
subfolder, which keeps its weights and its record. The record is written last, under the name that marks a checkpoint as
complete, so that a run interrupted in a later stage counts as resumable.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors.torch import load_file, save_file
from torch import nn

from selfguide.errors import SelfguideError
from selfguide.progress import is_main_process
from selfguide.training.callbacks import saveable_weights
from selfguide.training.checkpoints import COMPLETE_FILE, completeness_problem, write_complete
from selfguide.training.distributed import wait_for_everyone
from selfguide.training.trainer import FitContext, TrainingOutcome, fine_tune

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

STAGE_WEIGHTS = "stage.safetensors"


@dataclass(frozen=True)
class StageRecord:
    """What an earlier stage did."""

    steps: int
    seconds: float
    dev_scores: tuple[tuple[int, float], ...] = ()


def earlier_stage(
    student: SentenceTransformer,
    make_loss: Callable[[SentenceTransformer], nn.Module],
    context: FitContext,
    name: str,
    deployable: Callable[[SentenceTransformer], SentenceTransformer] | None = None,
) -> StageRecord:
    """Train the student in a stage before the last, or load its weights if the stage is complete already.

    Args:
        student: The encoder to tune, in place.
        make_loss: See :func:`~selfguide.training.trainer.fine_tune`.
        context: That of the run; the stage works in a subfolder of its work folder.
        name: Name of the stage and of its folder.
        deployable: See :func:`~selfguide.training.trainer.fine_tune`.

    Returns:
        The record of the stage, for :func:`combine_stages`.
    """
    work = context.work / name
    if (work / COMPLETE_FILE).is_file():
        problem = completeness_problem(work)
        if problem is not None:
            raise SelfguideError(
                f"The finished stage {name!r} is damaged: {problem}. Bring the file back, or start over with --overwrite."
            )
        student.load_state_dict(load_file(work / STAGE_WEIGHTS, device=str(student.device)), strict=False)
        context.reporter.note(f"The stage {name!r} is finished already.")
        return _read_record(work)
    context.reporter.note(f"Stage {name!r}:")
    work.mkdir(exist_ok=True)
    outcome = fine_tune(student, make_loss, replace(context, work=work), deployable=deployable)
    if is_main_process():
        save_file(saveable_weights(student), work / STAGE_WEIGHTS)
        for checkpoint in work.glob("checkpoint-*"):  # no longer needed
            shutil.rmtree(checkpoint, ignore_errors=True)
        facts = {"steps": outcome.steps, "seconds": outcome.seconds, "dev_scores": outcome.dev_scores}
        write_complete(work, facts)
    wait_for_everyone(context.settings)
    return _read_record(work)


def combine_stages(earlier: StageRecord, outcome: TrainingOutcome) -> TrainingOutcome:
    """Return the last stage's outcome with steps, seconds and dev scores counted from the earlier stage's start."""
    return replace(
        outcome,
        steps=earlier.steps + outcome.steps,
        seconds=earlier.seconds + outcome.seconds,
        dev_scores=[*earlier.dev_scores, *((earlier.steps + step, score) for step, score in outcome.dev_scores)],
        best_step=None if outcome.best_step is None else earlier.steps + outcome.best_step,
    )


def _read_record(work: Path) -> StageRecord:
    facts = json.loads((work / COMPLETE_FILE).read_text(encoding="utf-8"))
    scores = tuple((int(step), float(score)) for step, score in facts["dev_scores"])
    return StageRecord(int(facts["steps"]), float(facts["seconds"]), scores)
