"""Line-based formats in every compression: plain lines, tables and JSON lines."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reading import COMPRESS, counts, early_refusal, read, refusal
from selfguide.data import Sentences
from selfguide.errors import SelfguideError

# -- formats and compressions

CONTENTS = {
    "notes.txt": "one\r\ntwo three\n\nvier f\u00fcnf",
    "notes": "one\ntwo three\n\nvier f\u00fcnf\n",
    "notes.csv": 'id,text\n1,one\n2,"two three"\n\n3,vier f\u00fcnf\n',
    "notes.tsv": "text\tid\none\t1\r\ntwo three\t2\n\nvier f\u00fcnf\t3",
    "notes.jsonl": '{"text": "one"}\n{"id": 2, "text": "two three"}\n\n{"text": "vier f\\u00fcnf"}\n',
    "notes.ndjson": '\ufeff{"sentence": "one"}\n{"sentence": "two three"}\n\n{"sentence": "vier f\u00fcnf"}',
}


@pytest.mark.parametrize("ending", COMPRESS)
@pytest.mark.parametrize("name", CONTENTS)
def test_formats_and_compressions(put: Callable[..., Path], name: str, ending: str) -> None:
    path = put(name + ending, CONTENTS[name])
    assert read(path) == ["one", "two three", "vier f\u00fcnf"]
    assert counts(path) == {"read": 4, "kept": 3, "blank": 1}


def test_endings_in_capitals(tmp_path: Path) -> None:
    path = tmp_path / "NOTES.CSV.GZ"
    path.write_bytes(gzip.compress(b"id,Text\n1,one\n"))
    assert read(path) == ["one"]


def test_concatenated_members_are_all_read(tmp_path: Path) -> None:
    for ending, compress in COMPRESS.items():
        path = tmp_path / f"notes.txt{ending}"
        path.write_bytes(compress(b"one\n") + compress(b"two\n"))
        assert read(path) == ["one", "two"]


def test_a_large_file_is_the_same_in_every_compression(put: Callable[..., Path]) -> None:
    lines = [f"sentence number {number} of many, with an \u00e4 in it" for number in range(30_000)]
    for ending in COMPRESS:
        assert read(put("large.txt" + ending, "\n".join(lines))) == lines


def test_utf8_mark(put: Callable[..., Path]) -> None:
    assert read(put("a.txt", b"\xef\xbb\xbfone\n")) == ["one"]
    assert read(put("a.csv", b"\xef\xbb\xbftext,id\none,1\n")) == ["one"]


def test_several_files_and_standard_input(put: Callable[..., Path]) -> None:
    one, two = put("b.txt", "one\nshared"), put("a.jsonl", '{"text": "two"}\n{"text": "shared"}')
    sentences = Sentences([one, "-", str(two)], stdin=io.BytesIO(b"from a pipe"))
    assert list(sentences) == ["one", "shared", "from a pipe", "two"]
    assert sentences.summary.files == (str(one), "standard input", str(two))
    assert sentences.summary.describe() == "5 lines read from 3 files: 4 kept, 1 repeat"


def test_a_file_without_a_last_newline_does_not_run_into_the_next(put: Callable[..., Path]) -> None:
    put("a.txt", "one")
    path = put("b.txt", "two")
    assert read(path.parent / "*.txt") == ["one", "two"]


# -- bad UTF-8


def test_bad_utf8_is_an_error_that_names_the_line(put: Callable[..., Path]) -> None:
    path = put("notes.txt", b"good\n\ncaf\xe9\n")
    message = refusal(path)
    assert "line 3: byte 0xe9 is not valid UTF-8" in message
    assert "iconv" in message
    assert "--replace-bad-utf8" in message


def test_bad_utf8_far_into_a_file(put: Callable[..., Path]) -> None:
    path = put("notes.txt", b"a line of text\n" * 100_000 + b"b\xff\n")
    assert "line 100001:" in refusal(path, keep_duplicates=True)


@pytest.mark.parametrize("name", ["a.txt", "a.csv", "a.tsv", "a.jsonl"])
def test_bad_utf8_can_be_replaced(put: Callable[..., Path], name: str) -> None:
    row = b'{"text": "%s"}' if name == "a.jsonl" else b"%s"
    header = b"text\n" if name in ("a.csv", "a.tsv") else b""
    path = put(name, header + b"\n".join(row % text for text in (b"good", b"caf\xe9 \xff", b"fine")))
    assert read(path, on_bad_utf8="replace") == ["good", "caf\ufffd \ufffd", "fine"]
    assert counts(path, on_bad_utf8="replace") == {"read": 3, "kept": 3, "replaced": 1}
    assert "line" in refusal(path)


# -- tables


def test_a_column_by_name(put: Callable[..., Path]) -> None:
    path = put("a.csv", 'id, Body ,x\n1,"He said ""no"", twice",y\n2,"two\nlines",y\n3,,y\n')
    assert read(path, column="Body") == ['He said "no", twice', "two lines"]
    assert counts(path, column="Body") == {"read": 3, "kept": 2, "missing": 1}


def test_a_column_by_number_has_no_header(put: Callable[..., Path]) -> None:
    path = put("a.tsv", "0.5\tfirst one\n1\tsecond\n")
    assert read(path, column="1") == ["first one", "second"]


def test_the_only_column(put: Callable[..., Path]) -> None:
    assert read(put("a.csv", '"one, two"\nthree\n')) == ["one, two", "three"]


def test_a_column_named_text_or_sentence_is_found(put: Callable[..., Path]) -> None:
    assert read(put("a.csv", "Sentence,TEXT\nno,yes\n")) == ["yes"]
    assert read(put("b.csv", "id,Sentence\n1,yes\n")) == ["yes"]


def test_quotes_mean_nothing_in_a_tab_separated_file(put: Callable[..., Path]) -> None:
    path = put("a.tsv", 'id\ttext\n1\t"Well\n2\tthen", he said\n')
    assert read(path) == ['"Well', 'then", he said']


def test_a_column_that_is_missing(put: Callable[..., Path]) -> None:
    path = put("a.csv", "id,body\n1,one\n")
    assert "has no column 'text': set column to one of id, body" in early_refusal(path, column="text")
    assert "has no column 7: it has 2, counted from 0 (id, body)" in early_refusal(path, column="7")
    assert "2 columns (id, body): say which one holds the sentences with --column" in early_refusal(path)


def test_many_columns_do_not_make_a_long_message(put: Callable[..., Path]) -> None:
    path = put("a.csv", ",".join(f"column{number}" + "x" * 60 for number in range(500)) + "\n")
    message = early_refusal(path)
    assert "and 480 more" in message
    assert len(message) < 1500


@pytest.mark.parametrize(("name", "way_out"), [("a.csv", "put quotes around"), ("a.tsv", "cannot hold a tab")])
def test_rows_of_another_width(put: Callable[..., Path], name: str, way_out: str) -> None:
    mark = "," if name == "a.csv" else "\t"
    path = put(name, f"id{mark}text\n1{mark}one\n2{mark}two{mark} and three\n")
    message = refusal(path)
    assert "line 3 has 3 columns where the first row has 2" in message
    assert way_out in message


def test_a_quote_that_is_never_closed(put: Callable[..., Path]) -> None:
    path = put("a.csv", 'id,text\n1,one\n2,"two\n3,three\n4,four\n')
    sentences = Sentences([path])
    with pytest.raises(SelfguideError, match=r"a\.csv, line 3 begins a row .*quote that is not closed"):
        list(sentences)
    assert sentences.summary.kept == 1


def test_a_long_cell_is_an_over_long_line(put: Callable[..., Path]) -> None:
    path = put("a.csv", f"text\n{'x' * 300_000}\nshort\n")
    assert counts(path) == {"read": 2, "kept": 1, "too_long": 1}


def test_a_header_and_nothing_else(put: Callable[..., Path]) -> None:
    assert read(put("a.csv", "id,text\n")) == []
    assert read(put("b.csv", "\n\n")) == []


@given(st.lists(st.tuples(st.text("ab \",\n'", max_size=8), st.text("xy", max_size=3)), max_size=20))
def test_csv_comes_back_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]
) -> None:
    buffer = io.StringIO()
    csv.writer(buffer).writerows([("text", "other"), *rows])
    path = tmp_path_factory.getbasetemp() / "written.csv"
    path.write_text(buffer.getvalue(), newline="")
    texts = [" ".join(text.split()) for text, _ in rows]
    assert read(path, keep_duplicates=True, keep_blank=True) == texts


# -- JSON lines


def test_fields(put: Callable[..., Path]) -> None:
    path = put("a.jsonl", '{"id": 1, "doc": {"body": {"en": "deep"}}, "a.b": "dotted"}\n')
    assert read(path, field="doc.body.en") == ["deep"]
    assert read(path, field="a.b") == ["dotted"]
    assert read(put("b.jsonl", '{"only": "one"}')) == ["one"]
    assert read(put("c.jsonl", '{"id": 1, "Text": "one"}')) == ["one"]


def test_null_and_absent_fields_are_missing(put: Callable[..., Path]) -> None:
    path = put("a.jsonl", '{"id": 1}\n{"text": null}\n{"text": "one"}\n{"id": 2}\n')
    assert counts(path, field="text") == {"read": 4, "kept": 1, "missing": 3}
    assert read(path, field="text", keep_blank=True) == ["", "", "one", ""]


def test_a_field_that_is_missing(put: Callable[..., Path]) -> None:
    path = put("a.jsonl", '{"id": 1, "body": "one"}\n')
    assert "fields id, body: say which one holds the sentences with --field" in early_refusal(path)
    message = early_refusal(path, field="txet")
    assert "no field 'txet' in its first 1 records: set field to one of id, body" in message
    many = put("b.jsonl", '{"id": 1, "body": "one"}\n' * 5000)
    assert "first 100 records" in early_refusal(many, field="txet")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"text": "on', "is not valid JSON"),
        ("[" * 100_000, "is not valid JSON"),
        ('["one"]', "is not a JSON object"),
        ('{"text": 3}', "holds int 3 in field 'text', where text is wanted"),
        ('{"text": ["a"]}', "holds list ['a'] in field 'text'"),
        ('{"text": "\\ud800"}', "half a surrogate pair"),
    ],
)
def test_bad_json_lines(put: Callable[..., Path], line: str, expected: str) -> None:
    message = refusal(put("a.jsonl", f'{{"text": "one"}}\n\n{line}\n'))
    assert expected in message
    assert "line 3" in message


def test_half_characters_in_json_can_be_replaced(put: Callable[..., Path]) -> None:
    path = put("a.jsonl", '{"text": "a\\ud800b"}\n{"text": "\\ud83d\\ude00"}\n')
    assert read(path, on_bad_utf8="replace") == ["a\ufffdb", "\U0001f600"]


def test_blank_json_lines_only(put: Callable[..., Path]) -> None:
    assert counts(put("a.jsonl", "\n\n")) == {"read": 2, "blank": 2}


def test_json_written_by_json(put: Callable[..., Path]) -> None:
    texts = ["plain", "f\u00fcnf", 'with "quotes"', "\U0001f600"]
    path = put("a.jsonl", "\n".join(json.dumps({"text": text}) for text in texts))
    assert read(path) == texts
