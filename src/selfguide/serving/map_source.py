"""The map that the page at ``/`` shows: a file, or one that a process draws from the index.

    python -m selfguide.serving.map_source INDEX PAGE

draws the map of an index with the vectors that it holds. It ends when its standard input is closed, which the system does even
for a server that is killed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from selfguide.errors import SelfguideError
from selfguide.serving.refusals import Refusal

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from selfguide.search.index import Index

MOST = 20_000
"""Maximum number of rows on the map of an index; a larger index is sampled."""
_HASHES = re.compile(r"'(sha256-[A-Za-z0-9+/=]+)'")


class MapSource:
    """Gives the map's page, once it is there.

    Args:
        page: The page's file; that of a map that is drawn does not exist yet.
        index: The index to draw it from; ``None`` where the page is given.
    """

    def __init__(self, page: Path, index: Path | None = None) -> None:
        self._page, self._index = page, index
        self._process: subprocess.Popen[str] | None = None
        self._failure = "The map could not be drawn."

    def begin(self) -> None:
        """Start drawing if needed, in a process of low priority."""
        if self._index is None:
            return
        words = [sys.executable, "-m", "selfguide.serving.map_source", str(self._index), str(self._page)]
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )

    def end(self) -> None:
        """Stop drawing."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def read(self) -> bytes | None:
        """Return the page, or ``None`` while it is being drawn.

        Raises:
            Refusal: It cannot be drawn, or its file is gone.
        """
        if self._index is not None and not self._page.exists():
            if self._process is None or self._process.poll() is None:
                return None
            if not self._page.exists():  # it may have been finished in between
                raise self._why_not(self._process)
        try:
            return self._page.read_bytes()
        except OSError:
            raise Refusal(404, "The file of the map is not there any more.", code="not_found") from None

    def hashes(self) -> list[str]:
        """Return the hashes of the style and script in the page, which a policy can allow."""
        found = own_hashes()
        if self._index is None:
            try:
                with self._page.open("rb") as file:
                    head = file.read(4096).decode("utf-8", "replace")
            except OSError:
                return found
            policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', head)
            found = [*found, *_HASHES.findall(policy[1] if policy else "")]
        return list(dict.fromkeys(found))

    def _why_not(self, process: subprocess.Popen[str]) -> Refusal:
        assert process.stderr is not None
        if last := process.stderr.read().strip():  # nothing the second time
            self._failure = last.splitlines()[-1]
        return Refusal(404, self._failure, code="no_map")


@lru_cache(maxsize=1)
def own_hashes() -> list[str]:
    """Return the hashes of the style and script of the maps that this version writes."""
    from selfguide.report.inlining import csp_hash, resource

    return [csp_hash(resource("map.css")), csp_hash(resource("map.js"))]


def draw(index: Path, page: Path) -> None:
    """Draw the map of an index.

    Args:
        index: The index.
        page: The page to write; the table that is written beside other maps is left out.
    """
    from selfguide.files import write_text
    from selfguide.mapping.text_map import vector_map
    from selfguide.search.index import open_index

    found = open_index(index)
    name = Path(found.record.encoder or "the encoder").name
    sentences, vectors = sampled(found, MOST)
    write_text(page, vector_map(sentences, [(name, vectors)], read=len(found)).html(index.name.removesuffix(".index")))


def sampled(index: Index, most: int, seed: int = 1) -> tuple[list[str], NDArray[np.float32]]:
    """Draw rows of an index at random.

    Args:
        index: The index.
        most: How many at the most.
        seed: Of the draw.

    Returns:
        Their sentences and unit vectors, in the order of the index.
    """
    from selfguide.search.columns import SENTENCE

    rows = np.sort(np.random.default_rng(seed).permutation(len(index))[:most])
    wanted, start, sentences = set(rows.tolist()), 0, []
    for batch in index.store.batches(SENTENCE):
        values = batch.column(SENTENCE).to_pylist()
        sentences += [value for row, value in enumerate(values, start) if row in wanted]
        start += len(values)
    return sentences, index.store.vectors_at(rows)


def _end_with_the_server() -> None:
    """End this process once its standard input is closed: the server has ended."""
    while os.read(0, 1):
        pass
    os._exit(1)


def main() -> None:
    """Draw; on failure say why in one line."""
    os.nice(10)
    threading.Thread(target=_end_with_the_server, daemon=True).start()
    try:
        draw(Path(sys.argv[1]), Path(sys.argv[2]))
    except SelfguideError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
