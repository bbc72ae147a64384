"""The rows of a comparison: a method with options, a chain of methods, or what a caller gives in Python.

As words:

    simcse                                    a method's name
    simcse:learning_rate=5e-5:dropout=0.05    with training settings and options of the method
    slow=simcse:learning_rate=1e-6            under another label
    simcse+whitening:k=256                    train the first, then fit the second on its result
    package.module:Class:epochs=2             a method of another package, or of a file in this folder
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from selfguide.comparison import grammar
from selfguide.comparison.grammar import Change
from selfguide.errors import UsageError
from selfguide.methods import registry
from selfguide.options import parse_value
from selfguide.runs.resolution import resolve
from selfguide.training.configuration import RunConfig
from selfguide.training.settings import TrainingSettings

if TYPE_CHECKING:
    from selfguide.methods.base import Method

KEEP = "keep"
GivenMethod: TypeAlias = "str | type[Method] | Method | Callable[[Any], Any]"
"""What a caller may give as a row: words, a method's class or instance, or a function that makes a loss from a model."""
GivenMethods: TypeAlias = "GivenMethod | Iterable[GivenMethod] | Mapping[str, GivenMethod]"


@dataclass(frozen=True)
class Stage:
    """One method of a chain, every option and setting written out; the seed is the cell's."""

    method: str
    options: dict[str, Any]
    training: dict[str, Any]

    @property
    def trained(self) -> bool:
        """Whether there are training steps."""
        return registry.describe(self.method).trains

    @property
    def tuned(self) -> bool:
        """Whether weights are fine-tuned, so that there are checkpoints to choose from."""
        return registry.describe(self.method).family == "tuning"


@dataclass(frozen=True)
class Spec:
    """A row of the table."""

    label: str
    words: str
    """As it was typed, without the label."""
    stages: tuple[Stage, ...]

    @property
    def seeded(self) -> bool:
        """Whether another seed gives another result; the others are run once."""
        return any(registry.describe(stage.method).seeded for stage in self.stages)

    @property
    def portable(self) -> bool:
        """Whether another process can run it; a method defined in a script or a lambda exists in this one alone."""
        return all(registry.is_portable(stage.method) for stage in self.stages)


def parse_specs(methods: GivenMethods, changes: Iterable[str] = (), *, device: str = "auto") -> tuple[Spec, ...]:
    """Parse what is to be compared into rows; unknown names are rejected here, before anything runs.

    Args:
        methods: Rows as words separated by commas; or a list of words, method classes, instances and functions that make a
            loss; or a mapping from labels to these.
        changes: ``method.name=value``, ``label.name=value``, or ``setting=value`` for all; what a row says itself wins.
        device: Where to train, unless a row says it.

    Returns:
        The rows, in order.

    Raises:
        UsageError: A method, an option or a label is not known, not allowed, or used twice.
    """
    asked = [grammar.change(change) for change in changes]
    drafts = _drafts(methods)
    if not drafts:
        raise UsageError("No method is named: pass some, such as --methods mean,whitening,sg-opt.")
    specs = [draft.resolved(asked, device) for draft in drafts]
    labels = [spec.label for spec in specs]
    for spec in specs:
        if labels.count(spec.label) > 1:
            raise UsageError(
                f"Two rows would both be called {spec.label!r}; give one a name of its own, as in other={spec.words}."
            )
    for change in asked:
        _require_used(change, specs)
    return tuple(specs)


def without_rows(changes: Iterable[str], specs: Iterable[Spec]) -> list[str]:
    """Return the training settings for all rows that reach none, because no method compared uses them.

    Args:
        changes: See :func:`parse_specs`.
        specs: The rows.

    Returns:
        Their names.
    """
    unused = [registry.method_class(stage.method).refused_settings() for spec in specs for stage in spec.stages]
    asked = [change.name for change in map(grammar.change, changes) if not change.target]
    return [name for name in asked if unused and all(name in refused for refused in unused)]


def _drafts(methods: GivenMethods) -> list[_Draft]:
    if isinstance(methods, str):
        return [_Draft.of_words(words) for words in grammar.listed(methods)]
    if isinstance(methods, Mapping):
        return [_Draft.of(method, label) for label, method in methods.items()]
    # A class is callable and an instance of Method is not a collection, so anything iterable is a list of rows.
    if isinstance(methods, Iterable) and not isinstance(methods, type):
        return [_Draft.of(method) for method in methods]
    return [_Draft.of(methods)]


@dataclass(frozen=True)
class _Draft:
    """A row before its options are checked; values may still be words."""

    label: str
    words: str
    stages: tuple[tuple[str, dict[str, Any]], ...]

    @classmethod
    def of(cls, method: GivenMethod, label: str = "") -> _Draft:
        if isinstance(method, str):
            return cls.of_words(f"{label}={method}" if label else method.strip())
        reference, options = registry.reference_of(method)
        name = registry.info(reference).name
        return cls(label or name, name, ((reference, options),))

    @classmethod
    def of_words(cls, typed: str) -> _Draft:
        given, words = grammar.labelled(typed)
        stages = tuple(grammar.named_stage(part) for part in grammar.chain(words))
        references = [name for name, _ in stages]
        if given and given in grammar.names() and references != [given]:
            raise UsageError(f"{given!r} is the name of another method than {words}: choose another label for it.")
        return cls(given or words, words, stages)

    def resolved(self, changes: list[Change], device: str) -> Spec:
        """Apply the changes and check every stage."""
        stages: list[Stage] = []
        for name, own in self.stages:
            values: dict[str, Any] = {"device": device} if device != "auto" else {}
            takes = _takes(name)
            for change in changes:
                meant = change.target in ("", name, self.label)
                if meant and change.name in takes:
                    values[change.name] = change.value
                    change.used = True
            stage = _stage(name, values | own, follows=bool(stages))
            if stages:
                _require_effect(stages[-1], stage)
            stages.append(stage)
        return Spec(self.label, self.words, tuple(stages))


def _require_used(change: Change, specs: list[Spec]) -> None:
    if change.used or (not change.target and change.name in typing.get_type_hints(TrainingSettings)):
        return  # a training setting for all rows applies to those that use it, possibly none; see without_rows
    meant = [spec.label for spec in specs if change.target in (spec.label, *(stage.method for stage in spec.stages))]
    if change.target and not meant:
        raise UsageError(f"--set {change.words}: there is no {change.target!r} among the methods compared.")
    whom = f"{', '.join(meant)} knows no" if change.target else "none of the methods knows a"
    raise UsageError(f"--set {change.words}: {whom} setting or option {change.name!r}.")


def _takes(method: str) -> dict[str, Any]:
    """The type of everything that can be set for a method: what has an effect, and not the seed, which is the comparison's."""
    cls = registry.method_class(method)
    types = typing.get_type_hints(cls.Options) | typing.get_type_hints(TrainingSettings)
    without = {"seed", *cls.preset, *cls.refused_settings()}
    return {name: kind for name, kind in types.items() if name not in without}


def _stage(method: str, words: dict[str, Any], follows: bool) -> Stage:
    takes = _takes(method)
    for name in words:
        if name == "seed":
            raise UsageError(f"{method}: seeds are chosen for the whole comparison, with --seeds.")
        if name not in takes:
            raise UsageError(
                f"{method} knows no setting or option {name!r}; it takes {', '.join(sorted(takes))} "
                f"(`selfguide methods {method}` and `selfguide train --help` explain them)."
            )
    values = {
        name: parse_value(value, takes[name], f"{method}:{name}") if isinstance(value, str) else value
        for name, value in words.items()
    }
    settings = typing.get_type_hints(TrainingSettings)
    options = {name: value for name, value in values.items() if name not in settings}
    training = {name: value for name, value in values.items() if name in settings}
    if follows and "pooling" in takes and "pooling" not in options and _can_keep(method, options):
        options["pooling"] = KEEP
    return _checked(Stage(method, options, training))


def _can_keep(method: str, options: dict[str, Any]) -> bool:
    """Whether a method can take the vector of the stage before it as it is."""
    try:
        registry.make(method, {**options, "pooling": KEEP})
    except UsageError:
        return False
    return True


def _checked(stage: Stage) -> Stage:
    """Return the stage with every default written out, once the method has looked at its options."""
    config = RunConfig(text=(), method=stage.method, options=stage.options, training=stage.training)
    complete, method = resolve(config)
    method.check()
    training = {name: value for name, value in complete.training.items() if name != "seed"}
    return replace(stage, options=complete.options, training=training)


def _require_effect(before: Stage, after: Stage) -> None:
    """Reject a chain whose first stage would have no effect."""
    if not before.tuned and after.options.get("pooling") != KEEP:
        raise UsageError(
            f"{before.method}+{after.method}: {after.method} starts from the Transformer's weights, which {before.method} "
            f"does not change, so {before.method} would have no effect; swap them, or leave it out."
        )
