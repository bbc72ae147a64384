"""An append-only file that a later process can continue after an interruption."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import IO

from selfguide.files import content_hash


class GrowingFile:
    """An append-only file and the digest of its valid content, without the first ``start`` bytes."""

    def __init__(self, path: Path, start: int) -> None:
        self.path, self.start = path, start
        self._size, self._digest = start, hashlib.sha256()
        self._file: IO[bytes] | None = None

    def create(self, head: bytes) -> None:
        """Create the file with a header, which the digest leaves out."""
        self._file = self.path.open("xb")
        self._file.write(head)

    def append(self, content: bytes) -> None:
        """Append content."""
        assert self._file is not None
        self._file.write(content)
        self._file.flush()
        self._digest.update(content)
        self._size += len(content)

    def mark(self) -> tuple[int, str]:
        """Return the size and the digest of the valid content."""
        return self._size, self._digest.hexdigest()

    def reopen(self, size: int, digest: str) -> bool:
        """Open the file of an interrupted process, truncated to its valid content.

        Args:
            size: Bytes of the valid content, the header included.
            digest: SHA-256 of the valid content after the header.

        Returns:
            Whether the valid content is intact; otherwise the file is not opened.
        """
        with self.path.open("rb") as file:
            file.seek(self.start)
            self._digest = content_hash(file, size - self.start)
            complete = file.tell() == size
        if not complete or self._digest.hexdigest() != digest:
            return False
        os.truncate(self.path, size)
        self._size = size
        self._file = self.path.open("ab")
        return True

    def overwrite(self, place: int, content: bytes) -> None:
        """Overwrite a part of the header."""
        with self.path.open("r+b") as file:
            file.seek(place)
            file.write(content)

    def close(self) -> None:
        """Close it, if it is open."""
        if self._file is not None:
            self._file.close()
