"""Whether a tokenizer knows the language of a text, by counting tokens."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import AutoTokenizer

from selfguide.data.resources import demo_sentences, mini_folder
from selfguide.engine.vocabulary_fit import VocabularyFit, foreign_text, vocabulary_fit
from tongues import CODES, save_polyglot, sentences


@pytest.fixture(scope="module")
def english() -> object:
    """The tokenizer of ``mini``, which was trained on English."""
    return AutoTokenizer.from_pretrained(str(mini_folder()))


@pytest.mark.parametrize("code", CODES)
def test_an_english_tokenizer_does_not_know_other_languages(english: object, code: str) -> None:
    warned = foreign_text(english, sentences(code))
    assert warned is not None, vocabulary_fit(english, sentences(code))
    assert warned.startswith("the encoder's tokenizer hardly knows the language of this text: ")
    assert warned.endswith("choose an encoder that was made for the language.")


@pytest.mark.parametrize("code", CODES)
def test_a_tokenizer_of_the_language_knows_it(tmp_path: Path, code: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(str(save_polyglot(tmp_path / "polyglot")))
    assert foreign_text(tokenizer, sentences(code)) is None


def test_english_of_any_kind_is_known(english: object) -> None:
    assert foreign_text(english, demo_sentences()[400:600]) is None
    log = [
        f"2024-01-{day:02d} 12:{day:02d}:07 ERROR request {day * 7919} failed, code 0x{day * 9991:x}"
        for day in range(30)
    ]
    assert vocabulary_fit(english, log).pieces > 1.3  # type: ignore[union-attr]
    assert foreign_text(english, log) is None  # numbers belong to no language
    assert foreign_text(english, ["🚀🚀 great 👍", "so funny 😂😂😂"] * 40) is None


def test_counts_are_those_of_a_naive_loop(english: object) -> None:
    said, compared = ["El año pasó.", "¿Qué?"], ["It rains.", "The train is late."]

    def per_byte(lines: list[str]) -> float:
        tokens = sum(len(english.tokenize(line)) for line in lines)  # type: ignore[attr-defined]
        return tokens / sum(len(line.encode("utf-8")) for line in lines)

    found = vocabulary_fit(english, said, compared)
    assert found is not None
    assert found.pieces == pytest.approx(per_byte(said) / per_byte(compared))
    tokens = [token for line in said for token in english.tokenize(line)]  # type: ignore[attr-defined]
    assert found.unknown == pytest.approx(tokens.count("[UNK]") / len(tokens))
    assert VocabularyFit(1.3, 0.1).foreignness == pytest.approx(2)


def test_too_little_text_and_no_tokenizer_say_nothing(english: object) -> None:
    assert foreign_text(english, ["El año pasó."]) is None
    assert foreign_text(english, ["小女孩画了那首歌。"]) is not None  # but not a single character is known
    assert foreign_text(english, [""]) is None
    assert vocabulary_fit(object(), ["It rains."]) is None
