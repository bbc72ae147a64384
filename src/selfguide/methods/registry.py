"""The available methods: those of this package, those that installed packages add, and those given by a caller.

A method is referred to by a string, which ``run.json`` and comparisons keep:

    sg-opt                     a method of this package
    their-method               added by an installed package through the entry-point group ``selfguide.methods``
    package.module:Class       a :class:`~selfguide.methods.base.Method`, or a function that makes a loss from a model

Listing the package's own methods imports none of them and no torch: the metadata on each class are literals, which are
read from the source. So a new method is one file in this folder.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfguide.errors import UsageError, one_line, suggestion

if TYPE_CHECKING:
    from selfguide.methods.base import Method

GROUP = "selfguide.methods"
"""Entry-point group through which installed packages add methods."""
FIRST_COMPARISON = "mean,whitening,sg-opt"
"""What ``selfguide compare`` compares where no method is named."""
FOR_SMALL_TEXTS = "fused"
"""What is recommended for a raw language model and a text of some hundreds of sentences."""
_PATH = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_<][\w.<>]*")
_SHARED = ("base", "registry", "search", "__init__")


@dataclass(frozen=True)
class MethodInfo:
    """A method's metadata; see the attributes of :class:`~selfguide.methods.base.Method`."""

    name: str
    family: str = "pooling"
    summary: str = ""
    reference: str = ""
    needs_labels: bool = False
    seeded: bool = False
    trains: bool = False
    is_floor: bool = False
    cost: str = "one forward pass"
    preset: Mapping[str, Any] = field(default_factory=dict)
    implementation: str = ""
    """``module:Class``."""
    made_for: str = "any"
    """Kind of encoder that its defaults are made for (:mod:`selfguide.models.starting_points`)."""
    is_default: bool = False
    """Whether a run that names no method takes it, for encoders of that kind."""
    refits: bool = False
    """Whether ``selfguide calibrate`` can fit its map again."""
    training: Mapping[str, Any] = field(default_factory=dict)
    """Its own defaults of training settings, as far as they differ from those that all methods share."""
    problem: str = ""
    """Why a plug-in cannot be used; empty where it can."""


# Bases whose attributes a method inherits, as far as they differ from MethodInfo's defaults.
_BASES: dict[str, dict[str, Any]] = {
    "Method": {},
    "CalibratedMethod": {"refits": True},
    "TuningMethod": {"family": "tuning", "seeded": True, "trains": True},
}
_METADATA = set(MethodInfo.__dataclass_fields__) - {"implementation", "problem", "training"}

# Classes given by a caller in this process, by their reference.
_given: dict[str, type[Method]] = {}


@cache
def builtin_methods() -> tuple[MethodInfo, ...]:
    """Return the metadata of the package's own methods, by name, without importing them."""
    found: list[MethodInfo] = []
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if path.stem not in _SHARED:
            found += _read(path)
    return tuple(sorted(found, key=lambda info: info.name))


def _read(path: Path) -> list[MethodInfo]:
    """Read the metadata of the methods in a file: class attributes that are literals, inherited within the file."""
    classes: dict[str, dict[str, Any]] = dict(_BASES)
    found = []
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if not isinstance(node, ast.ClassDef):
            continue
        bases = [base.id for base in node.bases if isinstance(base, ast.Name) and base.id in classes]
        if not bases:
            continue
        own: dict[str, Any] = {}
        for item in node.body:
            match item:
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in _METADATA:
                    own[name] = ast.literal_eval(value)
                case ast.Assign(targets=[ast.Name(id="defaults")], value=ast.Call(keywords=keywords)):
                    own["training"] = _differing({str(word.arg): _setting(word.value) for word in keywords})
        inherited = {key: value for base in reversed(bases) for key, value in classes[base].items() if key != "name"}
        classes[node.name] = inherited | own
        if "name" in own:
            found.append(MethodInfo(**classes[node.name], implementation=f"{GROUP}.{path.stem}:{node.name}"))
    return found


def _differing(training: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that are not the defaults which all methods share."""
    from selfguide.training.settings import TrainingSettings

    shared = TrainingSettings()
    return {name: value for name, value in training.items() if value != getattr(shared, name)}


def _setting(value: ast.expr) -> Any:
    """Return the value of a training setting in the source, where a constant of the settings' module may stand for it."""
    if isinstance(value, ast.Name):
        from selfguide.training import settings

        return getattr(settings, value.id)
    return ast.literal_eval(value)


def plugins() -> tuple[MethodInfo, ...]:
    """Return the metadata of the methods that installed packages add.

    Returns:
        One entry for each plug-in. One that cannot be imported has a ``problem``, a sentence, and is listed all the same.
    """
    found = []
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        try:
            found.append(_info(_load_plugin(point), point.name))
        except UsageError as error:
            found.append(MethodInfo(point.name, implementation=point.value, problem=str(error)))
    return tuple(found)


def names() -> set[str]:
    """Return the names of all methods, plug-ins included; nothing is imported."""
    return {candidate.name for candidate in builtin_methods()} | {point.name for point in entry_points(group=GROUP)}


def info(reference: str) -> MethodInfo:
    """Return a method's metadata.

    Args:
        reference: A name, or ``package.module:Class``.

    Returns:
        The metadata; a method of this package is not imported for it.

    Raises:
        UsageError: There is no such method, or a plug-in cannot be imported.
    """
    for candidate in builtin_methods():
        if candidate.name == reference:
            return candidate
    return _info(method_class(reference), reference)


def default_method(kind: str) -> str:
    """Return the name of the method that a run takes if it names none.

    Args:
        kind: What the run starts from; see :mod:`selfguide.models.starting_points`.

    Returns:
        The default for this kind, or for sentence encoders where the kind has none: its refusal says why.
    """
    defaults = {candidate.made_for: candidate.name for candidate in builtin_methods() if candidate.is_default}
    return defaults.get(kind) or defaults["sentence encoder"]


def describe(reference: str) -> MethodInfo:
    """Return a method's metadata for display; a method that is not installed here has its reference as name and no more."""
    try:
        return info(reference)
    except UsageError:
        return MethodInfo(reference, "tuning", "a method that is not installed here", seeded=True, trains=True)


def method_class(reference: str) -> type[Method]:
    """Import the class of a method.

    Args:
        reference: A name, or ``package.module:Class``.

    Returns:
        The class.

    Raises:
        UsageError: There is no such method, or it cannot be imported.
    """
    if reference in _given:
        return _given[reference]
    for candidate in builtin_methods():
        if candidate.name == reference:
            module, _, attribute = candidate.implementation.partition(":")
            return getattr(import_module(module), attribute)
    for point in entry_points(group=GROUP):
        if point.name == reference:
            return _load_plugin(point)
    if is_path(reference):
        return _import(reference)
    raise UsageError(_unknown(reference))


def make(reference: str, options: Mapping[str, Any] | None = None) -> Method:
    """Make a method with its options checked.

    Args:
        reference: A name, or ``package.module:Class``.
        options: Values of its options.

    Returns:
        The method.

    Raises:
        UsageError: There is no such method or option, or a value is not allowed.
    """
    return method_class(reference)(**dict(options or {}))


def reference_of(method: str | type[Method] | Method | Callable[[Any], Any]) -> tuple[str, dict[str, Any]]:
    """Turn what a caller gives as a method into a reference and options.

    Args:
        method: A reference, a :class:`~selfguide.methods.base.Method` class or instance, or a function (a loss class, say)
            that makes a sentence-transformers loss from a model.

    Returns:
        The reference, which this process resolves to what was given, and the instance's options.

    Raises:
        UsageError: It is none of these.
    """
    if isinstance(method, str):
        return method, {}
    from selfguide.methods.base import Method

    options = method.describe_options() if isinstance(method, Method) else {}
    given = type(method) if isinstance(method, Method) else method
    if isinstance(given, type) and issubclass(given, Method):
        for candidate in builtin_methods():
            if candidate.implementation == f"{given.__module__}:{given.__qualname__}":
                return candidate.name, options
    elif not callable(given):
        raise UsageError(
            f"A method is a name, a Method class or instance, or a function that makes a loss; {given!r} is none of them."
        )
    named = given if hasattr(given, "__qualname__") else type(given)
    reference = f"{named.__module__}:{named.__qualname__}"
    _given[reference] = _as_method(given, reference)
    return reference, options


def is_path(reference: str) -> bool:
    """Return whether a reference has the form ``package.module:Class``."""
    return _PATH.fullmatch(reference) is not None


def is_portable(reference: str) -> bool:
    """Return whether another process can resolve the reference; one of ``__main__`` or of a function's inside cannot."""
    return not (reference in _given and (reference.startswith("__main__:") or "<" in reference))


def _info(cls: type[Method], name: str) -> MethodInfo:
    values = {key: getattr(cls, key) for key in _METADATA}
    shown = cls.name if is_path(name) else name
    training = _differing({item.name: getattr(cls.defaults, item.name) for item in fields(cls.defaults)})
    place = f"{cls.__module__}:{cls.__qualname__}"
    return MethodInfo(**{**values, "name": shown}, training=training, implementation=place)


def _load_plugin(point: EntryPoint) -> type[Method]:
    package = point.dist.name if point.dist is not None else point.value
    try:
        return _as_method(point.load(), point.name)
    except UsageError:
        raise
    except Exception as error:
        reason = one_line(error) or type(error).__name__
        raise UsageError(
            f"The method {point.name!r} of the package {package} cannot be imported ({point.value}): {reason}. "
            f"Update or uninstall {package}."
        ) from None


def _import(reference: str) -> type[Method]:
    module, _, attribute = reference.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # as `python -m` does, so that a file beside the text can be named
    try:
        found: Any = import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:
        reason = one_line(error) or type(error).__name__
        raise UsageError(
            f"The method {reference} cannot be imported: {reason}. Write package.module:Class, of an installed package or of "
            "a file in this folder; what was given in Python must be passed again."
        ) from None
    return _as_method(found, reference)


def _as_method(found: Any, reference: str) -> type[Method]:
    from selfguide.methods.base import Method, from_loss

    if isinstance(found, type) and issubclass(found, Method):
        return found
    if not callable(found):
        raise UsageError(f"{reference} is neither a Method class nor a function that makes a loss from a model.")
    return from_loss(found)


def _unknown(name: str) -> str:
    known = sorted(names())
    return f"There is no method {name!r}.{suggestion(name, known)} `selfguide methods` lists them: {', '.join(known)}."
