"""Modules that sentence-transformers does not have, and the folders that hold them.

A folder with such a module is written by ``SentenceTransformer.save`` like any other: ``modules.json`` names the module's
class, here one of :mod:`selfguide.models.modules`. Stock sentence-transformers refuses classes that are not its own (its
message names the class, and so this package). :func:`read_folder` reads such a folder without ``trust_remote_code``: it checks
every class name first, and imports only classes of sentence-transformers and of this package.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from selfguide.errors import SelfguideError
from selfguide.files import read_json

if TYPE_CHECKING:
    import torch
    from sentence_transformers import SentenceTransformer
    from torch import nn

OWN = "selfguide.models.modules."
# Where the modules were formerly; folders written then name their classes so.
FORMER = "selfguide.modules."
STOCK = "sentence_transformers."
MODULES_FILE = "modules.json"
SETTINGS_FILE = "config_sentence_transformers.json"


def is_stock(encoder: Iterable[nn.Module]) -> bool:
    """Return whether sentence-transformers alone can load this encoder once it is saved."""
    return not any(type(module).__module__.startswith(OWN) for module in encoder)


def is_own_folder(folder: Path) -> bool:
    """Return whether a folder holds a module of this package.

    Args:
        folder: An encoder's folder.

    Returns:
        False for a stock folder, with or without ``modules.json``.

    Raises:
        SelfguideError: The folder is damaged, or names a class of another package.
    """
    if not (folder / MODULES_FILE).is_file():
        return False
    classes = [row["type"] for row in _rows(folder)]
    for name in classes:
        if not name.startswith((OWN, STOCK)):
            raise SelfguideError(
                f"The encoder in {folder} names the module class {name!r}, which is neither sentence-transformers' nor "
                "selfguide's. Loading it would run unknown code, so it is refused; if you trust it, load it yourself "
                "(SentenceTransformer(folder, trust_remote_code=True)) and pass the object."
            )
    return any(name.startswith(OWN) for name in classes)


def read_folder(folder: Path, device: str | None, dtype: torch.dtype) -> SentenceTransformer:
    """Load a folder for which :func:`is_own_folder` is true.

    Args:
        folder: The folder.
        device: Where to put the encoder; ``None`` leaves the choice to sentence-transformers.
        dtype: Precision of the Transformer's weights.

    Returns:
        The encoder.

    Raises:
        SelfguideError: The folder is damaged, or was made by a version with other modules.
    """
    from sentence_transformers import SentenceTransformer

    modules: list[nn.Module] = [
        _module_class(row["type"]).load(
            str(folder),
            subfolder=row["path"],
            local_files_only=True,
            trust_remote_code=False,
            model_kwargs={"dtype": dtype},
            backend="torch",
        )
        for row in _rows(folder)
    ]
    settings = _json(folder / SETTINGS_FILE) if (folder / SETTINGS_FILE).is_file() else {}
    return SentenceTransformer(
        modules=modules,
        device=device,
        prompts=settings.get("prompts"),
        default_prompt_name=settings.get("default_prompt_name"),
        similarity_fn_name=settings.get("similarity_fn_name"),
    )


def _module_class(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError):
        raise SelfguideError(
            f"There is no module class {name!r} here; the folder was made by another version of its package "
            f"({name.partition('.')[0]}). Install that version, or make the folder again."
        ) from None
    # A name such as selfguide.models.modules.flow.UsageError leads out of the package again, so the class itself is checked.
    if not (isinstance(found, type) and found.__module__.startswith((OWN, STOCK)) and hasattr(found, "load")):
        raise SelfguideError(f"{name!r} is not a module of an encoder, so the folder that names it cannot be loaded.")
    return found


def _rows(folder: Path) -> list[dict[str, str]]:
    rows = _json(folder / MODULES_FILE)
    good = isinstance(rows, list) and all(
        isinstance(row, dict) and isinstance(row.get("type"), str) and isinstance(row.get("path"), str) for row in rows
    )
    if not good or not rows:
        raise SelfguideError(f"{folder / MODULES_FILE} does not list an encoder's modules; the folder is damaged.")
    for row in rows:
        path = PurePosixPath(row["path"].replace("\\", "/"))
        if path.is_absolute() or ".." in path.parts:
            raise SelfguideError(f"{folder / MODULES_FILE} points outside its own folder ({row['path']!r}): refused.")
    return [{**row, "type": _current_name(row["type"])} for row in rows]


def _current_name(name: str) -> str:
    return OWN + name.removeprefix(FORMER) if name.startswith(FORMER) else name


def _json(path: Path) -> Any:
    try:
        return read_json(path)
    except (OSError, ValueError) as error:
        raise SelfguideError(f"{path} cannot be read: {error}.") from None
