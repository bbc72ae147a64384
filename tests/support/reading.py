"""What the tests of the text room share: compressed bytes, reading a file, and what is said when it cannot be read."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from selfguide.data import Sentences, TextOptions
from selfguide.errors import SelfguideError


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue().to_pybytes())


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": zstd,
}


def read(path: str | Path, **options: Any) -> list[str]:
    return list(Sentences([path], TextOptions(**options)))


def counts(path: str | Path, **options: Any) -> dict[str, int]:
    sentences = Sentences([path], TextOptions(**options))
    list(sentences)
    return {name: value for name, value in sentences.summary.as_dict().items() if isinstance(value, int) and value}


def refusal(path: str | Path, **options: Any) -> str:
    """What is said about a file that cannot be read; it is one line, and it names the file."""
    with pytest.raises(SelfguideError) as caught:
        read(path, **options)
    message = str(caught.value)
    assert Path(path).name in message
    assert "\n" not in message
    return message


def early_refusal(path: str | Path, **options: Any) -> str:
    """The same, for what must be said before anything is read."""
    with pytest.raises(SelfguideError):
        Sentences([path], TextOptions(**options))
    return refusal(path, **options)
