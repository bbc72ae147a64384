"""Whether a run keeps the guide's views, and how they are made; :mod:`selfguide.engine.view_cache` has the files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from torch import Tensor

from selfguide.engine.view_cache import (
    KeptViews,
    ViewsKey,
    cache_folder,
    find,
    find_or_make,
    room_for,
    size_of,
    weights_digest,
)

if TYPE_CHECKING:
    from selfguide.losses.base import Preparation
    from selfguide.losses.self_guided import SelfGuidedLoss

KEEP_VIEWS = ("auto", "yes", "no", "fp16")
_DECISION = "views.json"


def kept_views(loss: SelfGuidedLoss, run: Preparation) -> KeptViews | None:
    """The kept views of the run's text, found or made now; ``None`` where the guide is to be asked in every step.

    A resumed run does what it did before: views from a file and views from the step agree to the last digits only.
    """
    decision = run.work / _DECISION
    before: Any = json.loads(decision.read_text()) if run.resume and decision.is_file() else None
    wanted = before["kept"] if before is not None else _may_pay(loss, run)
    store = _find_or_make(loss, run, insist=before is not None) if wanted else None
    if run.work.is_dir():
        decision.write_text(json.dumps({"kept": store is not None}))
    return store


def _may_pay(loss: SelfGuidedLoss, run: Preparation) -> bool:
    """What can be said before anything is hashed. Text in several columns, or not tokenised ahead, has no store."""
    if loss.keep_views == "no" or run.text is None or run.columns != 1:
        return False
    return loss.keep_views != "auto" or _read_again(run) or any(cache_folder().glob("views-*.npy"))


def _read_again(run: Preparation) -> bool:
    """Whether the run reads some sentence more than once."""
    assert run.text is not None
    settings = run.settings
    read = settings.max_steps * settings.batch_size * settings.gradient_accumulation or settings.epochs * len(run.text)
    return read > len(run.text)


def _find_or_make(loss: SelfGuidedLoss, run: Preparation, insist: bool) -> KeptViews | None:
    assert run.text is not None
    half = loss.keep_views == "fp16" or run.half is not None
    key = ViewsKey(
        encoder=weights_digest(loss.guide),
        tokens=run.text.fingerprint,
        pooling=loss.view_pooling,
        layers=loss.layers,
        computed_in=str(run.half or next(loss.guide.parameters()).dtype).removeprefix("torch."),
        kept_in="float16" if half else "float32",
    )
    there = find(key)
    if there is not None or not (insist or loss.keep_views != "auto" or _read_again(run)):
        return there
    width, limit = int(loss.guide.config.hidden_size), int(loss.keep_views_gb * 1e9)
    size = size_of(len(run.text), len(loss.layers), width, key.kept_in)
    if not room_for(size, limit):
        if loss.keep_views != "auto":
            run.reporter.warn(
                f"the guide's views are not kept: they need {size / 1e9:.2f} GB, which is more than keep_views_gb allows "
                f"({loss.keep_views_gb:g}) or than the disk can spare."
            )
        return None

    def compute(features: dict[str, Tensor]) -> Tensor:
        return loss.views({name: value.to(loss.device) for name, value in features.items()}).float()

    return find_or_make(key, run.text, compute, width, limit, run.reporter)
