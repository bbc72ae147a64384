"""Monitors of a run: a loss that is not finite stops it, a collapse of the embeddings is reported."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import TrainerCallback

from selfguide.errors import SelfguideError
from selfguide.progress import Reporter

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from transformers import TrainerControl, TrainerState

# Reading the loss on a GPU waits for the device, so it is read only at intervals there.
_GPU_CHECK_INTERVAL = 20


class FiniteLossMonitor(TrainerCallback):
    """Stop training when the loss is not finite."""

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Raise a ``SelfguideError`` if the step's loss is not finite."""
        loss: Tensor | None = getattr(state, "last_loss", None)
        if loss is None or (loss.device.type != "cpu" and state.global_step % _GPU_CHECK_INTERVAL):
            return
        if not bool(torch.isfinite(loss)):
            raise SelfguideError(
                f"The loss was not finite at step {state.global_step} (it was {float(loss)}): training has diverged. "
                "Lower the learning rate (--learning-rate), or raise the temperature (--temperature)."
            )


class CollapseMonitor(TrainerCallback):
    """Warn once when the embeddings of recent batches collapse: mean cosine near 1, or a low effective rank.

    Both are compared with their values at the start, because the [CLS] vectors of a raw BERT are similar from the start.

    Args:
        student: The model in training; its embeddings are observed by a forward hook.
        reporter: Receives the warning.
    """

    window = 8
    every = 25

    def __init__(self, student: SentenceTransformer, reporter: Reporter) -> None:
        self.reporter = reporter
        self.warned = False
        self._recent: deque[Tensor] = deque(maxlen=self.window)
        self._first: tuple[float, float] | None = None
        self._hook = student.register_forward_hook(self._on_forward)

    def detach(self) -> None:
        """Stop observing the model: the hook would go with every copy of the finished encoder, and the reporter with it."""
        self._hook.remove()

    def observe(self, embeddings: Tensor) -> None:
        """Add a batch of embeddings to the recent ones."""
        self._recent.append(embeddings.detach())

    def _on_forward(self, module: Any, inputs: Any, output: dict[str, Tensor]) -> None:
        # While a CUDA graph is captured nothing is computed; the loss passes on the embeddings of each replay.
        capturing = output["sentence_embedding"].device.type == "cuda" and torch.cuda.is_current_stream_capturing()
        if module.training and not capturing:
            self.observe(output["sentence_embedding"])

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Compare the recent embeddings with the first ones, at regular intervals."""
        due = state.global_step % self.every == 0 or state.global_step == self.window
        if self.warned or not due or len(self._recent) < self.window:
            return
        sample = torch.cat(list(self._recent)).float()
        cosine, rank = mean_cosine(sample), effective_rank(sample)
        if self._first is None:
            self._first = (cosine, rank)
            return
        if not has_collapsed(self._first, (cosine, rank)):
            return
        self.warned = True
        self.reporter.warn(
            f"the embeddings are collapsing at step {state.global_step}: mean cosine between sentences {cosine:.3f} "
            f"(was {self._first[0]:.3f}), effective rank {rank:.1f} (was {self._first[1]:.1f}). "
            "Lower the learning rate, raise the batch size, or look for repeated sentences in the text."
        )


def has_collapsed(first: tuple[float, float], now: tuple[float, float]) -> bool:
    """Return whether embeddings have collapsed, by their (mean cosine, effective rank) at the start and now."""
    all_alike = now[0] > 0.99 and now[0] > first[0]
    low_rank = now[1] < 0.25 * first[1]
    return all_alike or low_rank


def mean_cosine(vectors: Tensor) -> float:
    """Return the mean cosine over all pairs of different rows."""
    count = len(vectors)
    total = F.normalize(vectors, dim=-1).sum(dim=0).square().sum()
    return float((total - count) / (count * (count - 1)))


def effective_rank(vectors: Tensor) -> float:
    """Return how many dimensions the rows use: exp of the entropy of the centred rows' normalised singular values."""
    values = torch.linalg.svdvals(vectors - vectors.mean(dim=0))
    total = values.sum()
    if not total > 0:
        return 1.0
    share = values / total
    return float(torch.exp(-(share * torch.log(share.clamp(min=1e-12))).sum()))
