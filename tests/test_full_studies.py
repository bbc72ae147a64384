"""The full-size studies are asked for what their methods know, before a GPU is taken."""

from __future__ import annotations

import pytest

from benchmarks.full_studies import STUDIES, settings_of
from selfguide.errors import UsageError
from selfguide.studies import registry
from selfguide.studies.base import Setup
from selfguide.studies.run import _shared_out


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_takes_the_settings_of_the_full_runs(name: str) -> None:
    study = registry.make(name)
    scale = study.full.changed(settings_of(name))
    plan = study.plan(Setup(scale, True, "mini", 12, sentences=15_455))
    shared = _shared_out(plan, scale, "auto")
    assert set(shared) == {grid.key for grid in plan.grids}


def test_a_study_takes_settings_of_methods_that_only_its_measurements_train() -> None:
    """The grid of `domains` has untuned rows alone, which know nothing of SimCSE."""
    study = registry.make("domains")
    scale = study.full.changed(("simcse.learning_rate=5e-5",))
    plan = study.plan(Setup(scale, True, "mini", 12, sentences=15_455))
    assert _shared_out(plan, scale, "auto") == {"untuned": ()}
    assert all(
        "simcse.learning_rate=5e-5" in item.arguments["settings"]
        for item in plan.measurements
        if "settings" in item.arguments
    )
    unknown = study.full.changed(("ct.learning_rate=5e-5",))
    with pytest.raises(UsageError, match="there is no 'ct' among the methods"):
        _shared_out(study.plan(Setup(unknown, True, "mini", 12, sentences=15_455)), unknown, "auto")
