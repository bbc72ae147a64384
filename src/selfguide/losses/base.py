"""Losses that train weights of their own beside the model's: a projection head, a decoder, a second encoder.

The trainer knows the model; what else a loss trains needs care in three places, and all of it is here or in
:mod:`selfguide.training.trainer`: old gradients, distribution, and checkpoints. A loss may also make things ready, once before
a run (:meth:`HeadedLoss.prepare`) and for each batch before it goes to the device (:meth:`HeadedLoss.on_host`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from selfguide.engine.text_tokens import TokenisedText
from selfguide.errors import UsageError
from selfguide.progress import Reporter

if TYPE_CHECKING:
    from selfguide.training.settings import TrainingSettings


@dataclass(frozen=True)
class Preparation:
    """What a loss may know of the run before it begins."""

    settings: TrainingSettings
    work: Path
    reporter: Reporter
    text: TokenisedText | None = None
    """The text as tokens, where they are made ahead."""
    columns: int = 1
    """Columns of text in the dataset."""
    half: torch.dtype | None = None
    """The type that the encoder runs in by autocast; ``None``: that of its weights."""
    resume: bool = False


def own_parameters(loss: nn.Module) -> dict[str, nn.Parameter]:
    """The loss's own trained weights: not the model's, which the trainer looks after, and nothing that is fixed."""
    return {
        name: parameter
        for name, parameter in loss.named_parameters()
        if parameter.requires_grad and not name.startswith("model.")
    }


class HeadedLoss(nn.Module):
    """A sentence-transformers loss with weights of its own.

    A subclass sets ``self.model`` (the trainer puts a distributed wrapper in place of the child of that name, and only of
    that one), calls :meth:`share_over_processes` at the end of its constructor and :meth:`begin_step` at the start of
    ``forward``. Then it works in the stock trainer and in ours.
    """

    model: nn.Module
    gradient_cache: int = 0
    """Sentences that go through the encoder at a time (:mod:`selfguide.engine.gradient_cache`); 0: all. For losses that
    can take their batch in chunks."""
    watch: Callable[[Tensor], None] | None = None
    """Told the embeddings of a step where the model's own hooks are not run."""
    _trained: tuple[list[nn.Parameter], list[nn.Parameter]] | None = None

    def prepare(self, run: Preparation) -> None:
        """Make ready what a run needs, before it begins."""
        if self.gradient_cache and torch.distributed.is_available() and torch.distributed.is_initialized():
            raise UsageError("gradient_cache works in one process; leave it out of a distributed run.")

    def on_host(self, features: dict[str, Any], rows: list[int]) -> dict[str, Any]:
        """Add to a batch what can be made before it goes to the device; ``rows``: of the tokenised text."""
        return features

    def begin_step(self) -> None:
        """Clear the own weights' gradients whenever the model's have been cleared.

        The trainer clears the model's gradients after a step; before sentence-transformers 6.2 it left those of the loss
        standing, and a head that adds up the gradients of all steps learns nothing.
        """
        if not self.training:
            return
        if self._trained is None:  # walking through the modules takes longer than a step should wait
            of_model = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
            self._trained = (of_model, list(own_parameters(self).values()))
        of_model, own = self._trained
        if all(parameter.grad is None for parameter in of_model):
            for parameter in own:
                parameter.grad = None

    def moving_state(self) -> dict[str, Tensor]:
        """What training changes without a gradient, by name: a queue, an average of weights. Checkpoints keep it.

        Nothing, unless a loss says otherwise. The tensors must be the loss's own, since a checkpoint is copied into them.
        """
        return {}

    def share_over_processes(self) -> None:
        """Keep the own weights the same in every process of a distributed run.

        The trainer wraps the model for distribution, not the loss, so these gradients are averaged here. Averaging the
        accumulated gradient again at the next batch is harmless: what was averaged before is equal everywhere.
        """
        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            return

        def average(parameter: Tensor) -> None:
            if parameter.grad is not None:
                torch.distributed.all_reduce(parameter.grad)
                parameter.grad /= torch.distributed.get_world_size()

        for parameter in own_parameters(self).values():
            parameter.register_post_accumulate_grad_hook(average)


def single(tensor: Tensor) -> Tensor:
    """At least single precision: half precision is raised, double stays."""
    return tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()
