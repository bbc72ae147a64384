"""Every hook of a library that the training code overrides is really called in a run: a renamed hook is silently dead."""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import pytest
from sentence_transformers import SentenceTransformerTrainingArguments
from torch.utils.data import Sampler

import selfguide
import selfguide.training
from selfguide.errors import InterruptedRun
from selfguide.training import checkpointed_trainer
from toys import toy_sentences


def _overridden() -> dict[tuple[type, str], Any]:
    """Return the methods of our classes that replace one of a class from another package, by class and name."""
    found = {}
    for module in iter_modules(selfguide.training.__path__, "selfguide.training."):
        for cls in vars(import_module(module.name)).values():
            if not (inspect.isclass(cls) and cls.__module__ == module.name):
                continue
            foreign = [base for base in cls.__mro__ if base.__module__.partition(".")[0] in _LIBRARIES]
            for name, value in vars(cls).items():
                known = any(name in vars(base) for base in foreign) or (
                    issubclass(cls, Sampler) and name in _OF_SAMPLERS
                )
                if inspect.isfunction(value) and name != "__init__" and known:
                    found[cls, name] = value
    return found


_LIBRARIES = ("transformers", "sentence_transformers", "torch")
_OF_SAMPLERS = ("set_epoch",)
"""What trainers call on a sampler that has it, although no base class has."""


def test_every_overridden_hook_is_called(
    bert: Path, dev_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks, called = _overridden(), set[tuple[type, str]]()
    assert {name for _, name in hooks} >= {"create_optimizer", "create_scheduler", "compute_loss", "on_step_end"}

    def counted(key: tuple[type, str], function: Any) -> Any:
        def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
            called.add(key)
            return function(self, *args, **kwargs)

        return wrapper

    for (cls, name), function in hooks.items():
        monkeypatch.setattr(cls, name, counted((cls, name), function))
    stopping = hooks[next(key for key in hooks if key[1] == "compute_loss")]
    steps: list[int] = []

    def interrupted(self: Any, *args: Any, **kwargs: Any) -> Any:
        steps.append(self.state.global_step)
        if len(steps) == 4:
            raise KeyboardInterrupt
        called.add((type(self), "compute_loss"))
        return stopping(self, *args, **kwargs)

    cls = next(cls for cls, name in hooks if name == "compute_loss")
    monkeypatch.setattr(cls, "compute_loss", interrupted)
    settings: dict[str, Any] = {
        "max_steps": 12,
        "batch_size": 4,
        "dev": dev_file,
        "dev_every": 3,
        "checkpoint_minutes": 0.0,
    }
    given = {"output": tmp_path / "run", "device": "cpu", "quiet": True, "report": False}
    with pytest.raises((InterruptedRun, KeyboardInterrupt)):
        selfguide.train(bert, toy_sentences(60), "ct", **settings, **given)
    selfguide.train(bert, toy_sentences(60), "ct", resume=True, **settings, **given)
    # The order of a huge text, and the first of two processes (which share nothing here: the loss needs no other one).
    monkeypatch.setattr(checkpointed_trainer, "SHUFFLED", 10)
    two_epochs = {"epochs": 2.0, "batch_size": 4, "device": "cpu", "quiet": True}
    selfguide.train(bert, toy_sentences(12), "simcse", **two_epochs)
    monkeypatch.setattr(SentenceTransformerTrainingArguments, "world_size", property(lambda self: 2))
    selfguide.train(bert, toy_sentences(12), "simcse", **two_epochs)
    assert {f"{cls.__name__}.{name}" for cls, name in set(hooks) - called} == set()
