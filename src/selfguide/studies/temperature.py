"""Temperature: τ divides the cosines of a contrastive loss; the smaller it is, the more the nearest sentences count.

The papers report single values: 0.01 (SG-OPT), 0.05 (SimCSE), 0.1 (ConSERT).
"""

from __future__ import annotations

from dataclasses import replace

from selfguide.studies.base import FEW_STEPS, FULL, SMALL
from selfguide.studies.sweeps import OptionSweep


class Temperature(OptionSweep):
    """Methods × temperatures."""

    name = "temperature"
    title = "Temperature"
    question = "How much does the temperature of the contrastive loss matter?"
    reference = "Kim, Yoo and Lee, ACL 2021"
    option = "temperature"
    values_name = "temperatures"
    axis = "temperature τ"
    caption = "The score over the temperature, bars are ± one deviation over seeds; the dotted lines are untuned."
    small = replace(
        SMALL, settings=FEW_STEPS, values={"temperatures": (0.01, 0.05, 0.2, 1.0), "methods": ("sg-opt", "simcse")}
    )
    full = replace(
        FULL,
        values={"temperatures": (0.001, 0.003, 0.01, 0.03, 0.05, 0.1, 0.3, 1.0), "methods": ("sg-opt", "sg", "simcse")},
    )
