"""Helpers of the data tests: compressed bytes, reading text, and the message about text that cannot be read."""

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
    """Compress with Zstandard."""
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
    """Return the sentences of a source."""
    return list(Sentences([path], TextOptions(**options)))


def kept(strings: list[str], **options: Any) -> list[str]:
    """Return what is left of sentences in memory."""
    return list(Sentences.from_strings(strings, TextOptions(**options)))


def counted(sentences: Sentences) -> dict[str, int]:
    """Return the counts of the latest pass that are not 0."""
    return {name: value for name, value in sentences.summary.as_dict().items() if isinstance(value, int) and value}


def counts(path: str | Path, **options: Any) -> dict[str, int]:
    """Read a source and return the counts that are not 0."""
    sentences = Sentences([path], TextOptions(**options))
    list(sentences)
    return counted(sentences)


def refusal(path: str | Path, **options: Any) -> str:
    """Return the message about a source that cannot be read; it is one line and names the file."""
    with pytest.raises(SelfguideError) as caught:
        read(path, **options)
    message = str(caught.value)
    assert Path(path).name in message
    assert "\n" not in message
    return message


def early_refusal(path: str | Path, **options: Any) -> str:
    """Return the same, for an error that must come before anything is read."""
    with pytest.raises(SelfguideError):
        Sentences([path], TextOptions(**options))
    return refusal(path, **options)
