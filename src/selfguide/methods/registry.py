"""What methods there are. Importing this imports no method and no torch, so that listing them is quick."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from selfguide.errors import UsageError

if TYPE_CHECKING:
    from selfguide.methods.base import Method

Family = Literal["pooling", "calibration", "tuning"]


@dataclass(frozen=True)
class MethodEntry:
    """One line of the registry."""

    name: str
    family: Family
    summary: str
    implementation: str
    """``module:Class`` inside :mod:`selfguide.methods`."""
    needs_labels: bool = False
    inference_cost: str = "one forward pass"
    reference: str = ""
    preset: Mapping[str, Any] = field(default_factory=dict)
    """Options that make this entry what it is; the user cannot change them."""


_KIM = "Kim, Yoo and Lee, ACL 2021"

METHODS: tuple[MethodEntry, ...] = (
    MethodEntry(
        "sg-opt",
        "tuning",
        "self-guidance with the optimised objective: every layer's view is a positive (L_opt3)",
        "self_guided:SelfGuided",
        reference=_KIM,
        preset={"objective": "sg-opt"},
    ),
    MethodEntry(
        "sg",
        "tuning",
        "self-guidance with NT-Xent over embeddings and one random view each (L_base)",
        "self_guided:SelfGuided",
        reference=_KIM,
        preset={"objective": "sg"},
    ),
    MethodEntry(
        "opt1",
        "tuning",
        "as sg, with the embeddings alone as anchors (L_opt1; a step of the paper's ablation)",
        "self_guided:SelfGuided",
        reference=_KIM,
        preset={"objective": "opt1"},
    ),
    MethodEntry(
        "opt2",
        "tuning",
        "as opt1, without repulsion between embeddings (L_opt2; a step of the paper's ablation)",
        "self_guided:SelfGuided",
        reference=_KIM,
        preset={"objective": "opt2"},
    ),
)


def entry(name: str) -> MethodEntry:
    """The registry's line for a method's name."""
    for candidate in METHODS:
        if candidate.name == name:
            return candidate
    names = [candidate.name for candidate in METHODS]
    close = difflib.get_close_matches(name, names, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise UsageError(f"There is no method {name!r}.{hint} `selfguide methods` lists them: {', '.join(names)}.")


def method_class(name: str) -> type[Method]:
    """The class that implements a method (imports it)."""
    module, _, attribute = entry(name).implementation.partition(":")
    return getattr(import_module(f"selfguide.methods.{module}"), attribute)


def make(name: str, options: Mapping[str, Any] | None = None) -> Method:
    """A method with its options checked: unknown ones are refused by name."""
    return method_class(name)(entry(name), dict(options or {}))
