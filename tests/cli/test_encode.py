"""``selfguide encode``: one vector a line of the input, in every format, and no half-written files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

import selfguide
from selfguide.engine import encode as encoding
from toys import Outcome, toy_sentences

Command = Callable[..., Outcome]

# Repeats and blanks keep their rows, and the last line needs no end.
LINES = [*toy_sentences(5), "", toy_sentences(1)[0], "", "", "a café", *toy_sentences(5)]
FORMATS = (".npy", ".parquet", ".jsonl")


@pytest.fixture
def lines_file(tmp_path: Path) -> Path:
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(LINES), encoding="utf-8")
    return path


def read(path: Path) -> tuple[list[str] | None, NDArray[Any]]:
    """The sentences, where the format keeps them, and the vectors of a file."""
    if path.suffix == ".npy":
        return None, np.load(path)
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        return table["sentence"].to_pylist(), np.array(table["embedding"].to_pylist(), dtype=np.float32)
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [row["sentence"] for row in rows], np.array([row["embedding"] for row in rows], dtype=np.float32)


@pytest.mark.parametrize("ending", FORMATS)
def test_rows_align_with_lines(command: Command, bert: Path, lines_file: Path, tmp_path: Path, ending: str) -> None:
    output = tmp_path / f"vectors{ending}"
    outcome = command("encode", lines_file, "--encoder", bert, "--output", output)
    assert outcome == Outcome(0, "", f"15 sentences x 32 dimensions written to {output}\n")
    sentences, vectors = read(output)
    assert sentences in (None, LINES)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, selfguide.encode(bert, LINES), atol=1e-6)
    assert {path.name for path in tmp_path.iterdir()} == {"lines.txt", output.name}


def test_to_standard_output(command: Command, bert: Path, lines_file: Path, tmp_path: Path) -> None:
    code, out, err = command("encode", lines_file, "--encoder", bert)
    assert (code, err) == (0, "")
    (tmp_path / "piped.jsonl").write_text(out, encoding="utf-8")
    sentences, vectors = read(tmp_path / "piped.jsonl")
    assert sentences == LINES
    np.testing.assert_allclose(vectors, selfguide.encode(bert, LINES), atol=1e-6)
    assert command("encode", "-", "--encoder", bert, stdin=lines_file.read_bytes()).out == out


def test_npy_can_be_mapped(command: Command, bert: Path, lines_file: Path, tmp_path: Path) -> None:
    assert command("encode", lines_file, "--encoder", bert, "--output", tmp_path / "v.npy", "--quiet").err == ""
    mapped = np.load(tmp_path / "v.npy", mmap_mode="r")
    assert isinstance(mapped, np.memmap)
    assert mapped.shape == (15, 32)
    np.testing.assert_array_equal(mapped, np.load(tmp_path / "v.npy"))


def test_how_vectors_are_made_can_be_said(command: Command, bert: Path, lines_file: Path, tmp_path: Path) -> None:
    def encoded(*words: str) -> NDArray[Any]:
        assert (
            command("encode", lines_file, "--encoder", bert, "--output", tmp_path / "v.npy", *words, "--overwrite").code
            == 0
        )
        return read(tmp_path / "v.npy")[1]

    plain = encoded()
    np.testing.assert_allclose(encoded("--batch-size", "2"), plain, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(encoded("--normalise"), axis=1), 1, atol=1e-6)
    expected = selfguide.encode(selfguide.load_encoder(bert, "max", 1), LINES)
    np.testing.assert_allclose(encoded("--pooling", "max", "--layer", "1"), expected, atol=1e-6)
    expected = selfguide.encode(selfguide.load_encoder(bert, max_length=4), LINES)
    np.testing.assert_allclose(encoded("--max-length", "4"), expected, atol=1e-6)
    assert not np.allclose(expected, plain, atol=1e-3)


def test_a_table_keeps_its_rows_too(command: Command, bert: Path, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("id,body\n1,the old man\n2,\n3,the old man\n")
    assert command("encode", table, "--column", "body", "--encoder", bert, "--output", tmp_path / "v.jsonl").code == 0
    assert read(tmp_path / "v.jsonl")[0] == ["the old man", "", "the old man"]


def test_the_column_the_limit_and_what_was_truncated(command: Command, bert: Path, tmp_path: Path) -> None:
    table, output = tmp_path / "table.csv", tmp_path / "v.jsonl"
    long = "a line of text that is longer than four tokens"
    table.write_text(f"id;text\n1;the old man\n2;{long}\n3;{'x ' * 3000}\n4;never read\n")
    outcome = command("encode", table, "--encoder", bert, "--output", output, "--limit", "3", "--max-length", "8")
    assert outcome.code == 0
    assert "column 1 'text' of 2 (from 0), by its name; the first row is a header; separator: semicolon" in outcome.err
    assert "1 line was longer than 5,000 characters and truncated there" in " ".join(outcome.err.split())
    assert "2 of 3 lines have more than 8 tokens: the encoder reads the beginning" in outcome.err
    assert [sentence[:9] for sentence in read(output)[0] or []] == ["the old m", "a line of", "x x x x x"]
    short = command("encode", table, "--encoder", bert, "--output", output, "--limit", "1", "--overwrite")
    assert "tokens" not in short.err
    assert "truncated" not in short.err


@pytest.mark.parametrize("ending", FORMATS)
def test_no_sentences_no_file(command: Command, bert: Path, tmp_path: Path, ending: str) -> None:
    header_only = tmp_path / "table.csv"
    header_only.write_text("id,text\n")
    output = tmp_path / f"vectors{ending}"
    outcome = command("encode", header_only, "--encoder", bert, "--output", output)
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.endswith("\nselfguide: There was no sentence to encode: the input is empty.\n")
    outcome = command("encode", "-", "--encoder", bert, "--output", output, stdin="")
    assert outcome == Outcome(1, "", "selfguide: standard input is empty: pass a file with sentences in it.\n")
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]


@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize(
    "error", [RuntimeError("no memory"), OSError(28, "No space left on device"), KeyboardInterrupt()]
)
def test_a_failure_midway_keeps_what_was_there_and_what_was_done(
    command: Command,
    bert: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ending: str,
    error: BaseException,
) -> None:
    def vectors(model: object, sentences: list[str], *options: object) -> NDArray[np.float32]:
        if "the last line" in sentences:
            raise error
        return np.zeros((len(sentences), 32), dtype=np.float32)

    monkeypatch.setattr(encoding, "sentence_vectors", vectors)
    many = tmp_path / "many.txt"
    many.write_text("a line\n" * 5000 + "the last line\n")
    output = tmp_path / f"vectors{ending}"
    output.write_text("the former vectors")
    words = ("encode", many, "--encoder", bert, "--output", output)
    code, out, err = command(*words, "--overwrite")
    assert (code, out) == ({RuntimeError: 70, OSError: 1, KeyboardInterrupt: 130}[type(error)], "")
    assert err.startswith("selfguide: ")
    assert err.count("\n") == 1
    assert ("no memory" in err) == isinstance(error, RuntimeError)
    assert ("4,096 sentences are kept; " in err) != isinstance(error, RuntimeError)
    assert output.read_text() == "the former vectors"
    partial = tmp_path / f"{output.name}.partial"
    assert {path.name for path in tmp_path.iterdir()} == {"many.txt", output.name, partial.name}
    assert partial.stat().st_mode & 0o077 == 0
    # It goes on where it stopped, also with --overwrite, which was said when it was begun.
    monkeypatch.setattr(encoding, "sentence_vectors", lambda model, chunk, *options: np.ones((len(chunk), 32), "f4"))
    code, out, err = command(*words, "--resume")
    assert (code, out) == (0, "")
    assert err.startswith("Resuming after 4,096 sentences.\n")
    assert "5,001 sentences x 32 dimensions" in err
    assert {path.name for path in tmp_path.iterdir()} == {"many.txt", output.name}
    np.testing.assert_array_equal(read(output)[1][:, 0], [0] * 4096 + [1] * 905)


@pytest.mark.parametrize(
    ("output", "mentions"),
    [
        ("vectors.csv", (".csv", ".npy, .parquet, .jsonl")),
        ("vectors", ("nothing", ".npy, .parquet, .jsonl")),
        ("lines.txt/vectors.npy", ("lines.txt/vectors.npy cannot be written", "Not a directory")),
        ("nowhere/vectors.jsonl", ("nowhere/vectors.jsonl cannot be written", "No such file or directory")),
        ("nowhere/vectors.parquet", ("nowhere/vectors.parquet cannot be written", "No such file or directory")),
        ("folder.npy", ("folder.npy is a folder", "folder.npy/vectors.npy")),
    ],
)
def test_unusable_outputs(
    command: Command, bert: Path, lines_file: Path, tmp_path: Path, output: str, mentions: tuple[str, ...]
) -> None:
    (tmp_path / "folder.npy").mkdir()
    code, out, err = command("encode", lines_file, "--encoder", bert, "--output", tmp_path / output)
    assert (code > 0, out) == (True, "")
    assert err.startswith("selfguide: ")
    assert err.count("\n") == 1
    for mention in mentions:
        assert mention in err
    assert {path.name for path in tmp_path.rglob("*")} == {"lines.txt", "folder.npy"}


@pytest.mark.parametrize(
    ("words", "mention"),
    [
        (("--pooling", "median"), "cls, mean, max, last2, first-last"),
        (("--layer", "40"), "layers 0 to 3"),
        (("--pooling", "last2", "--layer", "1"), "layer=1"),
        (("--max-length", "2"), "at least 3"),
        (("--batch-size", "0"), "--batch-size"),
        (("--batch-size", "many"), "--batch-size"),
        (("--backend", "tensorrt"), "torch, bf16, onnx, int8"),
        (("--tempreature", "1"), "--tempreature"),
        (("--column", "body"), "column=body"),
    ],
)
def test_unusable_options(command: Command, bert: Path, lines_file: Path, words: tuple[str, ...], mention: str) -> None:
    code, out, err = command("encode", lines_file, "--encoder", bert, *words)
    assert (code, out) == (2, "")
    assert err.startswith("selfguide: ")
    assert err.count("\n") == 1
    assert mention in err


@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_vectors_are_the_stock_ones_whatever_the_batches(bert: Path, batch_size: int) -> None:
    from selfguide.engine.encode import sentence_vectors
    from selfguide.models.encoders import load_encoder

    model = load_encoder(bert)
    sentences = [" ".join(toy_sentences(1 + number % 5)) for number in range(40)] + ["", "a"]
    expected = np.stack([model.encode([sentence])[0] for sentence in sentences])
    assert np.allclose(sentence_vectors(model, sentences, batch_size), expected, atol=1e-6)


def test_cosines_near_one_keep_their_order() -> None:
    """Angles of a ten-thousandth and less: in single precision their cosines are one number or two."""
    angles = np.linspace(1e-5, 1e-4, 10)
    turned = np.stack([np.ones(10), angles], axis=1).astype(np.float32)
    straight = np.tile(np.array([1.0, 0.0], dtype=np.float32), (10, 1))
    cosines = encoding.cosine(straight, turned)
    assert cosines.dtype == np.float64
    assert np.all(np.diff(cosines) < 0)
    np.testing.assert_allclose(cosines, np.cos(np.arctan(angles)), rtol=0, atol=1e-14)
    assert encoding.cosine(straight[0], np.zeros(2, dtype=np.float32)) == 0
