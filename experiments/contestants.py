"""Who is measured in the training benchmarks: the plain loop, selfguide, and sentence-transformers; and on what."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from experiments.plain import PlainSelfGuidance
from selfguide.data.pairs import read_pairs
from selfguide.data.resources import demo_sentences, mini_folder
from selfguide.engine.tokens import TokenCollator, TokenisedText
from selfguide.losses.base import Preparation
from selfguide.losses.self_guided import SelfGuidedLoss
from selfguide.models.encoders import load_encoder
from selfguide.progress import Reporter
from selfguide.training.settings import TrainingSettings

Step = Callable[[list[str]], None]


def sentences() -> tuple[str, list[str]]:
    """What the text is, and its sentences in random order: STS-B's where ``SELFGUIDE_DATA`` has them, else the package's."""
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
    """``mini``, or random weights in BERT-base's shape or in mini's shape (``mini-shape``) with so many layers."""
    if name == "mini":
        yield mini_folder()
        return
    from transformers import BertConfig, BertModel

    shapes: dict[str, dict[str, int]] = {
        "bert-base": {},
        "mini-shape": {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536},
        "tiny": {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64},
    }
    with tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(0)
        BertModel(BertConfig(num_hidden_layers=layers, **shapes[name])).save_pretrained(folder)
        for file in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(mini_folder() / file, folder)
        yield Path(folder)


class Ours:
    """selfguide's step, as its trainer runs it: tokens made ahead, batches made on the host, kept views if wanted."""

    def __init__(
        self,
        folder: Path,
        text: list[str],
        work: Path,
        device: str = "cpu",
        half: torch.dtype | None = None,
        **settings: Any,
    ) -> None:
        encoder = load_encoder(folder, pooling="cls", max_length=128, device=device)
        self.half = half
        self.loss = SelfGuidedLoss(encoder, keep_views="yes", **settings).to(device).train()
        if half is not None:  # as the trainer does it
            encoder.forward = torch.autocast(device, dtype=half)(encoder.forward)  # type: ignore[method-assign]
        self.notes: list[str] = []
        reporter = Reporter(quiet=True)
        reporter.note = self.notes.append  # type: ignore[method-assign]
        tokens = TokenisedText(encoder, text)
        before = os.environ.get("SELFGUIDE_CACHE")
        os.environ["SELFGUIDE_CACHE"] = str(work)
        try:
            self.loss.prepare(Preparation(TrainingSettings(), work, reporter, tokens, half=half))
        finally:
            if before is None:
                del os.environ["SELFGUIDE_CACHE"]
            else:
                os.environ["SELFGUIDE_CACHE"] = before
        self._kept = self.loss._kept
        self._collate = TokenCollator(tokens, self.loss.on_host)
        self._device = device
        self._finish = optimiser_step(self.loss, fused=True)

    def step(self, batch: list[str], kept: bool) -> None:
        """One step, with the kept views or with the guide asked anew."""
        self.loss._kept = self._kept if kept else None
        made = self._collate([{"s": sentence} for sentence in batch])
        features = {name.removeprefix("s_"): _moved(value, self._device) for name, value in made.items()}
        self._finish(self.loss([features]))


def plain_step(folder: Path, device: str = "cpu", half: torch.dtype | None = None) -> Step:
    """The plain loop; its guide's dropout is off as ours is, so that both do the same work."""
    module = PlainSelfGuidance(load_encoder(folder, pooling="cls", max_length=128, device=device)).to(device).train()
    module.guide.eval()
    finish = optimiser_step(module, fused=False)

    def step(batch: list[str]) -> None:
        with torch.autocast(device, dtype=half) if half is not None else nullcontext():
            loss = module(batch)
        finish(loss)

    return step


def simcse_step(folder: Path, device: str = "cpu") -> Step:
    """SimCSE as sentence-transformers' users train it: its ranking loss on each sentence paired with itself."""
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    encoder = load_encoder(folder, pooling="cls", max_length=128, device=device)
    loss = MultipleNegativesRankingLoss(encoder).to(device).train()
    finish = optimiser_step(loss, fused=False)

    def step(batch: list[str]) -> None:
        columns = [{n: _moved(v, device) for n, v in encoder.preprocess(batch).items()} for _ in range(2)]
        finish(loss(columns, None))

    return step


def optimiser_step(module: nn.Module, fused: bool) -> Callable[[Tensor], None]:
    """What follows a loss: backward, clipping, AdamW."""
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
