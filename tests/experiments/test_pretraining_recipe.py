"""The additions to masked language modelling in pre-training, each against a naive version of itself."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from experiments.pretraining.__main__ import main
from experiments.pretraining.average import EVERY, Average
from experiments.pretraining.config import Settings, Shape
from experiments.pretraining.convert import from_stock, read_export
from experiments.pretraining.corpus import Corpus, Spans, corpus_of, topic_weights
from experiments.pretraining.data import AROUND, Batcher, pack
from experiments.pretraining.model import MaskedLM
from experiments.pretraining.prepare import DOCUMENT, LINE
from experiments.pretraining.tokenizer import CLS, MASK, load_tokenizer
from experiments.pretraining.train import RESULTS, Run, held_out_loss, objective, train_step

CPU = torch.device("cpu")
TINY = Shape(vocab=300, layers=2, width=32, heads=2, ffn=64, positions=48)
STEP = Settings(tokens=2048, short_max=16, long_max=32, attention="sdpa", compile=False)
ALL_ON = {"dropout": 0.1, "cls_own": 0.2, "cls_next": 0.3, "cls_rows": 64, "average": 20}
FLAGS = (
    "--layers 2 --width 32 --heads 2 --ffn 64 --positions 48 --tokens 768 --short-max 16 --long-max 32 --no-compile "
    "--attention sdpa --log-every 5 --device cpu --dropout 0.1 --cls-own 0.2 --cls-next 0.3 "
    "--cls-rows 64 --average 20"
).split()


def small_documents(seed: int = 0) -> Corpus:
    """Documents of 1 to 6 short sentences: many spans reach the end of theirs. Every token id is its own place."""
    rng = np.random.default_rng(seed)
    marks = rng.integers(3, 12, 2000).astype(np.uint16) | np.where(rng.random(2000) < 0.3, LINE | DOCUMENT, 0)
    marks[0] |= LINE | DOCUMENT
    marks = marks.astype(np.uint16)
    total = int((marks & 0x3FFF).sum())
    return corpus_of(np.arange(MASK + 1, MASK + 1 + total).astype(np.uint16), marks, CPU)


def rows_of(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (path / RESULTS).read_text(encoding="utf-8").splitlines()]


def test_dropout_acts_in_training_alone(corpus: Corpus) -> None:
    batcher = Batcher(corpus, STEP, vocab=TINY.vocab, positions=48, seed=1)
    batch = batcher.draw()
    torch.manual_seed(0)
    plain = MaskedLM(TINY)
    wet = MaskedLM(TINY, dropout=0.3)
    wet.load_state_dict(plain.state_dict())
    with torch.no_grad():
        assert float(wet.loss(batch)) != float(wet.loss(batch))
        assert torch.equal(plain.loss(batch), MaskedLM.loss(plain, batch, eager=True))
        assert torch.equal(wet.loss(batch, eager=True), plain.loss(batch))
        assert torch.equal(wet.logits(batch.packed), plain.logits(batch.packed))
        assert held_out_loss(wet, [batch]) == held_out_loss(plain, [batch])
        state = torch.get_rng_state()
        plain.loss(batch)
        assert torch.equal(state, torch.get_rng_state())  # a rate of 0 draws nothing: runs stay what they were
        assert torch.equal(wet.eval().loss(batch), plain.loss(batch))


def test_own_words_are_hidden_words_of_the_own_sequence() -> None:
    settings = replace(STEP, cls_own=0.5, cls_rows=100)
    corpus = small_documents()
    batcher = Batcher(corpus, settings, vocab=16384, positions=48, seed=1)
    for _ in range(5):
        batch = batcher.draw()
        (own,) = batch.signals
        assert (own.name, own.share, own.rows.shape) == ("cls_own", 0.5, (100,))
        pairs = zip(batch.places.tolist(), batch.labels.tolist(), strict=True)
        hidden = {(int(batch.packed.sequence[place]), label) for place, label in pairs}
        for row, label in zip(own.rows.tolist(), own.labels.tolist(), strict=True):
            assert int(batch.packed.ids[row]) == CLS
            assert (int(batch.packed.sequence[row]), label) in hidden
        places = [batch.places.tolist()[batch.labels.tolist().index(label)] for label in own.labels.tolist()]
        assert min(places) < 400  # from all over the row
        assert max(places) > 1600
        assert torch.equal(own.weights, batcher.topic[own.labels])


def test_next_words_lie_around_the_span_in_its_document() -> None:
    corpus = small_documents()
    batcher = Batcher(corpus, replace(STEP, cls_next=0.5, cls_rows=400), vocab=16384, positions=48, seed=1)
    ends = sorted(set(corpus.document_ends.tolist()))
    seen = {"after": 0, "before": 0, "neither": 0}
    for _ in range(5):
        spans = batcher.draw_short(150)
        spans = Spans(torch.cat([spans.start, torch.tensor([0])]), torch.cat([spans.length, torch.tensor([40])]))
        packed = pack(corpus, spans, 1000)
        signal = batcher.draw_next(packed, spans)
        for row, label, weight in zip(*(t.tolist() for t in signal[2:]), strict=True):
            number = int(packed.sequence[row])
            assert row == int(packed.cu[number])
            start, shown = int(spans.start[number]), int(packed.cu[number + 1]) - row - 2
            end = start + max(0, shown)
            limit = next(e for e in ends if e > start)
            first = max([0, *(e for e in ends if e <= start)])
            after, before = range(end, min(end + AROUND, limit)), range(max(start - AROUND, first), start)
            place = label - MASK - 1  # the corpus counts its tokens
            if len(after):
                assert place in after
            elif len(before):
                assert place in before
            assert weight == (float(batcher.topic[label]) if len(after) or len(before) else 0.0)
            seen["after" if len(after) else "before" if len(before) else "neither"] += 1
    assert all(seen.values()), seen


def test_frequent_and_special_words_count_less() -> None:
    tokens = np.array([10] * 9000 + [11] * 999 + [12] + [MASK], dtype=np.uint16)
    corpus = corpus_of(tokens, np.array([len(tokens) | LINE | DOCUMENT], dtype=np.uint16), CPU)
    weights = topic_weights(corpus, 20)
    assert not weights[: MASK + 1].any()
    assert float(weights[10]) == pytest.approx((1e-4 / (9000 / 10001)) ** 0.5)
    assert float(weights[11]) == pytest.approx((1e-4 / (999 / 10001)) ** 0.5)
    assert weights[[12, 13]].tolist() == pytest.approx([1.0, 1.0], abs=1e-3)


def test_the_objective_is_a_weighted_sum(corpus: Corpus) -> None:
    settings = replace(STEP, cls_own=0.5, cls_next=2.0, cls_rows=50)
    batcher = Batcher(corpus, settings, vocab=TINY.vocab, positions=48, seed=1)
    model = MaskedLM(TINY)
    batch = batcher.draw()
    with torch.no_grad():
        logs = model.logits(batch.packed).log_softmax(1)
        asked = zip(batch.places.tolist(), batch.labels.tolist(), strict=True)
        expected = [sum(-float(logs[p, n]) for p, n in asked) / len(batch.places)]
        for signal in batch.signals:
            rows = list(zip(*(t.tolist() for t in signal[2:]), strict=True))
            expected.append(sum(-w * float(logs[p, n]) for p, n, w in rows) / sum(w for *_, w in rows))
        losses = model.losses(batch)
    assert [float(x) for x in losses] == pytest.approx(expected, rel=1e-4)
    assert float(objective(losses, batch)) == pytest.approx(expected[0] + 0.5 * expected[1] + 2 * expected[2], rel=1e-4)
    assert float(model.loss(batch).detach()) == pytest.approx(expected[0], rel=1e-4)
    nothing = batch.signals[0]._replace(weights=torch.zeros(50))
    assert float(model.losses(batch._replace(signals=(nothing,)))[1].detach()) == 0.0


def test_average_equals_a_naive_loop(corpus: Corpus) -> None:
    batcher = Batcher(corpus, STEP, vocab=TINY.vocab, positions=48, seed=1)
    model = MaskedLM(TINY)
    optim = torch.optim.SGD(model.parameters(), lr=0.1)
    average = Average(model, horizon=40)
    naive = [p.detach().clone() for p in model.parameters()]
    for step in range(1, 71):
        train_step(model, optim, batcher.draw(), 0.1, 1.0)
        average.after_step(model, step)
        if step % EVERY == 0:
            weight = max(10 / 40, 10 / (step + 10))
            naive = [(1 - weight) * old + weight * p.detach() for old, p in zip(naive, model.parameters(), strict=True)]
    torch.testing.assert_close(list(average.values.values()), naive)
    last = {n: t.clone() for n, t in model.state_dict().items()}
    with average.applied(model):
        torch.testing.assert_close(list(model.parameters()), naive)
    torch.testing.assert_close(model.state_dict(), last, rtol=0, atol=0)


def test_average_is_exported_and_goes_on_after_a_resume(room: Path, tmp_path: Path) -> None:
    tokenizer, parts, out = room / "tokenizer", room / "parts", tmp_path / "run"
    settings = replace(STEP, tokens=768, steps=30, log_every=5, warmup=5, **ALL_ON)
    shape = replace(TINY, vocab=load_tokenizer(tokenizer).get_vocab_size())
    run = Run(parts, tokenizer, out, settings, shape, CPU)
    run.train()
    assert run.average is not None
    assert run.average.updates == 3
    own = MaskedLM(shape)
    from_stock(own, *read_export(out / "average")[1:])
    torch.testing.assert_close(own.state_dict(), dict(run.average.values), atol=2e-3, rtol=2e-3)
    from_stock(own, *read_export(out)[1:])
    torch.testing.assert_close(own.state_dict(), run.model.state_dict(), atol=2e-3, rtol=2e-3)
    rows = rows_of(out)
    assert [r.get("weights") for r in rows if r["kind"] == "held-out"] == [None, "average"]
    curve = [r for r in rows if r["kind"] == "curve"]
    assert all({"loss", "cls_own_loss", "cls_next_loss"} <= set(r) for r in curve)
    again = Run(parts, tokenizer, out, replace(settings, steps=40), shape, CPU, resume=True)
    assert again.average is not None
    torch.testing.assert_close(again.average.values, run.average.values, rtol=0, atol=0)
    assert again.average.updates == 3
    main(
        [
            "export",
            "--checkpoint",
            str(out / "checkpoint.pt"),
            "--tokenizer",
            str(tokenizer),
            "--out",
            str(tmp_path / "e"),
        ]
    )
    assert (tmp_path / "e/average/head/mlm-head.safetensors").read_bytes() == (
        out / "average/head/mlm-head.safetensors"
    ).read_bytes()
    without = Run(parts, tokenizer, out, replace(settings, steps=31, average=0), shape, CPU, resume=True)
    without.train()
    assert not (out / "average").exists()  # nothing older than the encoder stays beside it
    late = Run(parts, tokenizer, out, replace(settings, steps=41), shape, CPU, resume=True)
    assert late.average is not None
    assert late.average.updates == 0
    torch.testing.assert_close(dict(late.average.values), dict(late.model.named_parameters()), rtol=0, atol=0)


def test_command_line_with_everything_on_then_flat_from_its_average(room: Path, tmp_path: Path) -> None:
    where = ["--data", str(room / "parts"), "--tokenizer", str(room / "tokenizer")]
    first, second = tmp_path / "first", tmp_path / "second"
    main(["train", *where, "--out", str(first), "--steps", "20", "--warmup", "5", *FLAGS])
    start = ["--init", str(first / "average"), "--warmup", "0", "--decay", "0", "--lr", "0.0005"]
    main(["train", *where, "--out", str(second), "--steps", "20", *start, *FLAGS])
    rates = {r["lr"] for r in rows_of(second) if r["kind"] == "curve"}
    assert rates == {0.0005}
    assert {f for f in rows_of(first)[0]["settings"].items() if f[0] in ALL_ON} == set(ALL_ON.items())  # type: ignore[attr-defined]
