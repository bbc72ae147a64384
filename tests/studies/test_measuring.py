"""Measurements of a study: functions with plain arguments whose results are kept, in this process and in others."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import selfguide
from selfguide.errors import InterruptedRun, SelfguideError
from selfguide.methods.simcse import SimCSE, SimCSEOptions
from selfguide.report.folders import write_report
from selfguide.report.plots import Histogram, Scatter
from selfguide.studies import measuring, registry
from selfguide.studies.base import SMALL, Findings, Grid, Measurement, Plan, Setup, Study
from selfguide.studies.context import MeasurementContext
from selfguide.studies.files import StudyResult
from selfguide.studies.outcome import Column, Outcome, Table
from selfguide.studies.values import over_seeds

MADE: list[str] = []


def dimensions(context: MeasurementContext, name: str, times: int) -> dict[str, Any]:
    """Of the encoder, or of one that the grid has kept."""
    MADE.append(name)
    if name == "broken":
        raise SelfguideError("It cannot be measured.")
    encoder = context.load_encoder() if name == "start" else context.kept_encoder("tuned", "simcse", 1)
    rows = context.rows("demo-dev")
    return {
        "value": times * encoder.get_embedding_dimension(),
        "texts": len(context.sentences()),
        "rows": len(rows.parts[0]),
    }


def process(context: MeasurementContext, **nothing: Any) -> dict[str, Any]:
    return {"process": os.getpid()}


class Toy(Study):
    """A grid whose encoder is measured."""

    name = "toy"
    title = "A toy"
    question = "Does it work?"
    small = replace(SMALL, settings=("max_steps=1", "batch_size=4"), values={"times": (2,), "names": ("start", "kept")})
    full = small

    def plan(self, setup: Setup) -> Plan:
        where = f"{__name__}:dimensions"
        arguments = [{"name": name, "times": setup.values("times")[0]} for name in setup.values("names")]
        measurements = [Measurement(one["name"], where, one, after=("tuned",)) for one in arguments]
        return Plan((Grid("tuned", ("simcse",), keep=True),), tuple(measurements))

    def outcome(self, findings: Findings) -> Outcome:
        rows = [
            {"name": name, "value": over_seeds({1: result["value"], 2: result["value"] + 1.0}) if result else None}
            for name, result in findings.results.items()
        ]
        table = Table(
            "toy", "Dimensions", (Column("name", "name"), Column("value", "value", better="low")), tuple(rows)
        )
        points = {"here": ((0.0, 1.0), (1.0, 2.0)), "there": ((2.0, 0.5),)}
        drawn = (
            Scatter("scatter", "Points", "Two groups.", "across", "up", points, alt="Three points."),
            Histogram(
                "histogram", "Bins", "Two outlines.", "x", (0.0, 0.5, 1.0), {"a": (1, 3), "b": (2, 0)}, alt="Two bins."
            ),
        )
        return Outcome((table,), drawn)


def tuned(context: MeasurementContext, methods: list[str]) -> dict[str, Any]:
    MADE.extend(methods)
    return {}


class Trains(Study):
    """A measurement that trains by itself."""

    name = title = question = "trains"

    def plan(self, setup: Setup) -> Plan:
        measurement = Measurement("one", f"{__name__}:tuned", {"methods": ["simcse"]})
        return Plan(measurements=(measurement,), measured_methods=("simcse",))

    def outcome(self, findings: Findings) -> Outcome:
        return Outcome((Table("trains", "Trains", (Column("name", "name"),), ({"name": "one"},)),))


class Lone(Study):
    """A measurement in a process of its own."""

    name = title = question = "lone"

    def plan(self, setup: Setup) -> Plan:
        return Plan(measurements=(Measurement("one", f"{__name__}:process", isolated=True),))

    def outcome(self, findings: Findings) -> Outcome:
        return Outcome((Table("lone", "Lone", (Column("name", "name"),), ({"name": "one"},)),))


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch, bert: Path, text_file: Path, tmp_path: Path) -> Any:
    made = {"toy": Toy, "lone": Lone, "trains": Trains}
    monkeypatch.setattr(registry, "make", lambda name: made[name]())
    MADE.clear()

    def call(name: str = "toy", *settings: str, **more: Any) -> StudyResult:
        given: dict[str, Any] = {"encoder": bert, "text": text_file, "limit": 20, "dev": "", "settings": settings}
        return selfguide.study(name, **given | {"output": tmp_path / "toy", "jobs": 1} | more)

    return call


def test_measurements_are_kept_and_made_again_where_something_changed(toy: Any, tmp_path: Path) -> None:
    found = toy()
    assert found.results["measurements"]["kept"]["result"] == {"value": 64, "texts": 20, "rows": 220}
    assert found.table("toy")["rows"][0]["value"]["mean"] == 64.5
    assert MADE == ["start", "kept"]
    assert toy().results == found.results
    assert MADE == ["start", "kept"]
    (tmp_path / "toy" / "measurements" / "start.json").unlink()
    toy()
    assert MADE == ["start", "kept", "start"]
    toy("toy", "times=3")
    assert MADE[3:] == ["start", "kept"]
    toy("toy", "times=3", "max_steps=2")  # the kept encoder is another one now
    assert MADE[5:] == ["start", "kept"]
    toy("toy", "times=3", "max_steps=2", again=True)
    assert MADE[7:] == ["start", "kept"]
    page = write_report(tmp_path / "toy").read_text(encoding="utf-8")
    assert "Three points." in page
    assert "Two bins." in page
    assert f"{__name__}:dimensions" in page


def test_another_default_of_a_method_is_another_measurement(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    toy("trains")
    toy("trains")
    assert MADE == ["simcse"]
    options = dataclass_with_default(SimCSEOptions, "temperature", 0.07)
    monkeypatch.setattr(SimCSE, "Options", options)
    toy("trains")
    assert MADE == ["simcse", "simcse"]


def dataclass_with_default(cls: Any, name: str, value: Any) -> Any:
    """The same options with another default."""
    return dataclass(frozen=True)(type(cls.__name__, (cls,), {"__annotations__": {name: type(value)}, name: value}))


def test_a_measurement_that_fails_is_reported_and_tried_again(toy: Any) -> None:
    found = toy("toy", "names=broken,start")
    assert found.failed == ["broken failed: It cannot be measured."]
    assert [row["value"] is None for row in found.table("toy")["rows"]] == [True, False]
    toy("toy", "names=broken,start")
    assert MADE == ["broken", "start", "broken"]


def test_a_stop_keeps_what_was_measured(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(job: measuring.MeasurementJob) -> measuring.MeasurementRecord:
        if job.stem == "kept":
            raise KeyboardInterrupt
        return measuring.MeasurementRecord("start", job.identity)

    with monkeypatch.context() as patch:
        patch.setattr(measuring, "measure", stopped)
        with pytest.raises(InterruptedRun, match="1 of 2 measurements are kept"):
            toy()


def test_a_lone_measurement_has_a_process_of_its_own(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(__file__).parents[2]
    monkeypatch.setenv("PYTHONPATH", f"{root}{os.pathsep}{root / 'tests' / 'support'}", prepend=os.pathsep)
    found = toy("lone")
    assert not found.failed
    assert found.results["measurements"]["one"]["result"]["process"] != os.getpid()
