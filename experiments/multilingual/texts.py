"""The texts that the encoder is tuned on: STS-B's English sentences, and as many of each other language."""

from __future__ import annotations

import random
from pathlib import Path

from experiments.pretraining.languages import language_of
from experiments.pretraining.text import documents, sentences, text_files
from experiments.provenance import text_facts
from selfguide.files import write_text

SHORTEST, LONGEST = 30, 200
"""Characters of a sentence that is drawn: STS sentences are short."""
SEED = 1


def write_texts(
    corpus: list[Path], english: list[str], languages: list[str], folder: Path, share: float
) -> dict[str, dict[str, object]]:
    """Write a file of sentences for each language and one of all, unless they are there.

    Args:
        corpus: Folders of text whose files begin with their language (``spanish-0.txt.xz``).
        english: The English sentences, of which zero-shot training has no others.
        languages: The other languages; each gets as many sentences as English has.
        folder: The folder to write to.
        share: Share of the corpus's documents to draw from.

    Returns:
        Facts about each text by its name.
    """
    texts = {"english": english}
    files = [path for place in corpus for path in text_files(place)]
    for language in languages:
        own = folder / f"{language}.txt"
        if not own.exists():
            paths = [path for path in files if language_of(path) == language]
            write_text(own, "\n".join(_drawn(paths, len(english), share)) + "\n")
        texts[language] = own.read_text(encoding="utf-8").splitlines()
    if len(texts) > 1:
        part = len(english) // len(texts)
        texts["all"] = [sentence for lines in texts.values() for sentence in lines[:part]]
    for name, lines in texts.items():
        if not (folder / f"{name}.txt").exists():
            write_text(folder / f"{name}.txt", "\n".join(lines) + "\n")
    return {name: text_facts(name, lines) for name, lines in texts.items()}


def _drawn(paths: list[Path], count: int, share: float) -> list[str]:
    """Draw sentences of short length uniformly, one a paragraph so that neighbours are rare, in random order."""
    draw = random.Random(SEED)
    found: list[str] = []
    for path in paths:
        for paragraphs in documents(path, share):
            for paragraph in paragraphs:
                fitting = [each for each in sentences(paragraph) if SHORTEST <= len(each) <= LONGEST]
                if fitting:
                    found.append(draw.choice(fitting))
    found = list(dict.fromkeys(found))
    if len(found) < count:
        raise SystemExit(f"{len(found):,} sentences of {paths[0].name} can be drawn, and {count:,} are wanted.")
    return draw.sample(found, count)
