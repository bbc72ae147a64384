"""Files of pairs: what is read, and the errors about faulty lines."""

from __future__ import annotations

import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfguide.data.pairs import Pairs, SentencePairs, read_pairs, read_sentence_pairs
from selfguide.errors import SelfguideError

GOOD = "0.5\ta man\ta woman\n4\tone\ttwo\n"


@pytest.fixture
def put(tmp_path: Path) -> Callable[..., Path]:
    def write(data: str | bytes, name: str = "dev.tsv") -> Path:
        path = tmp_path / name
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return path

    return write


def refusal(path: Path, read: Callable[[Path], object] = read_pairs) -> str:
    with pytest.raises(SelfguideError) as caught:
        read(path)
    message = str(caught.value)
    assert path.name in message
    assert "\n" not in message
    return message


def test_graded_pairs(put: Callable[..., Path]) -> None:
    path = put(GOOD)
    pairs = read_pairs(path)
    assert pairs == Pairs([0.5, 4.0], ["a man", "one"], ["a woman", "two"], path)
    assert len(pairs) == 2
    assert read_pairs(str(path)) == pairs


def test_the_text_is_not_changed(put: Callable[..., Path]) -> None:
    path = put("\ufeff1e0\t\"He said\tit's  ,fine\\t\r\n-2.5\ta\u00a0b\tcafe\u0301\r\n\r\n\n")
    pairs = read_pairs(path)
    assert pairs.scores == [1.0, -2.5]
    assert pairs.first == ['"He said', "a\u00a0b"]
    assert pairs.second == ["it's  ,fine\\t", "cafe\u0301"]


def test_compressed_pairs(put: Callable[..., Path]) -> None:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(GOOD.encode())
    for ending, data in {
        "gz": gzip.compress(GOOD.encode()),
        "xz": lzma.compress(GOOD.encode()),
        "zst": sink.getvalue().to_pybytes(),
    }.items():
        assert read_pairs(put(data, f"dev.tsv.{ending}")).scores == [0.5, 4.0]
    assert "cut short" in refusal(put(gzip.compress(GOOD.encode())[:-9], "dev.tsv.gz"))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (GOOD + "1\tone\n", "line 3 has 2 tab-separated columns: every line must be score<TAB>sentence<TAB>sentence"),
        (GOOD + "1\ta\tb\tc\n", "line 3 has 4 tab-separated columns"),
        ("0.5 a b\n" + GOOD, "line 1 has 1 tab-separated column:"),
        ("score\tfirst\tsecond\n" + GOOD, "line 1 has 'score' as its score, where a finite number is wanted (a header"),
        (GOOD + "nan\ta\tb\n", "line 3 has 'nan' as its score"),
        (GOOD + "inf\ta\tb\n", "line 3 has 'inf' as its score"),
        (GOOD + "1_0\ta\tb\n", "line 3 has '1_0' as its score"),
        (GOOD + "\ta\tb\n", "line 3 has '' as its score"),
        (GOOD + "1\t \tb\n", "line 3 has an empty first sentence: fill it in, or take the line out"),
        (GOOD + "1\ta\t\n", "line 3 has an empty second sentence"),
        (GOOD + "\n1\ta\tb\n", "line 3 is blank"),
        (GOOD.encode() + b"1\tcaf\xe9\tb\n", "line 3: byte 0xe9 is not valid UTF-8"),
        ("", "is empty"),
        ("\n\n", "holds no pairs but only blank lines"),
        ("1\ta\tb\n", "holds only one pair: at least two are needed"),
        ("1\ta\tb\n2\tc\td\n".encode("utf-16"), "is UTF-16; convert it with iconv"),
    ],
)
def test_faulty_files(put: Callable[..., Path], data: str | bytes, expected: str) -> None:
    assert expected in refusal(put(data))


@pytest.mark.parametrize(
    "data",
    [
        '0.5,"a man, old",a woman\n4,one,"two ""b"""\n',
        'score;sentence1;sentence2\r\n0.5;a man, old;a woman\r\n4;one;"two ""b"""\r\n',
        'sep=,\nid,Sentence_1,Sentence 2,split,Gold Score\n7,"a man, old",a woman,dev,0.5\n8,one,"two ""b""",dev,4\n',
    ],
)
def test_pairs_of_a_spreadsheet(put: Callable[..., Path], data: str) -> None:
    path = put(data, "dev.csv")
    assert read_pairs(path) == Pairs([0.5, 4.0], ["a man, old", "one"], ["a woman", 'two "b"'], path)
    assert read_sentence_pairs(path).scores == [0.5, 4.0]
    assert read_pairs(put(gzip.compress(data.encode()), "dev.csv.gz")).scores == [0.5, 4.0]


def test_a_spreadsheet_without_scores_and_one_with_tabs(put: Callable[..., Path]) -> None:
    path = put('sentence1,sentence2\n"a man, old",a woman\n', "pairs.csv")
    assert read_sentence_pairs(path) == SentencePairs(None, ["a man, old"], ["a woman"], path)
    assert "line 1 has 2 columns: every line must be score, sentence, sentence" in refusal(path)
    tabs = put('0.5\t"He said\ta, b\n4\tone\ttwo\n', "tabs.csv")
    assert read_pairs(tabs).first == ['"He said', "one"]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (
            "a,b,c\n1,d,e\n",
            "line 1 has 'a' as its score, where a finite number is wanted (a header has to be taken out)",
        ),
        ("1,a,b\n2,c,d\n3,e\n", "line 3 has 2 columns where the first line has 3"),
        ("1,a,b\n2,c,\n", "line 2 has an empty second sentence"),
        ("score,sentence1,sentence2\nx,a,b\n", "line 2 has 'x' as its score"),
        ("score,sentence1,sentence2\n", "holds no pairs"),
        ('1,a,b\n2,"c,d\n', "is not valid CSV"),
        ("one sentence\nanother\n", "line 1 has 1 column: every line must be score, sentence, sentence, or a first"),
        ("", "is empty"),
    ],
)
def test_faulty_spreadsheets(put: Callable[..., Path], data: str, expected: str) -> None:
    assert expected in refusal(put(data, "dev.csv"))


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    assert "does not exist" in refusal(tmp_path / "nothing.tsv")
    assert "is a folder" in refusal(tmp_path)


def test_pairs_without_scores(put: Callable[..., Path]) -> None:
    path = put("a man\ta woman\n")
    assert read_sentence_pairs(path) == SentencePairs(None, ["a man"], ["a woman"], path)
    path = put(GOOD)
    assert read_sentence_pairs(path) == SentencePairs([0.5, 4.0], ["a man", "one"], ["a woman", "two"], path)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (
            "one\n",
            "line 1 has 1 tab-separated column: every line must be sentence<TAB>sentence or score<TAB>",
        ),
        ("a\tb\n1\ta\tb\n", "line 2 has 3 tab-separated columns: every line must be sentence<TAB>sentence."),
        ("1\ta\tb\na\tb\n", "line 2 has 2 tab-separated columns: every line must be score<TAB>sentence<TAB>sentence."),
        ("high\ta\tb\n", "line 1 has 'high' as its score"),
        ("a\t \n", "line 1 has an empty second sentence"),
        ("", "is empty"),
        ("\n", "only blank lines"),
    ],
)
def test_faulty_files_without_scores(put: Callable[..., Path], data: str, expected: str) -> None:
    assert expected in refusal(put(data), read_sentence_pairs)


sentence = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1).filter(
    lambda text: bool(text.strip()) and not text.startswith("\ufeff")
)


@given(st.lists(st.tuples(st.floats(allow_nan=False, allow_infinity=False), sentence, sentence), min_size=2))
def test_pairs_come_back_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[float, str, str]]
) -> None:
    path = tmp_path_factory.getbasetemp() / "written.tsv"
    path.write_bytes("".join(f"{score!r}\t{first}\t{second}\n" for score, first, second in rows).encode())
    pairs = read_pairs(path)
    assert list(zip(pairs.scores, pairs.first, pairs.second, strict=True)) == rows
