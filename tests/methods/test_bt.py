"""Back-translation: the three sources, the queue, losses against loops, whole runs with NT-Xent, a queue and SG-OPT."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from torch import Tensor

import selfguide
from selfguide.augment import back_translation
from selfguide.augment.back_translation import TranslationSource, back_translate
from selfguide.errors import InterruptedRun, SelfguideError, UsageError
from selfguide.losses import functional as losses
from selfguide.losses.base import own_parameters
from selfguide.losses.queue import KeyQueue, follow, momentum_contrast
from selfguide.losses.self_guided import SelfGuidedLoss
from selfguide.methods import registry
from selfguide.methods.bt import BackTranslationLoss
from selfguide.methods.sg_opt_bt import SelfGuidedTranslationLoss
from selfguide.models.encoders import backbone, load_encoder
from selfguide.progress import Reporter
from selfguide.runs.run import run
from selfguide.training import translated_text
from selfguide.training.configuration import RunConfig
from toys import save_tokenizer, toy_sentences

QUICK: dict[str, Any] = {"batch_size": 8, "learning_rate": 1e-3, "max_steps": 3, "device": "cpu", "quiet": True}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "nt-xent": ("bt", {}),
    "moco": ("bt", {"objective": "moco", "queue_size": 12, "momentum": 0.9}),
    "sg-opt": ("sg-opt+bt", {"head_size": 16}),
}


def _turned(sentence: str) -> str:
    return " ".join(reversed(sentence.split()))


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """A translation of each of forty sentences, but the first comes back as it was, and the second has two."""
    sentences = toy_sentences(40)
    rows = [f"{sentence}\t{_turned(sentence)}" for sentence in sentences[1:]]
    path = tmp_path / "pairs.tsv"
    path.write_text("\n".join([f"{sentences[0]}\t{sentences[0].upper()}", f"{sentences[1]}\tmy sister", *rows]) + "\n")
    return path


def _model(path: Path) -> SentenceTransformer:
    return load_encoder(path, pooling="cls", max_length=32)


def _batches(model: SentenceTransformer, count: int = 4) -> list[dict[str, Any]]:
    sentences = toy_sentences(count)
    return [model.preprocess(sentences), model.preprocess([_turned(sentence) + " a" for sentence in sentences])]


def _cosine(u: Tensor, v: Tensor) -> Tensor:
    return torch.dot(u, v) / (u.norm() * v.norm())


def test_pairs_are_looked_up_by_sentence(pairs: Path) -> None:
    first, second, third = toy_sentences(3)
    source = TranslationSource(pairs=str(pairs))
    found = back_translate([third, "  " + second, "unheard of", first], source, Reporter(quiet=True))
    assert found == [[_turned(third)], ["my sister", _turned(second)], [], [first.upper()]]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, r"must come from somewhere: --pairs FILE"),
        ({"pairs": "a", "apertium": "eng-spa"}, "several sources"),
        ({"forward_model": "a"}, "back_model is not given"),
        ({"back_model": "a"}, "forward_model is not given"),
        ({"apertium": "english"}, "two languages, such as eng-spa"),
        ({"apertium": "eng-"}, "two languages, such as eng-spa"),
    ],
)
def test_a_source_must_be_one_and_whole(bert: Path, given: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        TranslationSource(**given)
    for method in ("bt", "sg-opt+bt"):
        with pytest.raises(UsageError, match=words):
            selfguide.train(bert, toy_sentences(40), method, **given, **QUICK)
    registry.make("bt")  # the options can be shown without a source


def test_two_models_translate_there_and_back(tmp_path: Path) -> None:
    """Tiny untrained models: what they write makes no sense, but it is written by both, and the same every time."""
    from transformers import MarianConfig, MarianMTModel

    names = []
    for name, seed in (("there", 1), ("back", 2)):
        folder = tmp_path / name
        vocabulary = save_tokenizer(folder)
        torch.manual_seed(seed)
        config = MarianConfig(
            vocab_size=vocabulary,
            d_model=16,
            encoder_layers=1,
            decoder_layers=1,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=16,
            decoder_ffn_dim=16,
            max_position_embeddings=160,
            pad_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=1,
            forced_eos_token_id=2,
        )
        MarianMTModel(config).save_pretrained(folder)
        names.append(str(folder))
    source = TranslationSource(forward_model=names[0], back_model=names[1])
    once, again = (back_translate(toy_sentences(3), source) for _ in range(2))
    assert once == again
    assert [len(row) for row in once] == [1, 1, 1]
    assert all(isinstance(row[0], str) for row in once)
    missing = TranslationSource(forward_model=str(tmp_path / "nowhere"), back_model=names[1])
    with pytest.raises(SelfguideError, match=r"translation model .*nowhere.* could not be loaded.*pass its folder"):
        back_translate(["a"], missing)


@pytest.fixture
def fake_apertium(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A command of that name that turns each block round, and knows eng-spa only, in both directions."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "apertium"
    script.write_text(
        f"#!{sys.executable}\n"
        "import sys\n"
        "if sys.argv[-1] not in ('eng-spa', 'spa-eng'):\n"
        "    sys.exit(f'Error: Mode {sys.argv[-1]} does not exist.')\n"
        "blocks = sys.stdin.read().split('\\n\\n')\n"
        "if any('merge' in block for block in blocks): blocks = [' '.join(blocks)]\n"
        "mark = 'x ' if sys.argv[-1] == 'eng-spa' else 'y '\n"
        "print('\\n\\n'.join(mark + block for block in blocks), end='')\n"
    )
    script.chmod(script.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


def test_apertium_gets_a_sentence_for_a_sentence(fake_apertium: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = TranslationSource(apertium="eng-spa")
    assert back_translate(["a b", "c"], source) == [["y x a b"], ["y x c"]]
    # Where blocks are lost, sentence by sentence.
    assert back_translate(["merge", "c"], source) == [["y x merge"], ["y x c"]]
    with pytest.raises(
        SelfguideError, match=r"could not translate eng-fin; .*apt install apertium-eng-fin.*does not exist"
    ):
        back_translate(["a"], TranslationSource(apertium="eng-fin"))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SelfguideError, match=r"Apertium is not installed.*apt install apertium apertium-eng-spa"):
        back_translate(["a"], source)


@pytest.mark.skipif(shutil.which("apertium") is None, reason="Apertium is not installed")
def test_the_real_apertium_keeps_lines_apart() -> None:
    directions = subprocess.run(["apertium", "-l"], capture_output=True, text=True, check=False).stdout
    if "eng-spa" not in directions.split() or "spa-eng" not in directions.split():
        pytest.skip("the language pair eng-spa is not installed")
    # Without blank lines between them, "old" and "man" would change places over the line end.
    (one,), (other,) = back_translate(["the old", "man repairs"], TranslationSource(apertium="eng-spa"))
    assert "old" in one.lower()
    assert "old" not in other.lower()


@pytest.mark.parametrize("queued", [0, 1, 5])
@pytest.mark.parametrize("batch", [1, 2, 4])
def test_momentum_contrast_follows_its_formula(batch: int, queued: int) -> None:
    torch.manual_seed(batch)
    queries, keys = torch.randn(2, batch, 6, dtype=torch.float64)
    queue = torch.randn(queued, 6, dtype=torch.float64)
    total = queries.new_zeros(())
    for i in range(batch):
        terms = torch.stack([_cosine(queries[i], other) / 0.07 for other in (*keys, *queue)])
        total = total - (terms[i] - torch.logsumexp(terms, 0))
    torch.testing.assert_close(momentum_contrast(queries, keys, queue, 0.07), total / batch)


def test_the_queue_forgets_the_oldest() -> None:
    queue = KeyQueue(5, 2)
    assert queue.contents().shape == (0, 2)
    rows = torch.nn.functional.normalize(torch.randn(12, 2), dim=-1)
    for start in range(0, 8, 2):
        queue.add(3.0 * rows[start : start + 2])
        newest = rows[max(0, start - 3) : start + 2]
        assert sorted(queue.contents().tolist()) == [pytest.approx(row) for row in sorted(newest.tolist())]
    queue.add(rows)  # more than it holds
    assert sorted(queue.contents().tolist()) == [pytest.approx(row) for row in sorted(rows[-5:].tolist())]
    average, leader = [torch.zeros(3)], [torch.ones(3)]
    follow(average, leader, 0.9)
    torch.testing.assert_close(average[0], torch.full((3,), 0.1))


def test_nt_xent_compares_sentences_with_translations_through_the_head(bert: Path) -> None:
    model = _model(bert)
    loss = BackTranslationLoss(model, temperature=0.2, head_size=8, dropout=0.0).train()
    value = loss(_batches(model))
    model.eval()
    first, second = (loss.head(model(batch)["sentence_embedding"]) for batch in _batches(model))
    torch.testing.assert_close(value, losses.nt_xent_pairs(first, second, 0.2), rtol=1e-4, atol=1e-4)
    assert set(own_parameters(loss)) == {f"head.{part}" for part in ("0.weight", "0.bias", "2.weight", "2.bias")}
    assert loss.moving_state() == {}


def test_the_queue_holds_the_keys_of_the_running_average(bert: Path) -> None:
    model = _model(bert)
    loss = BackTranslationLoss(model, "moco", head_size=8, queue_size=6, momentum=0.75, dropout=0.0).train()
    start = {name: parameter.clone() for name, parameter in backbone(loss.key_encoder).named_parameters()}
    with torch.no_grad():
        for parameter in backbone(model).parameters():
            parameter.add_(0.04)
    queries = loss.head(model(_batches(model)[0])["sentence_embedding"]).detach()
    value = loss(_batches(model))
    for name, parameter in backbone(loss.key_encoder).named_parameters():
        torch.testing.assert_close(parameter, start[name] + 0.01)  # a quarter of the way
    with torch.no_grad():
        keys = loss.key_head(loss.key_encoder(_batches(model)[1])["sentence_embedding"])
    empty = torch.zeros(0, 8)
    torch.testing.assert_close(value, momentum_contrast(queries, keys, empty, 0.07), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(loss.queue.contents(), torch.nn.functional.normalize(keys, dim=-1))
    value.backward()
    moving = {name for name, parameter in loss.named_parameters() if parameter.grad is not None}
    assert all(name.startswith(("model.", "head.")) for name in moving)
    assert any(name.startswith("head.") for name in moving)
    before = loss.queue.contents()
    loss.eval()(_batches(model))  # evaluation changes nothing
    assert torch.equal(loss.queue.contents(), before)
    names = set(loss.moving_state())
    assert {"queue.keys", "queue.added", "key_head.0.weight"} <= names
    assert not names & set(own_parameters(loss))


def test_sg_opt_and_translations_add_up(bert: Path) -> None:
    model = _model(bert)
    torch.manual_seed(0)
    loss = SelfGuidedTranslationLoss(model, translation_weight=0.5, head_size=8, temperature=0.1).eval()
    torch.manual_seed(0)
    alone = SelfGuidedLoss(_model(bert), head_size=8, temperature=0.1).eval()
    first, second = (loss.head(model(batch)["sentence_embedding"]) for batch in _batches(model))
    expected = alone(_batches(model)[:1]) + 0.5 * losses.nt_xent_pairs(first, second, 0.1)
    torch.testing.assert_close(loss(_batches(model)), expected, rtol=1e-4, atol=1e-4)
    assert loss.get_config_dict()["translation_weight"] == 0.5
    with pytest.raises(UsageError, match="translation_weight must be at least 0"):
        registry.make("sg-opt+bt", {"apertium": "eng-spa", "translation_weight": -1.0})


@pytest.mark.parametrize("variant", ["nt-xent", "moco"])
def test_gradients_of_the_head_do_not_add_up_over_steps(bert: Path, variant: str) -> None:
    model = _model(bert)
    loss = BackTranslationLoss(model, variant, queue_size=1, momentum=0.0, dropout=0.0).train()

    def gradients() -> list[Tensor]:
        if variant == "moco":
            loss.queue.added.zero_()
        loss(_batches(model)).backward()
        return [parameter.grad.clone() for parameter in own_parameters(loss).values() if parameter.grad is not None]

    once = gradients()
    model.zero_grad()
    torch.testing.assert_close(gradients(), once)


@pytest.mark.parametrize("variant", list(VARIANTS))
def test_a_run_writes_a_plain_folder_and_repeats(bert: Path, tmp_path: Path, pairs: Path, variant: str) -> None:
    method, options = VARIANTS[variant]
    before = load_file(bert / "model.safetensors")
    for name, seed in (("a", 5), ("b", 5), ("c", 6)):
        tuned = selfguide.train(
            bert, toy_sentences(45), method, output=tmp_path / name, seed=seed, pairs=str(pairs), **options, **QUICK
        )
    a, b, c = (load_file(tmp_path / name / "model.safetensors") for name in "abc")
    assert {name: tensor.shape for name, tensor in a.items()} == {name: t.shape for name, t in before.items()}
    assert any(not torch.equal(a[name], before[name]) for name in a)
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert any(not torch.equal(a[name], c[name]) for name in a)
    stock = SentenceTransformer(str(tmp_path / "c"))
    np.testing.assert_allclose(stock.encode(["my sister"]), tuned.encode(["my sister"]), atol=1e-6)
    assert json.loads((tmp_path / "a" / "run.json").read_text())["config"]["options"]["pairs"] == str(pairs)


class _Broken:
    """The method's loss fails in a chosen step, as on Ctrl-C."""

    def __init__(self, kind: type[Any], step: int) -> None:
        self.kind, self.step, self.calls, self.forward = kind, step, 0, kind.forward

    def __call__(self) -> Callable[..., Tensor]:
        def failing(loss: Any, *args: Any, **kwargs: Any) -> Tensor:
            self.calls += 1
            if self.calls == self.step:
                raise KeyboardInterrupt
            return self.forward(loss, *args, **kwargs)

        return failing


@pytest.mark.parametrize("variant", list(VARIANTS))
def test_a_resumed_run_ends_where_the_uninterrupted_one_does(
    bert: Path, tmp_path: Path, pairs: Path, variant: str
) -> None:
    """Head, queue, running average and the translations themselves must come back."""
    method, options = VARIANTS[variant]
    settings = {"batch_size": 8, "learning_rate": 1e-3, "epochs": 2.0, "device": "cpu", "checkpoint_minutes": 0.0}
    text = tmp_path / "text.txt"
    text.write_text("\n".join(toy_sentences(40)), encoding="utf-8")
    config = RunConfig(
        (str(text),), str(bert), method=method, options={**options, "pairs": str(pairs)}, training=settings
    )
    run(config, tmp_path / "whole", Reporter(quiet=True))
    kind = SelfGuidedTranslationLoss if method == "sg-opt+bt" else BackTranslationLoss
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "forward", _Broken(kind, 5)())
        with pytest.raises(InterruptedRun):
            run(config, tmp_path / "broken", Reporter(quiet=True))
    pairs.unlink()  # what was translated is kept
    run(config, tmp_path / "broken", Reporter(quiet=True), resume=True)
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "broken"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_sentences_without_other_words_are_left_out_with_a_note(
    bert: Path, tmp_path: Path, pairs: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    rows: list[int] = []
    whole = translated_text.translated_dataset

    def counting(*args: Any) -> Any:
        made = whole(*args)
        rows.append(len(made))
        assert made.column_names == ["sentence", "translation"]
        assert toy_sentences(1)[0] not in made["sentence"]
        return made

    monkeypatch.setattr("selfguide.methods.bt.translated_dataset", counting)
    selfguide.train(bert, toy_sentences(45), "bt", pairs=str(pairs), **{**QUICK, "quiet": False})
    assert rows == [40]  # 39 sentences, one of them twice
    assert "Of 45 sentences 5 have no back-translation and 1 come back as they were" in capfd.readouterr().err
    with pytest.raises(SelfguideError, match=r"Of 5 sentences 5 have no back-translation .* as they stand in the text"):
        selfguide.train(bert, [f"number {name} is unknown" for name in "abcde"], "bt", pairs=str(pairs), **QUICK)


def test_translating_goes_on_where_it_stopped(
    bert: Path, tmp_path: Path, fake_apertium: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(back_translation, "_CHUNK", 8)
    seen: list[int] = []
    real = back_translation._run_apertium

    def counting(direction: str, text: str) -> str:
        seen.append(len(text.split("\n\n")))
        if len(seen) == 4:  # the way back of the second chunk
            raise KeyboardInterrupt
        return real(direction, text)

    monkeypatch.setattr(back_translation, "_run_apertium", counting)
    text = tmp_path / "text.txt"
    text.write_text("\n".join(toy_sentences(20)), encoding="utf-8")
    settings = {"batch_size": 8, "max_steps": 2, "device": "cpu"}
    config = RunConfig((str(text),), str(bert), method="bt", options={"apertium": "eng-spa"}, training=settings)
    with pytest.raises((InterruptedRun, KeyboardInterrupt)):
        run(config, tmp_path / "out", Reporter(quiet=True))
    run(config, tmp_path / "out", Reporter(quiet=True), resume=True)
    assert seen == [8, 8, 8, 8, 8, 8, 4, 4]
    assert (tmp_path / "out" / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"objective": "sg"}, "no objective 'sg'; choose one of nt-xent, moco"),
        ({"temperature": 0.0}, "temperature must be above 0"),
        ({"head_size": -1}, "head_size must be at least 0"),
        ({"queue_size": 0}, "queue_size must be at least 1"),
        ({"momentum": 1.0}, "momentum must be from 0 up to 1"),
        ({"dropout": 2.0}, "dropout must be"),
        ({"pooling": "all"}, "no pooling 'all'"),
    ],
)
def test_wrong_options_are_refused_in_words(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        registry.make("bt", {"apertium": "eng-spa", **wrong})


def test_options_taken_over_from_sg_opt_are_explained_too() -> None:
    from selfguide.cli.options import documented_options

    rows = documented_options(registry.method_class("sg-opt+bt").Options, skip=("objective",))
    assert all(explanation for _, _, explanation in rows)
    assert {"--stay-close", "--translation-weight", "--apertium"} <= {flag for flag, _, _ in rows}
