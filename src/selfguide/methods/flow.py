"""BERT-flow: an invertible map, learned on the text, that turns the encoder's embeddings into a standard Gaussian.

Embeddings of a pre-trained Transformer fill a narrow, uneven region, in which cosines say little. Keep the encoder fixed,
take the mean of its last two layers' tokens as x, and learn an invertible map z = f(x) under which the text's embeddings look
like draws from N(0, I), by maximum likelihood:

    log p(x) = log N(f(x); 0, I) + log |det ∂f(x)/∂x|               minimise −log p(x) / d over the text
    sentence embedding = z

f is a small Glow: 3 levels of 3 steps (actnorm, mixing, additive coupling with networks of width 32); after each level but
the last, half of the dimensions leave, and z is all of them concatenated (:mod:`selfguide.models.modules.flow`). An embedding
has no spatial dimensions, so nothing is squeezed: it is an image of 1 × 1 pixels with d channels. A width that is odd at some
level is split unevenly. One epoch, AdamW with betas (0.9, 0.999), a constant learning rate of 1e-3, batches of 32, gradient
norm clipped at 1.

Choices of the authors' released code, and of this one:

* Its configuration mixes channels by reversing their order, which is the default here too (``--mixing reverse``). Glow's own
  mixing, a learned matrix (1×1 convolution), is ``--mixing linear``. BERT's embeddings lie close to a hyperplane; a learned
  matrix can find the flat direction and raise the likelihood without bound by amplifying its rounding errors. Noise of a
  thousandth of the embeddings' standard deviation, added during training, bounds that (and dimensions that never vary).
* Its "mean of the last two layers" counts layers so that it takes the first and the last. ``--pooling last2`` is what the
  paper says, ``--pooling first-last`` what that code computes.
* It initialises actnorm by the first batch of 32, this one by up to 1,024 sentences. It trains while encoding, with both
  sentences of a pair in a step; here embeddings are computed once and kept on disk.

The result holds a module that stock sentence-transformers does not have: ``selfguide.load(folder)`` loads it.

References: Li et al., On the Sentence Embeddings from Pre-trained Language Models, EMNLP 2020; Kingma and Dhariwal, Glow:
Generative Flow with Invertible 1×1 Convolutions, NeurIPS 2018.
"""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from transformers import set_seed

from selfguide.errors import SelfguideError
from selfguide.files import reserve
from selfguide.methods.base import Method
from selfguide.models.encoders import POOLINGS, with_pooling
from selfguide.models.modules.flow import MIXINGS, Flow
from selfguide.options import AtLeast, CheckedOptions, OneOf
from selfguide.training.settings import TrainingSettings
from selfguide.training.trainer import FitContext, TrainingOutcome

if TYPE_CHECKING:
    from numpy.typing import NDArray

KEEP = "keep"
FIRST_SENTENCES = 1024
"""Sentences that initialise actnorm."""
NOISE = 1e-3
"""Standard deviation of the noise in training, relative to the mean standard deviation of the dimensions."""

CITATION = """\
@inproceedings{li-etal-2020-sentence,
    title = "On the Sentence Embeddings from Pre-trained Language Models",
    author = "Li, Bohan and Zhou, Hao and He, Junxian and Wang, Mingxuan and Yang, Yiming and Li, Lei",
    booktitle = "Proceedings of EMNLP 2020",
    year = "2020",
}"""


@dataclass(frozen=True)
class FlowOptions(CheckedOptions):
    """Options of the flow; the defaults are the authors'."""

    pooling: Annotated[str, OneOf(*POOLINGS, KEEP)] = "last2"
    """Pooling of what the flow maps: last2, first-last, cls, mean, max, or keep for the encoder's own embedding."""
    mixing: Annotated[str, OneOf(*MIXINGS)] = "reverse"
    """How channels are mixed between couplings: reverse (their order) or linear (a learned matrix, as in Glow)."""
    levels: Annotated[int, AtLeast(1)] = 3
    """Levels; after each but the last, half of the dimensions leave."""
    depth: Annotated[int, AtLeast(1)] = 3
    """Steps (actnorm, mixing, coupling) in each level."""
    width: Annotated[int, AtLeast(1)] = 32
    """Hidden width of the coupling networks."""


class FlowMethod(Method):
    """``--method flow``."""

    name = "flow"
    family = "calibration"
    summary = "an invertible map, learned on the text, that makes the embeddings Gaussian (BERT-flow)"
    reference = "Li et al., EMNLP 2020"
    seeded = True
    trains = True
    cost = "one forward pass and a small flow"
    Options = FlowOptions
    options: FlowOptions
    # The authors' script: AdamWeightDecay at 1e-3 without a schedule, gradients clipped at 1.
    defaults = TrainingSettings(
        learning_rate=1e-3, batch_size=32, warmup=0.0, schedule="constant", weight_decay=0.01, patience=0
    )
    without_effect = frozenset(
        {"max_length", "beta2", "dev_every", "patience", "checkpoint_minutes", "precision", "track", "schedule"}
    )
    citation = CITATION
    search = {
        "learning_rate": (3e-4, 1e-3, 3e-3),
        "batch_size": (32, 64, 128),
        "pooling": ("last2", "first-last", "mean"),
        "levels": (1, 2, 3),
        "width": (32, 64),
    }

    def fit(self, encoder: SentenceTransformer, context: FitContext) -> TrainingOutcome:
        """See :meth:`Method.fit`."""
        options, started = self.options, time.monotonic()
        pooled = encoder if options.pooling == KEEP else with_pooling(encoder, options.pooling)
        pooled.eval()
        set_seed(context.settings.seed)
        width = int(pooled.get_embedding_dimension() or 0)
        flow = Flow(width, options.levels, options.depth, options.width, options.mixing).to(pooled.device)
        with _vectors_on_disk(pooled, context) as vectors:
            steps, loss = train_flow(flow, vectors, context)
        modules: list[nn.Module] = [*pooled, flow.requires_grad_(False)]
        mapped = SentenceTransformer(modules=modules, device=str(pooled.device)).eval()
        seconds = time.monotonic() - started
        return TrainingOutcome(
            mapped,
            steps=steps,
            seconds=seconds,
            sentences_per_second=len(context.text) / max(seconds, 1e-9),
            final_loss=loss,
        )


def train_flow(flow: Flow, vectors: NDArray[np.float32], context: FitContext) -> tuple[int, float]:
    """Train a flow by maximum likelihood.

    Args:
        flow: The flow, trained in place.
        vectors: The embeddings of the text (count, dim).
        context: The training settings and the reporter.

    Returns:
        The number of steps, and the mean loss of the last ten.

    Raises:
        SelfguideError: All embeddings are equal, or the loss is not finite.
    """
    settings, device = context.settings, next(flow.parameters()).device
    size = min(settings.batch_size * settings.gradient_accumulation, len(vectors))
    per_epoch = math.ceil(len(vectors) / size)
    steps = settings.max_steps or math.ceil(settings.epochs * per_epoch)
    batches = _batches(vectors, size, settings.seed, device)
    first = _first_vectors(vectors, settings.seed, device)
    noise = NOISE * float(first.std(dim=0, correction=0).mean())
    if noise == 0:
        raise SelfguideError(
            "All sentences of this text have the same embedding; there is nothing for a flow to learn."
        )
    flow.initialise(first + noise * torch.randn_like(first))
    # Not fused=True, which rounds differently on a CPU without AVX; the parameters are few.
    optimiser = torch.optim.AdamW(
        flow.parameters(), settings.learning_rate, betas=(0.9, 0.999), eps=1e-6, weight_decay=settings.weight_decay
    )
    climb = max(1, math.ceil(settings.warmup * steps))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: min(1.0, (step + 1) / climb))
    recent: deque[float] = deque(maxlen=10)
    with context.reporter.bar("training", steps * size, "sentences") as advance:
        for step in range(1, steps + 1):
            batch = next(batches)
            loss = flow.negative_log_likelihood(batch + noise * torch.randn_like(batch)).mean()
            recent.append(loss.item())
            if not math.isfinite(recent[-1]):
                raise SelfguideError(
                    f"The flow's loss is not a finite number at step {step}; lower the learning rate (--learning-rate)."
                )
            optimiser.zero_grad()
            loss.backward()
            if settings.gradient_clip:
                torch.nn.utils.clip_grad_norm_(flow.parameters(), settings.gradient_clip)
            optimiser.step()
            schedule.step()
            advance(size, f"loss {recent[-1]:.3f}")
    return steps, sum(recent) / len(recent)


def _batches(vectors: NDArray[np.float32], size: int, seed: int, device: torch.device) -> Iterator[Tensor]:
    """Yield batches without end, in a new order in each epoch."""
    draw = np.random.default_rng(seed)
    while True:
        order = draw.permutation(len(vectors))
        for start in range(0, len(order), size):
            # Sorted, because rows of a memory-mapped file are read fastest in its order.
            yield torch.from_numpy(vectors[np.sort(order[start : start + size])]).to(device)


def _first_vectors(vectors: NDArray[np.float32], seed: int, device: torch.device) -> Tensor:
    chosen = np.random.default_rng(seed).permutation(len(vectors))[:FIRST_SENTENCES]
    return torch.from_numpy(vectors[np.sort(chosen)]).to(device)


@contextmanager
def _vectors_on_disk(encoder: SentenceTransformer, context: FitContext) -> Iterator[NDArray[np.float32]]:
    """Encode the text into a temporary file of the work folder, and yield it memory-mapped."""
    path = Path(context.work) / f"vectors-{os.getpid()}.npy"
    shape = (len(context.text), int(encoder.get_embedding_dimension() or 0))
    try:
        vectors = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
        reserve(path)
        done = 0
        with context.reporter.bar("encoding", len(context.text), "sentences") as advance:
            for rows in context.text.iter(batch_size=4096):
                sentences = list(rows["sentence"])
                batch_size = max(64, context.settings.batch_size)
                chunk = encoder.encode(sentences, batch_size=batch_size, show_progress_bar=False)
                vectors[done : done + len(sentences)] = chunk
                done += len(sentences)
                advance(len(sentences), "")
                if not np.isfinite(chunk).all():
                    raise SelfguideError("The encoder gave embeddings that are not finite; choose another encoder.")
        yield vectors
        del vectors  # before the file is deleted
    finally:
        path.unlink(missing_ok=True)
