"""What an encoder is before a run, from its folder, its name or its modules."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding

from selfguide.models.encoders import load_encoder
from selfguide.models.starting_points import (
    RAW,
    SENTENCE_ENCODER,
    STATIC,
    default_prompt,
    own_settings,
    starting_point,
)


@pytest.fixture(scope="module")
def tuned(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sentence encoder with everything that such a folder can have."""
    encoder = load_encoder(bert, pooling="cls", max_length=24)
    encoder = SentenceTransformer(
        modules=[*encoder, Normalize()],
        prompts={"query": "find: ", "document": ""},
        default_prompt_name="query",
        similarity_fn_name="dot",
    )
    folder = tmp_path_factory.mktemp("sentence") / "tuned"
    encoder.save(str(folder), create_model_card=False)
    return folder


def test_a_plain_transformer_and_mini_are_raw(bert: Path) -> None:
    for encoder in (bert, str(bert), "mini", load_encoder(bert), load_encoder(bert, pooling="mean")):
        assert starting_point(encoder).kind == RAW
    assert "modules.json" in starting_point(bert).describe("it")


def test_a_sentence_encoder_is_known_by_its_folder_and_by_its_modules(tuned: Path) -> None:
    found = starting_point(tuned)
    assert found.kind == SENTENCE_ENCODER
    assert found.describe("tuned").startswith(
        "tuned is a sentence encoder: its folder has a modules.json (Transformer, "
    )
    assert starting_point(load_encoder(tuned)).kind == SENTENCE_ENCODER


def test_what_a_sentence_encoder_brings_along_is_recorded(tuned: Path) -> None:
    encoder = load_encoder(tuned)
    assert own_settings(encoder) == {
        "modules": ["Transformer", "Pooling", "Normalize"],
        "pooling": "cls",
        "normalised": True,
        "prompts": {"query": "find: "},
        "default_prompt": "query",
        "similarity": "dot",
        "max_length": 24,
        "lower_case": False,
        "dimension": 32,
    }
    assert starting_point(encoder).own == own_settings(encoder)
    assert default_prompt(encoder) == "find: "
    assert default_prompt(load_encoder("mini")) == ""


@pytest.mark.parametrize(
    ("run", "kind"),
    [
        ({"config": {"method": "simcse"}, "steps": 40}, SENTENCE_ENCODER),
        ({"config": {"method": "cls"}, "steps": 0}, RAW),
        ({"config": {"method": "whitening"}, "steps": 0, "start": {"kind": SENTENCE_ENCODER}}, SENTENCE_ENCODER),
        ("damaged", SENTENCE_ENCODER),
    ],
)
def test_a_folder_of_ours_is_what_its_run_made_of_it(tmp_path: Path, run: object, kind: str) -> None:
    (tmp_path / "modules.json").write_text(json.dumps([{"type": "sentence_transformers.models.Transformer"}]))
    (tmp_path / "run.json").write_text(json.dumps(run))
    assert starting_point(tmp_path).kind == kind


def test_static_embeddings_have_no_layers(bert: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    words = StaticEmbedding(AutoTokenizer.from_pretrained(bert), embedding_dim=8)
    encoder = SentenceTransformer(modules=[words])
    assert starting_point(encoder).kind == STATIC
    encoder.save(str(tmp_path / "static"), create_model_card=False)
    assert starting_point(tmp_path / "static").kind == STATIC
    assert "StaticEmbedding" in starting_point(tmp_path / "static").reason


def test_a_name_that_no_hub_answers_for_is_left_to_loading() -> None:
    assert starting_point("nobody/has-such-an-encoder").kind == RAW
    assert starting_point("nobody/has-such-an-encoder").missing


def test_a_loaded_encoder_whose_folder_is_gone_is_still_judged(bert: Path, tmp_path: Path) -> None:
    encoder = load_encoder(shutil.copytree(bert, tmp_path / "here"))
    shutil.rmtree(tmp_path / "here")
    found = starting_point(encoder)
    assert (found.kind, found.missing) == (RAW, False)
    assert "where its weights come from is not known" in found.reason
