"""SIGKILL at chosen points: nothing of it is seen, the same command goes on, and no row is lost or doubled."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import selfguide
from indexing import rows_file
from toys import toy_sentences

# Imports what is slow once, and makes a process for each line: the point to be killed at, and what to do.
PROGRAM = """
import json, os, signal, sys
import selfguide.engine.encode
from selfguide.search import build, store

def run(point, number, action, target, text, encoder):
    build._CHUNK = 16
    owner, name = point.split(".")
    owner = {"build": build, "store": store.Store, "record": store.IndexRecord}[owner]
    plain, calls = getattr(owner, name), [0]

    def killing(*args, **options):
        calls[0] += 1
        if number == f"{calls[0]}before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = plain(*args, **options)
        if number == f"{calls[0]}after":
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, killing)
    if action in ("build", "overwrite"):
        build.build_index(text, encoder, output=target, overwrite=action == "overwrite")
    elif action == "add":
        build.add_to_index(target, text)
    else:
        build.remove_from_index(target, where="year < 2005")

for line in sys.stdin:
    child = os.fork()
    if not child:
        run(*json.loads(line))
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""

Killed = Callable[..., None]


@pytest.fixture(scope="module")
def killed() -> Iterator[Killed]:
    """Do something in a process that is killed at a point on the way."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert process.stdin is not None
    assert process.stdout is not None
    asked, answers = process.stdin, process.stdout

    def kill(*words: str | Path) -> None:
        print(json.dumps([str(word) for word in words]), file=asked, flush=True)
        assert int(answers.readline()) == -signal.SIGKILL

    yield kill
    process.kill()
    process.communicate()


def texts(path: Path) -> list[str]:
    index = selfguide.open_index(path)
    return [text for batch in index.store.batches("text") for text in batch["text"].to_pylist()]


@pytest.fixture(scope="module")
def made(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    selfguide.build_index(rows_file(folder / "rows.jsonl", 40), bert, output=folder / "index")
    return folder / "index"


BUILDING = [
    ("store.append", "1before"),
    ("store.append", "2after"),
    ("store.index_words", "1before"),
    ("store.publish", "1before"),
    ("build.replace_folder", "1before"),
]


@pytest.mark.parametrize(("point", "number"), BUILDING)
def test_building_goes_on_and_nothing_is_seen_before(
    killed: Killed, bert: Path, tmp_path: Path, point: str, number: str
) -> None:
    text = rows_file(tmp_path / "rows.jsonl", 50)
    killed(point, number, "build", tmp_path / "index", text, bert)
    assert not (tmp_path / "index").exists()
    encoded: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        count_encoded(patch, encoded)
        selfguide.build_index(text, bert, output=tmp_path / "index")
    assert sum(encoded) == {"1before": 50 if point == "store.append" else 0, "2after": 50 - 32}[number]
    assert texts(tmp_path / "index") == toy_sentences(50)
    assert not list(tmp_path.glob("*.partial"))
    assert len(selfguide.open_index(tmp_path / "index").search("the", mode="vector", limit=100).hits) == 50


CHANGES = [
    ("add", "store.append", "2after"),
    ("add", "store.tidy", "1after"),
    ("add", "record.write", "1before"),
    ("add", "record.write", "1after"),
    ("remove", "store.delete_keys", "1after"),
    ("remove", "store.publish", "1after"),
]


@pytest.mark.parametrize(("action", "point", "number"), CHANGES)
def test_a_change_is_seen_as_a_whole_or_not_at_all(
    killed: Killed, made: Path, bert: Path, tmp_path: Path, action: str, point: str, number: str
) -> None:
    target = Path(shutil.copytree(made, tmp_path / "index"))
    text = rows_file(tmp_path / "more.jsonl", 80)
    killed(point, number, action, target, text, bert)
    former = toy_sentences(40)
    after = toy_sentences(80) if action == "add" else [text for number, text in enumerate(former) if number % 10 >= 5]
    visible = (point, number) in (("record.write", "1after"), ("store.publish", "1after"))
    assert texts(target) == (after if visible else former)
    query = selfguide.open_index(target).search(
        "man sister dog teacher neighbour train cook engineer", mode="text", limit=100
    )
    assert {hit.text for hit in query.hits} == set(after if visible else former)
    if action == "add":
        assert selfguide.add_to_index(target, text) == (0 if visible else 40)
    else:
        assert selfguide.remove_from_index(target, where="year < 2005") == (0 if visible else 20)
    assert texts(target) == after
    assert not (target / "change.json").exists()


def test_another_change_undoes_what_a_killed_one_left(killed: Killed, made: Path, bert: Path, tmp_path: Path) -> None:
    target = Path(shutil.copytree(made, tmp_path / "index"))
    killed("store.append", "2after", "add", target, rows_file(tmp_path / "more.jsonl", 80), bert)
    assert selfguide.remove_from_index(target, where="year < 2001") == 4
    assert len(texts(target)) == 36
    killed("store.append", "2after", "add", target, rows_file(tmp_path / "more.jsonl", 80), bert)
    assert selfguide.add_to_index(target, ["a row of another text"]) == 1
    assert len(texts(target)) == 37
    killed("store.delete_keys", "1after", "remove", target, "-", bert)
    assert selfguide.add_to_index(target, ["one more of another text"]) == 1
    assert len(texts(target)) == 38


def test_replacing_an_index_leaves_the_former_one_until_the_new_one_is_complete(
    killed: Killed, made: Path, bert: Path, tmp_path: Path
) -> None:
    target = Path(shutil.copytree(made, tmp_path / "index"))
    text = rows_file(tmp_path / "rows.jsonl", 60)
    killed("store.append", "2after", "overwrite", target, text, bert)
    assert texts(target) == toy_sentences(40)
    text = rows_file(tmp_path / "rows.jsonl", 55)  # in the meantime, the text has changed
    selfguide.build_index(text, bert, output=target, overwrite=True)
    assert texts(target) == toy_sentences(55)


def count_encoded(patch: pytest.MonkeyPatch, encoded: list[int]) -> None:
    from selfguide.engine import encode as engine

    plain: Callable[..., object] = engine.sentence_vectors

    def counting(model: object, sentences: list[str], *args: object, **options: object) -> object:
        encoded.append(len(sentences))
        return plain(model, sentences, *args, **options)

    patch.setattr(engine, "sentence_vectors", counting)
