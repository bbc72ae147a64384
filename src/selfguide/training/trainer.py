"""The one fine-tuning path, over ``SentenceTransformerTrainer``.

Every tuning method comes here with a student and a loss; nothing below knows which. What is added to the stock trainer:

* a checkpoint holds everything that training depends on, the loss's own weights (a projection head) included, and counts
  only once it is complete, so that a run killed at any moment resumes and ends in the same weights;
* the best weights by the dev pairs are kept, and training stops early when they have not improved for a while;
* Ctrl-C finishes the step, saves a checkpoint and says how to go on;
* a loss that is not finite stops the run in words, and a collapse of the embeddings is noticed
  (:mod:`selfguide.training.monitors`).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.base.evaluation import BaseEvaluator
from torch import Tensor, nn
from transformers import PrinterCallback, ProgressCallback, TrainerCallback, set_seed

from selfguide.engine.text_tokens import LABELS, TokenCollator, tokenise
from selfguide.errors import InterruptedRun, SelfguideError, UsageError
from selfguide.losses.base import HeadedLoss, Preparation, own_parameters
from selfguide.models.encoders import load_encoder
from selfguide.progress import Reporter
from selfguide.training.callbacks import (
    DEV_METRIC,
    BestKeeper,
    ProgressAndCheckpoints,
    StopOnSignal,
    dev_history,
    loss_history,
)
from selfguide.training.distributed import runs_on_cpu
from selfguide.training.monitors import CollapseMonitor, FiniteLossMonitor
from selfguide.training.settings import TrainingSettings

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer

__all__ = [
    "COMPLETE",
    "DEV_METRIC",
    "FitContext",
    "Optimisers",
    "TrainingOutcome",
    "fine_tune",
    "latest_checkpoint",
]

COMPLETE = "complete.json"
LOSS_WEIGHTS = "loss.safetensors"


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
    chosen: dict[str, float] = field(default_factory=dict)
    """Options that the dev pairs chose, besides the checkpoint."""


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
    monitor = CollapseMonitor(student, reporter)
    collator = _prepare(loss, student, context, arguments, monitor)
    best = BestKeeper(context.work, settings.patience)
    stop = StopOnSignal()
    clock = ProgressAndCheckpoints(reporter, settings, context.work)
    callbacks: list[TrainerCallback] = [clock, stop, FiniteLossMonitor(), monitor]
    if context.dev is not None:
        callbacks.append(best)
    dev = context.dev if finished is None or context.dev is None else _ScoreFinished(context.dev, finished)
    trainer = _Trainer(
        model=student,
        args=arguments,
        train_dataset=context.text,
        loss=loss,
        evaluator=dev,
        data_collator=collator,
        callbacks=callbacks,
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


def _prepare(
    loss: nn.Module,
    student: SentenceTransformer,
    context: FitContext,
    arguments: SentenceTransformerTrainingArguments,
    monitor: CollapseMonitor,
) -> TokenCollator | None:
    """Tokenise ahead, and let the loss make ready what it wants; ``None``: the stock collator tokenises in the loop."""
    text = tokenise(student, context.text)
    if not isinstance(loss, HeadedLoss):
        return TokenCollator(text, lambda features, rows: features) if text is not None else None
    half = torch.bfloat16 if arguments.bf16 else torch.float16 if arguments.fp16 else None
    columns = len([name for name in context.text.column_names if name not in LABELS])
    loss.watch = monitor.remember
    loss.prepare(
        Preparation(context.settings, context.work, context.reporter, text, columns, half, resume=context.resume)
    )
    return TokenCollator(text, loss.on_host) if text is not None else None


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
    best: BestKeeper,
    clock: ProgressAndCheckpoints,
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


def _last_loss(trainer: _Trainer) -> float | None:
    """The last logged mean over steps; for a run too short to have logged one, the last step's own."""
    logged = loss_history(trainer.state)
    if logged:
        return logged[-1][1]
    return float(trainer.last_loss) if trainer.last_loss is not None else None
