"""Losses that train weights of their own beside the model's: a projection head, a decoder, a second encoder.

The trainer knows the model; what else a loss trains needs care in three places, and all of it is here or in
:mod:`selfguide.training`: old gradients, distribution, and checkpoints.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


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

    def begin_step(self) -> None:
        """Clear the own weights' gradients whenever the model's have been cleared.

        The trainer clears the model's gradients after a step; before sentence-transformers 6.2 it left those of the loss
        standing, and a head that adds up the gradients of all steps learns nothing.
        """
        if not self.training:
            return
        if all(parameter.grad is None for parameter in self.model.parameters() if parameter.requires_grad):
            for parameter in own_parameters(self).values():
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
