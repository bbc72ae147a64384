"""The form of embeddings that leave the encoder: dimension, length and numeric type.

The three steps are those of ``SentenceTransformer.encode`` (``truncate_dim``, ``normalize_embeddings``, ``precision``), in its
order, and the last one is its own function:

========  ==========================================================================================================
float32   as the encoder gives them
int8      256 steps a dimension between a minimum and a maximum, its *ranges*; uint8: the same from 0 to 255
binary    one bit a dimension, whether it is above 0, packed into bytes (signed; ubinary: unsigned)
========  ==========================================================================================================

Embeddings of int8 can be compared only where they share their ranges, so these are kept and can be given again.
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from selfguide.errors import SelfguideError, UsageError
from selfguide.files import atomic_path
from selfguide.options import OneOf, check

Precision = Literal["float32", "int8", "uint8", "binary", "ubinary"]
PRECISIONS: tuple[Precision, ...] = ("float32", "int8", "uint8", "binary", "ubinary")
_DIGEST = b"\nsha256 "
_TYPES = {"float32": np.float32, "int8": np.int8, "uint8": np.uint8, "binary": np.int8, "ubinary": np.uint8}


@dataclass(frozen=True)
class VectorForm:
    """How embeddings are processed before they are returned or written.

    Raises:
        UsageError: There is no such precision, the dimension is not positive, or ranges are given where none are used.
    """

    normalise: bool = False
    """Scale each embedding to length 1, after truncation."""
    dim: int | None = None
    """Keep only the first ``dim`` dimensions, as an encoder trained with a Matryoshka loss allows."""
    precision: str = "float32"
    """One of ``PRECISIONS``."""
    ranges: NDArray[np.float32] | None = None
    """Minimum and maximum of each dimension, (2, dim), for int8 and uint8."""

    def __post_init__(self) -> None:
        """Check the options."""
        check("precision", self.precision, OneOf(*PRECISIONS))
        if self.dim is not None and self.dim < 1:
            raise UsageError(f"dim must be at least 1, got {self.dim}.")
        if self.ranges is not None and not self.takes_ranges:
            raise UsageError(f"ranges are for the precisions int8 and uint8, not for {self.precision}: leave them out.")

    @property
    def takes_ranges(self) -> bool:
        """Whether the precision divides a range into steps."""
        return self.precision in ("int8", "uint8")

    @property
    def needs_ranges(self) -> bool:
        """Whether ranges have to be found before embeddings can be quantised."""
        return self.takes_ranges and self.ranges is None

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numeric type of the result."""
        return np.dtype(_TYPES[self.precision])

    @property
    def setting(self) -> dict[str, Any]:
        """What decides the form of the embeddings, by the names of the options; of the ranges, a digest."""
        ranges = None if self.ranges is None else hashlib.sha256(self.ranges.tobytes()).hexdigest()[:16]
        return {"normalise": self.normalise, "dim": self.dim, "precision": self.precision, "ranges": ranges}

    def check_width(self, width: int) -> None:
        """Check the form against an encoder's embedding dimension.

        Args:
            width: The encoder's embedding dimension.

        Raises:
            UsageError: The encoder has fewer dimensions than are asked for, or the ranges have another shape.
        """
        if self.dim is not None and self.dim > width:
            raise UsageError(f"The encoder has {width} dimensions; dim {self.dim} is more than that.")
        kept = self.dim or width
        if self.ranges is not None and self.ranges.shape != (2, kept):
            raise UsageError(
                f"The ranges have the shape {self.ranges.shape}; {(2, kept)} is needed: minimum and maximum of each dimension."
            )

    def width(self, width: int) -> int:
        """Return the number of columns of the result, of which a packed one holds eight dimensions."""
        kept = self.dim or width
        return (kept + 7) // 8 if self.precision.endswith("binary") else kept

    def calibrated(self, vectors: NDArray[np.float32]) -> VectorForm:
        """Return the form with the ranges of the given embeddings, which the encoder has just made.

        Args:
            vectors: Embeddings in float32, (count, width).

        Returns:
            The form itself where it needs no ranges.

        Raises:
            UsageError: There are fewer than two embeddings.
        """
        if not self.needs_ranges:
            return self
        if len(vectors) < 2:
            raise UsageError(
                f"Ranges for {self.precision} cannot be taken from one sentence: encode more, or give ranges."
            )
        kept = self._float(vectors)
        return replace(self, ranges=np.vstack([kept.min(axis=0), kept.max(axis=0)]))

    def apply(self, vectors: NDArray[np.float32]) -> NDArray[Any]:
        """Truncate, normalise and quantise embeddings.

        Args:
            vectors: Embeddings in float32, (count, width).

        Returns:
            The embeddings, (count, :meth:`width`).
        """
        kept = self._float(vectors)
        if self.precision == "float32":
            return kept
        from sentence_transformers.util.quantization import quantize_embeddings

        precision: Any = self.precision
        return np.asarray(quantize_embeddings(kept, precision, ranges=self.ranges))

    def outside(self, vectors: NDArray[np.float32]) -> float:
        """Return the share of values beyond the ranges, which are clipped; 0 where there are no ranges."""
        if self.ranges is None or not vectors.size:
            return 0.0
        kept = self._float(vectors)
        return float(((kept < self.ranges[0]) | (kept > self.ranges[1])).mean())

    def _float(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        kept = np.ascontiguousarray(vectors[:, : self.dim])
        return normalised(kept) if self.normalise else kept


Float = TypeVar("Float", bound=np.floating[Any])


def normalised(vectors: NDArray[Float]) -> NDArray[Float]:
    """Scale each row to length 1; a row of zeros stays.

    Args:
        vectors: (count, dim).

    Returns:
        The scaled rows, in the same precision.
    """
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: NDArray[Float] = vectors / np.where(norms > 0, norms, np.float32(1.0))
    return scaled


def cosine(first: NDArray[Any], second: NDArray[Any]) -> NDArray[np.float64]:
    """Return the cosine of each pair of rows, in double precision.

    Similar embeddings have cosines near 1, where single precision rounds neighbours together, and a rank correlation would
    measure the rounding.

    Args:
        first: (count, dim).
        second: The same shape.

    Returns:
        The cosines, (count,); 0 where a vector is 0.
    """
    one, other = first.astype(np.float64), second.astype(np.float64)
    norms = np.linalg.norm(one, axis=-1) * np.linalg.norm(other, axis=-1)
    found: NDArray[np.float64] = (one * other).sum(axis=-1) / np.where(norms > 0, norms, 1.0)
    return found


def read_ranges(path: Path) -> NDArray[np.float32]:
    """Read ranges that an earlier run wrote.

    Args:
        path: A ``.npy`` file of shape (2, dim).

    Returns:
        The ranges.

    Raises:
        SelfguideError: The file is missing, or holds something else.
    """
    try:
        content = path.read_bytes()
        array, mark, digest = content.rpartition(_DIGEST)
        if mark and hashlib.sha256(array).hexdigest().encode() != digest:
            raise SelfguideError(f"The ranges in {path} have changed since they were written: copy or make them again.")
        found = np.load(io.BytesIO(content), allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        reason = getattr(error, "strerror", None) or "it is not a .npy array"
        raise SelfguideError(f"The ranges in {path} cannot be read: {reason}.") from None
    if not (isinstance(found, np.ndarray) and found.ndim == 2 and len(found) == 2 and found.dtype.kind == "f"):
        raise SelfguideError(
            f"{path} holds no ranges: these are an array of floats with two rows, minimum and maximum."
        )
    if not (np.isfinite(found).all() and (found[0] <= found[1]).all()):
        raise SelfguideError(f"{path} holds no ranges: a minimum in it is above its maximum, or not a number.")
    return found.astype(np.float32)


def write_ranges(path: Path, ranges: NDArray[np.float32]) -> None:
    """Write ranges as a ``.npy`` file, with a digest after the array, which other readers ignore.

    Args:
        path: The file.
        ranges: The ranges.
    """
    array = io.BytesIO()
    np.save(array, ranges)
    with atomic_path(path) as temporary:
        temporary.write_bytes(array.getvalue() + _DIGEST + hashlib.sha256(array.getvalue()).hexdigest().encode())


def ranges_file(output: Path) -> Path:
    """Return where the ranges of a file of embeddings are kept: ``notes.npy`` has ``notes.ranges.npy`` beside it."""
    return output.with_name(f"{output.stem}.ranges.npy")
