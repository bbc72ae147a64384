"""A finished folder that is not as it was written is refused, not used."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import selfguide
from selfguide.errors import SelfguideError
from selfguide.files import former_folder
from selfguide.models.encoders import load_encoder
from toys import toy_sentences


@pytest.fixture(scope="module")
def made(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "notes"
    selfguide.train(bert, toy_sentences(20), "mean", output=folder, quiet=True, device="cpu", report=False)
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "notes")


def test_every_file_of_the_encoder_has_a_digest(folder: Path) -> None:
    digests = json.loads((folder / "run.json").read_text())["files"]
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert set(digests) == files - {"README.md", "run.json", "similarity.json"}
    assert load_encoder(folder) is not None


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "1_Pooling/config.json"])
@pytest.mark.parametrize("damage", ["flipped", "truncated", "gone"])
def test_damage_is_refused(folder: Path, name: str, damage: str) -> None:
    path = folder / name
    content = path.read_bytes()
    middle = len(content) // 2
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(
            content[:middle] + (bytes([content[middle] ^ 1]) + content[middle + 1 :]) * (damage == "flipped")
        )
    with pytest.raises(SelfguideError) as caught:
        load_encoder(folder)
    assert str(path) in str(caught.value)
    assert "Copy the encoder again" in str(caught.value).replace("copy", "Copy")


def test_a_change_of_ones_own_is_allowed_where_the_digests_are_removed(folder: Path) -> None:
    path = folder / "tokenizer_config.json"
    path.write_text(path.read_text() + "\n")
    with pytest.raises(SelfguideError, match="if you changed the file yourself, remove 'files' from"):
        load_encoder(folder)
    record = json.loads((folder / "run.json").read_text())
    del record["files"]
    (folder / "run.json").write_text(json.dumps(record))
    (folder / "README.md").write_text("My own words.")
    assert load_encoder(folder) is not None


def test_a_folder_that_was_being_replaced_is_brought_back(folder: Path) -> None:
    folder.rename(former_folder(folder))
    assert load_encoder(folder) is not None
    assert folder.is_dir()
