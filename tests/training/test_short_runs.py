"""Warnings about runs that are too short, and that their advice can be followed."""

from __future__ import annotations

import re
from typing import Any

import pytest

from selfguide.methods import registry
from selfguide.progress import Reporter
from selfguide.training.settings import TrainingSettings
from selfguide.training.short_runs import LEAST_MOVEMENT, warn_if_short


def _warnings(rows: int, settings: TrainingSettings, few: int = 0) -> list[str]:
    reporter = Reporter(quiet=True, main_process=False)
    warn_if_short(rows, settings, reporter, few)
    return list(reporter.warnings)


@pytest.mark.parametrize("more", [{}, {"max_steps": 20}, {"batch_size": 32, "gradient_accumulation": 2}])
def test_a_run_that_sees_too_little_is_told_what_helps(more: dict[str, Any]) -> None:
    settings = TrainingSettings(**{"batch_size": 16, **more})
    (warning,) = _warnings(500, settings, few=2400)
    flag, value = re.findall(r"say (--[a-z-]+) (\d+)", warning)[0]
    assert ("--max-steps" in flag) == ("max_steps" in more)
    assert _warnings(500, settings.override({flag[2:].replace("-", "_"): int(value)}), few=2400) == []


def test_large_batches_of_enough_text_are_no_short_runs() -> None:
    """SG-OPT is at its best with 61 steps of 256 sentences on STS-B's text, and gains from the first steps on."""
    defaults = registry.method_class("sg-opt").defaults
    for batch in (16, 128, 256):
        assert _warnings(15_455, defaults.override({"batch_size": batch})) == []
    assert _warnings(200, defaults) == []
    assert _warnings(15_455, defaults.override({"batch_size": 256}), few=2400) == []


@pytest.mark.parametrize("schedule", ["linear", "constant"])
def test_rates_that_add_up_to_nothing_are_told(schedule: str) -> None:
    settings = TrainingSettings(learning_rate=1e-8, batch_size=96, schedule=schedule)
    (warning,) = _warnings(3_200, settings)
    rate = float(re.findall(r"--learning-rate (\S+) or more", warning)[0])
    epochs = int(re.findall(r"--epochs (\d+)", warning)[0])
    assert settings.sum_of_rates(34) < LEAST_MOVEMENT
    for better in ({"learning_rate": rate}, {"epochs": epochs}):
        assert _warnings(3_200, settings.override(better)) == []


@pytest.mark.parametrize("name", [info.name for info in registry.builtin_methods() if info.family == "tuning"])
def test_every_tuning_method_warns_about_one_step_and_not_about_the_text_of_its_paper(name: str) -> None:
    method = registry.method_class(name)
    few = method.few_steps * method.defaults.batch_size
    one = method.defaults.override({"max_steps": 1, "learning_rate": min(method.defaults.learning_rate or 5e-6, 1e-4)})
    assert len(_warnings(15_455, one, few)) == 1
    assert _warnings(1_000_000, method.defaults, few) == []


def test_the_sum_of_the_rates_is_that_of_the_schedule() -> None:
    settings = TrainingSettings(learning_rate=1e-3, warmup=0.2)
    rates = [1e-3 * min(step / 200, (1000 - step) / 800) for step in range(1000)]
    assert settings.sum_of_rates(1000) == pytest.approx(sum(rates), rel=0.01)
    constant = settings.override({"schedule": "constant", "warmup": 0.0})
    assert constant.sum_of_rates(1000) == pytest.approx(1.0)


def test_one_step_is_singular() -> None:
    (warning,) = _warnings(16, TrainingSettings(learning_rate=1e-8, batch_size=16))
    assert warning.startswith("1 step at a learning rate of 1e-08 hardly changes the encoder")
