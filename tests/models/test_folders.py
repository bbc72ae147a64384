"""Folders with modules of selfguide: selfguide loads them, stock sentence-transformers names the class it refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

import selfguide
from selfguide.errors import SelfguideError
from selfguide.models.folders import is_own_folder, is_stock
from toys import Outcome, toy_sentences

SENTENCES = toy_sentences(60)
METHODS: dict[str, dict[str, Any]] = {"wk": {"layer_start": 0}, "flow": {"mixing": "linear"}}


@pytest.fixture(scope="module", params=list(METHODS))
def finished(request: pytest.FixtureRequest, bert: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A finished folder and the encoder that it was saved from."""
    folder = tmp_path_factory.mktemp("finished") / request.param
    options = METHODS[request.param]
    encoder = selfguide.train(bert, SENTENCES, request.param, output=folder, quiet=True, device="cpu", **options)
    return folder, encoder


@pytest.fixture
def damaged(bert: Path, tmp_path: Path) -> Callable[[Any], Path]:
    """A folder of stock modules whose modules.json is then replaced."""

    def write(rows: Any) -> Path:
        folder = tmp_path / "damaged"
        SentenceTransformer(str(bert), device="cpu").save(str(folder), create_model_card=False)
        stock = json.loads((folder / "modules.json").read_text())
        text = rows if isinstance(rows, str) else json.dumps([*stock, *rows])
        (folder / "modules.json").write_text(text)
        return folder

    return write


def test_selfguide_load_gives_the_same_vectors(finished: tuple[Path, Any]) -> None:
    folder, encoder = finished
    loaded = selfguide.load(folder, device="cpu")
    np.testing.assert_allclose(loaded.encode(SENTENCES), encoder.encode(SENTENCES), atol=1e-6)
    assert loaded.max_seq_length == encoder.max_seq_length
    assert loaded.similarity_fn_name == "cosine"
    assert loaded.dtype == torch.float32
    assert not is_stock(loaded)


def test_stock_loading_names_selfguide(finished: tuple[Path, Any]) -> None:
    folder, encoder = finished
    with pytest.raises(
        ValueError, match=r"'selfguide\.models\.modules\.\w+\.\w+', which is not part of Sentence Transformers"
    ):
        SentenceTransformer(str(folder), device="cpu")
    # What that message proposes works too where selfguide is installed.
    trusted = SentenceTransformer(str(folder), device="cpu", trust_remote_code=True)
    np.testing.assert_allclose(trusted.encode(SENTENCES[:3]), encoder.encode(SENTENCES[:3]), atol=1e-6)


def test_card_and_record_say_so(finished: tuple[Path, Any]) -> None:
    folder, _ = finished
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert 'selfguide.load("path/to/this/folder")' in card
    assert "from sentence_transformers import" not in card
    assert json.loads((folder / "run.json").read_text(encoding="utf-8"))["stock"] is False
    assert not list(folder.rglob("*.bin")), "weights are safetensors"


def test_stock_methods_stay_stock(bert: Path, tmp_path: Path) -> None:
    encoder = selfguide.train(bert, SENTENCES, "mean", output=tmp_path / "mean", quiet=True, device="cpu")
    assert is_stock(encoder)
    assert not is_own_folder(tmp_path / "mean")
    assert json.loads((tmp_path / "mean" / "run.json").read_text(encoding="utf-8"))["stock"] is True
    assert "from sentence_transformers import" in (tmp_path / "mean" / "README.md").read_text(encoding="utf-8")


def test_commands_take_the_folder(finished: tuple[Path, Any], command: Callable[..., Outcome], tmp_path: Path) -> None:
    folder, encoder = finished
    lines = tmp_path / "lines.txt"
    lines.write_text("\n".join(SENTENCES[:4]) + "\n", encoding="utf-8")
    output = tmp_path / "vectors.npy"
    result = command("encode", lines, "--encoder", folder, "--output", output, "--device", "cpu")
    assert result.code == 0, result.err
    np.testing.assert_allclose(np.load(output), encoder.encode(SENTENCES[:4]), atol=1e-5)
    result = command("similarity", SENTENCES[0], SENTENCES[1], "--encoder", folder)
    assert result.code == 0, result.err
    assert re.search(r"-?[01]\.\d+", result.out)


def test_training_can_start_from_such_a_folder(finished: tuple[Path, Any]) -> None:
    folder, _ = finished
    encoder = selfguide.train(folder, SENTENCES, "mean", quiet=True, device="cpu")
    assert is_stock(encoder)
    assert encoder.encode(SENTENCES[0]).shape == (32,)


@pytest.mark.parametrize(
    "name", ["os.system", "evil.module.Pooling", "selfguide.modules_evil.Flow", "selfguide.runs.run.train", "Pooling"]
)
def test_a_foreign_class_is_refused(damaged: Callable[[Any], Path], name: str) -> None:
    folder = damaged([{"idx": 2, "name": "2", "path": "2_X", "type": name}])
    with pytest.raises(SelfguideError, match=rf"names the module class '{re.escape(name)}'.*refused"):
        selfguide.load(folder, device="cpu")


@pytest.mark.parametrize(
    "name",
    [
        "selfguide.models.modules.flow.UsageError",
        "selfguide.models.modules.read_folder",
        "selfguide.models.modules.SelfguideError",
    ],
)
def test_a_way_out_of_the_package_is_refused(damaged: Callable[[Any], Path], name: str) -> None:
    folder = damaged([{"idx": 2, "name": "2", "path": "2_X", "type": name}])
    with pytest.raises(SelfguideError, match=r"is not a module of an encoder|There is no module class"):
        selfguide.load(folder, device="cpu")


def test_a_class_of_another_version(damaged: Callable[[Any], Path]) -> None:
    folder = damaged([{"idx": 2, "name": "2", "path": "2_X", "type": "selfguide.models.modules.later.Later"}])
    with pytest.raises(SelfguideError, match="another version"):
        selfguide.load(folder, device="cpu")


@pytest.mark.parametrize("path", ["../elsewhere", "/etc", "2_X/../../up"])
def test_paths_stay_inside(damaged: Callable[[Any], Path], path: str) -> None:
    folder = damaged([{"idx": 2, "name": "2", "path": path, "type": "selfguide.models.modules.flow.Flow"}])
    with pytest.raises(SelfguideError, match="points outside its own folder"):
        selfguide.load(folder, device="cpu")


@pytest.mark.parametrize("content", ["{", "[]", '[{"path": "1"}]', '["x"]', "7"])
def test_a_damaged_list_is_refused(damaged: Callable[[Any], Path], content: str) -> None:
    with pytest.raises(SelfguideError, match=r"damaged|cannot be read"):
        selfguide.load(damaged(content), device="cpu")
