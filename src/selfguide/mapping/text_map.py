"""The map of a text as a whole: :func:`sentence_map` makes one, and it writes itself as a page and as CSV."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from selfguide.data import Sentences, TextOptions, open_text
from selfguide.engine.encode import vector_chunks
from selfguide.engine.vocabulary_fit import foreign_text
from selfguide.errors import SelfguideError
from selfguide.files import write_text
from selfguide.mapping.clusters import UNGROUPED, Cluster, find_clusters
from selfguide.mapping.layout import NEIGHBOURS, Neighbours, lay_out, nearest_neighbours
from selfguide.models.encoders import load_encoder
from selfguide.progress import Reporter
from selfguide.report.map_page import MapCluster, MapSide, map_page
from selfguide.report.table import Cell, Heading, Table, to_csv

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer

MOST = 50_000
"""Sentences on a map, unless asked otherwise."""
FEWEST = 20


@dataclass(frozen=True)
class Side:
    """One encoder's map of the sentences."""

    encoder: str
    places: NDArray[np.float32]
    """(count, 2), in [0, 1]."""
    neighbours: Neighbours


@dataclass(frozen=True)
class TextMap:
    """A map of sentences."""

    sentences: list[str]
    sides: tuple[Side, ...]
    """The encoder's, after that of the encoder before, if there is one."""
    labels: NDArray[np.int64]
    """The group of each sentence on the last side; -1 for none."""
    clusters: list[Cluster]
    read: int
    """Sentences of the text, of which those on the map may be a sample."""

    def html(self, title: str) -> str:
        """Return the map as one page that needs nothing else.

        Args:
            title: The page's title.

        Returns:
            The HTML text.
        """
        sides = [
            MapSide(side.encoder, side.places, side.neighbours.indices, side.neighbours.cosines) for side in self.sides
        ]
        clusters = [MapCluster(cluster.words, cluster.size, cluster.example) for cluster in self.clusters]
        return map_page(title, self.sentences, sides, self.labels, clusters, self.read)

    def csv(self) -> str:
        """Return the map as a table with a row for each sentence: its place, its group, the group's words."""
        side = self.sides[-1]
        headings = [
            Heading("sentence", False),
            Heading("x"),
            Heading("y"),
            Heading("cluster", False),
            Heading("words", False),
        ]
        rows = []
        for sentence, (x, y), label in zip(self.sentences, side.places, self.labels, strict=True):
            group = ("", "") if label == UNGROUPED else (str(label + 1), " ".join(self.clusters[label].words))
            place = [Cell(f"{value:.4f}", value=round(float(value), 4)) for value in (x, y)]
            rows.append([Cell(sentence, sentence=True), *place, *map(Cell, group)])
        return to_csv(Table(headings, rows))

    def write(self, output: Path, title: str) -> Path:
        """Write the page, and the table beside it.

        Args:
            output: The page's file.
            title: Its title.

        Returns:
            The table's file.

        Raises:
            SelfguideError: One of the two cannot be written.
        """
        table = output.with_suffix(".csv")
        for path, content in ((table, self.csv()), (output, self.html(title))):
            try:
                write_text(path, content)
            except OSError as error:
                raise SelfguideError(f"{path} cannot be written: {error.strerror or error}.") from None
        return table


def sentence_map(
    text: str | Path | Iterable[str] | Iterable[Path] | Sentences,
    encoder: str | Path | SentenceTransformer = "mini",
    *,
    before: str | Path | SentenceTransformer | None = None,
    limit: int = MOST,
    seed: int = 1,
    device: str | None = None,
    text_options: TextOptions | None = None,
    reporter: Reporter | None = None,
) -> TextMap:
    """Make a map of a text.

    Args:
        text: As for :func:`selfguide.train`.
        encoder: ``"mini"``, a folder, a hub name or a loaded SentenceTransformer.
        before: Another encoder to compare with; its map is the one that the encoder's starts from.
        limit: Most sentences on the map; of a longer text a random sample is shown.
        seed: Of the sample and of the layout.
        device: ``"cpu"``, ``"cuda"`` or ``"mps"``; ``None`` for the best there is.
        text_options: How the text is read and cleaned.
        reporter: Shows progress.

    Returns:
        The map.

    Raises:
        SelfguideError: The text has fewer than twenty sentences, or UMAP is not installed.

    Example::

        found = selfguide.sentence_map("notes.txt", "notes-encoder", before="mini")
        found.write(Path("map.html"), "Notes")
    """
    reporter = reporter or Reporter(quiet=True)
    sentences, read = _sample(open_text(text, text_options or TextOptions()), limit, seed, reporter)
    _check_number(sentences)
    encoders = ([] if before is None else [before]) + [encoder]
    vectors = [(_name(one), _unit_vectors(one, sentences, device, reporter)) for one in encoders]
    return vector_map(sentences, vectors, seed=seed, read=read, reporter=reporter)


def vector_map(
    sentences: list[str],
    vectors: Sequence[tuple[str, NDArray[np.float32]]],
    *,
    seed: int = 1,
    read: int | None = None,
    reporter: Reporter | None = None,
) -> TextMap:
    """Make a map of sentences whose vectors are known, such as those of an index.

    Args:
        sentences: The sentences.
        vectors: Name of an encoder, and its unit vectors (sentences, dimensions); of two, the first is the one before.
        seed: Of the layout.
        read: Sentences of which these are a sample; by default they are all.
        reporter: Shows progress.

    Returns:
        The map.

    Raises:
        SelfguideError: There are fewer than twenty sentences, or UMAP is not installed.
    """
    reporter = reporter or Reporter(quiet=True)
    _check_number(sentences)
    sides: list[Side] = []
    for name, rows in vectors:
        neighbours = nearest_neighbours(rows, NEIGHBOURS - 1, reporter)
        start = sides[0].places if sides else None
        sides.append(Side(name, lay_out(rows, neighbours, seed, reporter, start), neighbours))
    labels, clusters = find_clusters(sides[-1].places, vectors[-1][1], sentences)
    return TextMap(sentences, tuple(sides), labels, clusters, len(sentences) if read is None else read)


def _check_number(sentences: list[str]) -> None:
    if len(sentences) < FEWEST:
        found = "1 sentence" if len(sentences) == 1 else f"{len(sentences)} sentences"
        raise SelfguideError(f"A map needs at least {FEWEST} different sentences, and this text has {found}.")


def _sample(text: Sentences, limit: int, seed: int, reporter: Reporter) -> tuple[list[str], int]:
    """Read the text once, and keep a uniform sample of it in its order."""
    draw = random.Random(seed)
    kept: list[tuple[int, str]] = []
    read = 0
    with reporter.bar("reading", None, "sentences", text.share_read) as advance:
        for read, sentence in enumerate(text, start=1):
            if len(kept) < limit:
                kept.append((read, sentence))
            elif (place := draw.randrange(read)) < limit:
                kept[place] = (read, sentence)
            if read % 1000 == 0:
                advance(1000, "")
    reporter.note(text.summary.describe() + ".")
    if read > len(kept):
        reporter.note(f"The map shows {len(kept):,} of them, drawn at random; --limit changes the number.")
    return [sentence for _, sentence in sorted(kept)], read


def _unit_vectors(
    encoder: str | Path | SentenceTransformer, sentences: list[str], device: str | None, reporter: Reporter
) -> NDArray[np.float32]:
    model = load_encoder(encoder, device=device)
    if foreign := foreign_text(getattr(model, "tokenizer", None), sentences[:: max(1, len(sentences) // 500)]):
        reporter.warn(foreign)
    parts = []
    with reporter.bar(f"encoding with {_name(encoder)}", len(sentences), "sentences") as advance:
        for _, vectors in vector_chunks(model, sentences, normalise=True, advance=advance):
            parts.append(vectors)
    found = np.concatenate(parts)
    if not np.isfinite(found).all():
        raise SelfguideError(f"{_name(encoder)} gives vectors that are not finite; its weights are damaged.")
    return found


def _name(encoder: str | Path | SentenceTransformer) -> str:
    return Path(encoder).name if isinstance(encoder, str | Path) else "the encoder"
