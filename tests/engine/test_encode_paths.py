"""Every fast path of encoding gives the embeddings of the plain one, whatever the batches and the order."""

from __future__ import annotations

import gc
import random
import subprocess
import sys
import weakref
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, StaticEmbedding, WordWeights

import selfguide
from selfguide import system
from selfguide.calibration.two_views import two_views
from selfguide.engine import backends
from selfguide.engine import bf16 as half
from selfguide.engine.encode import encode, sentence_vectors, vector_chunks
from selfguide.engine.tokens import Tokens, rows_by_length, tokenise
from selfguide.engine.torch_runner import FlatRunner, StockRunner, torch_runner
from selfguide.engine.workers import side_by_side
from selfguide.errors import SelfguideError, UsageError
from selfguide.models import families
from selfguide.models.encoders import load_encoder
from toys import FAMILIES, Outcome, toy_sentences

needs_onnx = pytest.mark.skipif(
    any(find_spec(name) is None for name in ("onnx", "onnxruntime", "onnxscript")), reason="the extra [onnx] is absent"
)

# Lengths from one word to more than the limit of 64 tokens, a blank and a repeat.
TEXT = [" ".join(toy_sentences(200)[number : number + 1 + number % 7]) for number in range(45)]
TEXT += ["", "a", " ".join(toy_sentences(40)), TEXT[3]]


def plain(model: SentenceTransformer, sentences: list[str] = TEXT) -> NDArray[np.float32]:
    """Sentence by sentence through the stock modules: no batch, no padding, no code of selfguide."""
    return np.stack([model.encode([sentence], show_progress_bar=False)[0] for sentence in sentences])


def whitened(path: Path) -> SentenceTransformer:
    """An encoder with a Dense module with bias and a Normalize after its pooling, as whitening saves it."""
    model = selfguide.load_encoder(path, pooling="last2")
    torch.manual_seed(3)
    dense = Dense(32, 20, bias=True, activation_function=torch.nn.Identity())
    return SentenceTransformer(modules=[*model, dense, Normalize()], device="cpu")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_gives_its_stock_vectors(tiny: Callable[[str], Path], family: str) -> None:
    model = selfguide.load_encoder(tiny(family), pooling="mean")
    expected = FlatRunner if families.FAMILIES[family].bert_layers else StockRunner
    assert isinstance(torch_runner(model), expected)
    np.testing.assert_allclose(encode(model, TEXT), plain(model), atol=1e-5)


@pytest.mark.parametrize("family", ["bert", "roberta", "electra"])
@pytest.mark.parametrize(("pooling", "layer"), [("cls", None), ("max", None), ("first-last", None), ("mean", 1)])
def test_every_pooling_over_the_flat_row(
    tiny: Callable[[str], Path], family: str, pooling: str, layer: int | None
) -> None:
    model = selfguide.load_encoder(tiny(family), pooling, layer)
    assert isinstance(torch_runner(model), FlatRunner)
    np.testing.assert_allclose(encode(model, TEXT), plain(model), atol=1e-5)


def test_what_follows_the_pooling_is_applied(bert: Path) -> None:
    model = whitened(bert)
    assert isinstance(torch_runner(model), FlatRunner)
    np.testing.assert_allclose(encode(model, TEXT), plain(model), atol=1e-5)
    lengths = np.linalg.norm(encode(selfguide.load_encoder(bert), TEXT, normalise=True), axis=1)
    np.testing.assert_allclose(lengths, 1, atol=1e-6)


def fused(path: Path) -> SentenceTransformer:
    """The chain of the method fused: [CLS] of the last layer beside a weighted mean of another."""
    encoder = selfguide.load_encoder(path, pooling="cls")
    tokens = encoder.tokenizer.convert_ids_to_tokens(range(len(encoder.tokenizer)))
    words = WordWeights(tokens, {token: 1 / (2 + number) for number, token in enumerate(tokens)})
    return two_views(encoder, 1, words)


def test_the_chain_of_fused(bert: Path) -> None:
    model = fused(bert)
    assert isinstance(torch_runner(model), FlatRunner)
    np.testing.assert_allclose(encode(model, TEXT), plain(model), atol=1e-5)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("family", ["bert", "deberta-v2"])
def test_neither_batch_size_nor_order_nor_threads_matter(
    tiny: Callable[[str], Path], family: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = selfguide.load_encoder(tiny(family))
    expected = encode(model, TEXT)
    order = list(range(len(TEXT)))
    random.Random(5).shuffle(order)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for batch_size in (None, 1, 3, 64):
            shuffled = encode(model, [TEXT[row] for row in order], batch_size=batch_size)
            np.testing.assert_allclose(shuffled, expected[order], atol=1e-6)
        monkeypatch.setattr("selfguide.engine.encode._CPU_CHUNK", 10)
        np.testing.assert_allclose(encode(model, TEXT), expected, atol=1e-6)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


def test_an_encoder_of_the_size_of_mini_does_not_depend_on_the_batch_either(tmp_path: Path, bert: Path) -> None:
    """Twelve layers of dimension 384, so that rounding errors can grow."""
    from transformers import AutoTokenizer, BertConfig, BertModel

    torch.manual_seed(1)
    tokenizer = AutoTokenizer.from_pretrained(bert)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=384,
        num_hidden_layers=12,
        num_attention_heads=6,
        intermediate_size=1536,
        max_position_embeddings=66,
        pad_token_id=1,
    )
    BertModel(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    model = selfguide.load_encoder(tmp_path)
    together = encode(model, TEXT[:24], normalise=True)
    alone = np.stack([encode(model, sentence, normalise=True) for sentence in TEXT[:24]])
    np.testing.assert_allclose(together, alone, atol=1e-6)
    np.testing.assert_allclose(
        together, model.encode(TEXT[:24], normalize_embeddings=True, show_progress_bar=False), atol=1e-5
    )


def test_an_encoder_that_was_changed_gives_its_new_vectors(bert: Path) -> None:
    model = selfguide.load_encoder(bert)
    before = encode(model, TEXT[:5])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.1)
    assert not np.allclose(encode(model, TEXT[:5]), before, atol=1e-3)
    np.testing.assert_allclose(encode(model, TEXT[:5]), plain(model, TEXT[:5]), atol=1e-5)


def test_encoders_that_cannot_run_over_flat_rows_run_the_stock_way(bert: Path) -> None:
    half_precision = selfguide.load_encoder(bert).half()
    prompted = selfguide.load_encoder(bert)
    prompted.prompts, prompted.default_prompt_name = {"query": "the old man "}, "query"
    for model in (half_precision, prompted):
        assert isinstance(torch_runner(model), StockRunner)
    np.testing.assert_allclose(encode(prompted, TEXT), plain(prompted), atol=1e-5)
    adapted = selfguide.load_encoder(bert)
    own = adapted[0].model.encoder.layer[0].attention.self
    own.query = torch.nn.Sequential(own.query)  # as an adapter would wrap it
    assert isinstance(torch_runner(adapted), StockRunner)
    np.testing.assert_allclose(encode(adapted, TEXT[:9]), plain(adapted, TEXT[:9]), atol=1e-5)


def test_an_encoder_without_a_transformer(bert: Path) -> None:
    tokenizer = selfguide.load_encoder(bert).tokenizer
    torch.manual_seed(2)
    words = StaticEmbedding(tokenizer.backend_tokenizer, embedding_dim=12)
    model = SentenceTransformer(modules=[words], device="cpu")
    np.testing.assert_allclose(encode(model, TEXT), plain(model), atol=1e-6)


def test_tokens_are_those_of_the_tokenizer(bert: Path) -> None:
    model = selfguide.load_encoder(bert, max_length=20)
    found = tokenise(model.tokenizer, TEXT, 20)
    rows = model.tokenizer(TEXT, truncation=True, max_length=20)["input_ids"]
    assert found.ids.tolist() == [token for row in rows for token in row]
    assert found.lengths.tolist() == [len(row) for row in rows]


@given(
    lengths=st.lists(st.integers(0, 90), min_size=1, max_size=60),
    budget=st.integers(1, 300),
    most=st.none() | st.integers(1, 9),
    parts=st.integers(1, 4),
)
@settings(max_examples=80, deadline=None)
def test_batches_hold_every_token_once(lengths: list[int], budget: int, most: int | None, parts: int) -> None:
    sizes = np.array(lengths)
    tokens = Tokens(np.arange(sizes.sum()), sizes)
    batches = tokens.batches(budget, most, parts)
    assert sorted(row for batch in batches for row in batch.rows.tolist()) == np.flatnonzero(sizes).tolist()
    starts = np.cumsum(sizes) - sizes
    for batch in batches:
        assert len(batch.rows) == 1 or len(batch.rows) * batch.lengths.max() <= budget
        assert most is None or len(batch.rows) <= most
        ids, mask = batch.padded(-1)
        for row, line, real in zip(batch.rows, ids, mask, strict=True):
            expected = list(range(starts[row], starts[row] + sizes[row]))
            assert line[real == 1].tolist() == expected
            assert line[: len(expected)].tolist() == expected
    assert [len(rows) for rows in rows_by_length(sizes, budget, most, parts)] == [len(batch.rows) for batch in batches]


def test_an_error_in_a_thread_is_raised() -> None:
    def work(item: int) -> None:
        if item == 3:
            raise ValueError("three")

    for threads in (1, 2):
        with pytest.raises(ValueError, match="three"):
            side_by_side(work, range(6), threads)


def test_a_stream_is_read_as_it_is_encoded(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("selfguide.engine.encode._CPU_CHUNK", 4)
    model = selfguide.load_encoder(bert)
    read = []

    def stream() -> object:
        for sentence in TEXT[:20]:
            read.append(sentence)
            yield sentence

    chunks = vector_chunks(model, stream())  # type: ignore[arg-type]
    first, vectors = next(chunks)
    assert first == read == TEXT[:4]
    rest = [vectors, *(more for _, more in chunks)]
    np.testing.assert_allclose(np.concatenate(rest), sentence_vectors(model, TEXT[:20]), atol=1e-6)


@pytest.fixture
def graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SELFGUIDE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "graphs"


@needs_onnx
def test_onnx_and_int8(bert: Path, graphs: Path) -> None:
    model = selfguide.load_encoder(bert, pooling="mean")
    expected = plain(model)
    np.testing.assert_allclose(encode(model, TEXT, backend="onnx"), expected, atol=1e-5)
    np.testing.assert_allclose(encode(model, TEXT, backend="onnx", batch_size=1), expected, atol=1e-5)
    small = encode(model, TEXT, backend="int8")
    cosines = (small * expected).sum(1) / np.linalg.norm(small, axis=1) / np.linalg.norm(expected, axis=1)
    assert cosines.min() > 0.99
    assert len(list(graphs.iterdir())) == 2  # and nothing half-written
    made = {path: path.stat().st_mtime_ns for path in graphs.iterdir()}
    again = selfguide.load_encoder(bert, pooling="mean")
    np.testing.assert_array_equal(encode(again, TEXT, backend="int8"), small)
    assert {path: path.stat().st_mtime_ns for path in graphs.iterdir()} == made
    assert model[0].model.config._attn_implementation == "sdpa"


@needs_onnx
def test_the_graph_holds_what_follows_the_pooling_and_follows_the_weights(bert: Path, graphs: Path) -> None:
    model = whitened(bert)
    np.testing.assert_allclose(encode(model, TEXT, backend="onnx"), plain(model), atol=1e-5)
    small = encode(model, TEXT, backend="int8")
    assert (small * plain(model)).sum(axis=1).min() > 0.99
    for graph in graphs.iterdir():
        graph.unlink()
    with torch.no_grad():
        model[3].linear.bias.add_(0.5)
    np.testing.assert_allclose(encode(model, TEXT, backend="onnx"), plain(model), atol=1e-5)
    assert len(list(graphs.iterdir())) == 1
    chain = fused(bert)
    np.testing.assert_allclose(encode(chain, TEXT, backend="onnx"), plain(chain), atol=1e-5)


@needs_onnx
def test_a_session_is_freed_with_its_model(bert: Path, graphs: Path) -> None:
    model = selfguide.load_encoder(bert, pooling="mean")
    encode(model, TEXT[:3], backend="onnx")
    session = weakref.ref(backends._sessions[model]["onnx"][1])
    assert session() is backends.runner(model, "onnx")  # used again as long as it is there
    del model
    gc.collect()
    assert session() is None


@needs_onnx
@pytest.mark.parametrize("family", ["roberta", "distilbert"])
def test_other_families_as_onnx(tiny: Callable[[str], Path], graphs: Path, family: str) -> None:
    model = selfguide.load_encoder(tiny(family), pooling="cls")
    np.testing.assert_allclose(encode(model, TEXT, backend="onnx"), plain(model), atol=1e-5)


@needs_onnx
def test_encoders_that_cannot_be_exported_are_refused(bert: Path, graphs: Path, tmp_path: Path) -> None:
    tokenizer = selfguide.load_encoder(bert).tokenizer
    words = SentenceTransformer(modules=[StaticEmbedding(tokenizer.backend_tokenizer, embedding_dim=12)], device="cpu")
    with pytest.raises(SelfguideError, match="StaticEmbedding in it cannot run as ONNX"):
        encode(words, TEXT, backend="onnx")
    prompted = selfguide.load_encoder(bert)
    prompted.prompts, prompted.default_prompt_name = {"query": "the "}, "query"
    with pytest.raises(SelfguideError, match="default prompt"):
        encode(prompted, TEXT, backend="int8")
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(SelfguideError, match="SELFGUIDE_CACHE"):
        encode(selfguide.load_encoder(bert), TEXT, backend="onnx")


def test_without_the_extra_one_sentence_says_what_to_install(
    command: Callable[..., Outcome], bert: Path, text_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "find_spec", lambda name: None)
    code, out, err = command("encode", text_file, "--encoder", bert, "--backend", "int8")
    assert (code, out) == (2, "")
    assert "pip install 'selfguide[onnx]'" in err
    assert err.count("\n") == 1


def test_an_unknown_backend_is_refused_before_anything_is_loaded() -> None:
    with pytest.raises(UsageError, match="torch, bf16, onnx, int8"):
        encode("no-such-folder", TEXT, backend="tensorrt")


def test_bf16_is_refused_where_it_would_crash(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dead(*arguments: object, **options: object) -> subprocess.CompletedProcess[bytes]:
        return subprocess.CompletedProcess([sys.executable], -4)  # an illegal instruction

    half.cpu_computes_bf16.cache_clear()
    monkeypatch.setattr(half.subprocess, "run", dead)
    with pytest.raises(UsageError, match="cannot compute in bf16"):
        encode(bert, TEXT, backend="bf16")
    half.cpu_computes_bf16.cache_clear()


def test_bf16_vectors_are_close_where_it_can_be_computed(bert: Path) -> None:
    if not half.cpu_computes_bf16():
        pytest.skip("no bf16 on this machine")
    model = selfguide.load_encoder(bert)
    np.testing.assert_allclose(encode(model, TEXT, backend="bf16"), plain(model), atol=0.1)


def test_bf16_is_for_the_flat_row(tiny: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half, "check_bf16", lambda model: None)
    with pytest.raises(UsageError, match="BERT's layers"):
        backends.runner(selfguide.load_encoder(tiny("mpnet")), "bf16")


@needs_onnx
def test_layers_with_a_large_quantisation_error_stay_in_fp32(bert: Path, graphs: Path) -> None:
    """One hidden unit of a feed-forward network is made huge and its outgoing weights tiny, so that the product is unchanged."""
    import onnx

    from selfguide.engine.int8 import LARGEST_ERROR, rounding_errors
    from selfguide.engine.onnx_graphs import graph_file

    model = selfguide.load_encoder(bert, pooling="mean")
    layer = model[0].model.encoder.layer[1]
    with torch.no_grad():
        layer.intermediate.dense.bias[3] = 3000.0
        layer.output.dense.weight[:, 3] *= 1e-4
    errors = rounding_errors(graph_file(model, int8=False), model)
    spoilt = [name for name, error in errors.items() if error > LARGEST_ERROR]
    assert len(errors) == 6 * len(model[0].model.encoder.layer)
    assert len(spoilt) == 1
    left = {node.name for node in onnx.load(str(graph_file(model, int8=True))).graph.node if node.op_type == "MatMul"}
    assert set(spoilt) <= left
    assert not (set(errors) - set(spoilt)) & left
    small, expected = encode(model, TEXT, backend="int8"), plain(model)
    cosines = (small * expected).sum(1) / np.linalg.norm(small, axis=1) / np.linalg.norm(expected, axis=1)
    assert cosines.min() > 0.99


def test_the_rounding_error_follows_its_formula() -> None:
    from selfguide.engine.int8 import rounding_error

    draw = np.random.default_rng(0)
    states, weights = draw.normal(size=(3, 5, 8)).astype(np.float32), draw.normal(size=(8, 4)).astype(np.float32)
    real = np.array([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0]], dtype=bool)
    step = (states.max() - states.min()) / 255
    zero = round(-states.min() / step)
    errors = []
    for sentence, token in zip(*np.nonzero(real), strict=True):
        wrong, whole = np.zeros(4), np.zeros(4)
        for number, weight in zip(states[sentence, token], weights, strict=True):
            near = (min(max(round(number / step) + zero, 0), 255) - zero) * step
            wrong += (near - number) * weight
            whole += number * weight
        errors.append(np.sqrt((wrong**2).sum()) / np.sqrt((whole**2).sum()))
    assert rounding_error(states, weights, real) == pytest.approx(float(np.median(errors)), rel=1e-3)
    assert rounding_error(np.zeros((1, 2, 8), np.float32), weights, real[:1, :2]) == 0.0


@pytest.mark.parametrize("threads", [1, 2])
def test_progress_is_shown_within_a_chunk(bert: Path, monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    """A large encoder needs minutes for a chunk, in which the bar must not stand still."""
    model, sentences = load_encoder(bert, pooling="mean", device="cpu"), toy_sentences(200)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    steps: list[int] = []
    try:
        chunks = list(vector_chunks(model, sentences, batch_size=16, advance=lambda count, extra: steps.append(count)))
    finally:
        torch.set_num_threads(before)
    assert len(chunks) == 1
    assert len(steps) >= 10
    assert sum(steps) == 200
    plain = [vectors for _, vectors in vector_chunks(model, sentences, batch_size=16)]
    np.testing.assert_allclose(chunks[0][1], plain[0], atol=1e-6)
