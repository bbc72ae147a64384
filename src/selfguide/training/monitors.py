"""Watching a run: a loss that is not finite stops it, embeddings that collapse are reported."""

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

# On a GPU, looking at the loss waits for the device, so it is looked at only now and then there.
_LOOK_EVERY_ON_GPU = 20


class FiniteLossMonitor(TrainerCallback):
    """Stop in words when the loss is not a number any more."""

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        loss: Tensor | None = getattr(state, "last_loss", None)
        if loss is None or (loss.device.type != "cpu" and state.global_step % _LOOK_EVERY_ON_GPU):
            return
        if not bool(torch.isfinite(loss)):
            raise SelfguideError(
                f"The loss was not finite at step {state.global_step} (it was {float(loss)}): training has diverged. "
                "Lower the learning rate (--learning-rate), or raise the temperature (--temperature)."
            )


class CollapseMonitor(TrainerCallback):
    """Warn once when the embeddings of recent batches become alike: mean cosine near 1, or hardly any dimension in use.

    The first look is the yardstick: a raw BERT's [CLS] vectors are alike to begin with, so what counts is getting worse.
    """

    window = 8
    every = 25

    def __init__(self, student: SentenceTransformer, reporter: Reporter) -> None:
        self.reporter = reporter
        self.warned = False
        self._recent: deque[Tensor] = deque(maxlen=self.window)
        self._first: tuple[float, float] | None = None
        student.register_forward_hook(self._look)

    def remember(self, embeddings: Tensor) -> None:
        """Take note of a batch."""
        self._recent.append(embeddings.detach())

    def _look(self, module: Any, inputs: Any, output: dict[str, Tensor]) -> None:
        # While a GPU records a step nothing is computed; the loss tells what comes out when it is replayed.
        recording = output["sentence_embedding"].device.type == "cuda" and torch.cuda.is_current_stream_capturing()
        if module.training and not recording:
            self.remember(output["sentence_embedding"])

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        due = state.global_step % self.every == 0 or state.global_step == self.window
        if self.warned or not due or len(self._recent) < self.window:
            return
        sample = torch.cat(list(self._recent)).float()
        alike, rank = mean_cosine(sample), effective_rank(sample)
        if self._first is None:
            self._first = (alike, rank)
            return
        if not has_collapsed(self._first, (alike, rank)):
            return
        self.warned = True
        self.reporter.warn(
            f"the embeddings are collapsing at step {state.global_step}: mean cosine between sentences {alike:.3f} "
            f"(was {self._first[0]:.3f}), effective rank {rank:.1f} (was {self._first[1]:.1f}). "
            "Lower the learning rate, raise the batch size, or look for repeated sentences in the text."
        )


def has_collapsed(first: tuple[float, float], now: tuple[float, float]) -> bool:
    """(mean cosine, effective rank) at the start and now."""
    all_alike = now[0] > 0.99 and now[0] > first[0]
    flat = now[1] < 0.25 * first[1]
    return all_alike or flat


def mean_cosine(vectors: Tensor) -> float:
    """Mean cosine over all pairs of different rows."""
    count = len(vectors)
    total = F.normalize(vectors, dim=-1).sum(dim=0).square().sum()
    return float((total - count) / (count * (count - 1)))


def effective_rank(vectors: Tensor) -> float:
    """exp of the entropy of the normalised singular values of the centred rows: how many dimensions are really used."""
    values = torch.linalg.svdvals(vectors - vectors.mean(dim=0))
    total = values.sum()
    if not total > 0:
        return 1.0
    share = values / total
    return float(torch.exp(-(share * torch.log(share.clamp(min=1e-12))).sum()))
