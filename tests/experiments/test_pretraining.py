"""Pre-training at a tiny shape on the CPU: from text to tokens to a trained, exported, stock encoder."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from experiments.pretraining.config import Settings, Shape
from experiments.pretraining.convert import from_stock, read_export, stock_config, to_stock
from experiments.pretraining.corpus import Corpus, Spans, corpus_of, load_held_out
from experiments.pretraining.data import Batcher, held_out_batches, mask, pack
from experiments.pretraining.model import MaskedLM, Packed
from experiments.pretraining.prepare import DOCUMENT, LENGTH, LINE, part_names, read_numbers
from experiments.pretraining.text import documents, sentences
from experiments.pretraining.tokenizer import CLS, MASK, SEP, load_tokenizer
from experiments.pretraining.train import RESULTS, Run, rate_factor

CPU = torch.device("cpu")
TINY = Shape(vocab=300, layers=2, width=32, heads=2, ffn=64, positions=48)
QUICK = Settings(
    tokens=768, short_max=16, long_max=32, warmup=5, steps=20, attention="sdpa", compile=False, log_every=5, lr=5e-3
)


def ragged(lengths: list[int], vocab: int, seed: int = 0) -> Packed:
    generator = torch.Generator().manual_seed(seed)
    total = sum(lengths)
    ids = torch.randint(5, vocab, (total,), generator=generator)
    cu = torch.tensor([0, *np.cumsum(lengths), total, total], dtype=torch.int32)  # two empty sequences at the end
    sequence = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    return Packed(ids, torch.cat([torch.arange(n) for n in lengths]), cu, sequence)


def test_sentences_are_split_by_a_simple_rule() -> None:
    text = 'Mr. Bach wrote it. "Was it good?" It was, says J. S. Smith. In 1720 (e.g. In May)! Yes'
    found = sentences(text)
    assert found == [
        "Mr. Bach wrote it.",
        '"Was it good?"',
        "It was, says J. S. Smith.",
        "In 1720 (e.g. In May)!",
        "Yes",
    ]
    assert " ".join(found) == text


def test_tokenizer_loads_in_stock_transformers(room: Path) -> None:
    stock = transformers.AutoTokenizer.from_pretrained(str(room / "tokenizer"))
    own = load_tokenizer(room / "tokenizer")
    text = "The CAT remembers Dr. Smith, and forgets [MASK]."
    assert stock(text)["input_ids"] == own.encode(text).ids
    assert (stock.pad_token_id, stock.cls_token_id, stock.mask_token_id) == (0, CLS, MASK)
    assert stock.model_max_length == 48


def test_prepared_parts_hold_the_whole_text(room: Path) -> None:
    own = load_tokenizer(room / "tokenizer")
    texts = [" ".join(d) for d in documents(room / "text")]
    expected = sorted(own.encode(t, add_special_tokens=False).ids for t in texts)
    found: list[list[int]] = []
    assert part_names(room / "parts") == ["part-0", "part-1"]
    for name in [*part_names(room / "parts"), "held-out"]:
        tokens = read_numbers(room / "parts", name + ".tokens.u16")
        marks = read_numbers(room / "parts", name + ".sentences.u16")
        ends = np.cumsum((marks & LENGTH).astype(np.int64))
        assert ends[-1] == len(tokens)
        assert marks[0] & DOCUMENT
        assert np.all(marks[(marks & DOCUMENT) > 0] & LINE)
        starts = np.concatenate([[0], ends[:-1]])[(marks & DOCUMENT) > 0]
        found.extend(d.tolist() for d in np.split(tokens, starts[1:]))
    assert sorted(found) == expected


def test_logits_equal_stock_bert_on_ragged_sequences() -> None:
    config = transformers.BertConfig(**stock_config(TINY))
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    stock = transformers.BertForMaskedLM(config).float().eval()
    weights = {name: torch.randn_like(t) * 0.1 for name, t in stock.state_dict().items() if t.is_floating_point()}
    weights["cls.predictions.decoder.weight"] = weights["bert.embeddings.word_embeddings.weight"]
    weights["cls.predictions.decoder.bias"] = weights["cls.predictions.bias"]
    stock.load_state_dict(weights, strict=False)
    own = MaskedLM(TINY)
    encoder = {n: t for n, t in weights.items() if n.startswith("bert.")}
    from_stock(own, encoder, {n: t for n, t in weights.items() if n.startswith("cls.")})
    lengths = [7, 48, 1, 30, 48, 2, 13, 41]  # no block boundary is a sequence boundary
    batch = ragged(lengths, TINY.vocab)
    with torch.no_grad():
        ours = own.logits(batch).split(lengths)
        for ids, mine in zip(batch.ids.split(lengths), ours, strict=True):
            torch.testing.assert_close(mine, stock(ids[None]).logits[0], atol=1e-5, rtol=1e-5)
    back, head = to_stock(own)
    for name, tensor in {**{f"bert.{n}": t for n, t in back.items()}, **head}.items():
        assert torch.equal(tensor, weights[name]), name


def test_packing_lays_out_whole_sequences() -> None:
    tokens = np.arange(5, 105, dtype=np.uint16)
    marks = np.array([10 | LINE | DOCUMENT, 20, 30 | LINE, 40 | LINE | DOCUMENT], dtype=np.uint16)
    corpus = corpus_of(tokens, marks, CPU)
    assert corpus.starts.tolist() == [0, 10, 30, 60, 100]
    assert corpus.line_starts.tolist() == [0, 0, 30, 60]
    assert corpus.document_starts.tolist() == [0, 0, 0, 60]
    assert corpus.document_ends.tolist() == [60, 60, 60, 100]
    packed = pack(corpus, Spans(torch.tensor([10, 60, 0]), torch.tensor([3, 4, 9])), 15)
    assert packed.ids.tolist() == [CLS, 15, 16, 17, SEP, CLS, 65, 66, 67, 68, SEP, CLS, 5, 6, SEP]
    assert packed.positions.tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 0, 1, 2, 3]
    assert packed.cu.tolist() == [0, 5, 11, 15]
    assert packed.sequence.tolist() == [0] * 5 + [1] * 6 + [2] * 4


def test_drawn_steps_have_the_promised_form(corpus: Corpus) -> None:
    settings = Settings(tokens=4096, short_max=24, long_max=32)
    batcher = Batcher(corpus, settings, vocab=TINY.vocab, positions=TINY.positions, seed=1)
    short = batcher.draw_short(5000)
    assert int(short.length.min()) >= settings.short_min - 2
    assert int(short.length.max()) <= settings.short_max - 2
    boundaries = set(corpus.starts.tolist())
    assert all(s in boundaries for s in short.start.tolist())
    whole = [s + n in boundaries for s, n in zip(short.start.tolist(), short.length.tolist(), strict=True)]
    cut = short.length == settings.short_max - 2
    assert all(w or bool(c) for w, c in zip(whole, cut, strict=True))  # a sentence end, unless too long
    long = batcher.draw_long(5000)
    assert all(s in boundaries for s in long.start.tolist())
    assert int(long.length.max()) == TINY.positions - 2
    longs = []
    for _ in range(20):
        packed, places, labels, signals = batcher.draw()
        assert not signals
        lengths = packed.cu.diff()
        assert packed.cu.shape == (batcher.sequences + 1,)
        assert int(packed.cu[-1]) == settings.tokens
        assert int(lengths.max()) <= TINY.positions
        assert places.shape == labels.shape == (batcher.masked,)
        assert bool((packed.ids[packed.cu[:-1][lengths > 0].long()] == CLS).all())
        assert bool((packed.ids[packed.cu[1:][lengths > 1].long() - 1] == SEP).all())
        longs.append(float(lengths[batcher.shorts :].sum()) / settings.tokens)
    assert np.mean(longs) == pytest.approx(0.5, abs=0.05)


def test_masking_is_exact_and_spares_special_tokens() -> None:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 1000, (40000,), generator=generator)
    ids[::10] = CLS
    hidden, places, labels = mask(ids, 8000, 1000, generator)
    assert places.unique().numel() == labels.numel() == 8000
    assert int(labels.min()) > MASK
    assert torch.equal(labels, ids[places])
    untouched = torch.ones(len(ids), dtype=torch.bool)
    untouched[places] = False
    assert torch.equal(hidden[untouched], ids[untouched])
    now = hidden[places]
    assert float((now == MASK).float().mean()) == pytest.approx(0.8, abs=0.02)
    assert float((now == labels).float().mean()) == pytest.approx(0.1, abs=0.02)
    assert int(now[now != MASK].min()) > MASK


def test_rate_rises_stays_and_falls_with_the_budget() -> None:
    assert rate_factor(0, 0.0, warmup=10, decay=0.5) == pytest.approx(0.1)
    assert rate_factor(50, 0.3, warmup=10, decay=0.5) == 1.0
    assert rate_factor(50, 0.75, warmup=10, decay=0.5) == pytest.approx(0.5)
    assert rate_factor(50, 1.0, warmup=10, decay=0.5) == 0.0
    assert [rate_factor(0, spent, warmup=0, decay=0.0) for spent in (0.0, 0.5, 0.999)] == [1.0, 1.0, 1.0]


def test_train_export_resume_and_go_on(room: Path, tmp_path: Path) -> None:
    out, tokenizer = tmp_path / "run", room / "tokenizer"
    vocab = load_tokenizer(tokenizer).get_vocab_size()
    shape = replace(TINY, vocab=vocab)
    first = Run(room / "parts", tokenizer, out, QUICK, shape, CPU)
    start = float(first.model.loss(first.batcher.draw()).detach())
    end = first.train()
    assert first.step == 20
    assert end["loss_32"] < start
    model = transformers.BertModel.from_pretrained(str(out / "encoder"), add_pooling_layer=False, dtype=torch.float32)
    model.eval()
    batch = ragged([11, 20], vocab)
    own = MaskedLM(shape)
    saved_shape, encoder, head = read_export(out)
    assert saved_shape == shape
    from_stock(own, encoder, head)
    with torch.no_grad():
        theirs = model(input_ids=batch.ids[:11][None]).last_hidden_state[0]
        torch.testing.assert_close(own.hidden(batch)[:11], theirs, atol=1e-5, rtol=1e-5)
        close = own.logits(batch) - first.model.logits(batch)  # the export lost fp16 rounding and no more
    assert float(close.abs().max()) < 0.02
    again = Run(room / "parts", tokenizer, out, replace(QUICK, steps=30), shape, CPU, resume=True)
    assert again.step == 20
    assert again.optim.state_dict()["state"][0]["step"] == 20
    for name, tensor in first.model.state_dict().items():
        assert torch.equal(tensor, again.model.state_dict()[name])
    again.train()
    assert again.step == 30
    on = Run(room / "parts", tokenizer, tmp_path / "on", replace(QUICK, steps=1), Shape(), CPU, init=out)
    torch.testing.assert_close(on.model.state_dict(), again.model.state_dict(), atol=2e-3, rtol=2e-3)
    rows = [json.loads(line) for line in (out / RESULTS).read_text(encoding="utf-8").splitlines()]
    assert {row["kind"] for row in rows} == {"start", "curve", "held-out", "end"}


def test_a_signal_ends_a_run_in_good_order(room: Path, tmp_path: Path) -> None:
    vocab = load_tokenizer(room / "tokenizer").get_vocab_size()
    run = Run(room / "parts", room / "tokenizer", tmp_path, QUICK, replace(TINY, vocab=vocab), CPU)
    run._stop()
    run.train()
    assert run.step == 0
    assert (tmp_path / "encoder" / "config.json").exists()
    assert (tmp_path / "checkpoint.pt").exists()


def test_unusable_attention_and_held_out_questions(room: Path, tmp_path: Path) -> None:
    vocab = load_tokenizer(room / "tokenizer").get_vocab_size()
    settings = replace(QUICK, steps=1, attention="varlen")
    with pytest.warns(UserWarning, match="using sdpa"):
        run = Run(room / "parts", room / "tokenizer", tmp_path, settings, replace(TINY, vocab=vocab), CPU)
    assert run.model.attention == "sdpa"
    (apart,) = load_held_out(room / "parts", CPU).values()
    one, two = (held_out_batches(apart, 16, vocab=vocab, limit=1000) for _ in range(2))
    assert one
    for a, b in zip(one, two, strict=True):
        assert torch.equal(a.packed.ids, b.packed.ids)
        assert torch.equal(a.places, b.places)
        assert torch.equal(a.labels, b.labels)
        assert bool((a.packed.cu.diff() == 16).all())
