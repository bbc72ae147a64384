"""Training in stages: an earlier stage runs once, and a resumed run finds its weights.

The last stage of a method trains in the run's own work folder, as the only stage of others does. An earlier one trains in a
folder below it. When it is done, its weights and its record are kept there; the record is written last, under the name that
marks a checkpoint as complete, so that a run interrupted in a later stage counts as worth resuming.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors.torch import load_file, save_file
from torch import nn

from selfguide.progress import is_main_process
from selfguide.training.distributed import wait_for_everyone
from selfguide.training.trainer import COMPLETE, FitContext, TrainingOutcome, fine_tune

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

WEIGHTS = "stage.safetensors"


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
    finished: Callable[[SentenceTransformer], SentenceTransformer] | None = None,
) -> StageRecord:
    """Tune the student in a folder of that name, unless done already; else as :func:`~selfguide.training.trainer.fine_tune`."""
    work = context.work / name
    if (work / COMPLETE).is_file():
        student.load_state_dict(load_file(work / WEIGHTS, device=str(student.device)), strict=False)
        context.reporter.note(f"The stage {name!r} is finished already.")
        return _read_record(work)
    context.reporter.note(f"Stage {name!r}:")
    work.mkdir(exist_ok=True)
    outcome = fine_tune(student, make_loss, replace(context, work=work), finished=finished)
    if is_main_process():
        weights = {key: tensor.detach().contiguous().clone() for key, tensor in student.state_dict().items()}
        save_file(weights, work / WEIGHTS)
        _write_record(work, outcome)
    wait_for_everyone(context.settings)
    return _read_record(work)


def after_stage(earlier: StageRecord, outcome: TrainingOutcome) -> TrainingOutcome:
    """The last stage's outcome, with steps counted from the first stage's start."""
    return replace(
        outcome,
        steps=earlier.steps + outcome.steps,
        seconds=earlier.seconds + outcome.seconds,
        dev_scores=[*earlier.dev_scores, *((earlier.steps + step, score) for step, score in outcome.dev_scores)],
        best_step=None if outcome.best_step is None else earlier.steps + outcome.best_step,
    )


def _write_record(work: Path, outcome: TrainingOutcome) -> None:
    facts = {"steps": outcome.steps, "seconds": outcome.seconds, "dev_scores": outcome.dev_scores}
    fresh = work / "complete.tmp"
    fresh.write_text(json.dumps(facts), encoding="utf-8")
    fresh.replace(work / COMPLETE)


def _read_record(work: Path) -> StageRecord:
    facts = json.loads((work / COMPLETE).read_text(encoding="utf-8"))
    scores = tuple((int(step), float(score)) for step, score in facts["dev_scores"])
    return StageRecord(int(facts["steps"]), float(facts["seconds"]), scores)
