"""The map that the page at ``/`` shows: a file, or one that a process draws from the index.

    python -m selfguide.serving.map_source INDEX PAGE

draws the map of an index with the vectors that it holds.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from selfguide.errors import SelfguideError
from selfguide.serving.refusals import Refusal

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from selfguide.search.store import Store

MOST = 20_000
"""Rows of an index that its map shows; of more, a sample."""
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
        """Begin to draw, if that is to be done: in a process of its own, which leaves the processor to the others."""
        if self._index is None:
            return
        words = [sys.executable, "-m", "selfguide.serving.map_source", str(self._index), str(self._page)]
        self._process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )

    def end(self) -> None:
        """Stop drawing."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def read(self) -> bytes:
        """Return the page.

        Raises:
            Refusal: It is still being drawn, cannot be drawn, or its file is gone.
        """
        if self._index is not None and not self._page.exists():
            raise self._why_not()
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

    def _why_not(self) -> Refusal:
        process = self._process
        if process is None or process.poll() is None:
            return Refusal(503, "The map is being drawn: try again in a moment.", code="map_unfinished", retry_after=3)
        assert process.stderr is not None
        if last := process.stderr.read().strip():  # nothing the second time
            self._failure = last.splitlines()[-1]
        return Refusal(404, self._failure, code="no_map")


@lru_cache(maxsize=1)
def own_hashes() -> list[str]:
    """Return the hashes of the style and script of the maps that this version writes."""
    from selfguide.report.page import csp_hash, resource

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
    every = np.random.default_rng(1).permutation(len(found))[:MOST]
    chosen = np.sort(every)
    sentences = _sentences(found.store, chosen)
    name = Path(found.record.encoder or "the encoder").name
    drawn = vector_map(sentences, [(name, found.store.vectors_at(chosen))], read=len(found))
    write_text(page, drawn.html(index.name))


def _sentences(store: Store, rows: NDArray[np.int64]) -> list[str]:
    from selfguide.search.columns import SENTENCE

    wanted, start, found = set(rows.tolist()), 0, []
    for batch in store.batches(SENTENCE):
        values = batch.column(SENTENCE).to_pylist()
        found += [value for row, value in enumerate(values, start) if row in wanted]
        start += len(values)
    return found


def main() -> None:
    """Draw; on failure say why in one line."""
    os.nice(10)
    try:
        draw(Path(sys.argv[1]), Path(sys.argv[2]))
    except SelfguideError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
