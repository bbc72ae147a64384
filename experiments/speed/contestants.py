"""The training steps that are compared: the plain loop, selfguide, and sentence-transformers; and their encoders and text."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import Tensor, nn
from transformers import AutoTokenizer, BertConfig, BertModel

from experiments.speed.plain_loop import PlainSelfGuidance
from selfguide.data.pairs import read_pairs
from selfguide.data.resources import demo_sentences, mini_folder
from selfguide.engine.tokens import TokenCollator, TokenisedText
from selfguide.losses.base import Preparation
from selfguide.losses.self_guided import SelfGuidedLoss
from selfguide.models.encoders import load_encoder, quiet_libraries
from selfguide.progress import Reporter
from selfguide.training.settings import TrainingSettings

Step = Callable[[list[str]], None]


SHAPES: dict[str, dict[str, int]] = {
    "bert-base": {},
    "mini-shape": {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536},
    "tiny": {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64},
}


def sentences() -> tuple[str, list[str]]:
    """Return a description of the text, and its sentences in random order.

    The text is STS-B's if ``SELFGUIDE_DATA`` has it, otherwise the package's demonstration sentences.
    """
    data = os.environ.get("SELFGUIDE_DATA")
    folder = Path(data) / "sts" / "stsb" if data else None
    if folder is None or not folder.is_dir():
        return "the package's demonstration sentences", demo_sentences()
    pairs = [read_pairs(folder / f"{part}.tsv") for part in ("train", "dev", "test")]
    found = list(dict.fromkeys(text for part in pairs for text in (*part.first, *part.second)))
    random.Random(0).shuffle(found)
    return "STS-B sentences (train, dev, test), repeats dropped", found


@contextmanager
def encoder_folder(name: str, layers: int = 12) -> Iterator[Path]:
    """Provide ``mini``, or a randomly initialised BERT of one of the ``SHAPES`` and the given depth."""
    if name == "mini":
        yield mini_folder()
        return
    with tempfile.TemporaryDirectory() as folder:
        yield random_bert(Path(folder), num_hidden_layers=layers, **SHAPES[name])


def random_bert(folder: Path, **shape: int) -> Path:
    """Save a randomly initialised BERT, BERT-base by default, with the embedded encoder's tokenizer.

    Args:
        folder: Where to save it.
        **shape: Options of the configuration.

    Returns:
        The folder.
    """
    torch.manual_seed(0)
    with quiet_libraries():
        BertModel(BertConfig(**shape)).save_pretrained(folder)
        tokenizer = AutoTokenizer.from_pretrained(mini_folder())
        tokenizer.model_max_length = 512
        tokenizer.save_pretrained(folder)
    return folder


class SelfguideStep:
    """selfguide's training step as its trainer runs it: text tokenised in advance, batches packed on the host, cached views."""

    def __init__(
        self,
        folder: Path,
        text: list[str],
        work: Path,
        device: str = "cpu",
        half: torch.dtype | None = None,
        **settings: Any,
    ) -> None:
        """Load the encoder, and prepare the loss for a text.

        Args:
            folder: The encoder.
            text: All sentences that steps will be made of.
            work: A folder for the cached views.
            device: Where to train.
            half: The type of autocast, if any.
            **settings: Options of the loss.
        """
        encoder = load_encoder(folder, pooling="cls", max_length=128, device=device)
        self.loss = SelfGuidedLoss(encoder, keep_views="yes", **settings).to(device).train()
        if half is not None:  # as the trainer does it
            encoder.forward = torch.autocast(device, dtype=half)(encoder.forward)
        self.notes: list[str] = []
        reporter = Reporter(quiet=True)
        reporter.note = self.notes.append  # type: ignore[method-assign, assignment]
        tokens = TokenisedText(encoder, text)
        with patch.dict(os.environ, {"SELFGUIDE_CACHE": str(work)}):
            self.loss.prepare(Preparation(TrainingSettings(), work, reporter, tokens, half=half))
        self._kept = self.loss._kept
        self.collate = TokenCollator(tokens, self.loss.on_host)
        self._device = device
        self.finish = optimiser_step(self.loss, fused=True)

    def features(self, batch: list[str], kept: bool) -> dict[str, Any]:
        """Return a batch for the loss, which then uses the cached views if ``kept``, otherwise the guide."""
        self.loss._kept = self._kept if kept else None
        made = self.collate([{"s": sentence} for sentence in batch])
        return {name.removeprefix("s_"): _moved(value, self._device) for name, value in made.items()}

    def step(self, batch: list[str], kept: bool) -> None:
        """Train on a batch, with the cached views if ``kept``, otherwise with a forward pass of the guide."""
        self.finish(self.loss([self.features(batch, kept)]))


def plain_step(folder: Path, device: str = "cpu", half: torch.dtype | None = None) -> Step:
    """Return the plain loop's step; its guide has no dropout, as ours, so that both do the same work."""
    module = PlainSelfGuidance(load_encoder(folder, pooling="cls", max_length=128, device=device)).to(device).train()
    module.guide.eval()
    finish = optimiser_step(module, fused=False)

    def step(batch: list[str]) -> None:
        with torch.autocast(device, dtype=half) if half is not None else nullcontext():
            loss = module(batch)
        finish(loss)

    return step


def simcse_step(folder: Path, device: str = "cpu") -> Step:
    """Return the step of SimCSE in sentence-transformers: its ranking loss on each sentence paired with itself."""
    encoder = load_encoder(folder, pooling="cls", max_length=128, device=device)
    loss = MultipleNegativesRankingLoss(encoder).to(device).train()
    finish = optimiser_step(loss, fused=False)

    def step(batch: list[str]) -> None:
        columns = [{n: _moved(v, device) for n, v in encoder.preprocess(batch).items()} for _ in range(2)]
        finish(loss(columns, None))

    return step


def optimiser_step(module: nn.Module, fused: bool) -> Callable[[Tensor], None]:
    """Return what follows a loss: backward pass, clipping, AdamW."""
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    optimiser = torch.optim.AdamW(parameters, lr=5e-5, betas=(0.9, 0.9), fused=fused)

    def finish(loss: Tensor) -> None:
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        optimiser.zero_grad()

    return finish


def _moved(value: Any, device: str) -> Any:
    if not hasattr(value, "to"):
        return value
    return (value.pin_memory() if device == "cuda" else value).to(device, non_blocking=True)
