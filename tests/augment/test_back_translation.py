"""Back-translation: the three sources."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from selfguide.augment.back_translation import TranslationSource, back_translate
from selfguide.errors import SelfguideError, UsageError
from selfguide.progress import Reporter
from toys import save_tokenizer, toy_sentences
from translations import turned


def test_pairs_are_looked_up_by_sentence(translated_pairs: Path) -> None:
    first, second, third = toy_sentences(3)
    source = TranslationSource(pairs=str(translated_pairs))
    found = back_translate([third, "  " + second, "unheard of", first], source, Reporter(quiet=True))
    assert found == [[turned(third)], ["my sister", turned(second)], [], [first.upper()]]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, r"must come from somewhere: --pairs FILE"),
        ({"pairs": "a", "apertium": "eng-spa"}, "several sources"),
        ({"forward_model": "a"}, "back_model is not given"),
        ({"back_model": "a"}, "forward_model is not given"),
        ({"apertium": "english"}, "two languages, such as eng-spa"),
        ({"apertium": "eng-"}, "two languages, such as eng-spa"),
    ],
)
def test_a_source_must_be_one_and_whole(given: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        TranslationSource(**given)


def test_two_models_translate_there_and_back(tmp_path: Path) -> None:
    """Tiny untrained models: what they write makes no sense, but it is written by both, and the same every time."""
    from transformers import MarianConfig, MarianMTModel

    names = []
    for name, seed in (("there", 1), ("back", 2)):
        folder = tmp_path / name
        vocabulary = save_tokenizer(folder)
        torch.manual_seed(seed)
        config = MarianConfig(
            vocab_size=vocabulary,
            d_model=16,
            encoder_layers=1,
            decoder_layers=1,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=16,
            decoder_ffn_dim=16,
            max_position_embeddings=160,
            pad_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=1,
            forced_eos_token_id=2,
        )
        MarianMTModel(config).save_pretrained(folder)
        names.append(str(folder))
    source = TranslationSource(forward_model=names[0], back_model=names[1])
    once, again = (back_translate(toy_sentences(3), source) for _ in range(2))
    assert once == again
    assert [len(row) for row in once] == [1, 1, 1]
    assert all(isinstance(row[0], str) for row in once)
    missing = TranslationSource(forward_model=str(tmp_path / "nowhere"), back_model=names[1])
    with pytest.raises(SelfguideError, match=r"translation model .*nowhere.* could not be loaded.*pass its folder"):
        back_translate(["a"], missing)


def test_apertium_gets_a_sentence_for_a_sentence(fake_apertium: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = TranslationSource(apertium="eng-spa")
    assert back_translate(["a b", "c"], source) == [["y x a b"], ["y x c"]]
    # Where blocks are lost, sentence by sentence.
    assert back_translate(["merge", "c"], source) == [["y x merge"], ["y x c"]]
    with pytest.raises(
        SelfguideError, match=r"could not translate eng-fin; .*apt install apertium-eng-fin.*does not exist"
    ):
        back_translate(["a"], TranslationSource(apertium="eng-fin"))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SelfguideError, match=r"Apertium is not installed.*apt install apertium apertium-eng-spa"):
        back_translate(["a"], source)


@pytest.mark.skipif(shutil.which("apertium") is None, reason="Apertium is not installed")
def test_the_real_apertium_keeps_lines_apart() -> None:
    directions = subprocess.run(["apertium", "-l"], capture_output=True, text=True, check=False).stdout
    if "eng-spa" not in directions.split() or "spa-eng" not in directions.split():
        pytest.skip("the language pair eng-spa is not installed")
    # Without blank lines between them, "old" and "man" would change places over the line end.
    (one,), (other,) = back_translate(["the old", "man repairs"], TranslationSource(apertium="eng-spa"))
    assert "old" in one.lower()
    assert "old" not in other.lower()
