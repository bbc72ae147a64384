"""The settings of the full-size studies are valid, which is better known before a GPU is taken."""

from __future__ import annotations

import pytest

from experiments.main_table import rows
from experiments.studies import STUDIES, settings_of
from selfguide.errors import UsageError
from selfguide.studies import registry
from selfguide.studies.base import Setup
from selfguide.studies.specs import settings_by_grid


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_takes_the_settings_of_the_full_runs(name: str) -> None:
    study = registry.make(name)
    scale = study.full.with_settings(settings_of(name))
    plan = study.plan(Setup(scale, True, "mini", 12, sentences=15_455))
    shared = settings_by_grid(plan, scale, "auto")
    assert set(shared) == {grid.key for grid in plan.grids}


def test_a_study_takes_settings_of_methods_that_only_its_measurements_train() -> None:
    """The grid of `domains` has untuned rows alone, which know nothing of SimCSE."""
    study = registry.make("domains")
    scale = study.full.with_settings(("simcse.learning_rate=5e-5",))
    plan = study.plan(Setup(scale, True, "mini", 12, sentences=15_455))
    assert settings_by_grid(plan, scale, "auto") == {"untuned": ()}
    assert all(
        "simcse.learning_rate=5e-5" in item.arguments["settings"]
        for item in plan.measurements
        if "settings" in item.arguments
    )
    unknown = study.full.with_settings(("ct.learning_rate=5e-5",))
    with pytest.raises(UsageError, match="there is no 'ct' among the methods"):
        settings_by_grid(study.plan(Setup(unknown, True, "mini", 12, sentences=15_455)), unknown, "auto")


def test_every_study_of_the_package_is_run_with_the_learning_rates_of_the_main_table() -> None:
    # The embedded encoder knows English only, so the multilingual study is left out.
    assert set(STUDIES) == {entry.name for entry in registry.studies()} - {"multilingual"}
    rates = {line for line in rows.read_settings(rows.SETTINGS_FILE) if line.startswith("simcse.")}
    assert rates
    assert rates <= set(settings_of("temperature"))
    assert settings_of("ablation") == [rows.STOPPING]
