"""The studies. Listing them imports no study, no torch and no numpy.

A study's metadata are literals on its class, which are read from the source. A new study is one file in this folder, and its
module's name below.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from selfguide.errors import UsageError, suggestion

if TYPE_CHECKING:
    from selfguide.studies.base import Study

_MODULES = (
    "ablation temperature batch_size low_resource augmentations layers efficiency frequent_tokens geometry domains finetune "
    "multilingual"
).split()
"""In the order in which they are listed."""


@dataclass(frozen=True)
class StudyInfo:
    """A study's metadata; see the attributes of :class:`~selfguide.studies.base.Study`."""

    name: str
    title: str
    question: str
    implementation: str
    """``module:Class``."""
    reference: str = ""
    needs: str = ""


@cache
def studies() -> tuple[StudyInfo, ...]:
    """Return the metadata of all studies, without importing them."""
    return tuple(_read(module) for module in _MODULES)


def info(name: str) -> StudyInfo:
    """Return a study's metadata.

    Raises:
        UsageError: There is no such study.
    """
    for candidate in studies():
        if candidate.name == name:
            return candidate
    names = [candidate.name for candidate in studies()]
    hint = suggestion(name, names)
    raise UsageError(f"There is no study {name!r}.{hint} `selfguide study --list` lists them: {', '.join(names)}.")


def make(name: str) -> Study:
    """Import and make a study.

    Args:
        name: The study's name.

    Returns:
        The study.

    Raises:
        UsageError: There is no such study.
    """
    module, _, attribute = info(name).implementation.partition(":")
    study: Study = getattr(import_module(module), attribute)()
    return study


def _read(module: str) -> StudyInfo:
    """Read the metadata of a module's study: class attributes that are literals."""
    wanted = set(StudyInfo.__dataclass_fields__)
    source = Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8")
    for node in ast.parse(source).body:
        if not isinstance(node, ast.ClassDef):
            continue
        found: dict[str, str] = {}
        for item in node.body:
            match item:
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in wanted:
                    found[name] = ast.literal_eval(value)
        if "name" in found:
            return StudyInfo(**found, implementation=f"{__package__}.{module}:{node.name}")
    raise LookupError(f"{module}.py has no class with a study's name")
