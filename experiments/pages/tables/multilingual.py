"""Tables of the pages on other languages."""

from __future__ import annotations

from collections.abc import Callable

from experiments.pages.figures import figure
from experiments.pages.sources import lookup
from experiments.pages.tables.markdown import table

_HELD_OUT = (("128", "inputs of 128 tokens"), ("32", "inputs of 32 tokens"))
TITLES = {
    "sts17-es-es": "STS17 es-es",
    "sts17-ar-ar": "STS17 ar-ar",
    "sts17-es-en": "STS17 es-en",
    "sts17-ar-en": "STS17 ar-en",
    "sts17-en-en": "STS17 en-en",
    "stsb-es": "STS-B es",
    "stsb-de": "STS-B de",
    "korsts": "KorSTS",
}
TEXTS = {"english": "English", "spanish": "Spanish", "arabic": "Arabic", "all": "a third of each"}
_STUDY = "multi-study"


def vocabularies() -> str:
    """What the check of a text finds, by text and tokenizer.

    Returns:
        The table in Markdown.
    """
    encoders = list(lookup("vocabularies:rows"))
    rows = []
    for text in lookup(f"vocabularies:rows/{encoders[0]}"):
        cells = []
        for encoder in encoders:
            path = f"vocabularies:rows/'{encoder}'/'{text}'"
            said = lookup(f"{path}/said")
            cells += [figure(f"{path}/'tokens per byte'"), figure(f"{path}/unknown", 0) + " %", said]
        rows.append([text, *cells])
    heads = [f"{encoder}: tokens per byte | unknown | it is" for encoder in encoders]
    return table(" | ".join(["text", *heads]), rows)


def languages() -> str:
    """The languages of the rehearsed pre-training: text, share of a step, first and last held-out loss.

    Returns:
        The table in Markdown.
    """
    first, last = 0, len(lookup("multi-pretraining:held-out")) - 1
    rows = []
    for language in lookup("multi-pretraining:languages/tokens"):
        cells = [figure(f"multi-pretraining:languages/tokens/{language} / 1000000", 1)]
        share = f"multi-pretraining:languages/'shares of a step'/{language} * 100"
        cells.append(f"{figure(share, 0)} %")
        for length, _ in _HELD_OUT:
            key = f"loss_{length}_{language}"
            cells += [figure(f"multi-pretraining:held-out/{place}/{key}", 3) for place in (first, last)]
        rows.append([language.capitalize(), *cells])
    heads = [f"{words}: first | last" for _, words in _HELD_OUT]
    return table(" | ".join(["language", "million tokens", "of a step", *heads]), rows)


def study() -> str:
    """Scores of the rehearsed study, by text and row.

    Returns:
        The table in Markdown.
    """
    rows = []
    for name in lookup(f"{_STUDY}:rows"):
        for row in lookup(f"{_STUDY}:rows/{name}"):
            path = f"{_STUDY}:rows/{name}/{row}/values"
            if name != "english" and row in ("mean", "cls"):
                continue  # what is not trained is the same on every text
            cells = [figure(f"{path}/{task}", 1, spread=True) for task in TITLES]
            rows.append([row, "" if row in ("mean", "cls") else TEXTS[name], *cells])
    return table(" | ".join(["row", "trained on", *TITLES.values()]), rows)


TABLES: dict[str, Callable[[], str]] = {
    "vocabularies": vocabularies,
    "multi-languages": languages,
    "multi-study": study,
}
