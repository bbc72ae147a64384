"""Decide whether a run caches the guide's views, and make them; :mod:`selfguide.engine.view_cache` has the files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from selfguide.engine.cache import VIEWS, entries
from selfguide.engine.digest import weights_digest
from selfguide.engine.view_cache import CachedViews, ViewsKey, find, find_or_make, room_for, size_of
from selfguide.errors import SelfguideError
from selfguide.files import read_json, write_text
from selfguide.losses.shared_batch import for_all

if TYPE_CHECKING:
    from selfguide.losses.base import Preparation
    from selfguide.losses.self_guided import SelfGuidedLoss

KEEP_VIEWS = ("auto", "yes", "no", "fp16")
_DECISION = "views.json"


def kept_views(loss: SelfGuidedLoss, run: Preparation) -> CachedViews | None:
    """Find or make the cached views of a run's text.

    A resumed run decides as it did before, because cached views and views computed in the step differ in the last digits. The
    processes of a distributed run make them together, and all use them or none does.

    Args:
        loss: The loss whose guide makes the views.
        run: What is known about the run.

    Returns:
        The views, or ``None`` where the guide computes them in every step.
    """
    decision = run.work / _DECISION
    before = _decided(decision) if run.resume and decision.is_file() else None
    wanted = for_all(before if before is not None else _may_pay(loss, run), loss.device)
    store = _find_or_make(loss, run, insist=before is not None) if wanted else None
    if run.work.is_dir():
        write_text(decision, json.dumps({"kept": store is not None}))
    return store


def _decided(decision: Path) -> bool:
    try:
        kept: Any = read_json(decision)["kept"]
    except (OSError, ValueError, KeyError, TypeError):
        kept = None
    if not isinstance(kept, bool):
        raise SelfguideError(f"{decision} is damaged; start the run over with --overwrite.")
    return kept


def _may_pay(loss: SelfGuidedLoss, run: Preparation) -> bool:
    """Decide without hashing: text in several columns, or not tokenised before training, is not cached."""
    if loss.keep_views == "no" or run.text is None or run.columns != 1:
        return False
    return loss.keep_views != "auto" or _read_again(run) or bool(entries(VIEWS))


def _read_again(run: Preparation) -> bool:
    """Return whether the run reads any sentence more than once."""
    assert run.text is not None
    settings = run.settings
    read = settings.max_steps * settings.batch_size * settings.gradient_accumulation or settings.epochs * len(run.text)
    return read > len(run.text)


def _find_or_make(loss: SelfGuidedLoss, run: Preparation, insist: bool) -> CachedViews | None:
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
    width, limit = int(loss.guide.config.hidden_size), int(loss.keep_views_gb * 1e9)
    there = find(key, run.text, width)
    may_make = insist or loss.keep_views != "auto" or _read_again(run)
    size = size_of(len(run.text), len(loss.layers), width, key.kept_in)
    has_room = there is not None or room_for(size, limit)
    if not for_all(there is not None or (may_make and has_room), loss.device):
        if loss.keep_views != "auto" and not has_room:
            run.reporter.warn(
                f"the guide's views are not cached: they need {size / 1e9:.2f} GB, which is more than keep_views_gb allows "
                f"({loss.keep_views_gb:g}) or than the disk has free."
            )
        return None

    def compute(features: dict[str, Tensor]) -> Tensor:
        return loss.views({name: value.to(loss.device) for name, value in features.items()}).float()

    store = there if there is not None else find_or_make(key, run.text, compute, width, limit, run.reporter)
    return store if for_all(store is not None, loss.device) else None
