"""How fast is a step here? Every variant on random tokens (or prepared ones), each safe from the others' failures."""

from __future__ import annotations

import statistics
import time
import traceback
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from .config import Settings, Shape
from .corpus import Corpus, corpus_of, load_corpus
from .data import Batcher
from .model import MaskedLM
from .prepare import DOCUMENT, LINE
from .train import optimiser, train_step


def random_corpus(shape: Shape, device: torch.device, sentences: int = 200_000, seed: int = 0) -> Corpus:
    """Random tokens in sentences, lines and documents of about the lengths of English prose."""
    rng = np.random.default_rng(seed)
    marks = (3 + rng.poisson(rng.gamma(2.0, 11.0, sentences))).clip(3, 500).astype(np.uint16)
    tokens = rng.integers(5, shape.vocab, int(marks.sum())).astype(np.uint16)
    marks |= np.where(rng.random(sentences) < 0.25, LINE, 0).astype(np.uint16)
    marks |= np.where(rng.random(sentences) < 0.03, LINE | DOCUMENT, 0).astype(np.uint16)
    marks[0] |= LINE | DOCUMENT
    return corpus_of(tokens, marks, device)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def measure(shape: Shape, settings: Settings, corpus: Corpus, steps: int, profile: bool = False) -> dict[str, float]:
    """Time of the first step (compilation) and the median of the later ones, as whole training steps."""
    device = corpus.tokens.device
    half = torch.bfloat16 if device.type == "cuda" else torch.float32
    torch.manual_seed(0)
    model = MaskedLM(shape, attention=settings.attention, dtype=half).to(device)
    if settings.compile:
        model.compile_parts()
    optim = optimiser(model, settings, device)
    batcher = Batcher(corpus, settings, vocab=shape.vocab, positions=shape.positions, seed=1)
    began = time.monotonic()
    first_loss = float(train_step(model, optim, batcher.draw(), 1e-4, 1.0)[0])
    first = time.monotonic() - began
    for _ in range(3):
        train_step(model, optim, batcher.draw(), 1e-4, 1.0)
    _wait(device)
    times: list[float] = []
    for _ in range(4):  # groups of steps, as in training: the host may run ahead inside a group
        began = time.monotonic()
        for _ in range(max(1, steps // 4)):
            loss = train_step(model, optim, batcher.draw(), 1e-4, 1.0)
        issued = time.monotonic() - began
        _wait(device)
        times.append((time.monotonic() - began) / max(1, steps // 4))
    median = statistics.median(times)
    began = time.monotonic()
    for _ in range(10):
        batcher.draw()
    _wait(device)
    result = {
        "tokens_per_second": round(settings.tokens / median), "step_ms": round(1000 * median, 2),
        "issue_ms": round(1000 * issued / max(1, steps // 4), 2), "first_step_s": round(first, 1),
        "draw_ms": round(100 * (time.monotonic() - began), 2), "loss_first": round(first_loss, 4),
        "loss_last": round(float(loss[0]), 4),
        "memory_gib": round(torch.cuda.max_memory_allocated() / 2**30, 1) if device.type == "cuda" else 0.0,
    }  # fmt: skip
    if profile:
        _profile(model, optim, batcher)
    return result


def _profile(model: MaskedLM, optim: torch.optim.Optimizer, batcher: Batcher) -> None:
    """Where the device's time goes, by kernel."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        for _ in range(3):
            train_step(model, optim, batcher.draw(), 1e-4, 1.0)
        _wait(batcher.device)
    events = seen.key_averages()
    kernels = [e for e in events if e.self_device_time_total > 0 and not e.key.startswith(("aten::", "autograd::"))]
    kernels.sort(key=lambda e: -e.self_device_time_total)
    for event in kernels[:25]:
        print(f"{event.self_device_time_total / 3000:8.3f} ms a step  {event.count // 3:5d} x  {event.key[:90]}")


def throughput(
    shape: Shape, settings: Settings, device: torch.device,
    *, steps: int = 20, profile: bool = False, data: Path | None = None,
) -> None:  # fmt: skip
    """Print a table of all variants; a variant that fails prints its error and the others go on."""
    corpus = load_corpus(data, device) if data else random_corpus(shape, device)
    rows: list[str] = []
    for attention, compiled in (("varlen", True), ("varlen", False), ("sdpa", True), ("sdpa", False)):
        name = f"{attention:7s}{'compiled' if compiled else 'eager':9s}"
        try:
            if device.type == "cuda":
                torch.cuda.reset_peak_memory_stats()
            variant = replace(settings, attention=attention, compile=compiled)
            found = measure(shape, variant, corpus, steps, profile and attention == "varlen")
            rows.append(f"{name} {found}")
        except Exception as error:  # one variant's failure is a result, too
            traceback.print_exc()
            rows.append(f"{name} FAILED {type(error).__name__}: {str(error)[:300]}")
        print(rows[-1], flush=True)
        torch.compiler.reset()
        if device.type == "cuda":
            torch.cuda.empty_cache()
    print("\n".join(["--- throughput ---", *rows]), flush=True)
