"""The stock trainer with checkpoints that include the loss, the batches of several processes, and optimisers of methods."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from accelerate.data_loader import prepare_data_loader
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformerTrainer
from torch import Tensor, nn
from torch.utils.data import DataLoader

from selfguide.losses.base import HeadedLoss, own_parameters
from selfguide.training.batches import SHUFFLED, ProcessBatches, ScatteredBatches
from selfguide.training.checkpoints import write_complete

LOSS_WEIGHTS = "loss.safetensors"

Optimiser = torch.optim.Optimizer
Scheduler = torch.optim.lr_scheduler.LRScheduler


class CheckpointedTrainer(SentenceTransformerTrainer):
    """The stock trainer with checkpoints that include the loss, and without its model card. Its hooks are the stock one's."""

    optimizer: Any
    lr_scheduler: Any
    last_loss: Tensor | None = None
    rates: Mapping[int, float] = MappingProxyType({})
    """Learning rates by step, for the run's record; a checkpoint keeps them."""
    make_optimiser: Callable[[nn.Module], Optimiser | None] | None = None
    make_scheduler: Callable[[Optimiser, int], Scheduler | None] | None = None

    # transformers 5 calls these two, and not create_optimizer_and_scheduler.
    def create_optimizer(self, model: Any = None) -> Optimiser:
        """Return the method's optimiser, or the stock one."""
        if self.optimizer is None and self.make_optimiser is not None:
            self.optimizer = self.make_optimiser(self.loss)
        return super().create_optimizer(model)

    def create_scheduler(self, num_training_steps: int, optimizer: Optimiser | None = None) -> Scheduler:
        """Return the method's scheduler, or the stock one."""
        if self.lr_scheduler is None and self.make_scheduler is not None:
            self.lr_scheduler = self.make_scheduler(optimizer or self.optimizer, num_training_steps)
            self._created_lr_scheduler = self.lr_scheduler is not None
        return super().create_scheduler(num_training_steps, optimizer)

    def get_batch_sampler(self, dataset: Any, batch_size: int, drop_last: bool, *args: Any, **kwargs: Any) -> Any:
        """Return the batches of an epoch; the order of a large text is computed, not kept."""
        if len(dataset) > SHUFFLED:
            return ScatteredBatches(len(dataset), batch_size, self.args.seed)
        return super().get_batch_sampler(dataset, batch_size, drop_last, *args, **kwargs)

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Return the batches of this process."""
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
        """Return the loss, and keep it for the monitors."""
        result = super().compute_loss(*args, **kwargs)
        self.last_loss = (result[0] if isinstance(result, tuple) else result).detach()
        self.state.last_loss = self.last_loss  # read by the monitors; a tensor, so that a GPU is not waited for
        return result

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        # The stock one also makes a model card, which a checkpoint does not need and which takes longer than the rest.
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
            # torch has an error of its own for a full disk. A partial checkpoint is useless, and its disk space may
            # be needed.
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
