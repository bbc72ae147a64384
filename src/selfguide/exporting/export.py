"""Export an encoder: the one entry point for all kinds of folders."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfguide.data.kept_inputs import refuse_to_replace
from selfguide.engine.vector_form import VectorForm
from selfguide.exporting.folders import check_output, finished_folder, write_record
from selfguide.exporting.request import Request, gather
from selfguide.progress import Reporter
from selfguide.versions import versions

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def export(
    encoder: str | Path | SentenceTransformer,
    output: str | Path,
    to: str = "onnx",
    *,
    text: str | Path | Iterable[str] | None = None,
    fp16: bool = False,
    int8: bool = False,
    dim: int | None = None,
    normalise: bool = False,
    precision: str = "float32",
    max_length: int | None = None,
    overwrite: bool = False,
    show_progress: bool | None = None,
) -> Path:
    """Export an encoder as a folder that runs without selfguide.

    Args:
        encoder: ``"mini"``, a folder, a hub name or a loaded SentenceTransformer.
        output: The folder to make; it gets its name only when it is complete.
        to: ``onnx`` (onnxruntime, transformers.js), ``openvino``, or ``static`` (token vectors without a Transformer: see
            :mod:`selfguide.exporting.static`).
        text: Sentences like those that it will encode: a source or the sentences themselves. Exported embeddings are compared
            with the encoder's own on them, and a static encoder is fitted on them. ``None`` takes the package's
            demonstration, which is English.
        fp16: Write graphs with fp16 weights too; for ``openvino``, instead.
        int8: Write graphs with int8 weights too; ``onnx`` only.
        dim: Keep only the first ``dim`` dimensions; for ``static``, its embedding dimension.
        normalise: Scale each embedding to length 1.
        precision: Numeric type of the embeddings that a graph gives, as for :func:`selfguide.encode`. The ranges of int8
            and uint8 are those of ``text``, and are part of the graph.
        max_length: Truncate sentences after this many tokens; the default is the encoder's own limit.
        overwrite: Replace an earlier export.
        show_progress: False shows neither notes nor bars.

    Returns:
        The folder. ``export.json`` in it says how close the embeddings are to the encoder's own.

    Raises:
        SelfguideError: The encoder cannot be exported, the text cannot be read or the folder cannot be written.
        UsageError: An option is wrong, a package is missing, or the folder exists.

    Example::

        selfguide.export("notes-encoder", "notes-onnx", text="notes.txt", int8=True)
    """
    request = Request(to, fp16, int8, VectorForm(normalise, dim, precision))
    folder = Path(output)
    check_output(folder, overwrite)
    reporter = Reporter(quiet=show_progress is False)
    name = _name_of(encoder)
    if isinstance(text, str | Path):
        refuse_to_replace(folder, [text])
    material = gather(encoder, name, text, max_length, to)
    with finished_folder(folder, overwrite) as work:
        record = _writer(to)(material, request, work, reporter)
        write_record(work, _origin(name, material.model, to) | {"text": material.text} | record)
    return folder


def _writer(to: str) -> Any:
    """Return the function that writes a kind of folder; the libraries of the others are not imported."""
    if to == "onnx":
        from selfguide.exporting.onnx_folder import write_onnx

        return write_onnx
    if to == "openvino":
        from selfguide.exporting.openvino_folder import write_openvino

        return write_openvino
    from selfguide.exporting.static_folder import write_static

    return write_static


def _name_of(encoder: str | Path | SentenceTransformer) -> str:
    """Return what to call an encoder where others may read it: a folder's own name, without those above it."""
    if isinstance(encoder, str | Path):
        return Path(encoder).resolve().name if Path(encoder).is_dir() else str(encoder)
    return "encoder"


def _origin(name: str, model: SentenceTransformer, to: str) -> dict[str, Any]:
    from selfguide.engine.digest import model_digest

    packages = {"onnx": ("onnx", "onnxruntime"), "openvino": ("onnx", "openvino"), "static": ()}[to]
    return {
        "format": to,
        "encoder": {"name": name, "digest": model_digest(model)},
        "date": time.strftime("%Y-%m-%d"),
        "versions": versions(*packages),
    }
