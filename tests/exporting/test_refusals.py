"""What cannot be exported is refused in a sentence, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding

import selfguide
from refusals import the_refusal
from selfguide import system
from selfguide.errors import SelfguideError, UsageError
from selfguide.exporting import onnx_folder
from selfguide.exporting.folders import RECORD_FILE, check_output, finished_folder
from selfguide.models.modules.wk_pooling import WKPooling
from toys import Outcome, toy_sentences

Command = Callable[..., Outcome]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--to", "tflite"], "to must be one of onnx, openvino, static, got 'tflite'"),
        (["--to", "openvino", "--int8"], "leave --int8 out"),
        (["--to", "static", "--fp16"], "leave --fp16 and --precision out"),
        (["--precision", "int4"], "precision must be one of"),
        (["--text", "no-such-file.txt"], "no-such-file.txt"),
        (["--dim", "5000"], "dim 5000 is more than that"),
        (["--output", "/"], "is not a folder that can be made"),
    ],
)
def test_wrong_options(command: Command, bert: Path, tmp_path: Path, words: list[str], sentence: str) -> None:
    output = [] if "--output" in words else ["--output", tmp_path / "out"]
    outcome = command("export", bert, *output, *words)
    assert outcome.code in (1, 2)
    assert sentence in the_refusal(outcome)
    assert not list(tmp_path.iterdir())


def test_an_output_that_exists(command: Command, bert: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear", encoding="utf-8")
    assert "--overwrite" in the_refusal(command("export", bert, "--output", tmp_path / "mine"))
    outcome = command("export", bert, "--output", tmp_path / "mine", "--overwrite")
    assert "was not made by selfguide export" in the_refusal(outcome)
    assert outcome.code == 2
    assert [path.name for path in tmp_path.rglob("*")] == ["mine", "letter.txt"]


def test_a_missing_extra(command: Command, bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "find_spec", lambda name: None if name == "openvino" else name)
    outcome = command("export", bert, "--to", "openvino", "--output", tmp_path / "out")
    assert "needs openvino, which is not installed: pip install 'selfguide[openvino]'" in the_refusal(outcome)


def test_folders_of_our_own_modules(command: Command, bert: Path, tmp_path: Path) -> None:
    transformer = selfguide.load_encoder(bert, device="cpu")[0]
    transformer.model.config.output_hidden_states = True
    wk = SentenceTransformer(modules=[transformer, WKPooling(32, layer_start=0, window=1)], device="cpu")
    wk.save(str(tmp_path / "wk"), create_model_card=False)
    outcome = command("export", tmp_path / "wk", "--output", tmp_path / "out")
    assert "WKPooling in it cannot run as ONNX" in the_refusal(outcome)
    assert [path.name for path in tmp_path.iterdir()] == ["wk"]


def test_encoders_without_a_transformer(bert: Path, tmp_path: Path) -> None:
    tokenizer = selfguide.load_encoder(bert, device="cpu").tokenizer
    words = SentenceTransformer(modules=[StaticEmbedding(tokenizer.backend_tokenizer, embedding_dim=12)], device="cpu")
    for to, sentence in (("onnx", "StaticEmbedding in it cannot run"), ("static", "starts with StaticEmbedding")):
        with pytest.raises(SelfguideError, match=sentence):
            selfguide.export(words, tmp_path / "out", to, show_progress=False)


def test_a_prompt_that_pooling_leaves_out(bert: Path, tmp_path: Path) -> None:
    transformer = selfguide.load_encoder(bert, device="cpu")[0]
    model = SentenceTransformer(modules=[transformer, Pooling(32, include_prompt=False)], device="cpu")
    model.prompts, model.default_prompt_name = {"query": "the "}, "query"
    with pytest.raises(SelfguideError, match="leaves its default prompt out of its pooling"):
        selfguide.export(model, tmp_path / "out", show_progress=False)


def test_too_little_text(bert: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has 2 different sentences; 3 are the fewest"):
        selfguide.export(bert, tmp_path / "out", text=["a", "b", "a"], show_progress=False)
    with pytest.raises(UsageError, match="50 are the fewest"):
        selfguide.export(bert, tmp_path / "out", "static", text=toy_sentences(49), show_progress=False)


def test_an_earlier_export_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    check_output(tmp_path / "out", overwrite=True)  # empty
    (tmp_path / "out" / RECORD_FILE).write_text("{}")
    check_output(tmp_path / "out", overwrite=True)
    with finished_folder(tmp_path / "out", overwrite=True) as work:
        (work / "new.txt").write_text("new")
        assert (tmp_path / "out" / RECORD_FILE).exists()  # until the new one is complete
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "new.txt"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_nothing_is_left_half_written(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def full(*arguments: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(onnx_folder, "prepared", lambda *given: (None, None))
    monkeypatch.setattr(onnx_folder, "write_configuration", full)
    expected = SelfguideError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(expected, match="cannot be written: No space" if isinstance(error, OSError) else None):
        selfguide.export(bert, tmp_path / "out", text=toy_sentences(9), show_progress=False)
    assert not list(tmp_path.iterdir())


def test_a_graph_that_gives_other_embeddings_is_not_written(bert: Path, tmp_path: Path) -> None:
    import numpy as np

    vectors = np.random.default_rng(1).normal(size=(9, 4)).astype(np.float32)
    onnx_folder._check_same(vectors, vectors + 1e-6, tmp_path)
    for wrong in (vectors + 0.1, vectors * np.nan):
        with pytest.raises(SelfguideError, match="gives other embeddings than the encoder"):
            onnx_folder._check_same(vectors, wrong, tmp_path)
    with pytest.raises(SelfguideError, match="gives other embeddings"):
        onnx_folder._check_same((vectors > 0).astype(np.int8), (vectors > 0.5).astype(np.int8), tmp_path)
