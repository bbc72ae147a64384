"""Names of encoders: what they mean on the hub, and what is said of those that there are not."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import constants

from refusals import the_refusal
from selfguide.errors import SelfguideError
from selfguide.models.encoders import load_encoder
from selfguide.models.hub import repository
from selfguide.models.starting_points import RAW, SENTENCE_ENCODER, starting_point
from toys import Outcome


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, dict[str, object]], None]:
    """Put a repository into a cache of the hub's own layout."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))

    def put(name: str, files: dict[str, object]) -> None:
        folder = tmp_path / "hub" / f"models--{name.replace('/', '--')}"
        (folder / "refs").mkdir(parents=True)
        (folder / "refs" / "main").write_text("0" * 40)
        (folder / "snapshots" / ("0" * 40)).mkdir(parents=True)
        for file, content in files.items():
            (folder / "snapshots" / ("0" * 40) / file).write_text(json.dumps(content))

    return put


@pytest.fixture
def online(monkeypatch: pytest.MonkeyPatch) -> Callable[[Exception], list[str]]:
    """Let the hub answer every question with an error, and count the questions."""

    def answer(error: Exception) -> list[str]:
        asked: list[str] = []

        def model_info(_: object, name: str, timeout: float) -> None:
            asked.append(f"{name} within {timeout:g} s")
            raise error

        monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_info)
        return asked

    return answer


def test_short_names_are_completed_as_the_library_does(cached: Callable[..., None]) -> None:
    assert repository("all-MiniLM-L6-v2") == "sentence-transformers/all-MiniLM-L6-v2"
    assert repository("bert-base-uncased") == "bert-base-uncased"
    assert repository("BAAI/bge-small-en") == "BAAI/bge-small-en"
    cached("sentence-transformers/toy-encoder", {"modules.json": [{"type": "Transformer"}], "config.json": {}})
    cached("bert-base-uncased", {"config.json": {}})
    # What the first command of the README names; it was once taken for a raw language model.
    assert starting_point("toy-encoder").kind == SENTENCE_ENCODER
    assert starting_point("bert-base-uncased").kind == RAW
    assert not starting_point("bert-base-uncased").missing


def test_adapting_what_there_is_not(
    command: Callable[..., Outcome], text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes-encoder").mkdir()
    for name, words in {
        "./notes-encodr": (f"the working folder is {os.getcwd()}", "Did you mean 'notes-encoder'?"),
        "models/v1/encoder": ("there is no such folder",),
        "notes-encodr": ("not a folder here", "HF_HUB_OFFLINE", "Did you mean 'notes-encoder'?"),
    }.items():
        for line in (
            ("adapt", text_file, "--encoder", name),
            ("train", text_file, "--encoder", name),
            ("encode", text_file, "--encoder", name),
        ):
            outcome = command(*line)
            refusal = the_refusal(outcome)
            assert outcome.code == 1
            assert refusal.startswith(f"There is no encoder called {name!r}:"), line
            assert all(part in refusal for part in words), refusal
            assert "raw language model" not in refusal


def test_the_hub_is_asked_once_and_not_waited_for(online: Callable[[Exception], list[str]]) -> None:
    asked = online(ConnectionError("no route to the hub"))
    with pytest.raises(SelfguideError, match=r"hub did not give it \(it cannot be reached: no route to the hub\)"):
        load_encoder("somebody/an-encoder")
    assert asked == ["somebody/an-encoder within 10 s"]


def test_what_the_hub_does_not_have_is_told_from_what_it_guards(online: Callable[[Exception], list[str]]) -> None:
    import httpx
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    from selfguide.models.hub import why_missing

    response = httpx.Response(404, request=httpx.Request("GET", "https://hub"))
    online(RepositoryNotFoundError("404", response=response))
    assert "it has no sentence-transformers/al-MiniLM, or it is private" in (why_missing("al-MiniLM") or "")
    online(GatedRepoError("403", response=response))
    assert why_missing("somebody/guarded") is None  # loading says what to do
