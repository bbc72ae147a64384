"""Tables as people have them: separators, quotation marks and headers are found, said, and can be overruled."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path

import pytest

from reading import counts, early_refusal, read, refusal
from selfguide.data import Sentences, TextOptions
from selfguide.data.columns import looks_like_header
from selfguide.data.dialect import Dialect, detect_dialect

BODIES = ["The first, with a comma", "Another; this one divides", "A third | and a pipe", "The last\tone"]


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_separator_is_found(put: Callable[..., Path], mark: str, end: str) -> None:
    buffer = io.StringIO()
    writer = csv.writer(buffer, delimiter=mark, lineterminator=end)
    writer.writerows([("id", "text", "price"), *((number, body, "1,50") for number, body in enumerate(BODIES))])
    path = put("export.csv", buffer.getvalue())
    assert read(path) == [" ".join(body.split()) for body in BODIES]


def test_the_separator_with_fewest_exceptions_wins(put: Callable[..., Path]) -> None:
    path = put("a.csv", "id;text\n1;one, two\n2;three, four, five\n3;six\n")
    assert read(path) == ["one, two", "three, four, five", "six"]
    assert detect_dialect(["1,5;2,5", "3,5;4,5"]).delimiter in (",", ";")
    assert detect_dialect([]) == detect_dialect(["one, two", "three"]) == Dialect(",", '"')


def test_single_quotation_marks(put: Callable[..., Path]) -> None:
    path = put("a.csv", "'id','text'\n1,'one, and two'\n2,'it''s three'\n")
    assert read(path) == ["one, and two", "it's three"]
    assert read(put("b.csv", "id,text\n1,'one' she said\n")) == ["'one' she said"]


@pytest.mark.parametrize("mark", [";", ",", "\t"])
def test_the_first_line_that_excel_writes_names_the_separator(put: Callable[..., Path], mark: str) -> None:
    rows = f"id{mark}text\r\n1{mark}the first of them\r\n2{mark}and the second one\r\n"
    for start in (f"sep={mark}\r\n", f"\ufeffSEP={mark}\r\n", f'"sep={mark}"\r\n'):
        path = put("a.csv", start + rows)
        assert read(path) == ["the first of them", "and the second one"]
        assert "line 5 has" in refusal(put("b.csv", start + rows + "alone\r\n"))
        assert counts(path) == {"read": 2, "kept": 2}
    assert read(put("c.csv", "sep=ours\nwords of text\n")) == ["sep=ours", "words of text"]


def test_quotation_marks_of_tab_separated_files(put: Callable[..., Path]) -> None:
    """As pandas and spreadsheets write them; a file in which one of them means something else is read as it is."""
    buffer = io.StringIO()
    cells = ['He said "no" to me', "a tab\tin it", "plain words here", '"whole"', "two\nlines of it"]
    csv.writer(buffer, delimiter="\t").writerows([("id", "text"), *enumerate(cells)])
    assert read(put("a.tsv", buffer.getvalue())) == [" ".join(cell.split()) for cell in cells]
    for rows in (
        '1\t"quoted words" here\n2\tsome ""more"" of them\n',
        '1\t"every cell is"\n2\t"between quotes"\n',
        '1\t"He said ""no"" to me"\n2\tit is 5" wide\n',
        '1\t"an unclosed one\n2\tanother line here\n',
    ):
        assert read(put("b.tsv", "id\ttext\n" + rows)) == [line.split("\t")[1] for line in rows.splitlines()]


def test_the_separator_can_be_named(put: Callable[..., Path]) -> None:
    path = put("a.csv", "text~other\none, two~x\nthree~y\n")
    assert read(path, delimiter="~") == ["one, two", "three"]
    assert read(put("b.txt", "id;text\n1;yes\n"), delimiter="semicolon") == ["yes"]
    assert read(put("c.tsv", "text;id\na\tb;1\n"), delimiter=";") == ["a b"]
    lines = put("d.csv", "one, two\nthree\n")
    assert read(lines, delimiter="none") == ["one, two", "three"]
    stdin = io.BytesIO(b"1|one\n2|two\n")
    assert list(Sentences(["-"], TextOptions(delimiter="pipe", column="1"), stdin=stdin)) == ["one", "two"]


def test_ragged_rows_get_advice_that_fits(put: Callable[..., Path]) -> None:
    message = refusal(put("a.csv", "text\nHello, world\nOne, two, three\n"))
    assert "line 2 has 2 columns where the first row has 1: if every line is one sentence" in message
    assert "--delimiter none" in message
    assert read(put("a.csv", "text\nHello, world\nOne, two, three\n"), delimiter="none") == [
        "Hello, world", "One, two, three",
    ]  # fmt: skip
    rows = "".join(f"{number};word\n" for number in range(20))
    message = refusal(put("b.csv", f"id;text\n{rows}1;a;b\n"))
    assert "line 22 has 3 columns where the first row has 2: put quotes around cells that hold a semicolon" in message
    message = refusal(put("c.csv", f"id;text\n{rows}alone\n"))
    assert "line 22 has 1 column where the first row has 2: a cell is missing, or a line break in a cell" in message
    assert "--skip-bad-rows N (in Python skip_bad_rows=N)" in message
    assert "a cell cannot hold a tab" in refusal(put("d.tsv", "id\ttext\n1\ta\tb\n"))


def test_bad_rows_can_be_left_out_and_are_counted(put: Callable[..., Path]) -> None:
    path = put("a.csv", 'id,text\n1,one\n2,two,and\n3,three\nfour\n5,"fi"ve\n6,six\n')
    assert read(path, skip_bad_rows=3) == ["one", "three", "six"]
    assert counts(path, skip_bad_rows=3) == {"read": 6, "kept": 3, "bad": 3}
    sentences = Sentences([path], TextOptions(skip_bad_rows=5))
    list(sentences)
    assert "3 bad rows left out" in sentences.summary.describe()
    message = refusal(path, skip_bad_rows=2)
    assert "line 6 begins a row that is not valid CSV" in message
    assert "bad row number 3, and 2 are allowed" in message
    # A quote that is never closed hides the rest of the file, which is no single row.
    assert "quote that is not closed" in refusal(put("b.csv", 'id,text\n1,"one\n2,two\n'), skip_bad_rows=9)


def test_bad_json_lines_can_be_left_out(put: Callable[..., Path]) -> None:
    path = put("a.jsonl", '{"text": "one"}\nnonsense\n{"text": 3}\n["x"]\n{"text": "two"}\n')
    assert counts(path, skip_bad_rows=3) == {"read": 5, "kept": 2, "bad": 3}
    assert "line 4 is not a JSON object" in refusal(path, skip_bad_rows=2)
    first = put("b.jsonl", 'nonsense\n{"text": "one"}\n')
    assert read(first, skip_bad_rows=1) == ["one"]


@pytest.mark.parametrize(
    ("rows", "header"),
    [
        ([["id", "body"], ["1", "a b"], ["2", "c"]], True),  # numbers below a word
        ([["review"], ["a film that I liked"], ["not a good film at all"]], True),  # sentences below a word
        ([["label", "question"], ["card", "where is my new card"], ["cash", "there is no cash left"]], True),
        ([["card", "where is it"], ["card", "where is my new card"], ["cash", "no cash is left here"]], False),
        ([["help me"], ["where is my new card"], ["there is no cash left"]], False),  # two words may be a sentence
        ([["1", "one two three"], ["2", "four five six"]], False),
        ([["yes", "Great!"], ["no", "it was not that good"]], False),  # punctuation
        ([["a", "a"], ["1", "2"]], False),
        ([["id", "text"]], False),
        ([["one"], ["two"], ["three"]], False),
    ],
)
def test_what_looks_like_a_header(rows: list[list[str]], header: bool) -> None:
    assert looks_like_header(rows) is header


def test_a_header_is_recognised_and_can_be_overruled(put: Callable[..., Path]) -> None:
    path = put("a.csv", "id,body\n1,the first of them\n2,and the second one\n")
    body = ["the first of them", "and the second one"]
    assert read(path, column="1") == read(path) == read(path, column="1", header="yes") == body
    assert read(path, column="1", header="no") == ["body", *body]
    assert "no column 'body'" in early_refusal(path, column="body", header="no")
    plain = put("b.tsv", "0.5\tthe first of them\n1\tand the second one\n")
    assert read(plain) == read(plain, column="1", header="no") == body
    assert read(plain, column="1", header="yes") == body[1:]


def test_the_column_that_was_taken_is_said(put: Callable[..., Path]) -> None:
    path = put("export.csv", "id;Text\n1;the first of them\n2;and the second one\n")
    sentences = Sentences([path])
    list(sentences)
    source, counted, begins = sentences.described()
    assert (
        source
        == f"{path}: column 1 'Text' of 2 (from 0), by its name; the first row is a header; separator: semicolon."
    )
    assert counted == "2 lines read from export.csv: 2 kept"
    assert begins == "It begins: “the first of them” and “and the second one”"
    lines = Sentences([put("a.txt", "only one\n")])
    list(lines)
    assert lines.described() == ["1 line read from a.txt: 1 kept", "It begins: “only one”"]
    (alone,) = Sentences([put("b.csv", "one\ntwo\n")]).sources_read()
    assert alone.endswith("b.csv: its only column; no header, the first row is text.")


def test_of_many_files_a_few_are_said(put: Callable[..., Path], tmp_path: Path) -> None:
    for number in range(8):
        put(f"{number}.csv", "id,text\n1,one\n")
    said = Sentences([tmp_path / "*.csv"]).sources_read()
    assert len(said) == 4
    assert said[-1] == "… and so on for 5 more files."


def test_fields_are_found_over_the_first_records(put: Callable[..., Path]) -> None:
    path = put("a.jsonl", '{"id": 1}\n{"id": 2, "text": "two"}\n{"id": 3, "text": "three"}\n')
    assert read(path) == ["two", "three"]
    assert counts(path) == {"read": 3, "kept": 2, "missing": 1}
    titled = put(
        "b.jsonl", '{"id": 1, "tag": "x", "body": "the first of them"}\n{"id": 2, "body": "and the second one"}\n'
    )
    sentences = Sentences([titled])
    assert list(sentences) == ["the first of them", "and the second one"]
    assert sentences.sources_read() == [f"{titled}: field 'body' of 3, the only one with sentences."]


def test_fields_inside_of_objects_are_found(put: Callable[..., Path]) -> None:
    rows = (
        '{"id": 1, "message": {"lang": "en", "body": "the first of them"}}\n{"message": {"body": "and the second"}}\n'
    )
    sentences = Sentences([put("a.jsonl", rows)])
    assert list(sentences) == ["the first of them", "and the second"]
    assert sentences.sources_read()[0].endswith("field 'message.body' of 3, the only one with sentences.")
    several = put("b.jsonl", '{"a": {"b": "the first of them", "c": "and the second one"}}\n')
    assert (
        "has the fields a.b, a.c: say which one holds the sentences with --field (in Python field=)"
        in early_refusal(several)
    )


def test_a_json_document_is_no_text(put: Callable[..., Path]) -> None:
    assert read(put("a.json", '{"text": "one of them"}\n{"text": "another one"}\n')) == ["one of them", "another one"]
    for content in ('[{"text": "one"}]', '{\n "rows": [\n  "one"\n ]\n}', '["one",\n "two"]', "[\n"):
        message = early_refusal(put("b.json", content))
        assert "is one JSON document, and not a record a line" in message
        assert "jq -c '.[]'" in message
    assert read(put("c.json", "plain words\nand more\n")) == ["plain words", "and more"]


@pytest.mark.parametrize("encoding", ["latin1", "cp1252", "utf-16", "utf-16-le", "utf-32", "shift_jis", "utf-8-sig"])
def test_encodings(put: Callable[..., Path], encoding: str) -> None:
    texts = ["日本 の 文"] if encoding == "shift_jis" else ["café au lait", "naïve"]
    path = put("a.csv", ("id;text\r\n" + "".join(f"1;{text}\r\n" for text in texts)).encode(encoding))
    assert read(path, encoding=encoding) == texts
    compressed = put("b.txt.gz", "\n".join(texts * 30_000).encode(encoding))
    assert read(compressed, encoding=encoding, keep_duplicates=True) == texts * 30_000


def test_bytes_that_an_encoding_does_not_have(put: Callable[..., Path]) -> None:
    path = put("a.txt", b"good\ncaf\x81\n")
    assert "line 2: byte 0x81 is not valid in the encoding cp1252; name another with --encoding" in refusal(
        path, encoding="cp1252"
    )
    assert read(path, encoding="cp1252", on_bad_utf8="replace") == ["good", "caf\ufffd"]
    assert "encoding must be an encoding such as utf-8" in early_message(path, encoding="klingon")
    assert "encoding must be an encoding" in early_message(path, encoding="base64")
    assert "delimiter must be one character" in early_message(path, delimiter="ab")


def early_message(path: Path, **options: str) -> str:
    from selfguide.errors import UsageError

    with pytest.raises(UsageError) as caught:
        Sentences([path], TextOptions(**options))  # type: ignore[arg-type]
    return str(caught.value)


def test_options_that_no_source_uses_are_refused(put: Callable[..., Path]) -> None:
    path = put("a.jsonl", '{"text": "one"}\n')
    assert "delimiter=; is for csv, tsv and txt sources" in early_message(path, delimiter=";")
