"""What a command reads is not replaced by what it writes, and no file of another kind is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import selfguide
from refusals import the_refusal
from selfguide.data.kept_inputs import refuse_to_replace
from selfguide.errors import UsageError
from toys import Outcome, toy_sentences

Command = Callable[..., Outcome]


@pytest.fixture
def folder(bert: Path, tmp_path: Path, dev_file: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    sentences = toy_sentences(40)
    (tmp_path / "notes.txt").write_text("\n".join(sentences))
    (tmp_path / "notes.csv").write_text("id,text\n" + "\n".join(f"{n},{s}" for n, s in enumerate(sentences)))
    (tmp_path / "notes.jsonl").write_text("\n".join(json.dumps({"text": sentence}) for sentence in sentences))
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "notes.jsonl").write_bytes((tmp_path / "notes.jsonl").read_bytes())
    (tmp_path / "texts" / "more.csv").write_bytes((tmp_path / "notes.csv").read_bytes())
    (tmp_path / "pairs.json").write_bytes(dev_file.read_bytes())
    selfguide.train(bert, sentences, "fused", output="made", quiet=True, report=False, tune="none")
    (tmp_path / "made" / "more.txt").write_text("\n".join(sentences))
    return tmp_path


@pytest.mark.parametrize(
    "line",
    [
        "encode notes.jsonl --encoder BERT --output notes.jsonl --overwrite",
        "encode *.jsonl --encoder BERT --output ./notes.jsonl --overwrite",
        "encode texts --encoder BERT --output texts/notes.jsonl --overwrite",
        "map notes.csv --encoder BERT --output notes.html --overwrite",
        "map notes.csv --encoder BERT --output notes.html",
        "map texts --encoder BERT --output texts/more.html --overwrite --column text",
        "train made/more.txt --encoder BERT --method mean --output made --overwrite",
        "train notes.txt --encoder BERT --dev made/more.txt --output made --overwrite",
        "calibrate made made/more.txt --overwrite",
        "probe BERT --pairs pairs.json --json pairs.json",
    ],
)
def test_no_command_replaces_what_it_reads(command: Command, folder: Path, bert: Path, line: str) -> None:
    before = _contents(folder)
    outcome = command(*line.replace("BERT", str(bert)).split())
    assert outcome.code == 2, outcome
    assert "would be replaced, and it is read: choose another" in the_refusal(outcome)
    assert _contents(folder) == before


@pytest.mark.parametrize(
    ("line", "ending"),
    [
        ("report made --output notes.txt", ".html"),
        ("report made --output made/run.json", ".html"),
        ("probe BERT --pairs pairs.json --json notes.txt", ".json"),
    ],
)
def test_a_page_is_not_written_over_a_file_of_another_kind(
    command: Command, folder: Path, bert: Path, line: str, ending: str
) -> None:
    before = _contents(folder)
    outcome = command(*line.replace("BERT", str(bert)).split())
    assert outcome.code == 2
    assert the_refusal(outcome).endswith(f"must end in {ending}.")
    assert _contents(folder) == before


@pytest.mark.parametrize(
    "line",
    [
        "compare notes.txt --encoder BERT --methods mean --pairs pairs.json --jobs 1 --output made",
        "study temperature --encoder BERT --text notes.txt --pairs pairs.json --seeds 1 --jobs 1 --output made",
    ],
)
def test_results_are_not_put_into_an_encoders_folder(command: Command, folder: Path, bert: Path, line: str) -> None:
    before = _contents(folder)
    outcome = command(*line.replace("BERT", str(bert)).split())
    assert outcome.code == 2
    assert the_refusal(outcome) == "made is an encoder's folder: choose another --output for the results."
    assert _contents(folder) == before


def test_an_export_keeps_the_text_it_is_checked_on(folder: Path, bert: Path) -> None:
    target = folder / "exported"
    target.mkdir()
    (target / "export.json").write_text("{}")
    (target / "notes.txt").write_bytes((folder / "notes.txt").read_bytes())
    with pytest.raises(UsageError, match="would be replaced, and it is read"):
        selfguide.export(bert, target, to="static", text=target / "notes.txt", overwrite=True)
    assert (target / "notes.txt").exists()


def test_links_and_relative_paths_are_seen_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("a")
    (tmp_path / "link").symlink_to("texts")
    for name in ("link/a.txt", "texts/../texts/a.txt", str(tmp_path / "texts" / "*.txt"), "texts"):
        with pytest.raises(UsageError, match="choose another --output"):
            refuse_to_replace(Path("texts"), [name])
    refuse_to_replace(Path("texts/a.txt"), ["-", "hf:owner/name", "other.txt", "texts"])
    refuse_to_replace(Path("new"), ["new/a.txt"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("search", "notes.index", "a", "--top", "3"), "There is no option --top. `selfguide search --help`"),
        (("serve", "made", "--key", "a"), "There is no option --key. `selfguide serve --help`"),
        (("encode", "notes.txt", "--ouput", "x.npy"), "There is no option --ouput. Did you mean --output? `selfguide"),
        (
            ("search", "notes.index", "--near-duplicates"),
            "Option '--near-duplicates' requires an argument. `selfguide search --help` explains",
        ),
    ],
)
def test_options_there_are_not(command: Command, words: tuple[str, ...], message: str) -> None:
    assert the_refusal(command(*words)).startswith(message)


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--jobs 0 --output results", "--jobs must be at least 1, got 0."),
        ("--jobs 1 --output notes.txt", "notes.txt is a file: name a folder for the results."),
    ],
)
@pytest.mark.parametrize(
    "line",
    [
        "compare notes.txt --encoder BERT --methods mean --pairs pairs.json",
        "study temperature --encoder BERT --text notes.txt --pairs pairs.json --seeds 1",
    ],
)
def test_what_cannot_work_is_refused_before_the_text_is_read(
    command: Command, folder: Path, bert: Path, line: str, words: str, said: str
) -> None:
    before = _contents(folder)
    outcome = command(*f"{line} {words}".replace("BERT", str(bert)).split())
    assert outcome.code == 2
    assert the_refusal(outcome) == said
    assert "read from" not in outcome.err
    assert _contents(folder) == before
