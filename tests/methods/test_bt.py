"""The methods bt and sg-opt+bt: options, and whole runs with NT-Xent, a queue and SG-OPT."""

from __future__ import annotations

import json
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
from selfguide.errors import InterruptedRun, SelfguideError, UsageError
from selfguide.losses import BackTranslationLoss, SelfGuidedTranslationLoss
from selfguide.methods import registry
from selfguide.progress import Reporter
from selfguide.runs.run import run
from selfguide.training import translated_text
from selfguide.training.configuration import RunConfig
from toys import QUICK, toy_sentences

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "nt-xent": ("bt", {"head_size": 16}),
    "moco": ("bt-cert", {"queue_size": 12, "momentum": 0.9}),
    "adamw": ("bt-cert", {"objective": "nt-xent", "optimiser": "adamw"}),
    "sg-opt": ("sg-opt+bt", {"head_size": 16}),
}


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
def test_a_run_without_one_whole_source_is_refused(bert: Path, given: dict[str, str], words: str) -> None:
    for method in ("bt", "bt-cert", "sg-opt+bt"):
        with pytest.raises(UsageError, match=words):
            selfguide.train(bert, toy_sentences(40), method, **given, **QUICK)
    registry.make("bt")  # the options can be shown without a source


@pytest.mark.parametrize("variant", list(VARIANTS))
def test_a_run_writes_a_plain_folder_and_follows_its_seed(
    bert: Path, tmp_path: Path, translated_pairs: Path, variant: str
) -> None:
    method, options = VARIANTS[variant]
    before = load_file(bert / "model.safetensors")
    for name, seed in (("a", 5), ("b", 6)):
        tuned = selfguide.train(
            bert,
            toy_sentences(45),
            method,
            output=tmp_path / name,
            seed=seed,
            pairs=str(translated_pairs),
            **options,
            **QUICK,
        )
    a, b = (load_file(tmp_path / name / "model.safetensors") for name in "ab")
    assert {name: tensor.shape for name, tensor in a.items()} == {name: t.shape for name, t in before.items()}
    assert any(not torch.equal(a[name], before[name]) for name in a)
    assert any(not torch.equal(a[name], b[name]) for name in a)
    stock = SentenceTransformer(str(tmp_path / "b"))
    np.testing.assert_allclose(stock.encode(["my sister"]), tuned.encode(["my sister"]), atol=1e-6)
    assert json.loads((tmp_path / "a" / "run.json").read_text())["config"]["options"]["pairs"] == str(translated_pairs)


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


@pytest.mark.parametrize("variant", ["nt-xent", "moco", "sg-opt"])
def test_a_resumed_run_ends_where_the_uninterrupted_one_does(
    bert: Path, tmp_path: Path, translated_pairs: Path, variant: str
) -> None:
    """Head, queue, moving average and the translations themselves must come back."""
    method, options = VARIANTS[variant]
    settings = {"batch_size": 8, "learning_rate": 1e-3, "epochs": 2.0, "device": "cpu", "checkpoint_minutes": 0.0}
    text = tmp_path / "text.txt"
    text.write_text("\n".join(toy_sentences(40)), encoding="utf-8")
    config = RunConfig(
        (str(text),), str(bert), method=method, options={**options, "pairs": str(translated_pairs)}, training=settings
    )
    run(config, tmp_path / "whole", Reporter(quiet=True), report=False)
    kind = SelfGuidedTranslationLoss if method == "sg-opt+bt" else BackTranslationLoss
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "forward", _Broken(kind, 5)())
        with pytest.raises(InterruptedRun):
            run(config, tmp_path / "broken", Reporter(quiet=True), report=False)
    translated_pairs.unlink()  # what was translated is kept
    run(config, tmp_path / "broken", Reporter(quiet=True), resume=True)
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "broken"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_sentences_without_other_words_are_left_out_with_a_note(
    bert: Path,
    tmp_path: Path,
    translated_pairs: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
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
    selfguide.train(bert, toy_sentences(45), "bt", pairs=str(translated_pairs), **{**QUICK, "quiet": False})
    assert rows == [40]  # 39 sentences, one of them twice
    assert "Of 45 sentences 5 have no back-translation and 1 come back as they were" in capfd.readouterr().err
    with pytest.raises(SelfguideError, match=r"Of 5 sentences 5 have no back-translation .* as they stand in the text"):
        selfguide.train(
            bert, [f"number {name} is unknown" for name in "abcde"], "bt", pairs=str(translated_pairs), **QUICK
        )


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
        ({"objective": "sg"}, "objective must be one of nt-xent, moco, got 'sg'"),
        ({"temperature": 0.0}, "temperature must be above 0"),
        ({"head_size": -1}, "head_size must be at least 0"),
        ({"queue_size": 0}, "queue_size must be at least 1"),
        ({"optimiser": "adam"}, "optimiser must be one of sgd, adamw"),
        ({"momentum": 1.0}, "momentum must be at least 0 and below 1"),
        ({"dropout": 2.0}, "dropout must be"),
        ({"pooling": "all"}, "pooling must be one of"),
    ],
)
def test_wrong_options_are_refused_in_words(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        registry.make("bt-cert", {"apertium": "eng-spa", **wrong})
    with pytest.raises(UsageError, match="translation_weight must be at least 0"):
        registry.make("sg-opt+bt", {"apertium": "eng-spa", "translation_weight": -1.0})


def test_options_taken_over_from_sg_opt_are_explained_too() -> None:
    from selfguide.cli.options import documented_options

    rows = documented_options(registry.method_class("sg-opt+bt").Options, skip=("objective",))
    assert all(explanation for _, _, explanation in rows)
    assert {"--stay-close", "--translation-weight", "--apertium"} <= {flag for flag, _, _ in rows}
