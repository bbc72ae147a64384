"""Building, adding, removing, searching; the reference is a search written here over all vectors."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import selfguide
from indexing import rows_file
from refusals import the_refusal
from selfguide.errors import FolderInUse, SelfguideError, UsageError
from selfguide.locks import beside, held
from selfguide.search import index as index_module
from selfguide.search.store import Store
from toys import Outcome, toy_sentences

Command = Callable[..., Outcome]


@pytest.fixture(scope="module")
def built(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("index")
    selfguide.build_index(rows_file(folder / "rows.jsonl"), bert, output=folder / "notes.index")
    return folder / "notes.index"


@pytest.fixture
def own(built: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(built, tmp_path / "own.index"))


def rows_of(path: Path) -> list[tuple[str, dict[str, Any]]]:
    index = selfguide.open_index(path)
    names = [column.stored for column in index.record.columns]
    return [
        (text, values)
        for batch in index.store.batches("text", *names)
        for text, values in zip(batch["text"].to_pylist(), batch.select(names).to_pylist(), strict=True)
    ]


def test_every_row_is_there_once_with_its_typed_columns(built: Path) -> None:
    index = selfguide.open_index(built)
    kinds = [(column.name, column.kind) for column in index.record.columns]
    assert kinds == list(
        zip(
            ["year", "weight", "done", "meta.kind", "source"],
            ["whole number", "number", "true or false", "text", "text"],
            strict=True,
        )
    )
    rows = rows_of(built)
    assert [text for text, _ in rows] == toy_sentences(60)
    assert rows[1][1] == {"year": 2001, "weight": 0.25, "done": False, "source": "o'clock 1", "column_3": "a"}
    assert rows[0][1]["source"] is None
    assert not list(built.parent.glob("*.partial"))


def test_search_by_meaning_is_the_exact_ranking(bert: Path, built: Path) -> None:
    index = selfguide.open_index(built, encoder=bert)
    vectors = selfguide.encode(bert, toy_sentences(60), normalise=True)
    query = selfguide.encode(bert, "the teacher sells music", normalise=True)
    cosines = vectors.astype(np.float64) @ query
    answer = index.search("the teacher sells music", mode="vector", limit=7)
    assert answer.exact
    assert [hit.text for hit in answer.hits] == [toy_sentences(60)[place] for place in np.argsort(-cosines)[:7]]
    assert [hit.rank for hit in answer.hits] == list(range(1, 8))
    np.testing.assert_allclose([hit.cosine for hit in answer.hits], np.sort(cosines)[::-1][:7], atol=1e-6)
    allowed = [place for place in np.argsort(-cosines) if place % 10 == 3 and place % 2]
    found = index.search("the teacher sells music", mode="vector", where="year = 2003 and not done").hits
    assert [hit.text for hit in found] == [toy_sentences(60)[place] for place in allowed]
    assert {hit.columns["year"] for hit in found} == {2003}


def test_hybrid_is_the_reciprocal_rank_fusion_of_both_lists(bert: Path, built: Path) -> None:
    index = selfguide.open_index(built, encoder=bert)
    scores: dict[str, float] = {}
    for mode in ("vector", "text"):
        for hit in index.search("the cook paints", mode=mode, limit=100).hits:
            scores[hit.text] = scores.get(hit.text, 0.0) + 1 / (60 + hit.rank)
    answer = index.search("the cook paints", limit=9)
    assert [hit.score for hit in answer.hits] == pytest.approx(sorted(scores.values(), reverse=True)[:9])
    for hit in answer.hits:
        assert hit.score == pytest.approx(scores[hit.text])
        assert hit.cosine is not None


def test_search_by_words_needs_no_encoder(built: Path) -> None:
    index = selfguide.open_index(built, encoder="/nowhere")
    hits = index.search("engineer carrying", mode="text").hits
    assert hits
    assert "the engineer" in hits[0].text
    assert "carries" in hits[0].text  # by its stem
    assert all(hit.cosine is None for hit in hits)
    assert not index.search("zebra", mode="text").hits
    for odd in ('"', "a AND (", "text:x", "*", "'; drop", "🦓"):
        index.search(odd, mode="text")


def test_words_of_other_languages_are_found(bert: Path, tmp_path: Path) -> None:
    german = ["Die Züge fuhren spät", "Ein Hund schläft", "Wir lesen Bücher"]
    index = selfguide.build_index(german, bert, output=tmp_path / "de", words="german")
    assert [hit.text for hit in index.search("der Zug", mode="text").hits] == ["Die Züge fuhren spät"]
    mixed = ["我喜欢坐火车去北京", "今天下雨了", "The trains were late"]
    index = selfguide.build_index(mixed, bert, output=tmp_path / "any", words="any")
    assert [hit.text for hit in index.search("火车", mode="text").hits] == mixed[:1]
    assert [hit.text for hit in index.search("trains", mode="text").hits] == mixed[2:]
    assert not index.search("train", mode="text").hits


def test_a_vector_index_is_made_of_many_rows_and_left_out_where_it_is_slower(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("selfguide.search.build.EXACT_NUMBERS", 100)
    monkeypatch.setattr(index_module, "EXACT_NUMBERS", 10 * 32)
    text = [f"{sentence} {number}" for number in range(3) for sentence in toy_sentences(200)]
    index = selfguide.build_index(text, bert, output=tmp_path / "x", columns="none")
    assert index.record.trained == 600
    assert not index.search("the old man", mode="vector").exact
    assert index.search("the old man", mode="vector", exact=True).exact
    assert index.search("the old man", mode="vector", where=f"text = '{text[3]}'").exact
    near = [hit.text for hit in index.search("our neighbour sells it", mode="vector").hits]
    exact = [hit.text for hit in index.search("our neighbour sells it", mode="vector", exact=True).hits]
    assert len(set(near) & set(exact)) >= 9
    assert selfguide.add_to_index(tmp_path / "x", ["one row more, which is new"]) == 1
    assert index.search("one row more, which is new", mode="vector").hits[0].text == "one row more, which is new"


def test_only_what_is_new_is_encoded(bert: Path, own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from selfguide.engine import encode as engine

    encoded: list[str] = []
    plain = engine.sentence_vectors

    def counting(model: Any, sentences: list[str], *args: Any, **options: Any) -> Any:
        encoded.extend(sentences)
        return plain(model, sentences, *args, **options)

    monkeypatch.setattr(engine, "sentence_vectors", counting)
    before = selfguide.open_index(own)
    assert selfguide.add_to_index(own, rows_file(tmp_path / "same.jsonl")) == 0
    assert encoded == []
    assert selfguide.add_to_index(own, rows_file(tmp_path / "more.jsonl", 75)) == 15
    assert encoded == toy_sentences(75)[60:]
    rows = rows_of(own)
    assert [text for text, _ in rows] == toy_sentences(75)
    assert (
        before.search(toy_sentences(75)[70], mode="text").hits[0].text == toy_sentences(75)[70]
    )  # an open one sees it
    assert len(before) == 75
    # The same sentence with other values is another row.
    (tmp_path / "other.jsonl").write_text(json.dumps({"text": toy_sentences(1)[0], "year": 1900}))
    assert selfguide.add_to_index(own, tmp_path / "other.jsonl") == 1


def test_rows_are_removed_by_condition_and_by_sentence(bert: Path, own: Path) -> None:
    assert selfguide.remove_from_index(own, where="year < 2003") == 18
    left = [text for number, text in enumerate(toy_sentences(60)) if number % 10 >= 3]
    assert [text for text, _ in rows_of(own)] == left
    assert selfguide.remove_from_index(own, left[:4], where="year != 2004") == 3
    assert selfguide.remove_from_index(own, ["nothing like it"]) == 0
    assert len(selfguide.open_index(own)) == 39
    words = selfguide.open_index(own).search(left[0], mode="text", limit=100).hits
    assert left[0] not in [hit.text for hit in words]
    with pytest.raises(UsageError, match="Say which rows"):
        selfguide.remove_from_index(own)
    assert selfguide.remove_from_index(own, where="year > 0") == 39
    assert not selfguide.open_index(own, encoder=bert).search("the old man").hits


def test_another_encoder_is_refused(bert: Path, own: Path, tmp_path: Path, tiny: Callable[[str], Path]) -> None:
    other = tiny("distilbert")
    with pytest.raises(SelfguideError, match="was made with another encoder"):
        selfguide.open_index(own, encoder=other).search("the old man")
    with pytest.raises(SelfguideError, match="was made with another encoder"):
        selfguide.add_to_index(own, ["a new row"], encoder=other)
    assert len(selfguide.open_index(own)) == 60
    record = json.loads((own / "index.json").read_text())
    (own / "index.json").write_text(json.dumps({**record, "encoder": str(tmp_path / "gone")}))
    with pytest.raises(SelfguideError, match="if it has moved, name it with --encoder"):
        selfguide.open_index(own).search("the old man")
    assert selfguide.open_index(own, encoder=bert).search("the old man").hits


def test_columns_that_do_not_fit_are_refused_before_anything_is_changed(own: Path, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in own.rglob("*")}
    text = tmp_path / "new.jsonl"
    for row, says in (
        ({"text": "a new row", "colour": "red"}, "The index has no column 'colour'"),
        (
            {"text": "a new row", "year": "unknown"},
            "values of the type whole number, and the text has values of the type text",
        ),
    ):
        text.write_text(json.dumps(row))
        with pytest.raises(SelfguideError) as error:
            selfguide.add_to_index(own, text)
        assert says in str(error.value)
    assert {path: path.stat().st_mtime_ns for path in own.rglob("*")} == before
    text.write_text(json.dumps({"text": "a new row", "colour": "red", "weight": 3}))
    assert selfguide.add_to_index(own, text, columns="weight") == 1


def test_a_locked_index_says_who_has_it(own: Path) -> None:
    with held(beside(own), own):
        for change in (
            lambda: selfguide.add_to_index(own, ["a new row"]),
            lambda: selfguide.remove_from_index(own, where="year = 1"),
        ):
            with pytest.raises(FolderInUse):
                change()
        assert selfguide.open_index(own).search("the old man", mode="text").hits  # reading goes on


def test_what_the_commands_say(command: Command, bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows_file(tmp_path / "rows.jsonl", 20)
    made = command("index", "rows.jsonl", "--encoder", bert, "--output", "notes.index")
    assert made.code == 0, made.err
    assert "20 rows in notes.index; columns: year (whole number), weight (number)" in made.err
    found = command("search", "notes.index", "the old man", "--where", "year >= 2005", "--limit", "2")
    assert found.code == 0, found.err
    lines = found.out.splitlines()
    assert len(lines) == 2
    assert "[year=200" in lines[0]
    as_json = command("search", "notes.index", "the old man", "my sister", "--json", "--limit", "1").out.splitlines()
    assert [json.loads(line)["query"] for line in as_json] == ["the old man", "my sister"]
    assert json.loads(as_json[0])["columns"]["done"] in (True, False)
    rows_file(tmp_path / "more.jsonl", 25)
    assert "5 rows added" in command("index", "more.jsonl", "--output", "notes.index", "--add").err
    assert "rows removed" in command("index", "--output", "notes.index", "--remove", "--where", "done").err
    (tmp_path / "rows.txt").write_text("\n".join(toy_sentences(2)))
    assert "1 row removed" in command("index", "rows.txt", "--output", "notes.index", "--remove").err
    from_input = command("index", "-", "-o", "in.index", "-e", bert, stdin="a sentence of standard input\n")
    assert from_input.code == 0, from_input.err

    with monkeypatch.context() as inside:
        inside.chdir(tmp_path / "notes.index")
        assert command("search", ".", "the old man", "--limit", "2").out.count("\n") == 2

    refusals = [
        (
            ("search", "nowhere", "x"),
            1,
            "There is no index at nowhere: `selfguide index TEXT --output nowhere` makes one.",
        ),
        (("search", "rows.jsonl", "x"), 1, "rows.jsonl is no index"),
        (("search", ".", "x"), 1, ". is no index: name a folder that `selfguide index` made."),
        (("search", "/", "x"), 1, "/ is no index"),
        (("search", "notes.index"), 2, "Say what to look for"),
        (("search", "notes.index", " "), 2, "The query is empty"),
        (("search", "notes.index", "x", "--where", "nope = 1"), 2, "The filter names a column 'nope'"),
        (("search", "notes.index", "x", "--where", "year >"), 2, "The filter is wrong at character"),
        (("search", "notes.index", "x", "--mode", "magic"), 2, "mode must be one of hybrid, vector, text"),
        (("search", "notes.index", "x", "--limit", "0"), 2, "limit must be"),
        (("index", "rows.jsonl"), 2, "Name the index with --output"),
        (("index", "--output", "x"), 2, "No text was given"),
        (("index", "rows.jsonl", "-o", "notes.index"), 2, "--add adds to it, --overwrite replaces it"),
        (("index", "rows.jsonl", "-o", "more.jsonl"), 2, "more.jsonl exists and is no index"),
        (("index", "rows.jsonl", "-o", "no/where"), 1, "There is no folder no to write the index to."),
        (("index", "rows.jsonl", "-o", "x", "--where", "year = 1"), 2, "--where is for --remove"),
        (("index", "rows.jsonl", "-o", "x", "--add", "--remove"), 2, "three different things"),
        (("index", "rows.jsonl", "-o", "x", "--words", "klingon"), 2, "words must be one of any, arabic"),
        (("index", "rows.jsonl", "-o", "x", "--add"), 1, "There is no index at x"),
        (("index", "rows.jsonl", "-o", "x", "-e", bert, "--columns", "colour"), 1, "The text has no column 'colour'"),
        (("index", "-", "-o", "x", "-e", bert), 1, "standard input is empty"),
    ]
    for words, code, says in refusals:
        outcome = command(*words)
        assert outcome.code == code, (words, outcome)
        assert says in the_refusal(outcome), words
    assert {path.name for path in tmp_path.iterdir()} == {
        "rows.jsonl",
        "more.jsonl",
        "rows.txt",
        "notes.index",
        "in.index",
    }


def test_a_damaged_or_unfinished_index_is_a_sentence(own: Path, tmp_path: Path) -> None:
    (own / "index.json").write_text("{")
    with pytest.raises(SelfguideError, match="is damaged"):
        selfguide.open_index(own)
    (tmp_path / "new.index.partial").mkdir()
    with pytest.raises(SelfguideError, match="not finished: repeat the command that was making it"):
        selfguide.open_index(tmp_path / "new.index")
    shutil.rmtree(own / "rows.lance")
    (own / "index.json").write_text((own / "index.json").read_text())
    with pytest.raises(SelfguideError, match="is damaged"):
        selfguide.open_index(own)


def test_no_permission_is_a_sentence(own: Path, bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may write anywhere, so the refusal is the system's own error, raised where the lock is made and where rows are."""

    def denied(*args: Any, **options: Any) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr("selfguide.search.build.held", denied)
        with pytest.raises(SelfguideError, match=r"cannot be written: Permission denied\.$"):
            selfguide.add_to_index(own, ["a new row"])

    def rust(*args: Any, **options: Any) -> None:
        raise RuntimeError(
            "lance error: LanceError(IO): Generic LocalFileSystem error:\n Permission denied (os error 13), /root/x.rs"
        )

    store = selfguide.open_index(own).store
    with monkeypatch.context() as patch:
        patch.setattr(type(store.table), "count_rows", rust)
        with pytest.raises(SelfguideError, match=r"cannot be read: permission denied\.$"):
            store.count()


@pytest.mark.parametrize("lost", ["data/*.lance", "_indices/*/part_0_invert.lance"])
def test_what_the_disk_lost_is_noticed_before_it_is_seen(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """As after an input/output error that LanceDB passes over: half of a file is missing."""
    few, more = rows_file(tmp_path / "few.jsonl", 40), rows_file(tmp_path / "more.jsonl", 80)
    plain = Store.tidy

    def losing(store: Store) -> None:
        plain(store)
        newest = max((store.folder / "rows.lance").glob(lost), key=lambda path: path.stat().st_mtime_ns)
        os.truncate(newest, newest.stat().st_size // 2)

    monkeypatch.setattr(Store, "tidy", losing)
    with pytest.raises(SelfguideError, match=r"cannot be read back\. Check the disk"):
        selfguide.build_index(few, bert, output=tmp_path / "index")
    monkeypatch.setattr(Store, "tidy", plain)
    assert not (tmp_path / "index").exists()
    assert len(selfguide.build_index(few, bert, output=tmp_path / "index")) == 40
    monkeypatch.setattr(Store, "tidy", losing)
    with pytest.raises(SelfguideError, match="the former rows are as they were"):
        selfguide.add_to_index(tmp_path / "index", more)
    monkeypatch.setattr(Store, "tidy", plain)
    assert len(selfguide.open_index(tmp_path / "index").search("man clock", mode="text", limit=100).hits) > 0
    assert selfguide.add_to_index(tmp_path / "index", more) == 40
    assert len(selfguide.open_index(tmp_path / "index")) == 80
