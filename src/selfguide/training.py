"""The one fine-tuning path, over ``SentenceTransformerTrainer``.

Every tuning method comes here with a student and a loss; nothing below knows which. What is added to the stock trainer:

* a checkpoint holds everything that training depends on, the loss's own weights (a projection head) included, and counts
  only once it is complete, so that a run killed at any moment resumes and ends in the same weights;
* the best weights by the dev pairs are kept, and training stops early when they have not improved for a while;
* Ctrl-C finishes the step, saves a checkpoint and says how to go on;
* a loss that is not finite stops the run in words, and a collapse of the embeddings is noticed (:mod:`selfguide.monitors`).
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.base.evaluation import BaseEvaluator
from torch import Tensor, nn
from transformers import PrinterCallback, ProgressCallback, TrainerCallback, set_seed

from selfguide.encoders import load_encoder
from selfguide.errors import InterruptedRun, SelfguideError, UsageError
from selfguide.monitors import CollapseMonitor, FiniteLossMonitor
from selfguide.parts.headed_loss import HeadedLoss, own_parameters
from selfguide.reporting import Reporter
from selfguide.settings import TrainingSettings

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer
    from transformers import TrainerControl, TrainerState

COMPLETE = "complete.json"
LOSS_WEIGHTS = "loss.safetensors"
BEST_WEIGHTS = "best.safetensors"
DEV_METRIC = "spearman_cosine"


@dataclass
class FitContext:
    """What a method needs besides the encoder: the text, the settings, where to work and whom to tell."""

    text: Dataset
    settings: TrainingSettings
    work: Path
    reporter: Reporter
    dev: BaseEvaluator | None = None
    resume: bool = False


@dataclass
class TrainingOutcome:
    """A tuned encoder and how it came about."""

    encoder: SentenceTransformer
    steps: int = 0
    seconds: float = 0.0
    sentences_per_second: float = 0.0
    final_loss: float | None = None
    losses: list[tuple[int, float]] = field(default_factory=list)
    """(step, mean loss over the steps since the last entry)."""
    dev_scores: list[tuple[int, float]] = field(default_factory=list)
    best_step: int | None = None
    best_score: float | None = None
    stopped_early: bool = False


Optimisers = tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]


def fine_tune(
    student: SentenceTransformer,
    make_loss: Callable[[SentenceTransformer], nn.Module],
    context: FitContext,
    *,
    finished: Callable[[SentenceTransformer], SentenceTransformer] | None = None,
    make_optimiser: Callable[[nn.Module, int], Optimisers] | None = None,
) -> TrainingOutcome:
    """Tune a student on text; see the module's head for what that includes.

    ``finished`` gives the encoder as it will be handed out, where that is not the student as it is trained (another
    pooling, say): dev pairs are scored with it. ``make_optimiser`` takes the loss (whose parameters include the student's)
    and the number of steps, for methods that do not use AdamW with a linear schedule.
    """
    settings, reporter = context.settings, context.reporter
    if len(context.text) < 2:
        raise SelfguideError("Contrastive training needs at least two different sentences; this text has fewer.")
    load_encoder(student, max_length=settings.max_length)
    set_seed(settings.seed)
    loss = make_loss(student)
    arguments = _arguments(context)
    best = _BestKeeper(context.work, settings.patience)
    stop = _StopOnSignal()
    clock = _ProgressAndCheckpoints(reporter, settings, context.work)
    callbacks: list[TrainerCallback] = [clock, stop, FiniteLossMonitor(), CollapseMonitor(student, reporter)]
    if context.dev is not None:
        callbacks.append(best)
    dev = context.dev if finished is None or context.dev is None else _ScoreFinished(context.dev, finished)
    trainer = _Trainer(
        model=student, args=arguments, train_dataset=context.text, loss=loss, evaluator=dev, callbacks=callbacks
    )
    trainer.make_optimiser = make_optimiser
    trainer.remove_callback(PrinterCallback)
    trainer.remove_callback(ProgressCallback)
    checkpoint = latest_checkpoint(context.work) if context.resume else None
    if checkpoint is not None:
        reporter.note(f"Resuming after step {checkpoint.name.rpartition('-')[2]}.")
    with stop.listening(), clock.bar():
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    if stop.asked:
        raise InterruptedRun(f"Stopped at step {trainer.state.global_step}; everything up to there is kept.")
    outcome = _outcome(trainer, student, context, best, clock)
    if finished is not None:
        outcome.encoder = finished(student).eval()
    return outcome


class _ScoreFinished(BaseEvaluator):
    """Score the encoder as it will be handed out, not as it is trained."""

    def __init__(self, dev: BaseEvaluator, finished: Callable[[SentenceTransformer], SentenceTransformer]) -> None:
        super().__init__()
        self.dev, self.finished = dev, finished
        self.primary_metric = dev.primary_metric

    def __call__(self, model: Any, *args: Any, **kwargs: Any) -> dict[str, float]:
        return self.dev(self.finished(model), *args, **kwargs)


def _outcome(
    trainer: _Trainer,
    student: SentenceTransformer,
    context: FitContext,
    best: _BestKeeper,
    clock: _ProgressAndCheckpoints,
) -> TrainingOutcome:
    outcome = TrainingOutcome(
        student, steps=trainer.state.global_step, seconds=clock.seconds, final_loss=_last_loss(trainer)
    )
    outcome.losses = loss_history(trainer.state)
    if clock.seconds > 0:
        outcome.sentences_per_second = clock.sentences / clock.seconds
    if context.dev is not None:
        outcome.dev_scores = dev_history(trainer.state)
        outcome.stopped_early = trainer.state.global_step < trainer.state.max_steps
        outcome.best_step, outcome.best_score = best.restore(student)
    if not all(bool(torch.isfinite(parameter).all()) for parameter in student.parameters()):
        raise SelfguideError("Training left weights that are not finite; lower the learning rate (--learning-rate).")
    student.eval()
    return outcome


class _Trainer(SentenceTransformerTrainer):
    """The stock trainer, with complete checkpoints and our own model card."""

    last_loss: Tensor | None = None
    make_optimiser: Callable[[nn.Module, int], Optimisers] | None = None

    def create_optimizer_and_scheduler(self, num_training_steps: int) -> None:
        if self.make_optimiser is None:
            super().create_optimizer_and_scheduler(num_training_steps)
        else:
            self.optimizer, self.lr_scheduler = self.make_optimiser(self.loss, num_training_steps)

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """Nothing: the run writes its own card, and the stock one asks the hub about the base model."""

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        result = super().compute_loss(*args, **kwargs)
        self.last_loss = (result[0] if isinstance(result, tuple) else result).detach()
        self.state.last_loss = self.last_loss  # for the monitors, without a synchronisation
        return result

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        if not self.args.should_save:
            return
        folder = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
        save_file(_loss_weights(self.loss), folder / LOSS_WEIGHTS)
        (folder / COMPLETE).write_text(json.dumps({"step": self.state.global_step}))
        for older in folder.parent.glob("checkpoint-*"):
            if older != folder:
                shutil.rmtree(older, ignore_errors=True)

    def _load_from_checkpoint(self, checkpoint_path: str) -> None:
        super()._load_from_checkpoint(checkpoint_path)
        weights = _loss_weights(self.loss)
        saved = load_file(Path(checkpoint_path) / LOSS_WEIGHTS)
        with torch.no_grad():
            for name, tensor in weights.items():
                tensor.copy_(saved[name])


def _loss_weights(loss: nn.Module) -> dict[str, Tensor]:
    """Everything of the loss that training changes: its own weights, and what moves without a gradient."""
    weights = {name: parameter.detach() for name, parameter in own_parameters(loss).items()}
    return weights | (loss.moving_state() if isinstance(loss, HeadedLoss) else {})


def latest_checkpoint(work: Path) -> Path | None:
    """The newest checkpoint that was written to its end."""
    complete = [folder for folder in work.glob("checkpoint-*") if (folder / COMPLETE).is_file()]
    return max(complete, key=lambda folder: int(folder.name.rpartition("-")[2]), default=None)


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


class _BestKeeper(TrainerCallback):
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


class _ProgressAndCheckpoints(TrainerCallback):
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


class _StopOnSignal(TrainerCallback):
    """The first Ctrl-C (or SIGTERM) ends training after the step in hand, with a checkpoint; a second one ends it at once."""

    def __init__(self) -> None:
        self.asked = False

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        import threading

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


def _arguments(context: FitContext) -> SentenceTransformerTrainingArguments:
    settings = context.settings
    cpu = runs_on_cpu(settings)
    precision = settings.precision
    if precision == "auto":
        precision = "bf16" if not cpu and torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "fp32"
    if precision == "fp16" and cpu:
        raise UsageError("fp16 training needs a GPU; choose fp32 or bf16 on a CPU.")
    for tracker in settings.trackers:
        if tracker != "none" and find_spec(tracker) is None:
            raise SelfguideError(
                f"{tracker} is not installed: pip install 'selfguide[{tracker}]', or leave --track out."
            )
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(context.work),
        num_train_epochs=settings.epochs,
        max_steps=settings.max_steps or -1,
        per_device_train_batch_size=settings.batch_size,
        gradient_accumulation_steps=settings.gradient_accumulation,
        learning_rate=settings.learning_rate,
        warmup_steps=settings.warmup,
        lr_scheduler_type="linear",
        optim="adamw_torch_fused",
        adam_beta1=0.9,
        adam_beta2=0.9,
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.gradient_clip,
        seed=settings.seed,
        bf16=precision == "bf16",
        fp16=precision == "fp16",
        use_cpu=cpu,
        eval_strategy="no" if context.dev is None else "steps",
        eval_steps=settings.dev_every,
        save_strategy="no",  # our clock says when
        logging_steps=10,
        logging_nan_inf_filter=False,
        report_to=settings.trackers,
        disable_tqdm=True,
        dataloader_pin_memory=not cpu,
        ddp_find_unused_parameters=False,  # a method freezes what no vector depends on
    )
    # One process, one device: without this, several visible GPUs would split each batch (and its negatives).
    if arguments.n_gpu > 1:
        arguments._n_gpu = 1
    return arguments


def runs_on_cpu(settings: TrainingSettings) -> bool:
    """Whether training happens on the CPU: asked for, or nothing else there."""
    accelerated = torch.cuda.is_available() or torch.backends.mps.is_available()
    return settings.device == "cpu" or (settings.device == "auto" and not accelerated)


def _last_loss(trainer: _Trainer) -> float | None:
    """The last logged mean over steps; for a run too short to have logged one, the last step's own."""
    logged = loss_history(trainer.state)
    if logged:
        return logged[-1][1]
    return float(trainer.last_loss) if trainer.last_loss is not None else None
