"""A file that is only added to, so that an interrupted process can go on with it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import IO


class GrowingFile:
    """A file that is only added to, and the digest of what counts of it (without its first ``start`` bytes)."""

    def __init__(self, path: Path, start: int) -> None:
        self.path, self.start = path, start
        self._size, self._digest = start, hashlib.sha256()
        self._file: IO[bytes] | None = None

    def create(self, head: bytes) -> None:
        """Make the file, with a beginning that does not count."""
        self._file = self.path.open("xb")
        self._file.write(head)

    def append(self, content: bytes) -> None:
        """Add to it."""
        assert self._file is not None
        self._file.write(content)
        self._file.flush()
        self._digest.update(content)
        self._size += len(content)

    def mark(self) -> tuple[int, str]:
        """Return the size and the digest of what counts."""
        return self._size, self._digest.hexdigest()

    def reopen(self, size: int, digest: str) -> bool:
        """Open what an interrupted process left, and cut off what does not count.

        Args:
            size: Bytes that count.
            digest: SHA-256 of those bytes after the start.

        Returns:
            Whether the rest is sound.
        """
        with self.path.open("rb") as file:
            file.seek(self.start)
            left = size - self.start
            while left > 0 and (block := file.read(min(left, 1 << 20))):
                self._digest.update(block)
                left -= len(block)
        if left or self._digest.hexdigest() != digest:
            return False
        os.truncate(self.path, size)
        self._size = size
        self._file = self.path.open("ab")
        return True

    def overwrite(self, place: int, content: bytes) -> None:
        """Write over a part that the digest leaves out."""
        with self.path.open("r+b") as file:
            file.seek(place)
            file.write(content)

    def close(self) -> None:
        """Close it, if it is open."""
        if self._file is not None:
            self._file.close()
