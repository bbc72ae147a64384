"""What is compared: a method with options, a label for it, or a chain of methods, from the words that a user types.

simcse                                    a name from the registry
simcse:learning_rate=5e-5:dropout=0.05    with training settings and options of the method
slow=simcse:learning_rate=1e-6            under a name of one's own
simcse+whitening:k=256                    train the first, then fit the second on its result
"""

from __future__ import annotations

import typing
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from selfguide.comparison import grammar
from selfguide.comparison.grammar import Change
from selfguide.errors import UsageError
from selfguide.methods import registry
from selfguide.options import parse_value
from selfguide.runs.resolution import resolved
from selfguide.training.configuration import RunConfig
from selfguide.training.settings import TrainingSettings

KEEP = "keep"
_DRAWS_WITHOUT_TUNING = ("bow", "flow")


@dataclass(frozen=True)
class Stage:
    """One method of a chain, every option and setting written out (the seed apart, which the cell says)."""

    method: str
    options: dict[str, Any]
    training: dict[str, Any]

    @property
    def trained(self) -> bool:
        """Whether there are training steps, a flow's included."""
        return is_seeded(self.method) and self.method != "bow"

    @property
    def tuned(self) -> bool:
        """Whether weights are fine-tuned, so that there are checkpoints to choose from."""
        return registry.entry(self.method).family == "tuning"


@dataclass(frozen=True)
class Spec:
    """A row of the table."""

    label: str
    words: str
    """As it was typed, without the label."""
    stages: tuple[Stage, ...]

    @property
    def seeded(self) -> bool:
        """Whether another seed gives another result."""
        return any(is_seeded(stage.method) for stage in self.stages)


def is_seeded(method: str) -> bool:
    """Whether a method draws anything at random; poolings and whitening do not, so they are run once."""
    return registry.entry(method).family == "tuning" or method in _DRAWS_WITHOUT_TUNING


def parse_specs(methods: str | Iterable[str], changes: Iterable[str] = (), *, device: str = "auto") -> tuple[Spec, ...]:
    """The rows that the words ask for; what no method knows is refused here, before anything runs.

    ``changes`` are ``method.name=value`` (or ``label.name=value``, or ``setting=value`` for all); what a spec says itself
    comes first.
    """
    words = grammar.listed(methods) if isinstance(methods, str) else [word.strip() for word in methods]
    if not words:
        raise UsageError("No method is named: say which, such as --methods mean,whitening,sg-opt.")
    asked = [grammar.change(change) for change in changes]
    drafts = [_Draft.of(word) for word in words]
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


@dataclass(frozen=True)
class _Draft:
    """A spec as its words say it: names of methods, and values that are still words."""

    label: str
    words: str
    stages: tuple[tuple[str, dict[str, str]], ...]

    @classmethod
    def of(cls, typed: str) -> _Draft:
        given, words = grammar.labelled(typed)
        stages = tuple(grammar.named_stage(part) for part in grammar.chain(words))
        names = [name for name, _ in stages]
        if given and given in grammar.names() and names != [given]:
            raise UsageError(f"{given!r} is the name of another method than {words}: choose another label for it.")
        return cls(given or words, words, stages)

    def resolved(self, changes: list[Change], device: str) -> Spec:
        stages: list[Stage] = []
        for name, own in self.stages:
            values = {"device": device} if device != "auto" else {}
            takes = _takes(name)
            for change in changes:
                meant = change.target in ("", name, self.label)
                if meant and change.name in takes:
                    values[change.name] = change.value
                    change.used = True
            stage = _stage(name, values | own, follows=bool(stages))
            if stages:
                _require_heeded(stages[-1], stage)
            stages.append(stage)
        return Spec(self.label, self.words, tuple(stages))


def _require_used(change: Change, specs: list[Spec]) -> None:
    if change.used:
        return
    meant = [spec.label for spec in specs if change.target in (spec.label, *(stage.method for stage in spec.stages))]
    if change.target and not meant:
        raise UsageError(f"--set {change.words}: there is no {change.target!r} among the methods compared.")
    whom = f"{', '.join(meant)} knows no" if change.target else "none of the methods knows a"
    raise UsageError(f"--set {change.words}: {whom} setting or option {change.name!r}.")


def _takes(method: str) -> dict[str, Any]:
    """The type of everything that can be set for a method; the seed is the comparison's own."""
    from selfguide.methods.base import option_types

    own = option_types(registry.method_class(method).Options)
    preset = registry.entry(method).preset
    shared = typing.get_type_hints(TrainingSettings)
    return {name: kind for name, kind in (own | shared).items() if name not in preset and name != "seed"}


def _stage(method: str, words: dict[str, str], follows: bool) -> Stage:
    takes = _takes(method)
    for name in words:
        if name == "seed":
            raise UsageError(f"{method}: seeds are chosen for the whole comparison, with --seeds.")
        if name not in takes:
            raise UsageError(
                f"{method} knows no setting or option {name!r}; it takes {', '.join(sorted(takes))} "
                f"(`selfguide methods {method}` and `selfguide train --help` explain them)."
            )
    values = {name: parse_value(word, takes[name], f"{method}:{name}") for name, word in words.items()}
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
    """The stage with every default written out, once the method has looked at its options."""
    registry.make(stage.method, stage.options).check()
    full = resolved(RunConfig(text=(), method=stage.method, options=stage.options, training=stage.training))
    training = {name: value for name, value in full.training.items() if name != "seed"}
    return replace(stage, options=full.options, training=training)


def _require_heeded(before: Stage, after: Stage) -> None:
    if not before.tuned and after.options.get("pooling") != KEEP:
        raise UsageError(
            f"{before.method}+{after.method}: {after.method} starts from the Transformer's weights, which {before.method} "
            f"does not change, so {before.method} would be for nothing; turn them round, or leave it out."
        )
