"""A server with an index: what it finds is what the index finds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import selfguide
from indexing import rows_file
from refusals import the_refusal
from served import Served, refusal
from toys import Outcome

QUERY = "the teacher sells bread"


@pytest.fixture(scope="module")
def place(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("searched")
    selfguide.build_index(rows_file(folder / "rows.jsonl"), bert, output=folder / "index")
    return folder / "index"


@pytest.fixture(scope="module")
def server(bert: Path, place: Path) -> Iterator[Served]:
    found = Served(f"tiny={bert}", "--index", place, "--normalise", log=place.parent / "log")
    yield found
    found.stop()


def test_hits_are_those_of_the_index(server: Served, bert: Path, place: Path) -> None:
    index = selfguide.open_index(place, encoder=bert)
    for mode in ("hybrid", "vector", "text"):
        answer = server.post("/search", query=QUERY, mode=mode, limit=4, filter="year >= 2004")
        assert answer.status_code == 200, answer.text
        wanted = index.search(QUERY, mode=mode, limit=4, where="year >= 2004").hits
        found = answer.json()["hits"]
        assert [hit["text"] for hit in found] == [hit.text for hit in wanted]
        assert found[0]["columns"] == wanted[0].columns
        assert found[0]["score"] == pytest.approx(wanted[0].score, abs=1e-6)


def test_what_the_index_holds_and_what_is_refused(server: Served) -> None:
    about = server.client.get("/index").json()
    assert (about["rows"], about["model"]) == (60, "tiny")
    assert about["columns"][0] == {"name": "year", "type": "whole number"}
    assert "nope" in refusal(server.post("/search", query="x", filter="nope = 1"), 400)
    assert "character" in refusal(server.post("/search", query="x", filter="year = 1; drop"), 400)
    assert "empty" in refusal(server.post("/search", query=" "), 400)
    assert "limit" in refusal(server.post("/search", query="x", limit=0), 400)
    assert "mode" in refusal(server.post("/search", query="x", mode="magic"), 400)


def test_a_change_of_the_index_is_seen(server: Served, bert: Path, place: Path) -> None:
    selfguide.add_to_index(place, ["a giraffe on roller skates"], encoder=bert)
    hits = server.post("/search", query="a giraffe on roller skates", limit=1).json()["hits"]
    assert hits[0]["text"] == "a giraffe on roller skates"
    assert hits[0]["cosine"] == pytest.approx(1, abs=1e-6)
    record = json.loads((place / "index.json").read_text())
    (place / "index.json").write_text(json.dumps({**record, "digest": "another"}))
    assert "made anew" in refusal(server.post("/search", query="x"), 503)
    assert server.post("/search", query="giraffe", mode="text").json()["hits"]
    (place / "index.json").unlink()
    assert "no index" in refusal(server.post("/search", query="x"), 503)
    (place / "index.json").write_text(json.dumps(record))
    assert server.post("/search", query="x").status_code == 200


def test_an_index_of_another_encoder_is_a_sentence(
    command: Callable[..., Outcome], place: Path, tiny: Callable[[str], Path], tmp_path: Path
) -> None:
    outcome = command("serve", tiny("distilbert"), "--index", place, "--port", "0")
    assert outcome.code == 1
    assert "was made with another encoder" in the_refusal(outcome)
    outcome = command("serve", "mini", "--index", tmp_path / "none", "--port", "0")
    assert outcome.code == 1
    assert "There is no index at" in the_refusal(outcome)
