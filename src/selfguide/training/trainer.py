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

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from accelerate.data_loader import prepare_data_loader
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.base.evaluation import BaseEvaluator
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import PrinterCallback, ProgressCallback, TrainerCallback, set_seed

from selfguide.engine.tokens import LABELS, TokenCollator, tokenise_dataset
from selfguide.errors import InterruptedRun, SelfguideError, UsageError
from selfguide.losses.base import HeadedLoss, Preparation, own_parameters
from selfguide.progress import Reporter
from selfguide.training.batches import SHUFFLED, ProcessBatches, ScatteredBatches
from selfguide.training.callbacks import BestWeights, ProgressAndCheckpoints, StopOnSignal, dev_history, loss_history
from selfguide.training.checkpoints import checkpoint_to_resume, kept_rates, write_complete
from selfguide.training.distributed import lost_process_in_words, runs_on_cpu, world_size
from selfguide.training.lengths import report_truncation, training_length
from selfguide.training.monitors import CollapseMonitor, FiniteLossMonitor
from selfguide.training.settings import TrainingSettings
from selfguide.training.short_runs import warn_if_short

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer

    from selfguide.training.weight_averages import Choice

LOSS_WEIGHTS = "loss.safetensors"


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


Optimiser = torch.optim.Optimizer
Scheduler = torch.optim.lr_scheduler.LRScheduler


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
    collator = _prepare(loss, student, context, arguments, monitor)
    best = BestWeights(context.work, settings.patience)
    stop = StopOnSignal()
    progress = ProgressAndCheckpoints(reporter, settings)
    callbacks: list[TrainerCallback] = [progress, stop, FiniteLossMonitor(), monitor]
    if context.dev is not None:
        callbacks.append(best)
    dev = None if context.dev is None else _DeployableEvaluator(context.dev, deployable, limit)
    trainer = _Trainer(
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
    with stop.listening(), progress.bar(), lost_process_in_words():
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
    trainer: _Trainer,
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


def _describe_optimiser(trainer: _Trainer, rates: dict[int, float]) -> dict[str, Any]:
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


class _Trainer(SentenceTransformerTrainer):
    """The stock trainer with checkpoints that include the loss, and without its model card."""

    optimizer: Any
    lr_scheduler: Any
    last_loss: Tensor | None = None
    rates: Mapping[int, float] = MappingProxyType({})
    """Learning rates by step, for the run's record; a checkpoint keeps them."""
    make_optimiser: Callable[[nn.Module], Optimiser | None] | None = None
    make_scheduler: Callable[[Optimiser, int], Scheduler | None] | None = None

    # transformers 5 calls these two, and not create_optimizer_and_scheduler.
    def create_optimizer(self, model: Any = None) -> Optimiser:
        if self.optimizer is None and self.make_optimiser is not None:
            self.optimizer = self.make_optimiser(self.loss)
        return super().create_optimizer(model)

    def create_scheduler(self, num_training_steps: int, optimizer: Optimiser | None = None) -> Scheduler:
        if self.lr_scheduler is None and self.make_scheduler is not None:
            self.lr_scheduler = self.make_scheduler(optimizer or self.optimizer, num_training_steps)
            self._created_lr_scheduler = self.lr_scheduler is not None
        return super().create_scheduler(num_training_steps, optimizer)

    def get_batch_sampler(self, dataset: Any, batch_size: int, drop_last: bool, *args: Any, **kwargs: Any) -> Any:
        if len(dataset) > SHUFFLED:
            return ScatteredBatches(len(dataset), batch_size, self.args.seed)
        return super().get_batch_sampler(dataset, batch_size, drop_last, *args, **kwargs)

    def get_train_dataloader(self) -> DataLoader[Any]:
        processes = self.args.world_size
        if processes == 1:
            return super().get_train_dataloader()
        whole = self._build_dataloader(self.train_dataset, self.args.train_batch_size * processes, dataset_kind="train")
        share = ProcessBatches(whole.batch_sampler, len(self.train_dataset), self.args.process_index, processes)
        mine = DataLoader(
            self.train_dataset, batch_sampler=share, collate_fn=whole.collate_fn, pin_memory=whole.pin_memory
        )
        # As the accelerator would prepare it, but without its sharding: the batches are shares already.
        return prepare_data_loader(
            mine,
            self.accelerator.device,
            1,
            0,
            put_on_device=True,
            use_seedable_sampler=True,
            data_seed=self.args.data_seed,
        )

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """Do nothing: the run writes its own card, and the stock one queries the hub about the base model."""

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        result = super().compute_loss(*args, **kwargs)
        self.last_loss = (result[0] if isinstance(result, tuple) else result).detach()
        self.state.last_loss = self.last_loss  # read by the monitors; a tensor, so that a GPU is not waited for
        return result

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        # The stock one also makes a model card, which nobody reads in a checkpoint and which takes longer than the rest.
        folder = Path(output_dir or self.args.output_dir)
        self.model.save_pretrained(str(folder), create_model_card=False)
        torch.save(self.args, folder / "training_args.bin")

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        folder = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
        try:
            super()._save_checkpoint(model, trial)
            self.accelerator.wait_for_everyone()  # each process writes its random state
            if not self.args.should_save:
                return
            save_file(_loss_weights(self.loss), folder / LOSS_WEIGHTS)
            write_complete(folder, {"step": self.state.global_step, "rates": sorted(self.rates.items())})
        except (OSError, SafetensorError, RuntimeError) as error:
            # torch has an error of its own for a full disk. Half a checkpoint is of no use, and its room may be needed.
            if isinstance(error, RuntimeError) and not _is_about_a_file(error):
                raise
            if self.args.should_save:
                shutil.rmtree(folder, ignore_errors=True)
            raise OSError(f"checkpoint of step {self.state.global_step}: {error}") from error
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
    """Return what training changes in the loss: its own weights, and state that changes without a gradient."""
    weights = {name: parameter.detach() for name, parameter in own_parameters(loss).items()}
    return weights | (loss.moving_state() if isinstance(loss, HeadedLoss) else {})


def _is_about_a_file(error: RuntimeError) -> bool:
    return any(
        word in str(error) for word in ("PytorchStreamWriter", "inline_container", "open file failed", "iostream")
    )


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
