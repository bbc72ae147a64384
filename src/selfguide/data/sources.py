"""Readers for the sources that a user names: paths, globs, standard input and hub datasets."""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from selfguide.data.dataset_readers import HubReader, ParquetReader
from selfguide.data.lines import COMPRESSIONS, ByteSource, TextLines
from selfguide.data.options import TextOptions
from selfguide.data.readers import FileReader, JsonReader, LinesReader, Reader
from selfguide.data.tables import TableReader
from selfguide.errors import SelfguideError, UsageError

_FORMATS = (".txt", ".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
_UNFINISHED = (".partial", ".calibrating")
_NOT_TEXT = (
    ("modules.json",),
    ("config.json", "model.safetensors"),
    ("config.json", "pytorch_model.bin"),
    ("scores.json", "scores.csv"),
    ("comparison.json",),
    ("study.json",),
    ("index.json", "rows.lance"),
)
"""Files by which encoders and what selfguide's commands write are known."""
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)


def open_sources(sources: Sequence[str | Path], options: TextOptions, stdin: BinaryIO | None = None) -> list[Reader]:
    """Return a checked reader for each file, dataset or standard input; see :class:`~selfguide.data.Sentences`."""
    names = [os.fspath(source) for source in sources]
    if not names:
        raise UsageError("No text was given: pass a file, a folder, a glob, - for standard input, or hf:owner/name.")
    if names.count("-") > 1:
        raise UsageError("Standard input (-) was given twice, and can be read only once.")
    readers = [reader for name in names for reader in _readers(name, options, stdin)]
    _require_use("column", options.column, "csv, tsv, parquet and hf: sources", readers)
    _require_use("field", options.field, "jsonl sources", readers)
    _require_use("delimiter", options.delimiter, "csv, tsv and txt sources", readers)
    if options.encoding != "utf-8" and not any(isinstance(reader, FileReader) for reader in readers):
        raise UsageError(
            f"encoding={options.encoding} is for text files, which {readers[0].name} is not: leave it out."
        )
    for reader in readers:
        reader.check()
    return readers


def _readers(name: str, options: TextOptions, stdin: BinaryIO | None) -> Iterator[Reader]:
    if name == "-":
        source = _coded(ByteSource("standard input", stdin=stdin), options)
        yield LinesReader(source, options) if options.delimiter is None else TableReader(source, options, tabs=False)
    elif name.startswith("hf:"):
        yield HubReader(name, options)
    elif Path(name).expanduser().is_dir():
        for path in _text_files(Path(name).expanduser()):
            yield _file_reader(path, options)
    else:
        for path in matching_paths(name):
            yield _file_reader(path, options)


def _text_files(folder: Path) -> list[Path]:
    """Return the files of text below a folder, sorted.

    Hidden files and folders are left out, and so are encoders, unfinished outputs and results: the vocabulary of an encoder
    and a table of scores look like text.

    Raises:
        SelfguideError: There is none.
    """
    made: dict[Path, bool] = {}

    def is_text(path: Path) -> bool:
        inside = path.relative_to(folder)
        if any(part.startswith(".") for part in inside.parts):
            return False
        between = [folder / parent for parent in inside.parents if parent.name]
        return not any(made.setdefault(parent, _is_no_text(parent)) for parent in between)

    found = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and is_text(path)
        and (path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path).suffix.lower() in _FORMATS
    ]
    if not found:
        raise SelfguideError(
            f"{folder} is a folder without a file of text ({', '.join(_FORMATS)}, also compressed): name others with a glob, "
            f"such as {folder / '*.log'}."
        )
    return found


def _is_no_text(folder: Path) -> bool:
    """Return whether a folder is an encoder, a result or an unfinished output of a command."""
    return folder.name.endswith(_UNFINISHED) or any(
        all((folder / name).exists() for name in names) for names in _NOT_TEXT
    )


def _coded(source: ByteSource, options: TextOptions) -> ByteSource:
    return replace(source, encoding=options.encoding, on_bad_bytes=options.on_bad_utf8)


def matching_paths(name: str) -> list[Path]:
    """Return the file of that name, or the sorted files that match it as a glob.

    Raises:
        SelfguideError: There is no such file.
    """
    path = Path(name).expanduser()
    # A file may have brackets in its name, so a name that exists is not a pattern.
    if glob.has_magic(name) and not path.exists():
        matches = [Path(match) for match in sorted(glob.glob(str(path), recursive=True)) if not os.path.isdir(match)]
        if not matches:
            raise SelfguideError(f"{name} matches no file: check the pattern, and the folder it starts from.")
        return matches
    return [require_file(path)]


def require_file(path: Path) -> Path:
    """Return the path itself if it can be read; a pipe will do.

    Raises:
        SelfguideError: It does not exist, or is a folder.
    """
    if path.is_dir():
        raise SelfguideError(f"{path} is a folder: pass its files with a glob such as {path / '*.txt'}.")
    if not path.exists():
        raise SelfguideError(f"{path} does not exist: {_way_out_of_missing(path)}")
    return path


def _way_out_of_missing(path: Path) -> str:
    name = path.as_posix()
    if re.match(r"https?:/", name):
        return "addresses are not fetched; download it and pass the file."
    if _HUB_NAME.fullmatch(name) and path.suffix.lower() not in (*_FORMATS, *COMPRESSIONS):
        return f"check the path, or write hf:{name} for the dataset of that name on the Hugging Face hub."
    return f"check the path; the working folder is {Path.cwd()}."


def byte_source(path: Path) -> ByteSource:
    """Return the source for a file, with the compression that its suffix says."""
    return ByteSource(str(path), path, COMPRESSIONS.get(path.suffix.lower()))


def _file_reader(path: Path, options: TextOptions) -> Reader:
    source = _coded(byte_source(path), options)
    inner = path.with_suffix("") if source.compression else path
    kind = inner.suffix.lower()
    if kind == ".parquet":
        if source.compression:
            raise SelfguideError(
                f"{path} is a compressed Parquet file: unpack it first, Parquet is compressed in itself."
            )
        return ParquetReader(path, source.name, options)
    if kind in (".csv", ".tsv"):
        return TableReader(source, options, tabs=kind == ".tsv")
    if kind in (".jsonl", ".ndjson") or (kind == ".json" and _holds_records(source)):
        return JsonReader(source, options)
    if options.delimiter is not None:
        return TableReader(source, options, tabs=False)
    return LinesReader(source, options)


def _holds_records(source: ByteSource) -> bool:
    """Return whether a file that is called JSON holds JSON lines; otherwise it is a text like any other.

    Raises:
        SelfguideError: It is one document.
    """
    if source.one_shot:
        return False
    first = next((line.strip() for line in TextLines(source, "replace").peek(1) if line.strip()), "")
    if first[:1] not in ("{", "["):
        return False
    try:
        if isinstance(json.loads(first), dict):
            return True
    except (ValueError, RecursionError):
        pass
    raise SelfguideError(
        f"{source.name} is one JSON document, and not a record a line: write JSON lines (jq -c '.[]' {source.name} > lines.jsonl "
        "does so for a list), or one sentence a line."
    )


def _require_use(option: str, value: str | None, users: str, readers: Sequence[Reader]) -> None:
    """Refuse an option that no source uses, which would otherwise be ignored silently."""
    takes = "column" if option == "delimiter" else option
    if value is not None and not any(reader.takes == takes for reader in readers):
        raise UsageError(f"{option}={value} is for {users}, and {readers[0].name} is none of them: leave it out.")
