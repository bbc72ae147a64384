"""The one fine-tuning path, built on ``SentenceTransformerTrainer``.

Every tuning method calls :func:`fine_tune` with a student and a loss; nothing here depends on which. It adds to the stock
trainer:

* checkpoints that include the loss's own weights (a projection head) and count only once they are complete, so that a run
  killed at any moment resumes and ends in the same weights;
* the best weights on the dev pairs, and early stopping;
* Ctrl-C, which finishes the step and saves a checkpoint;
* monitors of a diverging loss and of collapsing embeddings (:mod:`selfguide.training.monitors`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from sentence_transformers import SentenceTransformerTrainingArguments
from sentence_transformers.base.evaluation import BaseEvaluator
from torch import nn
from transformers import PrinterCallback, ProgressCallback, TrainerCallback, set_seed

from selfguide.engine.onednn import fast_linear_layers
from selfguide.engine.tokens import LABELS, TokenCollator, tokenise_dataset
from selfguide.errors import InterruptedRun, SelfguideError, UsageError
from selfguide.losses.base import HeadedLoss, Preparation
from selfguide.progress import Reporter
from selfguide.training.callbacks import BestWeights, ProgressAndCheckpoints, StopOnSignal, dev_history, loss_history
from selfguide.training.checkpointed_trainer import CheckpointedTrainer, Optimiser, Scheduler
from selfguide.training.checkpoints import checkpoint_to_resume, kept_rates
from selfguide.training.distributed import lost_process_as_error, runs_on_cpu, world_size
from selfguide.training.lengths import report_truncation, training_length
from selfguide.training.monitors import CollapseMonitor, FiniteLossMonitor
from selfguide.training.settings import TrainingSettings
from selfguide.training.short_runs import warn_if_short

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer

    from selfguide.training.weight_averages import Choice


@dataclass
class FitContext:
    """What a method needs besides the encoder."""

    text: Dataset
    settings: TrainingSettings
    work: Path
    """Folder for checkpoints and intermediate files."""
    reporter: Reporter
    dev: BaseEvaluator | None = None
    """Scores an encoder on the dev pairs."""
    resume: bool = False
    """Continue from the latest checkpoint in ``work``."""


@dataclass
class TrainingOutcome:
    """An encoder and the record of its training."""

    encoder: SentenceTransformer
    steps: int = 0
    seconds: float = 0.0
    sentences_per_second: float = 0.0
    final_loss: float | None = None
    losses: list[tuple[int, float]] = field(default_factory=list)
    """(step, mean loss since the previous entry)."""
    dev_scores: list[tuple[int, float]] = field(default_factory=list)
    best_step: int | None = None
    best_score: float | None = None
    stopped_early: bool = False
    chosen: dict[str, float] = field(default_factory=dict)
    """Options selected on the dev pairs, besides the checkpoint."""
    optimiser: dict[str, Any] = field(default_factory=dict)
    """The optimiser that the trainer had, its settings and the learning rate of some steps."""
    choice: Choice | None = None
    """Which weights were kept, where the method chose between several."""
    length: dict[str, float] = field(default_factory=dict)
    """Tokens that training saw of a sentence, the encoder's own limit, and the share of sentences truncated in training."""


def fine_tune(
    student: SentenceTransformer,
    make_loss: Callable[[SentenceTransformer], nn.Module],
    context: FitContext,
    *,
    deployable: Callable[[SentenceTransformer], SentenceTransformer] | None = None,
    make_optimiser: Callable[[nn.Module], Optimiser | None] | None = None,
    make_scheduler: Callable[[Optimiser, int], Scheduler | None] | None = None,
    few_sentences: int = 0,
) -> TrainingOutcome:
    """Fine-tune a student on text.

    Args:
        student: The encoder to tune, in place.
        make_loss: Makes a sentence-transformers loss from the student.
        context: Text, settings, work folder, reporter and dev evaluator.
        deployable: Makes the encoder that is returned and scored on the dev pairs from the student, if they differ (in
            their pooling, for instance); it may share the student's weights.
        make_optimiser: Makes the optimiser from the loss, whose parameters include the student's; AdamW without it, or if it
            returns ``None``.
        make_scheduler: Makes the learning-rate scheduler from the optimiser and the number of steps; that of the settings
            without it, or if it returns ``None``.
        few_sentences: Warn if training sees fewer sentences than these.

    Returns:
        The encoder and the record of its training; the weights are the best on the dev pairs, or else the last.

    Raises:
        SelfguideError: There is too little text, a tracker is not installed, or training has diverged.
        UsageError: The precision is not available on the device.
        InterruptedRun: Ctrl-C or SIGTERM stopped the run; a checkpoint is saved.
    """
    settings, reporter = context.settings, context.reporter
    if len(context.text) < 2:
        raise SelfguideError("Contrastive training needs at least two different sentences; this text has fewer.")
    if len(context.text) < world_size():
        raise SelfguideError(
            f"This text has {len(context.text):,} sentences, fewer than the run has processes; use one process."
        )
    warn_if_short(len(context.text), settings, reporter, few_sentences, bounded=make_optimiser is None)
    limit = student.max_seq_length  # None where the encoder has none
    length, truncated = training_length(student, context.text, settings.max_length)
    report_truncation(truncated, length, limit, reporter)
    student.max_seq_length = length
    set_seed(settings.seed)
    loss = make_loss(student)
    arguments = _arguments(context)
    monitor = CollapseMonitor(student, reporter)
    with lost_process_as_error():
        collator = _prepare(loss, student, context, arguments, monitor)
    best = BestWeights(context.work, settings.patience)
    stop = StopOnSignal()
    progress = ProgressAndCheckpoints(reporter, settings)
    callbacks: list[TrainerCallback] = [progress, stop, FiniteLossMonitor(), monitor]
    if context.dev is not None:
        callbacks.append(best)
    dev = None if context.dev is None else _DeployableEvaluator(context.dev, deployable, limit)
    trainer = CheckpointedTrainer(
        model=student,
        args=arguments,
        train_dataset=context.text,
        loss=loss,
        evaluator=dev,
        data_collator=collator,
        callbacks=callbacks,
    )
    trainer.make_optimiser, trainer.make_scheduler = make_optimiser, make_scheduler
    trainer.remove_callback(PrinterCallback)
    trainer.remove_callback(ProgressCallback)
    checkpoint = checkpoint_to_resume(context.work, reporter) if context.resume else None
    # The start is the first candidate, so that a run with dev pairs never ends below it.
    arguments.eval_on_start = context.dev is not None and checkpoint is None
    trainer.rates = progress.rates
    if checkpoint is not None:
        progress.rates.update(kept_rates(checkpoint))
        reporter.note(f"Resuming after step {checkpoint.name.rpartition('-')[2]}.")
    with stop.listening(), progress.bar(), lost_process_as_error(), fast_linear_layers(loss):
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    if stop.requested:
        raise InterruptedRun(f"Stopped at step {trainer.state.global_step}; everything up to there is kept.")
    student.max_seq_length = limit
    monitor.detach()
    outcome = _outcome(trainer, student, context, best, progress)
    outcome.length = {"training": length, "encoder": limit, "truncated": truncated}
    if deployable is not None:
        outcome.encoder = deployable(student).eval()
    return outcome


def _prepare(
    loss: nn.Module,
    student: SentenceTransformer,
    context: FitContext,
    arguments: SentenceTransformerTrainingArguments,
    monitor: CollapseMonitor,
) -> TokenCollator | None:
    """Tokenise the text and prepare the loss; return a collator, or ``None`` for the stock one, which tokenises each batch."""
    text = tokenise_dataset(student, context.text)
    if not isinstance(loss, HeadedLoss):
        return TokenCollator(text, lambda features, rows: features) if text is not None else None
    half = torch.bfloat16 if arguments.bf16 else torch.float16 if arguments.fp16 else None
    columns = len([name for name in context.text.column_names if name not in LABELS])
    loss.watch = monitor.observe
    loss.prepare(
        Preparation(context.settings, context.work, context.reporter, text, columns, half, resume=context.resume)
    )
    return TokenCollator(text, loss.on_host) if text is not None else None


class _DeployableEvaluator(BaseEvaluator):
    """Score the encoder as it will be saved: the deployable one, with the encoder's own length limit."""

    def __init__(
        self,
        dev: BaseEvaluator,
        deployable: Callable[[SentenceTransformer], SentenceTransformer] | None,
        limit: int | None,
    ) -> None:
        super().__init__()
        self.dev, self.deployable, self.limit = dev, deployable, limit
        self.primary_metric = dev.primary_metric

    def __call__(self, model: Any, *args: Any, **kwargs: Any) -> dict[str, float]:
        length, model.max_seq_length = model.max_seq_length, self.limit
        try:
            return self.dev(model if self.deployable is None else self.deployable(model), *args, **kwargs)
        finally:
            model.max_seq_length = length


def _outcome(
    trainer: CheckpointedTrainer,
    student: SentenceTransformer,
    context: FitContext,
    best: BestWeights,
    progress: ProgressAndCheckpoints,
) -> TrainingOutcome:
    state, losses = trainer.state, loss_history(trainer.state)
    outcome = TrainingOutcome(student, steps=state.global_step, seconds=progress.seconds, losses=losses)
    outcome.optimiser = _describe_optimiser(trainer, progress.rates)
    if losses:
        outcome.final_loss = losses[-1][1]
    elif trainer.last_loss is not None:  # the run was too short to log a mean
        outcome.final_loss = float(trainer.last_loss)
    if progress.seconds > 0:
        outcome.sentences_per_second = progress.sentences / progress.seconds
    if context.dev is not None:
        outcome.dev_scores = dev_history(state)
        outcome.stopped_early = state.global_step < state.max_steps
        outcome.best_step, outcome.best_score = best.restore(student)
    if not all(bool(torch.isfinite(parameter).all()) for parameter in student.parameters()):
        raise SelfguideError("Training left weights that are not finite; lower the learning rate (--learning-rate).")
    student.eval()
    return outcome


def _describe_optimiser(trainer: CheckpointedTrainer, rates: dict[int, float]) -> dict[str, Any]:
    """Return what the trainer really trained with, for the run's record."""
    optimiser = getattr(trainer.optimizer, "optimizer", trainer.optimizer)  # accelerate wraps it
    plain = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in optimiser.param_groups[0].items()
        if isinstance(value, int | float | tuple) and name not in ("params", "lr")
    }
    parameters = sum(parameter.numel() for group in optimiser.param_groups for parameter in group["params"])
    facts = {
        "name": type(optimiser).__name__,
        "parameters": parameters,
        "rates": sorted(rates.items()),
        "gradient_clip": trainer.args.max_grad_norm,
    }
    return facts | plain


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
        lr_scheduler_type="linear" if settings.schedule == "linear" else "constant_with_warmup",
        optim="adamw_torch_fused",
        adam_beta1=0.9,
        adam_beta2=settings.beta2,
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.gradient_clip,
        seed=settings.seed,
        bf16=precision == "bf16",
        fp16=precision == "fp16",
        use_cpu=cpu,
        eval_strategy="no" if context.dev is None else "steps",
        eval_steps=settings.dev_every,
        save_strategy="no",  # ProgressAndCheckpoints decides
        logging_steps=10,
        logging_nan_inf_filter=False,
        report_to=settings.trackers,
        disable_tqdm=True,
        dataloader_pin_memory=not cpu,
        ddp_find_unused_parameters=False,  # methods freeze the parameters that no embedding depends on
    )
    # Stock arguments leave out the last batch of a run of several processes; ours is cut evenly (ProcessBatches).
    arguments.dataloader_drop_last = False
    # One device per process: otherwise several visible GPUs would split each batch, and with it the negatives.
    if arguments.n_gpu > 1:
        arguments._n_gpu = 1
    return arguments
