"""What a process knows of itself: cores, packages, debugging, and suggestions for misspelt names."""

from __future__ import annotations

import os
from datetime import datetime

import pytest

from selfguide import system
from selfguide.errors import UsageError, suggestion


def test_cores_are_those_that_the_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 3, 5}, raising=False)
    assert system.cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert system.cores() == 1


@pytest.mark.parametrize(("value", "expected"), [("1", True), ("0", False), ("", False), (None, False)])
def test_debugging_is_asked_for_by_a_one(value: str | None, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SELFGUIDE_DEBUG", raising=False)
    if value is not None:
        monkeypatch.setenv("SELFGUIDE_DEBUG", value)
    assert system.debugging() is expected


def test_a_timestamp_names_its_time_zone() -> None:
    assert datetime.strptime(system.timestamp(), "%Y-%m-%dT%H:%M:%S%z").tzinfo is not None


def test_missing_packages_are_named_with_the_extra_that_has_them() -> None:
    system.require_packages("A test needs", "dev", "pytest")
    with pytest.raises(UsageError, match=r"^A test needs not_there and nor_this, which .*'selfguide\[dev\]'\.$"):
        system.require_packages("A test needs", "dev", "pytest", "not_there", "nor_this")


def test_the_nearest_name_is_suggested_and_no_other() -> None:
    assert suggestion("simces", ["simcse", "sg-opt"]) == " Did you mean 'simcse'?"
    assert suggestion("quite another", ["simcse", "sg-opt"]) == ""
