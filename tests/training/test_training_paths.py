"""Fast paths of training equal the plain one: pre-tokenised text, cached views, gradient caching, [CLS] only, stay-close."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

import selfguide
from resuming import assert_resumes_exactly
from selfguide.engine.cache import VIEWS, cache_folder
from selfguide.engine.cuda_graphs import GraphedSteps
from selfguide.engine.digest import weights_digest
from selfguide.engine.packing import can_pack, gather, layout, layout_of, packed
from selfguide.engine.tokens import TokenCollator, TokenisedText, tokenise_dataset
from selfguide.engine.view_cache import ViewsKey, find, find_or_make, size_of
from selfguide.engine.views import layer_views
from selfguide.errors import UsageError
from selfguide.losses import functional as losses
from selfguide.losses.base import HeadedLoss, Preparation
from selfguide.losses.dropout_contrast import DropoutContrastLoss
from selfguide.losses.self_guided import SelfGuidedLoss, reads_first_tokens_only
from selfguide.models import families
from selfguide.models.encoders import backbone, load_encoder
from selfguide.models.layers import hidden_states, pool
from selfguide.progress import Reporter
from selfguide.training.settings import TrainingSettings
from toys import FAMILIES, toy_sentences

SENTENCES = [" ".join(toy_sentences(90)[number : number + 1 + number % 4]) for number in range(24)]
FP32 = {"rtol": 1e-5, "atol": 1e-5}
GRADIENT = {"rtol": 1e-4, "atol": 1e-4}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SELFGUIDE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "views"


def _no_dropout(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0


def _loss(path: Path, **settings: Any) -> SelfGuidedLoss:
    torch.manual_seed(0)
    loss = SelfGuidedLoss(load_encoder(path, pooling="cls"), head_size=16, temperature=0.05, **settings)
    with torch.no_grad():  # away from the guide, so that the stay-close term counts
        for parameter in loss._student_parameters:
            parameter.mul_(1.01)
    _no_dropout(loss)
    return loss.train()


def _gradients(loss: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.grad for name, parameter in loss.named_parameters() if parameter.grad is not None}


def _same(one: tuple[Tensor, nn.Module], other: tuple[Tensor, nn.Module]) -> None:
    torch.testing.assert_close(one[0].detach(), other[0].detach(), **FP32)
    first, second = _gradients(one[1]), _gradients(other[1])
    assert first.keys() == second.keys()
    assert len(first) > 10
    for name in first:
        torch.testing.assert_close(
            first[name], second[name], **GRADIENT, msg=lambda words, name=name: f"{name}: {words}"
        )


def _run(loss: HeadedLoss, run: Preparation | None = None) -> tuple[Tensor, HeadedLoss]:
    """Compute a step's loss and gradients; with a preparation, on a batch as the trainer makes it."""
    model: Any = loss.model
    features = model.preprocess(SENTENCES)
    if run is not None:
        assert run.text is not None
        loss.prepare(run)
        batch = TokenCollator(run.text, loss.on_host)([{"sentence": sentence} for sentence in SENTENCES])
        features = {name.removeprefix("sentence_"): value for name, value in batch.items()}
    value = loss([features])
    value.backward()
    return value, loss


def _preparation(encoder: SentenceTransformer, work: Path, **settings: Any) -> Preparation:
    text = TokenisedText(encoder, SENTENCES)
    return Preparation(TrainingSettings(device="cpu", **settings), work, Reporter(quiet=True), text)


# Packing


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", [family for family in FAMILIES if families.FAMILIES[family].packable])
def test_every_family_that_packs_gives_the_padded_states_and_views(
    tiny: Callable[[str], Path], family: str, attention: str
) -> None:
    encoder = load_encoder(tiny(family))
    model = backbone(encoder).eval()
    if family != "mpnet":  # has one attention only
        model.set_attn_implementation(attention)
    assert can_pack(model)
    features = encoder.preprocess(SENTENCES)
    inputs = {name: features[name] for name in ("input_ids", "attention_mask")}
    real = inputs["attention_mask"].bool()
    with torch.no_grad():
        plain = hidden_states(model, inputs)
        with packed(model):
            together = hidden_states(model, inputs)
        with packed(model, firsts=True):
            firsts = model(**inputs).last_hidden_state
        for one, other in zip(plain, together, strict=True):
            torch.testing.assert_close(one[real], other[real], rtol=0, atol=1e-5)
        torch.testing.assert_close(plain[-1][:, 0], firsts[:, 0], rtol=0, atol=1e-5)
        for pooling in ("max", "mean", "cls"):
            views = torch.stack([pool(states, inputs["attention_mask"], pooling) for states in plain], dim=1)
            torch.testing.assert_close(layer_views(model, inputs, pooling, range(len(plain))), views, rtol=0, atol=1e-5)


def test_packing_really_happens(bert: Path) -> None:
    """The layers see the rows of the layout, and the last one, asked for [CLS], sees far fewer tokens in its second half."""
    encoder = load_encoder(bert)
    model: Any = backbone(encoder).eval()
    features = encoder.preprocess(SENTENCES)
    inputs = {name: features[name] for name in ("input_ids", "attention_mask")}
    seen: list[tuple[int, ...]] = []
    for layer in model.encoder.layer:
        layer.intermediate.register_forward_hook(lambda module, given, output: seen.append(tuple(output.shape[:-1])))
    with torch.no_grad(), packed(model, firsts=True):
        model(**inputs)
    rows = tuple(layout(inputs["attention_mask"]).positions.shape)
    assert seen == [rows, rows, (len(SENTENCES),)]
    assert rows[0] * rows[1] < 0.75 * inputs["input_ids"].numel()


@pytest.mark.parametrize("objective", losses.OBJECTIVES)
def test_a_packed_step_of_cls_alone_equals_the_padded_one(
    bert: Path, objective: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for enabled in (True, False):
        monkeypatch.setattr("selfguide.engine.packing.ENABLED", enabled)
        loss = _loss(bert, objective=objective)
        assert loss._firsts
        torch.manual_seed(4)
        found.append(_run(loss))
    _same(*found)


def test_only_a_plain_cls_pooling_reads_first_tokens_alone(bert: Path) -> None:
    from sentence_transformers.base.modules import Dense
    from sentence_transformers.sentence_transformer.modules import Normalize

    cls = load_encoder(bert, pooling="cls")
    assert reads_first_tokens_only(cls)
    assert reads_first_tokens_only(SentenceTransformer(modules=[*cls, Normalize()]))
    assert not reads_first_tokens_only(SentenceTransformer(modules=[*cls, Dense(32, 32)]))
    for pooling in ("mean", "max", "last2"):
        assert not reads_first_tokens_only(load_encoder(bert, pooling=pooling))


def test_a_layout_in_few_shapes_is_the_same_batch(bert: Path) -> None:
    """What a GPU replays: rows of fixed length, ids packed on the host; equal to the step on the padded batch."""
    loss = _loss(bert)
    features = loss.model.preprocess(SENTENCES)
    mask = features["attention_mask"]
    plan = layout_of(mask.sum(dim=1).tolist(), mask.shape[1], row_tokens=96, even=32, full_rows=True)
    assert plan.positions.shape[1] % 32 == 0
    assert plan.padded.shape[1] % 32 == 0
    value, embeddings = loss._recorded_step(
        gather(features["input_ids"], plan), plan.positions, plan.sentence, plan.first, plan.padded, plan.real
    )
    value.backward()
    assert embeddings.shape == (len(SENTENCES), 32)
    _same((value, loss), _run(_loss(bert)))


def test_a_step_that_cannot_be_recorded_runs_as_ever_and_is_told_once(
    bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    steps = GraphedSteps(nn.Linear(2, 2), lambda value: (value.sum(), value), notes.append)
    monkeypatch.setattr(steps, "_has_room", lambda: True)
    for _ in range(6):  # there is no CUDA here, or it refuses a tensor of the host's
        assert float(steps(torch.ones(3))[0]) == 3.0
    assert len(notes) == 1
    assert "only costs speed" in notes[0]
    assert steps.given_up
    assert len(steps) == 0


# Stay-close


@pytest.mark.parametrize("sizes", [[(3,)], [(700, 900), (5,), (2, 3, 4)]])
def test_the_stay_close_term_equals_the_plain_sum(sizes: list[tuple[int, ...]]) -> None:
    torch.manual_seed(0)
    ones = [torch.randn(size).requires_grad_() for size in sizes]
    others = [torch.randn(size) for size in sizes]
    (0.3 * losses.stay_close(ones, others)).backward()
    fast = [one.grad.clone() for one in ones if one.grad is not None]
    for one in ones:
        one.grad = None
    plain = sum(((one - other) ** 2).sum() for one, other in zip(ones, others, strict=True))
    assert isinstance(plain, Tensor)
    (0.3 * plain).backward()
    torch.testing.assert_close(losses.stay_close(ones, others), plain, rtol=1e-5, atol=1e-5)
    for one, gradient in zip(ones, fast, strict=True):
        torch.testing.assert_close(one.grad, gradient, **FP32)


# Tokens made ahead


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("side", ["right", "left"])
def test_tokens_made_ahead_are_those_of_the_encoder(tiny: Callable[[str], Path], family: str, side: str) -> None:
    encoder = load_encoder(tiny(family), max_length=12)
    encoder.tokenizer.padding_side = side
    text = Dataset.from_dict({"first": SENTENCES, "second": SENTENCES[::-1], "label": list(range(24))})
    ahead = tokenise_dataset(encoder, text)
    assert ahead is not None
    assert len(ahead) == 24
    examples = [text[number] for number in (3, 17, 4, 4)]
    batch = TokenCollator(ahead, lambda features, rows: features)(examples)
    assert batch["label"].tolist() == [3, 17, 4, 4]
    for column in ("first", "second"):
        expected = encoder.preprocess([example[column] for example in examples])
        for name, value in expected.items():
            found = batch[f"{column}_{name}"]
            assert torch.equal(found, value) if isinstance(value, Tensor) else found == value


def test_the_trainer_gets_the_same_batches_with_and_without(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = []
    for ahead in (True, False):
        if not ahead:
            monkeypatch.setattr("selfguide.training.trainer.tokenise_dataset", lambda encoder, text: None)
        tuned = selfguide.train(
            bert, SENTENCES, quiet=True, head_size=8, batch_size=8, device="cpu", learning_rate=1e-3
        )
        vectors.append(tuned.encode(SENTENCES[:5]))
    np.testing.assert_array_equal(vectors[0], vectors[1])


# Kept views


def _settings(keep_views: str) -> dict[str, Any]:
    return {"head_size": 8, "batch_size": 8, "device": "cpu", "learning_rate": 1e-3, "keep_views": keep_views}


@pytest.mark.parametrize("objective", losses.OBJECTIVES)
def test_a_step_on_kept_views_equals_the_plain_one(bert: Path, tmp_path: Path, cache: Path, objective: str) -> None:
    found = []
    for keep in ("yes", "no"):
        loss = _loss(bert, objective=objective, keep_views=keep)
        model: Any = loss.model
        if keep == "yes":
            loss.views = None  # type: ignore[assignment,method-assign]  # the guide must not be asked once they are there
            _loss(bert, keep_views="yes").prepare(_preparation(model, tmp_path))
        torch.manual_seed(4)
        found.append(_run(loss, _preparation(model, tmp_path)))
    assert len(list(cache.glob("views-*.npy"))) == 1
    _same(*found)


def test_kept_views_are_used_when_they_are_read_again_or_there_already(bert: Path, cache: Path) -> None:
    once, again = {**_settings("auto")}, {**_settings("auto"), "epochs": 2.0}
    selfguide.train(bert, SENTENCES, quiet=True, **once)
    assert not cache.exists()
    selfguide.train(bert, SENTENCES, quiet=True, **_settings("no") | {"epochs": 2.0})
    assert not cache.exists()
    selfguide.train(bert, SENTENCES, quiet=True, **again)
    (store,) = cache.glob("views-*.npy")
    views = np.load(store)
    assert views.shape == (24, 4, 32)
    assert views.dtype == np.float32
    # Another seed, temperature and a single epoch find it; another pooling or text does not.
    before = store.stat().st_mtime_ns
    selfguide.train(bert, SENTENCES, quiet=True, **once, seed=5, temperature=0.2)
    assert store.stat().st_mtime_ns > before  # read, and its time of use updated
    selfguide.train(bert, SENTENCES, quiet=True, **again, view_pooling="mean")
    selfguide.train(bert, SENTENCES[:-1], quiet=True, **again)
    assert len(list(cache.glob("views-*.npy"))) == 3
    assert not list(cache.glob(".*.tmp*"))


def test_training_on_kept_views_ends_where_training_without_does(bert: Path) -> None:
    """By the vectors: weights that no vector depends on (the keys' biases) follow the last digits of their gradient."""
    one, other = (selfguide.train(bert, SENTENCES, quiet=True, **_settings(keep), epochs=2.0) for keep in ("yes", "no"))
    np.testing.assert_allclose(one.encode(SENTENCES), other.encode(SENTENCES), rtol=0, atol=1e-4)


def test_fp16_views_are_half_the_size_and_close(bert: Path, tmp_path: Path, cache: Path) -> None:
    losses_found = []
    for keep in ("fp16", "no"):
        loss = _loss(bert, keep_views=keep)
        model: Any = loss.model
        losses_found.append(float(_run(loss, _preparation(model, tmp_path))[0].detach()))
    (store,) = cache.glob("views-*.npy")
    assert np.load(store).dtype == np.float16
    assert losses_found[0] == pytest.approx(losses_found[1], rel=1e-2)


def test_size_is_known_before_and_a_limit_is_kept(bert: Path, tmp_path: Path, cache: Path) -> None:
    assert size_of(1000, 13, 384, "float16") == 1000 * 13 * 384 * 2
    loss = _loss(bert, keep_views="yes", keep_views_gb=1e-6)
    model: Any = loss.model
    run = _preparation(model, tmp_path)
    loss.prepare(run)
    assert loss._kept is None
    assert "keep_views_gb allows" in run.reporter.warnings[0]
    assert not cache.exists()


def test_the_oldest_views_make_room(bert: Path, tmp_path: Path, cache: Path) -> None:
    size = size_of(24, 4, 32, "float32") / 1e9
    names = []
    for pooling in ("max", "mean", "cls"):
        loss = _loss(bert, keep_views="yes", keep_views_gb=2.5 * size, view_pooling=pooling)
        model: Any = loss.model
        loss.prepare(_preparation(model, tmp_path))
        assert loss._kept is not None
        names.append(loss._kept.paths[0].name)
    assert {path.name for path in cache.glob("views-*.npy")} == set(names[1:])


def test_a_broken_or_unwritable_cache_costs_speed_alone(bert: Path, tmp_path: Path, cache: Path) -> None:
    loss = _loss(bert, keep_views="yes")
    model: Any = loss.model
    loss.prepare(_preparation(model, tmp_path))
    assert loss._kept is not None
    loss._kept.paths[0].write_bytes(b"not an array")
    again = _loss(bert, keep_views="yes")
    again.prepare(_preparation(model, tmp_path))
    assert again._kept is not None
    assert len(again._kept) == 24
    for path in [*cache.iterdir()]:
        path.unlink()
    cache.rmdir()
    cache.write_text("a file where the folder should be")
    third = _loss(bert, keep_views="yes")
    third.prepare(_preparation(model, tmp_path))
    assert third._kept is None


def _make_in_a_process(folder: str, text: Any, results: Any) -> None:
    import os

    os.environ["SELFGUIDE_CACHE"] = folder
    made = []

    def compute(features: dict[str, Tensor]) -> Tensor:
        made.append(len(features["input_ids"]))
        return torch.ones(len(features["input_ids"]), 2, 3)

    key = ViewsKey("e", "t", "max", (0, 1), "float32", "float32")
    store = find_or_make(key, text, compute, 3, 10**9, Reporter(quiet=True))
    results.put((sum(made), 0 if store is None else len(store)))


class _SlowText:
    """The part of a tokenised text that the cache needs; slow, so that the processes compete."""

    lengths = np.full(400, 500)

    def __len__(self) -> int:
        return len(self.lengths)

    def batch(self, rows: list[int]) -> dict[str, Tensor]:
        import time

        time.sleep(0.005)
        return {"input_ids": torch.zeros(len(rows), 3)}


def test_processes_that_want_the_same_views_make_them_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    processes = [
        context.Process(target=_make_in_a_process, args=(str(tmp_path / "shared"), _SlowText(), results))
        for _ in range(3)
    ]
    for process in processes:
        process.start()
    found = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(timeout=60)
    assert sorted(found) == [(0, 400), (0, 400), (400, 400)]


def test_the_key_knows_weights_text_and_all_that_matters(bert: Path) -> None:
    one, other = backbone(load_encoder(bert)), backbone(load_encoder(bert))
    assert weights_digest(one) == weights_digest(other)
    with torch.no_grad():
        next(other.parameters()).view(-1)[3] += 1e-3
    assert weights_digest(one) != weights_digest(other)
    encoder = load_encoder(bert)
    text = TokenisedText(encoder, SENTENCES).fingerprint
    assert text != TokenisedText(encoder, SENTENCES[::-1]).fingerprint
    assert text != TokenisedText(load_encoder(bert, max_length=5), SENTENCES).fingerprint
    names = {
        ViewsKey("e", "t", pooling, layers, "float32", kept).name
        for pooling in ("max", "mean")
        for layers in ((0, 1), (0, 2))
        for kept in ("float32", "float16")
    }
    assert len(names) == 8
    nothing: Any = _SlowText()
    assert find(ViewsKey("e", "t", "max", (0,), "float32", "float32"), nothing, 3) is None


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SELFGUIDE_CACHE", str(tmp_path))
    assert cache_folder(VIEWS) == tmp_path / "views"
    monkeypatch.delenv("SELFGUIDE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder(VIEWS) == tmp_path / "xdg" / "selfguide" / "views"


def test_a_run_on_kept_views_resumes_exactly(bert: Path, tmp_path: Path) -> None:
    """Two epochs, so views are kept; the run is stopped in the first and resumed."""
    assert_resumes_exactly("sg-opt", SelfGuidedLoss, bert, tmp_path, head_size=16)
    assert len(list(cache_folder(VIEWS).glob("views-*.npy"))) == 1


def test_a_resumed_run_without_kept_views_goes_on_without(bert: Path, tmp_path: Path) -> None:
    model: Any = load_encoder(bert, pooling="cls")
    run = _preparation(model, tmp_path)
    first = _loss(bert)
    first.prepare(run)
    assert first._kept is None
    other = _loss(bert, keep_views="yes")
    other.prepare(_preparation(model, tmp_path / "elsewhere"))
    resumed = _loss(bert)
    resumed.prepare(Preparation(run.settings, tmp_path, run.reporter, run.text, resume=True))
    assert resumed._kept is None  # although they are in the cache by now
    fresh = _loss(bert)
    fresh.prepare(Preparation(run.settings, tmp_path, run.reporter, run.text))
    assert fresh._kept is not None


# Gradient caching


@pytest.mark.parametrize("chunk", [5, 24, 100])
@pytest.mark.parametrize("objective", ["sg-opt", "sg"])
def test_a_batch_in_chunks_equals_the_whole_for_self_guidance(
    bert: Path, tmp_path: Path, objective: str, chunk: int
) -> None:
    found = []
    for size in (0, chunk):
        loss = _loss(bert, objective=objective, gradient_cache=size)
        model: Any = loss.model
        torch.manual_seed(4)
        found.append(_run(loss, _preparation(model, tmp_path)))
    _same(*found)


@pytest.mark.parametrize("family", ["bert", "deberta-v2"])
def test_a_batch_in_chunks_equals_the_whole_for_dropout_contrast(
    tiny: Callable[[str], Path], tmp_path: Path, family: str
) -> None:
    folder = tiny(family)
    found = []
    for size in (0, 7):
        torch.manual_seed(0)
        loss = DropoutContrastLoss(load_encoder(folder, pooling="cls"), dropout=0.1, gradient_cache=size)
        _no_dropout(loss)
        found.append(_run(loss.train()))
    _same(*found)


def test_dropout_is_drawn_the_same_in_both_passes(bert: Path) -> None:
    """With dropout, gradients equal those of the same chunks through the encoder once, everything kept."""
    torch.manual_seed(0)
    losses_made = [DropoutContrastLoss(load_encoder(bert, pooling="cls"), dropout=0.3).train() for _ in range(2)]
    losses_made[1].load_state_dict(losses_made[0].state_dict())
    cached, kept = losses_made
    cached.gradient_cache = 7
    features = cached.model.preprocess(SENTENCES)
    torch.manual_seed(9)
    value = cached([dict(features)])
    after = torch.get_rng_state()
    value.backward()
    assert torch.equal(after, torch.get_rng_state())  # the second pass does not affect later random draws
    torch.manual_seed(9)
    parts = [
        kept._pairs({n: v[s : s + 7] if isinstance(v, Tensor) else v for n, v in features.items()})
        for s in range(0, 24, 7)
    ]
    whole = kept.contrast(torch.cat(torch.cat(parts).unbind(dim=1)))
    whole.backward()
    _same((value, cached), (whole, kept))


def test_gradient_caching_trains_and_is_refused_in_words_elsewhere(bert: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"batch_size": 16, "device": "cpu", "learning_rate": 1e-3, "head_size": 8, "quiet": True}
    tuned = selfguide.train(bert, SENTENCES, gradient_cache=4, **options)
    assert not np.allclose(tuned.encode(["my sister"]), load_encoder(bert, pooling="cls").encode(["my sister"]))
    with pytest.raises(UsageError, match="gradient_cache must be at least 0"):
        selfguide.train(bert, SENTENCES, gradient_cache=-1, **options)
    with pytest.raises(UsageError, match="gradient_cache is not for"):
        selfguide.train(bert, SENTENCES, "sg-opt+bt", pairs=str(tmp_path / "pairs.tsv"), gradient_cache=4, **options)
