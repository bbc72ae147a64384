"""Back-translation: a sentence is translated to another language and back, which paraphrases it.

A :class:`TranslationSource` says where the translations come from: a file of pairs, two translation models of Hugging Face
(forward and back), or Apertium, a rule-based translator that Linux distributions package.

    source = TranslationSource(apertium="eng-spa")
    back_translate(["It rains."], source)        # for each sentence a list of its back-translations, possibly empty
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from selfguide.data.pairs import read_sentence_pairs
from selfguide.errors import SelfguideError, UsageError, one_line
from selfguide.options import CheckedOptions
from selfguide.progress import Reporter

Translate = Callable[[Sequence[str]], list[list[str]]]
"""A function from sentences to the back-translations of each."""

_CHUNK = 256
"""Sentences between two updates of the progress bar; an interrupted run loses at most these."""
_BATCH = 32
_NEW_TOKENS = 128
NOT_GIVEN = "none"
"""Value of an option that is not set."""


@dataclass(frozen=True)
class TranslationSource:
    """Where back-translations come from: exactly one of ``pairs``, both models, or ``apertium``.

    The fields are those of :class:`TranslationOptions`.

    Raises:
        UsageError: There is no source, an incomplete one, or more than one.
    """

    pairs: str = NOT_GIVEN
    forward_model: str = NOT_GIVEN
    back_model: str = NOT_GIVEN
    apertium: str = NOT_GIVEN

    def __post_init__(self) -> None:
        ways = "--pairs FILE, --forward-model and --back-model, or --apertium eng-spa"
        models = [self.forward_model, self.back_model]
        given = [self.pairs != NOT_GIVEN, models != [NOT_GIVEN] * 2, self.apertium != NOT_GIVEN]
        if sum(given) == 0:
            raise UsageError(f"Back-translations must come from somewhere: {ways}.")
        if sum(given) > 1:
            raise UsageError(f"There are several sources of back-translations; choose one of {ways}.")
        if models.count(NOT_GIVEN) == 1:
            missing = "back_model" if models[1] == NOT_GIVEN else "forward_model"
            raise UsageError(f"Back-translation takes two models, forward and back: {missing} is not given.")
        if given[2] and not (self.apertium.count("-") == 1 and all(self.apertium.split("-"))):
            raise UsageError(f"apertium must name two languages, such as eng-spa, got {self.apertium!r}.")


@dataclass(frozen=True)
class TranslationOptions(CheckedOptions):
    """Options of a method that trains on back-translations; without any source they can be shown, but not used."""

    pairs: str = NOT_GIVEN
    """File of back-translations: sentence, tab, translation; a sentence may have several lines."""
    forward_model: str = NOT_GIVEN
    """Model that translates to the other language (Marian): a folder or a hub name, such as Helsinki-NLP/opus-mt-en-de."""
    back_model: str = NOT_GIVEN
    """Model that translates back, such as Helsinki-NLP/opus-mt-de-en."""
    apertium: str = NOT_GIVEN
    """Languages for Apertium, such as eng-spa, if it is installed."""

    def __post_init__(self) -> None:
        """Check the source too, where one is set."""
        super().__post_init__()
        if not self.pairs == self.forward_model == self.back_model == self.apertium == NOT_GIVEN:
            self.source()

    def source(self) -> TranslationSource:
        """Return the source of the translations.

        Raises:
            UsageError: The options name no source, an incomplete one, or more than one.
        """
        return TranslationSource(self.pairs, self.forward_model, self.back_model, self.apertium)


def back_translate(
    sentences: Sequence[str], source: TranslationSource, reporter: Reporter | None = None, device: str = "cpu"
) -> list[list[str]]:
    """Back-translate sentences.

    Args:
        sentences: The sentences.
        source: Where the back-translations come from.
        reporter: Shows a progress bar, if given.
        device: Device of translation models.

    Returns:
        The back-translations of each sentence, in the order of the sentences; an empty list where there is none.

    Raises:
        SelfguideError: The source cannot be used: a file, model or program is missing.
    """
    translate = translator(source, device)
    return [row for rows in in_chunks(translate, sentences, 0, reporter) for row in rows]


def translator(source: TranslationSource, device: str = "cpu") -> Translate:
    """Make a source ready: read its file, or load its models.

    Args:
        source: Where the back-translations come from.
        device: Device of translation models.

    Returns:
        A function from sentences to the back-translations of each.

    Raises:
        SelfguideError: A file, model or program is missing.
    """
    if source.pairs != NOT_GIVEN:
        return _from_pairs(source.pairs)
    if source.apertium != NOT_GIVEN:
        first, second = source.apertium.split("-")
        return _round_trip(_apertium(f"{first}-{second}"), _apertium(f"{second}-{first}"))
    return _round_trip(_model(source.forward_model, device), _model(source.back_model, device))


def in_chunks(
    translate: Translate, sentences: Sequence[str], done: int, reporter: Reporter | None
) -> Iterator[list[list[str]]]:
    """Back-translate in chunks, so that a caller can save each.

    Args:
        translate: What :func:`translator` returned.
        sentences: All sentences.
        done: How many of them are translated already.
        reporter: Shows a progress bar, if given.

    Yields:
        The back-translations of the sentences of a chunk.
    """
    with (reporter or Reporter(quiet=True)).bar("translating", len(sentences), "sentences") as advance:
        advance(done, "")
        for start in range(done, len(sentences), _CHUNK):
            rows = translate(list(sentences[start : start + _CHUNK]))
            advance(len(rows), "")
            yield rows


def _round_trip(forward: Callable[[list[str]], list[str]], back: Callable[[list[str]], list[str]]) -> Translate:
    return lambda sentences: [[translation] for translation in back(forward(list(sentences)))]


def _from_pairs(path: str) -> Translate:
    pairs = read_sentence_pairs(path)
    known: dict[str, list[str]] = {}
    for sentence, translation in zip(pairs.first, pairs.second, strict=True):
        known.setdefault(" ".join(sentence.split()), []).append(translation)
    return lambda sentences: [known.get(" ".join(sentence.split()), []) for sentence in sentences]


def _model(name: str, device: str) -> Callable[[list[str]], list[str]]:
    """Load a sequence-to-sequence model of Hugging Face, such as Marian."""
    import torch
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(name)
        model: Any = AutoModelForSeq2SeqLM.from_pretrained(name).to(device).eval()
    except Exception as error:
        reason = one_line(error)[:300]
        raise SelfguideError(
            f"The translation model {name!r} could not be loaded: it is a folder here or a name on the model hub, such as "
            "Helsinki-NLP/opus-mt-en-de. Offline, download it elsewhere and pass its folder; if the sentencepiece package is "
            f"missing, pip install sentencepiece. The library said: {reason}"
        ) from error

    @torch.inference_mode()
    def translate(sentences: list[str]) -> list[str]:
        written: list[str] = []
        for start in range(0, len(sentences), _BATCH):
            batch = sentences[start : start + _BATCH]
            tokens = tokenizer(batch, padding=True, truncation=True, return_tensors="pt", return_token_type_ids=False)
            # Greedy decoding is deterministic, and two models paraphrase enough.
            output = model.generate(**tokens.to(device), num_beams=1, do_sample=False, max_new_tokens=_NEW_TOKENS)
            written += tokenizer.batch_decode(output, skip_special_tokens=True)
        return written

    return translate


def _apertium(direction: str) -> Callable[[list[str]], list[str]]:
    if shutil.which("apertium") is None:
        pair = "-".join(sorted(direction.split("-")))
        raise SelfguideError(
            f"Apertium is not installed. On Debian or Ubuntu: apt install apertium apertium-{pair}; or use a file of pairs "
            "(--pairs) or two translation models (--forward-model, --back-model)."
        )

    def translate(sentences: list[str]) -> list[str]:
        # Only a blank line ends a sentence for Apertium: at a single line break it moves words from line to line.
        made = _run_apertium(direction, "\n\n".join(sentences)).split("\n\n")
        if len(made) != len(sentences):
            made = [_run_apertium(direction, sentence) for sentence in sentences]
        return [" ".join(sentence.split()) for sentence in made]

    return translate


def _run_apertium(direction: str, text: str) -> str:
    done = subprocess.run(
        ["apertium", "-u", direction], input=text, capture_output=True, encoding="utf-8", errors="replace", check=False
    )
    if done.returncode != 0:
        pair = "-".join(sorted(direction.split("-")))
        reason = " ".join((done.stderr or done.stdout).split())[:200]
        raise SelfguideError(
            f"Apertium could not translate {direction}; install its language pair (on Debian or Ubuntu: apt install "
            f"apertium-{pair}), or choose one that `apertium -l` lists. It said: {reason}"
        )
    return done.stdout
