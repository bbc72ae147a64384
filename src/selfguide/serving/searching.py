"""The index that a server searches, with vectors of an encoder that it serves."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from selfguide.errors import UsageError
from selfguide.serving.encoder_process import EncoderProcess
from selfguide.serving.refusals import Refusal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from selfguide.search import Answer


class Searcher:
    """An open index.

    Args:
        path: Its folder.

    Raises:
        SelfguideError: There is no index, or LanceDB is not installed.
    """

    def __init__(self, path: Path) -> None:
        from selfguide.search import open_index

        self._index = open_index(path)
        self._path = path

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self._index)

    def encoder(self, encoders: Iterable[EncoderProcess]) -> EncoderProcess:
        """Return the encoder that made the index, once all of them are loaded.

        Args:
            encoders: Those that are served.

        Returns:
            One of them.

        Raises:
            UsageError: It is not among them.
        """
        record = self._index.manifest.encoder
        for encoder in encoders:
            if encoder.known is not None and encoder.known.digest == record.digest:
                return encoder
        how = "".join(
            f", with {name} {value}"
            for name, value in (("pooling", record.pooling), ("layer", record.layer), ("length", record.max_length))
            if value is not None
        )
        raise UsageError(
            f"The index {self._path} was made with the encoder {record.name}{how} (digest {record.digest}), and none of those "
            "that are served is that one: serve it too, or build the index again with one of these."
        )

    def query(
        self,
        encoder: EncoderProcess,
        text: str,
        limit: int,
        filter: str | None,
        mode: str,
        vector: NDArray[np.float32] | None,
    ) -> Answer:
        """Find rows.

        Args:
            encoder: The encoder that made the vector.
            text: The query.
            limit: Maximum number of hits.
            filter: A condition on the columns.
            mode: As for :meth:`selfguide.search.Index.query`.
            vector: The query's vector; ``None`` in mode ``text``.

        Returns:
            The hits.

        Raises:
            Refusal: The index has been built again with another encoder meanwhile.
            SelfguideError: The filter is wrong, or the index cannot be read.
        """
        if encoder.known is None or self._index.manifest.encoder.digest != encoder.known.digest:
            raise Refusal(
                503, "The index was built again with another encoder: start the server again.", code="index_changed"
            )
        return self._index.query(text, limit, filter, mode, vector=vector)
