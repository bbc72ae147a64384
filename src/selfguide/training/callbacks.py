"""What is done beside the steps of a run: the bar and the clock, the best weights, Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import TrainerCallback

from selfguide.progress import Reporter
from selfguide.training.settings import TrainingSettings

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from transformers import TrainerControl, TrainerState

BEST_WEIGHTS = "best.safetensors"
DEV_METRIC = "spearman_cosine"


def dev_history(state: TrainerState) -> list[tuple[int, float]]:
    """The dev checks so far, from the trainer's own log, which checkpoints carry along."""
    return [
        (int(row["step"]), float(value))
        for row in state.log_history
        for name, value in row.items()
        if name.startswith("eval_") and name.endswith(DEV_METRIC)
    ]


def loss_history(state: TrainerState) -> list[tuple[int, float]]:
    """The losses so far, from the trainer's own log."""
    return [(int(row["step"]), float(row["loss"])) for row in state.log_history if "loss" in row]


class BestKeeper(TrainerCallback):
    """Keep the best weights by the dev pairs on disk; stop when they have not improved for ``patience`` checks.

    It has no state but the trainer's log, so that a resumed run decides as the uninterrupted one would.
    """

    def __init__(self, work: Path, patience: int) -> None:
        self.path = work / BEST_WEIGHTS
        self.patience = patience

    def on_evaluate(
        self, args: Any, state: TrainerState, control: TrainerControl, model: Any = None, **kwargs: Any
    ) -> None:
        scores = [score for _, score in dev_history(state)]
        *before, latest = scores
        if not before or latest > max(before):
            if state.is_world_process_zero:
                self._save(model, state.global_step, latest)
        elif self.patience and len(scores) - 1 - scores.index(max(scores)) >= self.patience:
            control.should_training_stop = True

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if state.global_step >= state.max_steps:  # the end is worth a check even between two regular ones
            control.should_evaluate = True

    def restore(self, student: SentenceTransformer) -> tuple[int, float]:
        """Put the best weights into the student; returns their step and score."""
        with safe_open(self.path, framework="pt") as file:
            note = file.metadata()
        student.load_state_dict(load_file(self.path, device=str(student.device)), strict=False)
        return int(note["step"]), float(note["score"])

    def _save(self, model: nn.Module, step: int, score: float) -> None:
        inner = getattr(model, "module", model)
        weights = {name: tensor.detach().contiguous().clone() for name, tensor in inner.state_dict().items()}
        fresh = self.path.with_suffix(".tmp")
        save_file(weights, fresh, metadata={"step": str(step), "score": repr(score)})
        fresh.replace(self.path)


class ProgressAndCheckpoints(TrainerCallback):
    """The live bar, the clock, and a checkpoint every few minutes."""

    def __init__(self, reporter: Reporter, settings: TrainingSettings, work: Path) -> None:
        self.reporter = reporter
        self.settings = settings
        self.work = work
        self.seconds = 0.0
        self.sentences = 0
        self._advance: Callable[[int, str], None] | None = None
        self._stack = contextlib.ExitStack()
        self._started = self._saved = time.monotonic()
        self._loss: float | None = None
        self._dev: float | None = None

    @contextlib.contextmanager
    def bar(self) -> Iterator[None]:
        """Close the bar however training ends."""
        with self._stack:
            yield

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._started = self._saved = time.monotonic()
        per_step = self._per_step(args)
        bar = self.reporter.bar("training", state.max_steps * per_step, "sentences")
        self._advance = self._stack.enter_context(bar)
        self._advance(state.global_step * per_step, "")

    def on_log(self, args: Any, state: TrainerState, control: TrainerControl, logs: Any = None, **kwargs: Any) -> None:
        if logs and "loss" in logs:
            self._loss = float(logs["loss"])

    def on_evaluate(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._dev = dev_history(state)[-1][1] if dev_history(state) else None

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self.sentences += self._per_step(args)
        self.seconds = time.monotonic() - self._started
        if self._advance is not None:
            loss = f"loss {self._loss:.3f}" if self._loss is not None else ""
            dev = f"  dev {100 * self._dev:.1f}" if self._dev is not None else ""
            self._advance(self._per_step(args), loss + dev)
        if (
            time.monotonic() - self._saved >= 60 * self.settings.checkpoint_minutes
            and state.global_step < state.max_steps
        ):
            control.should_save = True
            self._saved = time.monotonic()

    @staticmethod
    def _per_step(args: Any) -> int:
        return int(args.train_batch_size * args.gradient_accumulation_steps * args.world_size)


class StopOnSignal(TrainerCallback):
    """The first Ctrl-C (or SIGTERM) ends training after the step in hand, with a checkpoint; a second one ends it at once."""

    def __init__(self) -> None:
        self.asked = False

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

        def on_signal(number: int, frame: Any) -> None:
            self.asked = True
            for each, handler in before.items():
                signal.signal(each, handler)

        for number in before:
            signal.signal(number, on_signal)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self.asked:
            control.should_save = True
            control.should_training_stop = True
