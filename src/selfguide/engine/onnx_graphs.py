"""ONNX graphs of encoders, exported once and cached.

A graph holds the whole encoder, from token ids and attention mask to embeddings (:mod:`selfguide.engine.onnx_export`). It is
cached under the digest of everything that decides the embeddings, so another encoder, or the same one trained further, gets
another graph. In the int8 graph most linear layers have eight-bit weights (:mod:`selfguide.engine.int8`); embedding layer,
norms, attention and the modules after the Transformer stay in fp32.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sentence_transformers import SentenceTransformer

from selfguide.engine.cache import FOLDER_VARIABLE, GRAPHS, cache_folder
from selfguide.engine.digest import model_digest
from selfguide.engine.int8 import has_vnni, layers_in_fp32, quantise
from selfguide.engine.onnx_export import exported, obstacle, quiet_export
from selfguide.errors import SelfguideError
from selfguide.files import atomic_path

# To be increased when the same weights would give another graph.
VERSION = 3


def graph_file(model: SentenceTransformer, int8: bool) -> Path:
    """Return the file of an encoder's graph, exported first if it is not cached.

    Args:
        model: The encoder, made of stock modules.
        int8: Whether linear layers have eight-bit weights.

    Returns:
        The file, in the cache folder.

    Raises:
        SelfguideError: The encoder cannot be exported, or the cache folder cannot be written.
    """
    _check(model)
    name = f"{model_digest(model)}-{VERSION}"
    if not int8:
        return _cached(name, lambda path: _export(model, path))
    return _cached(f"{name}-int8{'' if has_vnni() else '-reduced'}", lambda path: _export_int8(model, path))


def _cached(name: str, make: Callable[[Path], None]) -> Path:
    path = cache_folder(GRAPHS) / f"{name}.onnx"
    if path.is_file():
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path) as temporary:
            make(temporary)
    except OSError as error:
        raise SelfguideError(
            f"The encoder's graph cannot be cached in {path.parent}: {error.strerror or error}. "
            f"Set {FOLDER_VARIABLE} to a folder with room."
        ) from None
    return path


def _check(model: SentenceTransformer) -> None:
    problem = obstacle(model)
    if problem is None and (model.default_prompt_name is not None or model.truncate_dim is not None):
        problem = "An encoder with a default prompt or a truncated dimension cannot run as ONNX."
    if problem is not None:
        raise SelfguideError(f"{problem} Leave --backend out.")


def _export(model: SentenceTransformer, path: Path) -> None:
    try:
        graph = exported(model)
    except SelfguideError as error:
        raise SelfguideError(f"The encoder has no ONNX graph, so leave --backend out: {error}") from error
    path.write_bytes(graph.SerializeToString())


def _export_int8(model: SentenceTransformer, path: Path) -> None:
    plain = graph_file(model, False)
    with quiet_export():
        quantise(plain, path, layers_in_fp32(plain, model), reduce_range=not has_vnni())
