"""``selfguide encode --dim --precision --ranges``: the vectors of sentence-transformers' own options, in files of their type."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

import selfguide
from selfguide.engine.vector_form import read_ranges, write_ranges
from selfguide.errors import SelfguideError
from toys import Outcome, toy_sentences

Command = Callable[..., Outcome]

LINES = toy_sentences(60)
BYTES = {"int8": (np.int8, 20), "uint8": (np.uint8, 20), "binary": (np.int8, 3), "ubinary": (np.uint8, 3)}


@pytest.fixture
def lines_file(tmp_path: Path) -> Path:
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(LINES), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def stock(bert: Path) -> SentenceTransformer:
    return selfguide.load_encoder(bert)


def close(found: NDArray[Any], expected: NDArray[Any], precision: str) -> None:
    """Quantised values may differ by a step where a float is within rounding of one."""
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    if precision.endswith("binary"):
        bits = np.unpackbits(found.view(np.uint8) ^ expected.view(np.uint8))
        assert bits.mean() < 0.001
    else:
        assert np.abs(found.astype(int) - expected.astype(int)).max() <= 1
        assert (found == expected).mean() > 0.99


@pytest.mark.parametrize("precision", BYTES)
@pytest.mark.parametrize("ending", [".npy", ".parquet"])
def test_precision_is_that_of_sentence_transformers(
    command: Command,
    bert: Path,
    stock: SentenceTransformer,
    lines_file: Path,
    tmp_path: Path,
    precision: str,
    ending: str,
) -> None:
    output = tmp_path / f"v{ending}"
    words = ("--dim", "20", "--normalise", "--precision", precision, "--encoder", bert, "--output", output)
    outcome = command("encode", lines_file, *words)
    assert outcome.code == 0
    assert f"60 sentences x 20 dimensions as {precision} written" in outcome.err
    kind: Any = precision
    expected = stock.encode(LINES, truncate_dim=20, normalize_embeddings=True, precision=kind)
    if ending == ".npy":
        found = np.load(output)
        assert (found.dtype, found.shape) == (BYTES[precision][0], (60, BYTES[precision][1]))
    else:
        column = pq.read_table(output)["embedding"]
        assert str(column.type.value_type) == np.dtype(BYTES[precision][0]).name
        found = np.array(column.to_pylist(), dtype=BYTES[precision][0])
    close(found, expected, precision)
    close(
        selfguide.encode(stock, LINES, dim=20, normalise=True, precision=precision),
        expected,
        precision,
    )
    assert (tmp_path / "v.ranges.npy").is_file() == precision.endswith("int8")


def test_truncation_alone_is_that_of_sentence_transformers(stock: SentenceTransformer) -> None:
    found = selfguide.encode(stock, LINES, dim=7)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, stock.encode(LINES, truncate_dim=7), atol=1e-5)
    one = selfguide.encode(stock, LINES[0], dim=7, normalise=True)
    assert one.shape == (7,)
    assert np.linalg.norm(one) == pytest.approx(1, abs=1e-6)
    assert selfguide.encode(stock, [], dim=20, precision="ubinary").shape == (0, 3)


def test_queries_are_encoded_with_the_ranges_of_the_text(
    command: Command, bert: Path, stock: SentenceTransformer, lines_file: Path, tmp_path: Path
) -> None:
    common = ("--precision", "int8", "--encoder", bert)
    assert command("encode", lines_file, *common, "--output", tmp_path / "v.npy").code == 0
    ranges = tmp_path / "v.ranges.npy"
    floats = stock.encode(LINES)
    np.testing.assert_allclose(np.load(ranges), [floats.min(axis=0), floats.max(axis=0)], atol=1e-5)
    queries = tmp_path / "queries.txt"
    queries.write_text("\n".join(LINES[10:14]))
    outcome = command("encode", queries, *common, "--ranges", ranges, "--output", tmp_path / "q.npy")
    assert (outcome.code, "Ranges" in outcome.err) == (0, False)
    assert np.abs(np.load(tmp_path / "q.npy").astype(int) - np.load(tmp_path / "v.npy")[10:14]).max() <= 1
    assert not (tmp_path / "q.ranges.npy").exists()
    piped = command("encode", queries, *common, "--ranges", ranges)
    assert piped.code == 0
    assert piped.out.count("\n") == 4


def test_ranges_that_do_not_fit_the_text_are_reported(
    command: Command, bert: Path, lines_file: Path, tmp_path: Path
) -> None:
    narrow = tmp_path / "narrow.npy"
    np.save(narrow, np.array([np.full(32, -1e-4), np.full(32, 1e-4)], dtype=np.float32))
    words = ("--precision", "uint8", "--ranges", narrow, "--encoder", bert, "--output", tmp_path / "v.npy")
    outcome = command("encode", lines_file, *words)
    assert outcome.code == 0
    assert "% of the values are beyond the ranges of uint8" in outcome.err


@pytest.mark.parametrize(
    ("words", "mention"),
    [
        (("--precision", "int4"), "float32, int8, uint8, binary, ubinary"),
        (("--dim", "0"), "--dim"),
        (("--dim", "33"), "32 dimensions; dim 33"),
        (("--precision", "int8"), "name an --output file"),
        (("--precision", "binary", "--ranges", "{good}"), "leave them out"),
        (("--precision", "int8", "--dim", "8", "--ranges", "{good}"), "shape (2, 32); (2, 8)"),
        (("--precision", "int8", "--ranges", "{lines}"), "not a .npy array"),
        (("--precision", "int8", "--ranges", "{missing}"), "No such file"),
        (("--precision", "int8", "--ranges", "{flat}"), "two rows"),
        (("--precision", "int8", "--ranges", "{swapped}"), "above its maximum"),
    ],
)
def test_unusable_options(
    command: Command, bert: Path, lines_file: Path, tmp_path: Path, words: tuple[str, ...], mention: str
) -> None:
    np.save(tmp_path / "good.npy", np.array([np.zeros(32), np.ones(32)], dtype=np.float32))
    np.save(tmp_path / "flat.npy", np.zeros(32, dtype=np.float32))
    np.save(tmp_path / "swapped.npy", np.array([np.ones(32), np.zeros(32)], dtype=np.float32))
    names = {name: tmp_path / f"{name}.npy" for name in ("good", "flat", "swapped", "missing")}
    before = set(tmp_path.iterdir())
    filled = [word.format(lines=lines_file, **names) for word in words]
    code, out, err = command("encode", lines_file, "--encoder", bert, *filled)
    assert (code > 0, out, err.count("\n")) == (True, "", 1)
    assert err.startswith("selfguide: ")
    assert mention in err
    assert set(tmp_path.iterdir()) == before


def test_one_sentence_gives_no_ranges(stock: SentenceTransformer) -> None:
    with pytest.raises(selfguide.SelfguideError, match="one sentence"):
        selfguide.encode(stock, "the old man", precision="int8")


@pytest.mark.parametrize("place", [0.1, 0.5, 0.7])
def test_ranges_with_a_flipped_bit_are_not_used(tmp_path: Path, place: float) -> None:
    ranges = np.array([[-1.0] * 32, [1.0] * 32], dtype=np.float32)
    path = tmp_path / "v.ranges.npy"
    write_ranges(path, ranges)
    np.testing.assert_array_equal(np.load(path), ranges)  # an array like any other
    np.testing.assert_array_equal(read_ranges(path), ranges)
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= 1
    path.write_bytes(content)
    with pytest.raises(SelfguideError, match=r"v\.ranges\.npy have changed since they were written"):
        read_ranges(path)
    np.save(path, ranges)  # of one's own making
    np.testing.assert_array_equal(read_ranges(path), ranges)
