"""Every loss on a batch that processes share, beside the same loss on the whole batch in one process.

Usage: shared_batch_job.py FOLDER_OF_AN_ENCODER NUMBER_OF_PROCESSES
Prints nothing and exits 0 where loss and gradients are equal to 1e-6 (double precision) for every loss.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from selfguide import losses
from selfguide.augment.embeddings import unchanged
from selfguide.engine import view_cache
from selfguide.engine.tokens import TokenisedText
from selfguide.losses import self_guided
from selfguide.losses.base import HeadedLoss, Preparation
from selfguide.losses.guide_views import kept_views
from selfguide.models.encoders import load_encoder
from selfguide.progress import Reporter
from selfguide.training.settings import TrainingSettings
from toys import toy_sentences

SIZES = {2: (3, 2), 3: (1, 3, 2)}
"""Sentences of each process, by number of processes: uneven, as a last batch may be."""
Make = Callable[[Any], HeadedLoss]


def simcse(model: Any, **options: Any) -> HeadedLoss:
    """SimCSE whose two passes differ by a fixed change, because dropout cannot be the same in differently sized batches."""
    return fixed_change(losses.DropoutContrastLoss(model, dropout=0.1, **options))


def fixed_change(loss: Any) -> HeadedLoss:
    for module in loss.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0

    def pairs(features: Any) -> Tensor:
        vectors = loss.encode(features)["sentence_embedding"]
        return torch.stack([vectors, vectors + 0.3 * vectors.roll(1, dims=-1)], dim=1)

    loss._pairs = pairs
    return loss


def clear(model: Any) -> HeadedLoss:
    loss = losses.ClearLoss(model, first="none", second="none", dropout=0.0)
    loss._rewrite = [list, lambda tokens: tokens[::-1]]
    loss._hide = lambda tokens: ([4, *tokens[1:]], list(range(len(tokens) - 1)))
    return loss


def consert(model: Any) -> HeadedLoss:
    loss = losses.ConSERTLoss(model)
    loss._augmentations = [unchanged, lambda batch: replace(batch, factor=batch.factor * (1 + torch.arange(32) % 3))]
    return loss


def mirror(model: Any) -> HeadedLoss:
    loss = losses.MirrorLoss(model, dropout=0.0)
    loss.mirrored = lambda features: {**features, "input_ids": features["input_ids"].clamp(max=20)}
    return loss


def guided(**options: Any) -> Make:
    return lambda model: losses.SelfGuidedLoss(model, head_size=8, **options)


LOSSES: dict[str, Make] = {
    "sg-opt": guided(),
    "sg-opt, no head": lambda model: losses.SelfGuidedLoss(model, head_size=0),
    "sg-opt, gradient cache": guided(gradient_cache=2),
    "sg-opt, guide tuned": guided(tune_guide=True),
    **{name: guided(objective=name) for name in ("sg", "opt1", "opt2")},
    "simcse": simcse,
    "simcse, gradient cache": lambda model: simcse(model, gradient_cache=2),
    "adapt": lambda model: fixed_change(losses.GuidedContrastLoss(model, dropout=0.1)),
    "adapt, gradient cache": lambda model: fixed_change(
        losses.GuidedContrastLoss(model, dropout=0.1, gradient_cache=2)
    ),
    "consert": consert,
    "mirror": mirror,
    "clear": clear,
    "ct-in-batch": lambda model: losses.ContrastiveTensionInBatchLoss(model, dropout=0.0),
    "bt": lambda model: losses.BackTranslationLoss(model, dropout=0.0),
    "bt, moco": lambda model: losses.BackTranslationLoss(model, objective="moco", queue_size=4, dropout=0.0),
    "sg-opt+bt": lambda model: losses.SelfGuidedTranslationLoss(model, head_size=8),
}
TRANSLATED = ("bt", "bt, moco", "sg-opt+bt")


def encoder(folder: str) -> Any:
    torch.manual_seed(0)
    model = load_encoder(folder, pooling="cls", device="cpu").double()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model.train()


def made(make: Make, folder: str) -> HeadedLoss:
    torch.manual_seed(1)
    loss = make(encoder(folder)).double().train()
    if getattr(loss, "queue", None) is not None:
        loss.queue.add(torch.randn(3, loss.queue.keys.shape[1], dtype=torch.float64))
    return loss


def inputs(loss: HeadedLoss, sentences: list[str], name: str) -> list[Any]:
    texts = [sentences]
    if name in TRANSLATED:
        texts.append([" ".join(sentence.split()[::-1]) for sentence in sentences])
    return [loss.encoder.preprocess(some) for some in texts]


def gradients(loss: HeadedLoss) -> dict[str, Tensor]:
    found = {name: p.grad for name, p in loss.encoder.named_parameters() if p.requires_grad}
    found |= {f"own {name}": p.grad for name, p in losses.base.own_parameters(loss).items()}
    return {name: grad.clone() for name, grad in found.items() if grad is not None}


@contextmanager
def first_view() -> Iterator[None]:
    """Take a fixed view where SG draws one: a draw cannot be the same in differently sized batches."""
    draw, self_guided._draw_one = self_guided._draw_one, lambda views: views[:, 1]
    yield
    self_guided._draw_one = draw


def same(found: Tensor, wanted: Tensor, what: str) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-9, msg=lambda text: f"{what}: {text}")


def check(name: str, make: Make, folder: str, mine: list[str], everything: list[str]) -> None:
    whole = made(make, folder)
    whole.share_negatives = False
    reference = whole(inputs(whole, everything, name))
    reference.backward()
    shared = made(make, folder)
    shared.model = DistributedDataParallel(shared.encoder)
    own = shared(inputs(shared, mine, name))
    own.backward()
    mean = own.detach().clone()
    dist.all_reduce(mean)
    same(mean / dist.get_world_size(), reference.detach(), f"{name}, loss")
    expected, got = gradients(whole), gradients(shared)
    assert expected.keys() == got.keys(), (name, expected.keys() ^ got.keys())
    for key, gradient in expected.items():
        same(got[key], gradient, f"{name}, gradient of {key}")
    if getattr(shared, "queue", None) is not None:
        same(shared.queue.keys, whole.queue.keys, f"{name}, queue")


def check_apart(folder: str, mine: list[str], everything: list[str]) -> None:
    """Without shared negatives each process's loss is that of its own sentences."""
    alone, shared = made(LOSSES["sg-opt"], folder), made(LOSSES["sg-opt"], folder)
    alone.share_negatives = shared.share_negatives = False
    same(shared(inputs(shared, mine, "sg-opt")), alone(inputs(alone, mine, "sg-opt")), "apart")
    together = alone(inputs(alone, everything, "sg-opt"))
    assert abs(float(together.detach() - shared(inputs(shared, mine, "sg-opt")).detach())) > 1e-3


def check_accumulation(name: str, make: Make, folder: str, mine: list[str], everything: list[str]) -> None:
    """Two batches whose gradients are summed: the same as two whole batches in one process."""
    whole, shared = made(make, folder), made(make, folder)
    whole.share_negatives = False
    for sentences in (everything, everything[::-1]):
        (whole(inputs(whole, sentences, name)) / 2).backward()
    first = sum(SIZES[dist.get_world_size()][: dist.get_rank()])
    reverse = everything[::-1][first : first + len(mine)]
    shared.model = wrapper = DistributedDataParallel(shared.encoder)
    with wrapper.no_sync():
        (shared(inputs(shared, mine, name)) / 2).backward()
    (shared(inputs(shared, reverse, name)) / 2).backward()
    got = gradients(shared)
    for key, gradient in gradients(whole).items():
        same(got[key], gradient, f"{name}, accumulation, {key}")


def check_kept_views(folder: str, scratch: Path) -> None:
    """The processes make the views together, each a part, and have those that one process makes alone."""
    rank, processes = dist.get_rank(), dist.get_world_size()
    view_cache._BATCH_TOKENS = 30
    os.environ.update({"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(processes)})
    loss: Any = made(guided(keep_views="yes"), folder)
    text = TokenisedText(loss.encoder, toy_sentences(60))
    count, compute = len(text), loss.views
    computed = torch.zeros(processes, dtype=torch.int64)

    def views(features: Any, plan: Any = None) -> Tensor:
        if not computed[rank]:
            dist.barrier()  # so that none has made everything before another has begun
        computed[rank] += len(features["input_ids"])
        return compute(features, plan)

    def everybody() -> list[int]:
        found = computed.clone()
        dist.all_reduce(found)
        computed.zero_()
        return found.tolist()

    def kept(name: str, shard: int) -> Any:
        os.environ["SELFGUIDE_CACHE"] = str(scratch / name)
        view_cache._SHARD_BYTES = shard * len(loss.layers) * 32 * 4
        work = scratch / f"work-{rank}"
        work.mkdir(exist_ok=True)
        store = kept_views(loss, Preparation(TrainingSettings(device="cpu"), work, Reporter(quiet=True), text))
        assert store is not None
        return store

    alone = kept(f"alone-{rank}", 1000)
    assert len(alone.paths) == 1
    loss.views = views
    together = kept("together", 5)
    made_by = everybody()
    assert sum(made_by) == count, made_by
    assert min(made_by) > 0, made_by
    assert len(together.paths) > 2 * processes
    assert torch.equal(together.rows(range(count)), alone.rows(range(count)))
    loss.views = compute
    dist.barrier()
    if rank == 0:
        broken = bytearray(together.paths[1].read_bytes())
        broken[-40] ^= 1
        together.paths[1].write_bytes(broken)
    dist.barrier()
    loss.views = lambda features, plan=None: (computed[rank].add_(len(features["input_ids"])), compute(features))[1]
    again = kept("together", 5)
    assert 0 < sum(everybody()) < count / processes
    assert torch.equal(again.rows(range(count)), alone.rows(range(count)))
    # Where one of them has no place for views, none uses any.
    loss.views = compute
    os.environ["SELFGUIDE_CACHE"] = str(scratch / f"place-{rank}")
    if rank == 0:
        (scratch / "place-0").write_text("no folder")
    run = Preparation(TrainingSettings(device="cpu"), scratch / f"work-{rank}", Reporter(quiet=True), text)
    assert kept_views(loss, run) is None


def main(rank: int, folder: str, processes: int, store: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=processes)
    sizes = SIZES[dist.get_world_size()]
    everything = [*toy_sentences(sum(sizes) - 1), "a b c d e f g h i j"]
    start = sum(sizes[: dist.get_rank()])
    mine = everything[start : start + sizes[dist.get_rank()]]
    with first_view():
        for name, make in LOSSES.items():
            check(name, make, folder, mine, everything)  # with a gradient cache, of different numbers of chunks too
            check_accumulation(name, make, folder, mine, everything)
        check_apart(folder, mine, everything)
        check_kept_views(folder, Path(store).parent)
    dist.destroy_process_group()


if __name__ == "__main__":
    # Forked, not started anew as torchrun does: the libraries are imported once.
    with tempfile.TemporaryDirectory() as store:
        words = (sys.argv[1], int(sys.argv[2]), f"{store}/store")
        torch.multiprocessing.start_processes(main, words, nprocs=words[1], start_method="fork")
