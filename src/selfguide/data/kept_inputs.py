"""What a command reads is not replaced by what it writes, and an encoder's folder gets no results of other things."""

from __future__ import annotations

import glob
from collections.abc import Iterable
from pathlib import Path

from selfguide.errors import UsageError


def refuse_to_replace(output: Path, inputs: Iterable[str | Path], option: str = "--output") -> None:
    """Refuse an output that is one of the inputs, or a folder that one of them lies in.

    To be called where a file or a folder is about to be replaced as a whole; before anything is computed.

    Args:
        output: What is to be replaced; one that does not exist replaces nothing.
        inputs: Names as the user gave them: files, folders, globs; standard input and names on the hub are no files.
        option: How the user names the output.

    Raises:
        UsageError: The output would take an input with it.
    """
    if not output.exists():
        return
    target = output.resolve()
    for name in inputs:
        for path in _paths(str(name)):
            if target == path or target in path.parents:
                where = "is" if target == path else "lies in"
                raise UsageError(
                    f"{name} {where} {output}, which would be replaced, and it is read: choose another {option}."
                )


def check_results_folder(output: Path) -> None:
    """Refuse a file as the folder of results, and an encoder's folder, whose report they would replace.

    Args:
        output: The folder that results are added to.

    Raises:
        UsageError: It is a file, or holds an encoder.
    """
    if output.exists() and not output.is_dir():
        raise UsageError(f"{output} is a file: name a folder for the results.")
    if any((output / name).is_file() for name in ("modules.json", "config.json")):
        raise UsageError(f"{output} is an encoder's folder: choose another --output for the results.")


def _paths(name: str) -> list[Path]:
    """Return the real paths of an input; nothing for standard input, for hub names and for what does not exist."""
    if name == "-" or name.startswith("hf:"):
        return []
    path = Path(name).expanduser()
    if path.exists():
        return [path.resolve()]
    return [Path(match).resolve() for match in glob.glob(str(path), recursive=True)] if glob.has_magic(name) else []
