"""Tokenise text into files.

A part is two flat files of little-endian 16-bit integers: ``NAME.tokens.u16`` holds the token ids without special tokens,
``NAME.sentences.u16`` one number a sentence: its length in tokens, plus ``LINE`` if it starts a paragraph and ``DOCUMENT`` if it
starts a document. Starts are the running sum of lengths, which compress far better than offsets. Files may be compressed
with xz. Of several languages, each has parts and a held-out part of its own: ``part-spanish-0``, ``held-out-spanish``.
"""

from __future__ import annotations

import json
import lzma
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from .languages import language_of
from .text import documents, fingerprint, sentences, text_files
from .tokenizer import load_tokenizer

DOCUMENT, LINE, LENGTH = 0x8000, 0x4000, 0x3FFF
TOKENS, SENTENCES = ".tokens.u16", ".sentences.u16"
HELD_OUT = "held-out"


@dataclass
class _Part:
    """A part while it is written; the files grow on disk, not in memory."""

    folder: Path
    name: str
    tokens: int = 0
    sentences: int = 0
    documents: int = 0
    _handles: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._handles = [(self.folder / (self.name + end)).open("wb") for end in (TOKENS, SENTENCES)]

    def add(self, ids: np.ndarray, marks: np.ndarray) -> None:
        self._handles[0].write(ids.astype("<u2").tobytes())
        self._handles[1].write(marks.astype("<u2").tobytes())
        self.tokens += len(ids)
        self.sentences += len(marks)
        self.documents += 1

    def close(self) -> None:
        for handle in self._handles:
            handle.close()


def _batches(files: Iterable[Path], size: int, share: float) -> Iterator[list[list[list[str]]]]:
    """Yield documents as lists of paragraphs of sentences, in groups large enough for the tokenizer's threads."""
    group: list[list[list[str]]] = []
    held = 0
    for paragraphs in chain(*(documents(path, share) for path in files)):
        group.append([sentences(p) for p in paragraphs])
        held += sum(len(p) for p in paragraphs)
        if held >= size:
            yield group
            group, held = [], 0
    if group:
        yield group


def encode_document(tokenizer_ids: list[list[int]], firsts: list[bool]) -> tuple[np.ndarray, np.ndarray]:
    """Join the ids of a document's sentences, and mark the starts of lines and of the document."""
    ids: list[int] = []
    marks: list[int] = []
    pending = DOCUMENT | LINE
    for sentence, first in zip(tokenizer_ids, firsts, strict=True):
        if first:
            pending |= LINE
        for begin in range(
            0, len(sentence), LENGTH
        ):  # more than 16,383 tokens do not occur in prose, but must not be an error
            piece = sentence[begin : begin + LENGTH]
            ids.extend(piece)
            marks.append(len(piece) | pending)
            pending = 0
    return np.asarray(ids, dtype=np.uint16), np.asarray(marks, dtype=np.uint16)


def prepare(
    text: Path | Sequence[Path], tokenizer_folder: Path, out: Path, *, parts: int = 3, held_out: float = 0.003,
    pack: bool = True, share: float = 1.0, multilingual: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Tokenise a folder of text into parts of equal size and a held-out one.

    Args:
        text: The folder of text, or several.
        tokenizer_folder: The tokenizer.
        out: The target folder.
        parts: The number of parts, of each language.
        held_out: Share of documents that are held out.
        pack: Whether to compress the files with xz.
        share: Share of the documents to read.
        multilingual: Whether to keep the languages of the files apart.

    Returns:
        The numbers of tokens, sentences, documents and bytes of each part.

    Raises:
        ValueError: The vocabulary is too large, or no document is held out.
    """
    tokenizer: Tokenizer = load_tokenizer(tokenizer_folder)
    if tokenizer.get_vocab_size() > 0x7FFF:
        raise ValueError("The vocabulary does not fit into signed 16-bit integers, which hold the tokens in training.")
    out.mkdir(parents=True, exist_ok=True)
    folders = [text] if isinstance(text, Path) else list(text)
    files = [path for folder in folders for path in text_files(folder)]
    groups: dict[str, list[Path]] = {}
    for path in files:
        groups.setdefault(f"-{language_of(path)}" if multilingual else "", []).append(path)
    made = [
        part for end in sorted(groups) for part in _tokenise(tokenizer, groups[end], out, end, parts, held_out, share)
    ]
    names = [part.name + end for part in made for end in (TOKENS, SENTENCES)]
    if pack:
        with ThreadPoolExecutor(max_workers=min(2, os.cpu_count() or 1)) as pool:
            list(pool.map(lambda name: pack_file(out / name), names))
    summary: dict[str, Any] = {
        p.name: {"tokens": p.tokens, "sentences": p.sentences, "documents": p.documents, "bytes": _size(out, p.name)}
        for p in made
    }
    (out / "parts.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    return summary


def _tokenise(
    tokenizer: Tokenizer, files: Sequence[Path], out: Path, end: str, parts: int, held_out: float, share: float
) -> list[_Part]:
    """Write the parts of some files, whose names get an end, and return them with the held-out one."""
    written = [_Part(out, f"part{end}-{i}") for i in range(parts)]
    held_out_part = _Part(out, HELD_OUT + end)
    for group in _batches(files, 8_000_000, share):
        flat = [s for document in group for paragraph in document for s in paragraph]
        encoded = iter(tokenizer.encode_batch_fast(flat, add_special_tokens=False))
        for document in group:
            ids = [next(encoded).ids for paragraph in document for _ in paragraph]
            firsts = [place == 0 for paragraph in document for place in range(len(paragraph))]
            tokens, marks = encode_document(ids, firsts)
            if not len(tokens):
                continue
            whole = [" ".join(paragraph) for paragraph in document]
            target = held_out_part if fingerprint(whole) < held_out else min(written, key=lambda part: part.tokens)
            target.add(tokens, marks)
    if not held_out_part.documents:  # a hash decides, which may choose none of few documents
        raise ValueError("No document was held out: raise --held-out or give more text.")
    for part in [*written, held_out_part]:
        part.close()
    return [*written, held_out_part]


def pack_file(path: Path) -> Path:
    """Replace a file by its xz form, compressed with two-byte alignment, which saves some per cent."""
    packed = path.with_name(path.name + ".xz")
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 3, "lc": 3, "lp": 1, "pb": 1}]
    with path.open("rb") as source, lzma.open(packed, "wb", format=lzma.FORMAT_XZ, filters=filters) as sink:
        while block := source.read(1 << 22):
            sink.write(block)
    path.unlink()
    return packed


def _size(folder: Path, name: str) -> int:
    return sum(p.stat().st_size for p in folder.glob(name + ".*"))


def read_numbers(folder: Path, name: str) -> np.ndarray:
    """Read a 16-bit file of a part, compressed or not."""
    plain, packed = folder / name, folder / (name + ".xz")
    raw = plain.read_bytes() if plain.exists() else lzma.decompress(packed.read_bytes())
    return np.frombuffer(raw, dtype="<u2")


def part_names(folder: Path, stem: str = "part") -> list[str]:
    """Return the names of the training parts in a folder, or of its held-out ones; those of a language follow one another."""
    names = {p.name.split(".")[0] for p in folder.glob(f"{stem}*{TOKENS}*")}
    if not names:
        raise FileNotFoundError(f"There is no {stem}*{TOKENS}[.xz] in {folder}.")
    return sorted(names)


def part_language(name: str) -> str:
    """Return the language of a part by its name; ``""`` where languages were not kept apart."""
    return re.sub(r"-\d+$", "", name.removeprefix(HELD_OUT).removeprefix("part")).removeprefix("-")
