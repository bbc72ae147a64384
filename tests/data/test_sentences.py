"""Passes over sentences from memory, files and pipes; open_text; what importing the package costs."""

from __future__ import annotations

import io
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reading import counted, kept
from selfguide.data import Sentences, TextOptions, open_text
from selfguide.errors import SelfguideError, UsageError

# -- sentences in memory


def test_half_a_surrogate_pair_is_bad_text() -> None:
    with pytest.raises(SelfguideError, match=r"Element 1 .*on_bad_utf8"):
        list(Sentences.from_strings(["a", "b\ud800"]))
    sentences = Sentences.from_strings(["b\ud800"], TextOptions(on_bad_utf8="replace"))
    assert list(sentences) == ["b\ufffd"]
    assert counted(sentences) == {"read": 1, "kept": 1, "replaced": 1}


def test_an_element_that_is_no_str_is_named_at_once() -> None:
    with pytest.raises(UsageError, match="Element 1 of the given sentences is int 3, not a str"):
        Sentences.from_strings(["a", 3])  # type: ignore[list-item]


def test_an_element_that_is_no_str_is_named_when_a_generator_comes_to_it() -> None:
    sentences = Sentences.from_strings(item for item in ["a", None])  # type: ignore[misc]
    iterator = iter(sentences)
    assert next(iterator) == "a"
    with pytest.raises(UsageError, match="Element 1"):
        next(iterator)


def test_numpy_strings_become_plain_ones() -> None:
    first = next(iter(Sentences.from_strings(np.array(["a b", "c"]))))
    assert type(first) is str


def test_a_single_str_is_not_a_list_of_sentences() -> None:
    with pytest.raises(UsageError, match="A list of sentences"):
        Sentences.from_strings("notes.txt")


def test_column_and_field_mean_nothing_for_sentences_in_memory() -> None:
    with pytest.raises(UsageError, match="column"):
        Sentences.from_strings(["a"], TextOptions(column="text"))


# -- passes


def test_iterating_again_starts_over() -> None:
    sentences = Sentences.from_strings(["a", "b", "a"])
    assert sentences.summary.read == 0
    first = list(sentences), sentences.summary
    assert (list(sentences), sentences.summary) == first
    assert first[1].duplicates == 1


def test_the_summary_is_exact_in_the_middle_of_a_pass() -> None:
    sentences = Sentences.from_strings(["", "a", "a", "b", "c"])
    iterator = iter(sentences)
    next(iterator)
    assert counted(sentences) == {"read": 2, "kept": 1, "blank": 1}
    next(iterator)
    assert counted(sentences) == {"read": 4, "kept": 2, "blank": 1, "duplicates": 1}
    assert sentences.summary.fingerprint is None
    list(iterator)
    assert sentences.summary.fingerprint is not None


def test_the_fingerprint_is_the_hash_of_the_sentences_in_order() -> None:
    def fingerprint(*strings: str, **options: Any) -> str | None:
        sentences = Sentences.from_strings(strings, TextOptions(**options))
        list(sentences)
        return sentences.summary.fingerprint

    assert fingerprint("a", "b", "a") == blake2b(b"a\nb\n", digest_size=32).hexdigest()
    assert fingerprint("a", " b ") == fingerprint("a", "b", "c", limit=2)
    assert len({fingerprint("a", "b"), fingerprint("b", "a"), fingerprint("a b"), fingerprint("ab")}) == 4


def test_a_generator_refuses_a_second_pass() -> None:
    sentences = Sentences.from_strings(word for word in ["a", "b"])
    assert list(sentences) == ["a", "b"]
    with pytest.raises(SelfguideError, match=r"only once.*pass a list"):
        iter(sentences)


def test_standard_input_refuses_a_second_pass() -> None:
    sentences = Sentences(["-"], stdin=io.BytesIO(b"one\r\ntwo\n"))
    assert list(sentences) == ["one", "two"]
    assert sentences.summary.files == ("standard input",)
    with pytest.raises(SelfguideError, match=r"standard input can be read only once.*save it to a file"):
        iter(sentences)


def test_standard_input_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\n")))
    assert list(open_text("-")) == ["one"]
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(SelfguideError, match="Standard input is closed"):
        list(open_text("-"))


def test_a_pipe_is_read_as_it_comes_and_only_once(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    sentences = Sentences([path])  # the check must not open it: that would wait for a writer, and lose what it wrote
    writer = threading.Thread(target=path.write_bytes, args=(b"one\ntwo\n",))
    writer.start()
    assert list(sentences) == ["one", "two"]
    writer.join()
    with pytest.raises(SelfguideError, match="only once"):
        iter(sentences)


def test_what_is_in_a_pipe_is_handed_out_before_more_comes() -> None:
    receiver, sender = os.pipe()
    with os.fdopen(receiver, "rb") as stdin, os.fdopen(sender, "wb", buffering=0) as writer:
        writer.write(b"a first sentence\nthe beg")
        iterator = iter(Sentences(["-"], stdin=stdin))
        assert next(iterator) == "a first sentence"
        writer.write(b"inning of another\n")
        assert next(iterator) == "the beginning of another"


def test_the_limit_stops_the_reading_after_that_many_kept() -> None:
    sentences = Sentences.from_strings(["a", "a", "", "b", "c", "d"], TextOptions(limit=2))
    assert list(sentences) == ["a", "b"]
    assert counted(sentences) == {"read": 4, "kept": 2, "blank": 1, "duplicates": 1}


def test_a_limit_larger_than_the_text() -> None:
    assert kept(["a", "b"], limit=5) == ["a", "b"]


def test_the_limit_over_several_batches() -> None:
    sentences = Sentences.from_strings((f"sentence {number}" for number in range(20_000)), TextOptions(limit=9_000))
    assert len(list(sentences)) == 9_000
    assert counted(sentences) == {"read": 9_000, "kept": 9_000}


def test_the_limit_ends_the_reading_before_a_bad_line(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(b"good\nbetter\nb\xe4d\n")
    assert list(Sentences([path], TextOptions(limit=2))) == ["good", "better"]


# -- open_text


def test_open_text_tells_sources_from_sentences(tmp_path: Path) -> None:
    one, two = tmp_path / "one.txt", tmp_path / "two.txt"
    one.write_text("first file")
    two.write_text("second file")
    assert list(open_text(str(one))) == ["first file"]
    assert list(open_text(one)) == ["first file"]
    assert list(open_text([one, two])) == ["first file", "second file"]
    assert list(open_text(path for path in (one, two))) == ["first file", "second file"]
    assert list(open_text([str(one)])) == [str(one)]
    assert list(open_text(["a", "b"], TextOptions(limit=1))) == ["a"]
    assert list(open_text(word for word in ["a", "b"])) == ["a", "b"]
    assert list(open_text([])) == []
    assert list(open_text(iter(()))) == []
    sentences = Sentences.from_strings(["a"])
    assert open_text(sentences) is sentences


def test_open_text_refuses_what_it_cannot_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    for text in (3, b"bytes", None):
        with pytest.raises(UsageError, match=type(text).__name__):
            open_text(text)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="Element 1 of the given files is str 'b"):
        open_text([tmp_path / "a.txt", "b"])  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="Element 1 of the given sentences"):
        open_text(["a", tmp_path])  # type: ignore[arg-type]


def test_a_single_path_as_sources_is_that_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    assert list(Sentences(str(tmp_path / "a.txt"))) == ["a"]


def test_no_source_at_all() -> None:
    with pytest.raises(UsageError, match="No text was given"):
        Sentences([])


# -- imports


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = (
        "import sys, selfguide.data, selfguide.data.pairs\n"
        "print([name for name in ('torch', 'numpy', 'pyarrow', 'datasets', 'transformers') if name in sys.modules])"
    )
    source = Path(__file__).parents[2] / "src"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(source)},
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("ending", [".txt", ".txt.gz", ".txt.xz", ".txt.bz2", ".txt.zst"])
def test_how_much_has_been_read(put: Callable[..., Path], ending: str) -> None:
    generator = random.Random(1)
    lines = [f"{generator.random()} {generator.random()}" for _ in range(30_000)]
    sources = [put(f"a{ending}", "\n".join(lines[:15_000])), put("b.txt", "\n".join(lines[15_000:]))]
    sentences = Sentences(sources)
    shares = [sentences.share_read() for _ in sentences]
    assert shares == sorted(shares, key=lambda share: share or 0.0)
    assert sentences.share_read() == 1.0
    assert shares[0] is not None
    assert shares[0] < 0.6
    assert shares[-1] == 1.0
    limited = Sentences(sources, TextOptions(limit=100))
    assert [limited.share_read() for _ in limited][-1] == 1.0


def test_how_much_is_not_known_of_a_pipe_and_of_a_list() -> None:
    for sentences in (Sentences(["-"], stdin=io.BytesIO(b"one\ntwo\n")), Sentences.from_strings(["one", "two"])):
        assert [sentences.share_read() for _ in sentences] == [None, None]
