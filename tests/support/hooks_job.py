"""Runs in which every hook of a library that the training code overrides should be called.

Usage: hooks_job.py FOLDER_OF_AN_ENCODER DEV_FILE FOLDER_TO_WORK_IN NUMBER_OF_PROCESSES
Exits 0 where each of the processes, which train together, has called every hook (tests/training/test_hooks.py has one process).
"""

from __future__ import annotations

import inspect
import os
import socket
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import pytest
import torch
from torch.utils.data import Sampler

import selfguide
import selfguide.training
from selfguide.errors import InterruptedRun
from selfguide.training import checkpointed_trainer
from toys import toy_sentences

_LIBRARIES = ("transformers", "sentence_transformers", "torch")
_OF_SAMPLERS = ("set_epoch",)
"""What trainers call on a sampler that has it, although no base class has."""

Hooks = dict[tuple[type, str], Any]


def overridden() -> Hooks:
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


def watched(hooks: Hooks, replace: Callable[[Any, str, Any], None]) -> set[tuple[type, str]]:
    """Watch the hooks, and return the set that those which are called are added to.

    Args:
        hooks: The hooks.
        replace: ``setattr``, or that of pytest's monkeypatch.
    """
    called = set[tuple[type, str]]()

    def counted(key: tuple[type, str], function: Any) -> Any:
        def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
            called.add(key)
            return function(self, *args, **kwargs)

        return wrapper

    for (cls, name), function in hooks.items():
        replace(cls, name, counted((cls, name), function))
    return called


def train(bert: Path, dev_file: Path, folder: Path, replace: Callable[[Any, str, Any], None]) -> None:
    """Train, interrupted and resumed, with dev checks; then two epochs of a text whose order is computed."""
    cls = checkpointed_trainer.CheckpointedTrainer
    stopping, steps = cls.compute_loss, list[int]()

    def interrupted(self: Any, *args: Any, **kwargs: Any) -> Any:
        steps.append(self.state.global_step)
        if len(steps) == 4:
            raise KeyboardInterrupt
        return stopping(self, *args, **kwargs)

    replace(cls, "compute_loss", interrupted)
    settings: dict[str, Any] = {
        "max_steps": 12,
        "batch_size": 4,
        "dev": dev_file,
        "dev_every": 3,
        "checkpoint_minutes": 0.0,
    }
    given: dict[str, Any] = {"output": folder / "run", "device": "cpu", "quiet": True, "report": False}
    with pytest.raises((InterruptedRun, KeyboardInterrupt)):
        selfguide.train(bert, toy_sentences(60), "ct", **settings, **given)
    selfguide.train(bert, toy_sentences(60), "ct", resume=True, **settings, **given)
    replace(checkpointed_trainer, "SHUFFLED", 10)
    given |= {"output": folder / "computed order", "epochs": 2.0, "batch_size": 4}
    selfguide.train(bert, toy_sentences(12), "simcse", **given)


def missing(hooks: Hooks, called: set[tuple[type, str]]) -> set[str]:
    """Return the names of the hooks that were not called."""
    return {f"{cls.__name__}.{name}" for cls, name in set(hooks) - called}


def main(rank: int, words: list[str], port: int) -> None:
    bert, dev_file, folder, processes = Path(words[0]), Path(words[1]), Path(words[2]), words[3]
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    hooks = overridden()
    called = watched(hooks, setattr)
    train(bert, dev_file, folder, setattr)
    lacking = missing(hooks, called)
    assert lacking == set(), f"process {rank}: {lacking}"


if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # Forked, not started anew as torchrun does: the libraries are imported once.
    torch.multiprocessing.start_processes(main, (sys.argv[1:], port), nprocs=int(sys.argv[4]), start_method="fork")
