"""What the losses of this package share, and what a trainer may offer them.

Every loss is an ordinary sentence-transformers loss: an ``nn.Module`` that holds the model under the name ``model`` and has
``forward(sentence_features, labels)``. Many also train weights of their own: a projection head, a decoder, a second encoder.
These need care in three places, all of it here and in :mod:`selfguide.training.trainer`: stale gradients, distributed runs and
checkpoints.

The stock ``SentenceTransformerTrainer`` needs nothing more. The trainer of :func:`selfguide.train` also calls
:meth:`HeadedLoss.prepare` once before a run and :meth:`HeadedLoss.on_host` for each batch before it goes to the device, saves
:meth:`HeadedLoss.moving_state` in checkpoints and sets :attr:`HeadedLoss.watch`. A loss that uses none of these inherits
defaults that do nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import torch
from sentence_transformers.sentence_transformer.modules import Transformer
from torch import Tensor, nn

from selfguide.augment.dropout import KEEP_DROPOUT, set_dropout
from selfguide.augment.embeddings import frame_ids
from selfguide.augment.encoding import Change, Features, embed
from selfguide.engine.tokens import TokenisedText
from selfguide.losses.shared_batch import SharedBatch, is_distributed
from selfguide.models.encoders import backbone, freeze_layer_zero, freeze_unused
from selfguide.progress import Reporter

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from transformers import PreTrainedModel


class RunSettings(Protocol):
    """The training settings that a loss may ask for; :class:`~selfguide.training.settings.TrainingSettings` has them."""

    @property
    def epochs(self) -> float:
        """Passes over the text."""

    @property
    def max_steps(self) -> int:
        """Steps after which training stops; 0: after ``epochs``."""

    @property
    def batch_size(self) -> int:
        """Sentences per step and device."""

    @property
    def gradient_accumulation(self) -> int:
        """Batches whose gradients are summed before the weights are updated."""

    @property
    def share_negatives(self) -> bool:
        """Whether the processes of a distributed run contrast over the batches of all."""


@dataclass(frozen=True)
class Preparation:
    """What a loss may know about a run before it starts."""

    settings: RunSettings
    work: Path
    """Folder of the run, for files that a resumed run must find again."""
    reporter: Reporter
    text: TokenisedText | None = None
    """The tokenised text, where it is tokenised before training."""
    columns: int = 1
    """Text columns of the dataset."""
    half: torch.dtype | None = None
    """Data type of autocast; ``None``: the encoder runs in that of its weights."""
    resume: bool = False


class HeadedLoss(nn.Module):
    """Base of losses, with or without weights of their own.

    A custom loss sets its attributes and modules, calls :meth:`share_over_processes` at the end of its constructor and
    :meth:`begin_step` at the start of ``forward`` (both may be left out if it has no weights of its own):

        class DistillationLoss(HeadedLoss):
            config_names = ("weight", "dropout")

            def __init__(self, model, weight=1.0, dropout=KEEP_DROPOUT):
                super().__init__(model, dropout)
                self.weight = weight
                self.head = nn.Linear(model.get_embedding_dimension(), 64).to(model.device)
                self.share_over_processes()

            def forward(self, sentence_features, labels=None):
                self.begin_step()
                (features,) = sentence_features
                embeddings = self.encode(features)["sentence_embedding"]
                with full_precision(embeddings):
                    return self.weight * F.mse_loss(self.head(single(embeddings)), labels)

    Args:
        model: The SentenceTransformer to be trained.
        dropout: Rate of every dropout in the Transformer during training; −1 keeps the encoder's own.
        freeze_layer_0: Do not train the embedding layer.

    Raises:
        SelfguideError: The model does not start with a Transformer, and the loss needs one.
    """

    citation: str = ""
    """BibTeX entry of the paper, for model cards."""
    config_names: ClassVar[tuple[str, ...]] = ()
    """Attributes that :meth:`get_config_dict` returns."""
    needs_transformer: ClassVar[bool] = True
    """Whether the model must start with a Transformer; word vectors and the like are refused otherwise."""
    gradient_cache: int = 0
    """Sentences that pass through the encoder at a time (:mod:`selfguide.engine.gradient_cache`); 0: the whole batch."""
    share_negatives: bool = True
    """Whether the processes of a distributed run contrast over the batches of all, as one process with the whole batch would."""
    watch: Callable[[Tensor], None] | None = None
    """Called with the embeddings of a step that bypasses the model's forward hooks."""
    _trained: tuple[list[nn.Parameter], list[nn.Parameter]] | None = None

    def __init__(self, model: SentenceTransformer, dropout: float = KEEP_DROPOUT, freeze_layer_0: bool = False) -> None:
        super().__init__()
        self.dropout, self.freeze_layer_0 = dropout, freeze_layer_0
        if self.needs_transformer or isinstance(model[0], Transformer):
            set_dropout(model, dropout)
            if freeze_layer_0:
                freeze_layer_zero(model)
            freeze_unused(model)
        # The first child: parameters that it shares with other children then count as the model's, not as the loss's own.
        self.model: nn.Module = model
        self._encoders = (model,)  # in a tuple, so that it is not registered as a second child

    @property
    def encoder(self) -> SentenceTransformer:
        """The SentenceTransformer itself; in a distributed run a trainer replaces ``model`` by a wrapper."""
        return self._encoders[0]

    @property
    def transformer(self) -> PreTrainedModel:
        """The Hugging Face model inside the encoder."""
        return backbone(self.encoder)

    @property
    def padding_id(self) -> int:
        """Id of the tokenizer's padding token."""
        return int(self.encoder.tokenizer.pad_token_id)

    @cached_property
    def frame_ids(self) -> set[int]:
        """Ids of the tokens around a sentence: [CLS], [SEP] and padding."""
        return frame_ids(self.encoder.tokenizer)

    def encode(self, features: Features, change: Change | None = None) -> Features:
        """Encode a tokenised batch with the model.

        Args:
            features: The batch.
            change: Applied to the embedding layer's output, if given.

        Returns:
            The model's output, with ``sentence_embedding`` and ``token_embeddings``.
        """
        return embed(self.model, self.transformer, features, change)

    def get_config_dict(self) -> dict[str, Any]:
        """Return the loss's settings, as model cards show them; of a head, whether there is one."""
        values = {name: getattr(self, name) for name in self.config_names}
        return {
            name: not isinstance(value, nn.Identity) if isinstance(value, nn.Module) else value
            for name, value in values.items()
        }

    def prepare(self, run: Preparation) -> None:
        """Prepare for a run, once before it starts.

        Args:
            run: What is known about the run.

        Raises:
            SelfguideError: The loss cannot be used in this run.
        """
        self.share_negatives = run.settings.share_negatives

    def on_host(self, features: dict[str, Any], rows: list[int]) -> dict[str, Any]:
        """Add to a batch what can be made before it goes to the device.

        Args:
            features: The collated batch, on the CPU.
            rows: Its rows of the tokenised text.

        Returns:
            The batch, changed or not.
        """
        return features

    def begin_step(self) -> None:
        """Clear the gradients of the loss's own weights whenever those of the model have been cleared.

        A trainer clears the model's gradients after a step; before sentence-transformers 6.2 it did not clear those of the
        loss, and a head whose gradients add up over all steps learns nothing.
        """
        if not self.training:
            return
        if self._trained is None:  # kept, because walking through all modules is slow compared with a step
            of_model = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
            self._trained = (of_model, list(own_parameters(self).values()))
        of_model, own = self._trained
        if all(parameter.grad is None for parameter in of_model):
            for parameter in own:
                parameter.grad = None

    def shared_batch(self, vectors: Tensor) -> SharedBatch | None:
        """Return how the processes share this batch.

        Args:
            vectors: Those of this process (batch, …).

        Returns:
            The shared batch, or ``None`` in a run of one process, without :attr:`share_negatives`, and outside training, where
            one process may be alone with a batch.
        """
        if not (self.share_negatives and self.training and is_distributed()):
            return None
        return SharedBatch(len(vectors), vectors.device)

    def over_processes(self, contrast: Callable[..., Tensor], first: Tensor, second: Tensor, sharpness: Any) -> Tensor:
        """Compute a contrast over the batches of all processes.

        Args:
            contrast: One of :mod:`selfguide.losses.functional` that takes ``own``.
            first: First vectors of this process's sentences (batch, …).
            second: Second vectors (batch, …).
            sharpness: The temperature or scale, its third argument.

        Returns:
            The loss; its mean over the processes is that of the whole batch.
        """
        shared = self.shared_batch(first)
        if shared is None:
            return contrast(first, second, sharpness)
        share = contrast(shared.gather(first), shared.gather(second), sharpness, own=shared.own)
        return shared.processes * share

    def mean_weight(self, count: int, device: torch.device) -> float:
        """Return what to multiply the mean of some terms by, so that it counts by the number of terms in each process.

        Args:
            count: Terms of this process.
            device: Where the numbers are exchanged.

        Returns:
            The weight; 1 in a run of one process.
        """
        if not (self.share_negatives and self.training and is_distributed()):
            return 1.0
        shared = SharedBatch(count, device)
        total = sum(shared.counts)
        return shared.processes * count / total if total else 1.0

    def moving_state(self) -> dict[str, Tensor]:
        """Return the tensors that training changes without a gradient, by name, for checkpoints: a queue, a moving average.

        A checkpoint is copied into the returned tensors, so they must be the loss's own.
        """
        return {}

    def share_over_processes(self) -> None:
        """Average the gradients of the loss's own weights over the processes of a distributed run.

        A trainer wraps the model for distribution, not the loss. With gradient accumulation a gradient is averaged again at
        the next batch, which is harmless: the part averaged before is equal in all processes.
        """
        if not is_distributed():
            return

        def average(parameter: Tensor) -> None:
            if parameter.grad is not None:
                torch.distributed.all_reduce(parameter.grad)
                parameter.grad /= torch.distributed.get_world_size()

        for parameter in own_parameters(self).values():
            parameter.register_post_accumulate_grad_hook(average)


def own_parameters(loss: nn.Module) -> dict[str, nn.Parameter]:
    """Return the trained parameters of a loss that are not the model's, by name."""
    return {
        name: parameter
        for name, parameter in loss.named_parameters()
        if parameter.requires_grad and not name.startswith("model.")
    }


def projection_head(width: int, size: int, spread: float) -> nn.Module:
    """Make the head of self-guidance: Linear → GELU → Linear → GELU.

    Args:
        width: Dimension of its input.
        size: Dimension of both layers; 0 for no head.
        spread: Standard deviation of the initial weights.

    Returns:
        The head; without a size the identity.
    """
    if size == 0:
        return nn.Identity()
    head = nn.Sequential(nn.Linear(width, size), nn.GELU(), nn.Linear(size, size), nn.GELU())
    for module in head:
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=spread)
            nn.init.zeros_(module.bias)
    return head


def single(tensor: Tensor) -> Tensor:
    """Return a tensor in at least single precision: half precision is raised, double precision kept."""
    return tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()


def full_precision(tensor: Tensor) -> torch.autocast:
    """Return a context without autocast on a tensor's device: logits reach 1/τ = 100, where bfloat16 has steps of 0.5."""
    return torch.autocast(tensor.device.type, enabled=False)
