"""Trainer callbacks: the best weights on dev pairs, progress and checkpoints, a clean stop on Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import TrainerCallback

from selfguide.engine.digest import tensors_digest
from selfguide.errors import SelfguideError
from selfguide.files import atomic_path
from selfguide.progress import Reporter
from selfguide.training.distributed import Agreement
from selfguide.training.settings import TrainingSettings

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from transformers import TrainerControl, TrainerState

BEST_WEIGHTS = "best.safetensors"
DEV_METRIC = "spearman_cosine"


def dev_history(state: TrainerState) -> list[tuple[int, float]]:
    """Return (step, score) of every dev evaluation, from the trainer's log, which checkpoints include."""
    return [
        (int(row["step"]), float(value))
        for row in state.log_history
        for name, value in row.items()
        if name.startswith("eval_") and name.endswith(DEV_METRIC)
    ]


def loss_history(state: TrainerState) -> list[tuple[int, float]]:
    """Return (step, mean loss since the previous entry) from the trainer's log."""
    return [(int(row["step"]), float(row["loss"])) for row in state.log_history if "loss" in row]


def saveable_weights(model: nn.Module) -> dict[str, Any]:
    """Return copies of a model's weights that safetensors can save: contiguous, and no two sharing memory."""
    return {name: tensor.detach().contiguous().clone() for name, tensor in model.state_dict().items()}


class BestWeights(TrainerCallback):
    """Save the weights with the best dev score; stop when ``patience`` evaluations brought no better one.

    Its only state is the trainer's log, so that a resumed run decides as the uninterrupted one would.
    """

    def __init__(self, work: Path, patience: int) -> None:
        self.path = work / BEST_WEIGHTS
        self.patience = patience

    def on_evaluate(
        self, args: Any, state: TrainerState, control: TrainerControl, model: Any = None, **kwargs: Any
    ) -> None:
        """Save the weights if they are the best so far; otherwise stop when patience is exhausted."""
        scores = [score for _, score in dev_history(state)]
        *before, latest = scores
        if not before or latest > max(before):
            if state.is_world_process_zero:
                weights = saveable_weights(getattr(model, "module", model))
                metadata = {"step": str(state.global_step), "score": repr(latest), "digest": tensors_digest(weights)}
                with atomic_path(self.path) as temporary:
                    save_file(weights, temporary, metadata=metadata)
        elif self.patience and len(scores) - 1 - scores.index(max(scores)) >= self.patience:
            control.should_training_stop = True

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Evaluate after the last step too, even if no regular evaluation is due."""
        if state.global_step >= state.max_steps:
            control.should_evaluate = True

    def restore(self, student: SentenceTransformer) -> tuple[int, float]:
        """Load the best weights into the student.

        Args:
            student: The model in training.

        Returns:
            The step that they come from, and their dev score.

        Raises:
            SelfguideError: The file is damaged or gone.
        """
        try:
            with safe_open(self.path, framework="pt") as file:
                metadata = file.metadata()
            weights = load_file(self.path)
            damaged = metadata.get("digest", "") not in ("", tensors_digest(weights))
            found = int(metadata["step"]), float(metadata["score"])
        except (OSError, SafetensorError, KeyError, ValueError, AttributeError):
            damaged, found, weights = True, (0, 0.0), {}
        if damaged:
            raise SelfguideError(
                f"The best weights of the run, in {self.path}, are damaged or gone; start the run over with --overwrite."
            )
        student.load_state_dict(weights, strict=False)
        return found


class ProgressAndCheckpoints(TrainerCallback):
    """Show a progress bar, measure time, and ask for a checkpoint every few minutes."""

    def __init__(self, reporter: Reporter, settings: TrainingSettings) -> None:
        self.reporter = reporter
        self.settings = settings
        self.seconds = 0.0
        self.sentences = 0
        self.rates: dict[int, float] = {}
        """Learning rate of the first, every hundredth and the last step."""
        self._agreement = Agreement()
        self._advance: Callable[[int, str], None] | None = None
        self._stack = contextlib.ExitStack()
        self._started = self._saved = time.monotonic()
        self._loss: float | None = None
        self._dev: float | None = None

    @contextlib.contextmanager
    def bar(self) -> Iterator[None]:
        """Close the progress bar when the block ends, however training ends.

        Yields:
            Nothing.
        """
        with self._stack:
            yield

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Start the clock and the bar, at the step that is resumed from."""
        self._started = self._saved = time.monotonic()
        per_step = _sentences_per_step(args)
        bar = self.reporter.bar("training", state.max_steps * per_step, "sentences")
        self._advance = self._stack.enter_context(bar)
        self._advance(state.global_step * per_step, "")

    def on_log(self, args: Any, state: TrainerState, control: TrainerControl, logs: Any = None, **kwargs: Any) -> None:
        """Remember the loss for the bar."""
        if logs and "loss" in logs:
            self._loss = float(logs["loss"])

    def on_evaluate(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Remember the dev score for the bar."""
        self._dev = dev_history(state)[-1][1] if dev_history(state) else None

    def on_pre_optimizer_step(
        self, args: Any, state: TrainerState, control: TrainerControl, optimizer: Any = None, **kwargs: Any
    ) -> None:
        """Record the learning rate that the step is about to use."""
        step = state.global_step + 1
        if step == 1 or step % 100 == 0 or step == state.max_steps:
            self.rates[step] = float(optimizer.param_groups[0]["lr"])

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Advance the bar, and ask for a checkpoint if one is due."""
        self.sentences += _sentences_per_step(args)
        now = time.monotonic()
        self.seconds = now - self._started
        if self._advance is not None:
            loss = f"loss {self._loss:.3f}" if self._loss is not None else ""
            dev = f"  dev {100 * self._dev:.1f}" if self._dev is not None else ""
            self._advance(_sentences_per_step(args), loss + dev)
        due = now - self._saved >= 60 * self.settings.checkpoint_minutes
        if self._agreement.anyone(due and state.is_world_process_zero) and state.global_step < state.max_steps:
            control.should_save = True
            self._saved = now


def _sentences_per_step(args: Any) -> int:
    return int(args.train_batch_size * args.gradient_accumulation_steps * args.world_size)


class StopOnSignal(TrainerCallback):
    """Stop after the current step, with a checkpoint, on the first Ctrl-C or SIGTERM; a second one stops at once."""

    def __init__(self) -> None:
        self.requested = False
        self._agreement = Agreement()

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Handle the signals while the block runs; outside the main thread, where Python forbids it, do nothing.

        Yields:
            Nothing; the former handlers are restored when the block ends.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

        def restore_handlers() -> None:
            for number, handler in before.items():
                signal.signal(number, handler)

        def on_signal(number: int, frame: Any) -> None:
            self.requested = True
            restore_handlers()

        for number in before:
            signal.signal(number, on_signal)
        try:
            yield
        finally:
            restore_handlers()

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Save and stop if a signal has come, to whichever process."""
        self.requested = self._agreement.anyone(self.requested)
        if self.requested:
            control.should_save = True
            control.should_training_stop = True
