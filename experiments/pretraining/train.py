"""The training loop: time budget, checkpoints, learning curve, held-out loss."""

from __future__ import annotations

import json
import math
import shutil
import signal
import time
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .average import Average
from .config import Settings, Shape
from .convert import export, from_stock, read_export
from .corpus import load_corpus, load_held_out
from .data import Batcher, held_out_batches
from .languages import shares
from .model import Batch, MaskedLM, try_compile

CHECKPOINT = "checkpoint.pt"
RESULTS = "results.jsonl"
AVERAGE = "average"


def record(out: Path, row: dict[str, Any], *, quiet: bool = False) -> None:
    """Append a row to the results file, and print it."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / RESULTS).open("a", encoding="utf-8") as handle:
        handle.write(json.dumps(row) + "\n")
    if not quiet:
        print(json.dumps(row), flush=True)


def device_name(device: torch.device) -> str:
    """Return the device's name for the results file."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)


def rate_factor(step: int, spent: float, *, warmup: int, decay: float) -> float:
    """Return the learning rate as a share of its peak: a linear warm-up, constant, a linear decay.

    Args:
        step: The step.
        spent: The share of the budget that is used up.
        warmup: Steps of the warm-up.
        decay: Share of the budget over which the rate falls to zero.
    """
    rise = min(1.0, (step + 1) / warmup) if warmup else 1.0
    fall = min(1.0, max(0.0, 1.0 - spent) / decay) if decay else 1.0
    return min(rise, fall)


def optimiser(model: nn.Module, settings: Settings, device: torch.device) -> torch.optim.AdamW:
    """Return AdamW with weight decay on matrices only (norms and biases are vectors)."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": settings.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    betas = (settings.beta1, settings.beta2)
    return torch.optim.AdamW(groups, lr=settings.lr, betas=betas, eps=settings.eps, fused=device.type == "cuda")


def objective(losses: list[Tensor], batch: Batch) -> Tensor:
    """Return the loss that is minimised: the MLM loss plus the weighted losses of the signals."""
    total = losses[0]
    for asked, loss in zip(batch.signals, losses[1:], strict=True):
        total = total + asked.share * loss
    return total


def train_step(model: MaskedLM, optim: torch.optim.Optimizer, batch: Batch, lr: float, clip: float) -> Tensor:
    """Make one update, and return the losses (MLM, then each signal) without synchronising with the device."""
    losses = model.losses(batch)
    objective(losses, batch).backward()
    nn.utils.clip_grad_norm_(model.parameters(), clip)
    for group in optim.param_groups:
        group["lr"] = lr
    optim.step()
    optim.zero_grad(set_to_none=True)
    return torch.stack(losses).detach()


def make_ready(model: MaskedLM, batch: Batch, compile_parts: bool) -> None:
    """Try the attention kernel and the compiler on a batch, and fall back if one fails."""

    def probe() -> None:
        objective(model.losses(batch), batch).backward()
        model.zero_grad(set_to_none=True)

    if model.attention == "varlen":
        try:
            probe()
        except Exception as error:  # an old PyTorch, a card without the kernel, a CPU
            warnings.warn(f"varlen attention failed, using sdpa: {type(error).__name__}: {error}", stacklevel=2)
            model.attention = "sdpa"
            model.zero_grad(set_to_none=True)
    if compile_parts:
        began = time.monotonic()
        if try_compile(model, probe):
            print(f"compiled in {time.monotonic() - began:.1f} s", flush=True)
        model.zero_grad(set_to_none=True)


@torch.no_grad()
def held_out_loss(model: MaskedLM, batches: list[Batch]) -> float:
    """Return the mean loss over the masked tokens of fixed batches, computed eagerly because their shapes differ."""
    total = sum(float(model.loss(batch, eager=True)) * len(batch.labels) for batch in batches)
    return total / max(1, sum(len(batch.labels) for batch in batches))


class Run:
    """A training run: model, optimiser, batches, budget and files."""

    def __init__(
        self, data: Path, tokenizer: Path, out: Path, settings: Settings, shape: Shape, device: torch.device,
        *, init: Path | None = None, resume: bool = False,
    ) -> None:  # fmt: skip
        """Load or initialise everything, and record the start.

        Args:
            data: The folder of prepared parts.
            tokenizer: The tokenizer's folder.
            out: The run's folder.
            settings: The training settings.
            shape: The encoder's shape, unless ``init`` or the checkpoint has one.
            device: The device.
            init: An export to start from.
            resume: Whether to continue from the checkpoint in ``out``, if there is one.
        """
        self.began = time.monotonic()
        self.tokenizer, self.out, self.settings, self.device = tokenizer, out, settings, device
        self.step, self.before, self.scale, self.stopping = 0, 0.0, 1.0, False
        torch.manual_seed(settings.seed)
        torch.set_float32_matmul_precision("high")
        half = torch.bfloat16 if device.type == "cuda" else torch.float32
        state: dict[str, Any] | None = None
        resume = resume and (out / CHECKPOINT).exists()
        if resume:
            state = torch.load(out / CHECKPOINT, map_location="cpu", weights_only=True)
            shape = Shape(**state["shape"])
        former = read_export(init) if init and not resume else None
        if former:
            shape = former[0]
        self.model = MaskedLM(shape, attention=settings.attention, dtype=half, dropout=settings.dropout)
        if former:
            from_stock(self.model, former[1], former[2])
        self.model.to(device)
        self.optim = optimiser(self.model, settings, device)
        self.average = Average(self.model, settings.average) if settings.average else None
        if state:
            self._load(state)
        corpus, sizes = load_corpus(data, device)
        # A resumed run must not draw the batches that it has seen, so the seed depends on the step.
        seed = settings.seed * 1_000_003 + self.step
        self.batcher = Batcher(corpus, settings, vocab=shape.vocab, positions=shape.positions, seed=seed, sizes=sizes)
        # By name in the results file: the length, and the language where there are several.
        self.held_out = {
            f"{length}_{language}".rstrip("_"): held_out_batches(part, length, vocab=shape.vocab, limit=260_000)
            for length in (128, 32)
            if length <= shape.positions
            for language, part in load_held_out(data, device).items()
        }
        make_ready(self.model, self.batcher.draw(), settings.compile)
        batcher = self.batcher
        self._record({
            "kind": "start", "settings": asdict(settings), "shape": asdict(shape), "device": device_name(device),
            "date": time.strftime("%Y-%m-%d"),
            "torch": torch.__version__, "attention": self.model.attention, "corpus_tokens": corpus.tokens.shape[0],
            **({"language_tokens": sizes, "language_shares": shares(sizes, settings.temperature)} if len(sizes) > 1 else {}),
            "sentences": corpus.starts.shape[0] - 1, "short_sequences": batcher.shorts, "masked": batcher.masked,
            "held_out_sequences": {n: sum(int(b.packed.sequence[-1]) + 1 for b in v) for n, v in self.held_out.items()},
        })  # fmt: skip

    def _record(self, row: dict[str, Any]) -> None:
        record(self.out, {"step": self.step, "seconds": round(self.elapsed(), 1), **row})

    def elapsed(self) -> float:
        """Return the seconds of all stretches of the run, with loading and compiling."""
        return self.before + time.monotonic() - self.began

    def spent(self) -> float:
        """Return the share of the budget that is used up."""
        settings = self.settings
        return self.step / settings.steps if settings.steps else self.elapsed() / (60 * settings.minutes)

    def save(self) -> None:
        """Write the checkpoint that ``--resume`` reads, atomically."""
        state = {
            "model": self.model.state_dict(), "optimiser": self.optim.state_dict(), "shape": asdict(self.model.shape),
            "step": self.step, "seconds": self.elapsed(), "scale": self.scale,
            "average": self.average.state() if self.average else None,
        }  # fmt: skip
        self.out.mkdir(parents=True, exist_ok=True)
        torch.save(state, self.out / (CHECKPOINT + ".partial"))
        (self.out / (CHECKPOINT + ".partial")).replace(self.out / CHECKPOINT)

    def _load(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optim.load_state_dict(state["optimiser"])
        self.step, self.before, self.scale = state["step"], state["seconds"], state["scale"]
        if self.average:
            if state.get("average"):
                self.average.load(state["average"])
            else:  # the checkpoint was written without one
                self.average = Average(self.model, self.average.horizon)

    def evaluate(self, **note: str) -> dict[str, float]:
        """Record and return the held-out losses."""
        values = {f"loss_{n}": round(held_out_loss(self.model, b), 4) for n, b in self.held_out.items() if b}
        self._record({"kind": "held-out", **note, **values})
        return values

    def _recover(self) -> None:
        """After a loss that is not finite, return to the checkpoint with half the learning rate."""
        if not (self.out / CHECKPOINT).exists() or self.scale < 0.2:
            raise FloatingPointError("The loss is not finite, and there is no checkpoint to return to: lower --lr.")
        spent = self.elapsed()
        self._load(torch.load(self.out / CHECKPOINT, map_location="cpu", weights_only=True))
        self.before = spent - (time.monotonic() - self.began)
        self.scale /= 2
        self._record({"kind": "recovered", "scale": self.scale})

    def _over(self) -> bool:
        """Return whether this call ends before the budget does: by a signal, or by the length of its stretch."""
        stretch = 60 * self.settings.stretch
        return self.stopping or (stretch > 0 and time.monotonic() - self.began >= stretch)

    def _stop(self, *_: object) -> None:
        self.stopping = True

    def train(self) -> dict[str, float]:
        """Train until the budget is spent or a signal arrives, then save, evaluate and export; return the held-out losses."""
        settings = self.settings
        former = {s: signal.signal(s, self._stop) for s in (signal.SIGTERM, signal.SIGINT)}
        try:
            return self._loop(settings)
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)

    def _loop(self, settings: Settings) -> dict[str, float]:
        names = ["loss", *(f"{name}_loss" for name in ("cls_own", "cls_next") if getattr(settings, name))]
        running = torch.zeros(len(names), device=self.device)
        logged, looked, saved = (self.step, self.elapsed()), self.elapsed(), self.elapsed()
        while not self._over() and (spent := self.spent()) < 1.0:
            factor = rate_factor(self.step, spent, warmup=settings.warmup, decay=settings.decay)
            lr = settings.lr * self.scale * factor
            running += train_step(self.model, self.optim, self.batcher.draw(), lr, settings.clip)
            self.step += 1
            if self.average:
                self.average.after_step(self.model, self.step)
            if self.step % settings.log_every:
                continue
            means = (running / (self.step - logged[0])).tolist()  # the only synchronisation with the device
            now = self.elapsed()
            running.zero_()
            speed = (self.step - logged[0]) * settings.tokens / (now - logged[1])
            logged = (self.step, now)
            self._record({
                "kind": "curve", "tokens": self.step * settings.tokens,
                **{name: round(mean, 4) for name, mean in zip(names, means, strict=True)}, "lr": round(lr, 8),
                "tokens_per_second": round(speed),
            })  # fmt: skip
            if not all(math.isfinite(mean) for mean in means):
                self._recover()
            elif now - saved >= 60 * settings.save_minutes:
                self.save()
                saved = self.elapsed()
            if now - looked >= 60 * settings.eval_minutes:
                self.evaluate()
                looked = self.elapsed()
            logged = (self.step, self.elapsed())
        values = self.evaluate()
        if not all(math.isfinite(v) for v in values.values()):
            raise FloatingPointError("The weights diverged after the last checkpoint: resume from it.")
        size = export(self.model, self.tokenizer, self.out, limit=settings.size_limit)
        self._finish_average()
        self._record(
            {"kind": "end", "tokens": self.step * settings.tokens, "bytes": size, "stopped": self.spent() < 1.0}
        )
        self.save()
        return values

    def _finish_average(self) -> None:
        """Evaluate and export the averaged weights beside the last ones."""
        folder = self.out / AVERAGE
        if not self.average:
            shutil.rmtree(folder, ignore_errors=True)  # an average of an earlier stretch does not fit the new weights
            return
        with self.average.applied(self.model):
            self.evaluate(weights="average")
            export(self.model, self.tokenizer, folder, limit=self.settings.size_limit)
