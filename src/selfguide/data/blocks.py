"""Clean sentences a few thousand at a time, without a Python object for each unless one is needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import compress
from typing import TYPE_CHECKING, Any

from selfguide.data.dedup import hash_sentences

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from selfguide.data.dedup import Hashes

    Mask = NDArray[np.bool_]
    Positions = NDArray[np.int32]


class SplitLines(list[str]):
    """Lines of a text and, so that they need not be joined and encoded again, the text itself. It is not to be changed.

    Args:
        text: The text; a line break at its end begins another, empty line.
        encoded: The same in UTF-8.
    """

    def __init__(self, text: str, encoded: bytes) -> None:
        super().__init__(text.split("\n"))
        self.text = text
        self.encoded = encoded


class Block:
    """Clean sentences: as strings, or as lines of UTF-8 of which each ends in a line break; the other form is made when needed.

    Args:
        count: How many.
        strings: The sentences; none holds a line break.
        lines: The same as lines.
        ends: Where the line break of each line is, if it is known.
    """

    def __init__(
        self, count: int, *, strings: list[str] | None = None, lines: Any = None, ends: Positions | None = None
    ) -> None:
        self.count = count
        self._strings = strings
        if lines is not None:
            self.lines = lines
        if ends is not None:
            self.ends = ends

    @classmethod
    def of(cls, strings: list[str]) -> Block:
        """Return the block of some sentences."""
        return cls(len(strings), strings=strings)

    def __len__(self) -> int:
        return self.count

    @property
    def strings(self) -> list[str]:
        """The sentences."""
        if self._strings is None:
            self._strings = str(self.lines, "utf-8").split("\n")[:-1]
        return self._strings

    @cached_property
    def lines(self) -> Any:
        """The sentences as lines: bytes, or a buffer of them."""
        return ("\n".join(self.strings) + "\n").encode() if self.count else b""

    @cached_property
    def ends(self) -> Positions:
        """Where the line break of each line is."""
        import numpy as np

        return np.flatnonzero(np.frombuffer(self.lines, dtype=np.uint8) == ord("\n")).astype(np.int32)

    def drop_strings(self) -> None:
        """Keep lines alone, which take half of the memory."""
        self._strings = None if len(self.lines) else self._strings

    def hashes(self) -> Hashes:
        """Return the hashes of the sentences, as :func:`~selfguide.data.dedup.hash_sentences` gives them."""
        import numpy as np

        lines = self.__dict__.get("lines")
        if not (isinstance(lines, bytes) and lines.isascii()):
            return hash_sentences(self.strings)
        return hash_sentences(self.strings, (np.diff(self.ends, prepend=-1) - 1).astype(np.uint64))

    def blank(self) -> Mask:
        """Return which sentences are empty."""
        import numpy as np

        return np.diff(self.ends, prepend=-1) == 1

    def where(self, wanted: Mask) -> Block:
        """Return some of the sentences.

        Args:
            wanted: True for the sentences to keep.
        """
        import pyarrow as pa

        if self._strings is not None:
            return Block.of(list(compress(self._strings, wanted.tolist())))
        kept = self._as_arrow(self.lines, self.ends + 1).filter(pa.array(wanted))
        return Block(len(kept), lines=kept.buffers()[2])

    def first(self, count: int) -> Block:
        """Return the first sentences."""
        return self if count >= self.count else Block.of(self.strings[:count])

    def to_arrow(self) -> pa.Array:
        """Return the sentences as an array of Arrow."""
        import numpy as np
        import pyarrow as pa

        if self._strings is not None:
            return pa.array(self._strings, pa.string())
        codes = np.frombuffer(self.lines, dtype=np.uint8)
        breaks: Positions = np.arange(self.count, dtype=np.int32)  # how many there are before each line
        return self._as_arrow(codes[codes != ord("\n")], np.subtract(self.ends, breaks, dtype=np.int32))

    @staticmethod
    def _as_arrow(content: Any, ends: Positions) -> pa.Array:
        import numpy as np
        import pyarrow as pa

        offsets = np.concatenate((np.zeros(1, dtype=np.int32), ends))
        return pa.StringArray.from_buffers(len(ends), pa.py_buffer(offsets), pa.py_buffer(content))


def regrouped(blocks: Iterable[Block], size: int) -> Iterator[pa.Array]:
    """Yield the same sentences as arrays of one size; the last may be shorter.

    Args:
        blocks: The sentences.
        size: Sentences in an array.

    Yields:
        Arrays of Arrow.
    """
    import pyarrow as pa

    held: list[pa.Array] = []
    for block in blocks:
        held.append(block.to_arrow())
        if sum(map(len, held)) >= size:
            joined = pa.concat_arrays(held)
            whole = len(joined) - len(joined) % size
            for start in range(0, whole, size):
                yield joined.slice(start, size)
            held = [joined.slice(whole)]
    last = pa.concat_arrays(held) if held else ()
    if len(last):
        yield last
