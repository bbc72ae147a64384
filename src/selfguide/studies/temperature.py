"""Temperature: τ divides the cosines of a contrastive loss; the smaller it is, the more the nearest sentences count.

For each method the score is a line over τ. The papers report single values: 0.01 (SG-OPT), 0.05 (SimCSE), 0.1 (ConSERT).
"""

from __future__ import annotations

from dataclasses import replace

from selfguide.studies.base import FEW_STEPS, FULL, SMALL, Found, Grid, Plan, Setup, Study
from selfguide.studies.outcome import Outcome
from selfguide.studies.sweeps import labelled, sweep_outcome


class Temperature(Study):
    """Methods × temperatures."""

    small = replace(
        SMALL,
        settings=FEW_STEPS,
        values={"temperatures": (0.01, 0.05, 0.2, 1.0), "methods": ("sg-opt", "simcse")},
    )
    full = replace(
        FULL,
        values={
            "temperatures": (0.001, 0.003, 0.01, 0.03, 0.05, 0.1, 0.3, 1.0),
            "methods": ("sg-opt", "sg", "simcse"),
        },
    )

    def plan(self, setup: Setup) -> Plan:
        specs = [
            labelled(method, temperature, f"{method}:temperature={temperature!r}")
            for method in setup.values("methods")
            for temperature in setup.values("temperatures")
        ]
        return Plan((Grid("temperature", ("cls", "mean", *specs)),))

    def outcome(self, found: Found) -> Outcome:
        return sweep_outcome(
            found,
            grid="temperature",
            name="temperature",
            title="temperature τ",
            values=found.setup.values("temperatures"),
            methods=found.setup.values("methods"),
            levels={"cls": "[CLS], untuned", "mean": "mean, untuned"},
            caption="The score over the temperature, bars are ± one deviation over seeds; the dotted lines are untuned.",
            log=True,
        )
