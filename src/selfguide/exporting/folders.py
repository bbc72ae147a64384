"""What all exported folders share: written beside their final path and renamed; tokenizer, configuration, README and record."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from selfguide import __version__
from selfguide.errors import SelfguideError, UsageError
from selfguide.files import replace_folder, restore_folder, system_errors
from selfguide.locks import beside, held

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

RECORD_FILE = "export.json"
"""What was exported, from what, and how close it is; also the mark of a folder that may be replaced."""
TOKENIZER_FILE = "tokenizer.json"
# What SentenceTransformer.save writes of the Transformer itself: the graphs take its place.
_WEIGHTS = ("model*.safetensors*", "pytorch_model*")


def check_output(output: Path, overwrite: bool) -> None:
    """Check that a folder can be made, before anything is loaded.

    Args:
        output: The folder.
        overwrite: Whether an earlier export there may be replaced.

    Raises:
        UsageError: It exists and is not to be replaced, or is no name for a folder.
    """
    if not output.name:
        raise UsageError(
            f"--output {output} is not a folder that can be made; name one, such as {output / 'exported'}."
        )
    if not output.exists():
        return
    if not overwrite:
        raise UsageError(f"{output} exists already; choose another --output, or use --overwrite to replace it.")
    empty = output.is_dir() and not any(output.iterdir())
    if not empty and not (output / RECORD_FILE).is_file():
        raise UsageError(
            f"{output} was not made by selfguide export (it holds no {RECORD_FILE}), so --overwrite does not touch it; "
            "choose another --output."
        )


@contextmanager
def finished_folder(output: Path, overwrite: bool) -> Iterator[Path]:
    """Provide a folder to fill, and rename it to its final name when the block succeeds.

    Args:
        output: The final name.
        overwrite: Whether an earlier export there may be replaced.

    Yields:
        The folder to fill, beside the final one. It is removed when the block fails; what a killed process left, first.

    Raises:
        FolderInUse: Another process is making the folder.
        SelfguideError: The folder cannot be written.
        UsageError: It has come to exist and is not to be replaced.
    """
    work = output.with_name(f".{output.name}.partial")
    try:
        with system_errors(), held(beside(output), output):
            restore_folder(output)
            check_output(output, overwrite)
            shutil.rmtree(work, ignore_errors=True)
            try:
                work.mkdir()
                yield work
                replace_folder(work, output)
            finally:
                shutil.rmtree(work, ignore_errors=True)
    except OSError as error:
        raise SelfguideError(f"The folder {output} cannot be written: {error.strerror or error}.") from error


def write_configuration(model: SentenceTransformer, folder: Path, browser_type: str) -> None:
    """Write an encoder's tokenizer and configuration files, all but the Transformer's weights.

    ``tokenizer.json`` truncates and pads as the encoder does, so that the tokenizers library needs no settings. The files of
    sentence-transformers are for programs that read the pooling from them.

    Args:
        model: The encoder.
        folder: The folder.
        browser_type: The kind of graph that transformers.js loads by default.
    """
    model.save(str(folder), create_model_card=False)
    for pattern in _WEIGHTS:
        for path in folder.glob(pattern):
            path.unlink()
    from selfguide.engine.tokens import length_limit

    limit = length_limit(model)
    _write_tokenizer(model, folder / TOKENIZER_FILE, limit)
    _update(folder / "tokenizer_config.json", model_max_length=limit)
    _update(folder / "config.json", **{"transformers.js_config": {"dtype": browser_type}})


def has_fast_tokenizer(model: SentenceTransformer) -> bool:
    """Return whether an encoder's tokenizer can be written as ``tokenizer.json``."""
    return hasattr(model.tokenizer, "backend_tokenizer")


def _write_tokenizer(model: SentenceTransformer, path: Path, limit: int) -> None:
    from tokenizers import Tokenizer

    tokenizer: Any = model.tokenizer
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.enable_truncation(max_length=limit, direction=tokenizer.truncation_side)
    padding = tokenizer.pad_token_id
    backend.enable_padding(
        direction=tokenizer.padding_side,
        pad_id=0 if padding is None else int(padding),
        pad_token="[PAD]" if tokenizer.pad_token is None else tokenizer.pad_token,
    )
    backend.save(str(path))


def _update(path: Path, **values: Any) -> None:
    content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    path.write_text(json.dumps(content | values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_record(folder: Path, record: dict[str, Any]) -> None:
    """Write ``export.json``."""
    (folder / RECORD_FILE).write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def write_readme(folder: Path, template: str, **values: Any) -> None:
    """Write ``README.md``.

    Args:
        folder: The folder.
        template: Name of a template in this package.
        **values: What it refers to.
    """
    environment = Environment(
        loader=PackageLoader("selfguide.exporting", ""),
        autoescape=False,  # Markdown is not HTML
        trim_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    (folder / "README.md").write_text(
        environment.get_template(template).render(values, version=__version__), encoding="utf-8"
    )
