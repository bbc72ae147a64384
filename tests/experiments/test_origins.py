"""Every results file says where it comes from, and a new one is not written without."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments import origins, provenance
from experiments.origins import EARLIER, FIELDS, NONE, found, missing
from selfguide.data.resources import demo_sentences

COMPLETE = {
    "command": "python -m experiments.x",
    "date": "2026-11-18",
    "device": "CPU, 1 threads",
    "versions": {"torch": "2.13.0"},
    "seeds": [1],
    "encoder": {"name": "mini", "weights": "0123"},
    "text": {"name": "a text", "digest": "0123"},
}


def test_there_are_results_files() -> None:
    assert len(origins.files()) > 40


@pytest.mark.parametrize("path", sorted({*origins.files(), *EARLIER}))
def test_every_file_says_where_it_comes_from_or_is_listed_with_the_reason(path: str) -> None:
    assert (origins.ROOT / path).is_file(), f"{path} is listed and does not exist"
    assert missing(path) == set(EARLIER.get(path, {})), "what a file lacks is listed, and nothing that it has"
    assert all(EARLIER.get(path, {"": "nothing is lacking"}).values())


@pytest.mark.parametrize("name", FIELDS)
def test_a_file_that_lacks_something_is_told_and_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    key = {"machine": "device"}.get(name, name)
    content = {field: value for field, value in COMPLETE.items() if field != key}
    provenance.write(tmp_path / "results.json", content)  # the work is not lost
    assert f"results.json does not record {name}, so" in capsys.readouterr().err
    monkeypatch.setattr(origins, "ROOT", tmp_path)
    assert missing("results.json") == {name}
    provenance.write(tmp_path / "results.json", COMPLETE)
    assert "does not record" not in capsys.readouterr().err
    assert missing("results.json") == set()


def test_a_text_without_a_digest_is_no_origin() -> None:
    assert "text" not in found({**COMPLETE, "text": "STS-B sentences"})
    assert "encoder" not in found({**COMPLETE, "encoder": {"name": "mini"}})
    assert {"text", "seeds", "encoder"} <= found({**COMPLETE, "text": NONE, "seeds": NONE, "encoder": NONE})


def test_what_the_commands_record_is_complete(tmp_path: Path) -> None:
    facts = provenance.text_facts("demo", demo_sentences()[:10])
    assert facts["sentences"] == 10
    assert facts["digest"] != provenance.text_facts("demo", demo_sentences()[1:11])["digest"]
    provenance.write(tmp_path / "a.json", provenance.provenance(text=facts, seeds=[1, 2]))
    assert found(json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))) == set(FIELDS)
