"""A method of one's own: `python examples/own_method.py notes.txt` compares it with the untuned mean.

Beside this file, on the command line: `selfguide train notes.txt --method own_method:SoftPositives --scale 50`.
"""

import sys
from dataclasses import dataclass
from typing import Annotated

from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

import selfguide
from selfguide.methods import TuningMethod
from selfguide.options import AtLeast, CheckedOptions
from selfguide.training.settings import TrainingSettings


@dataclass(frozen=True)
class SoftPositivesOptions(CheckedOptions):
    scale: Annotated[float, AtLeast(1)] = 20.0
    """Inverse temperature of the contrast."""


class SoftPositives(TuningMethod):
    """A sentence and itself are a pair; dropout makes them differ."""

    Options = SoftPositivesOptions
    defaults = TrainingSettings(batch_size=32, learning_rate=2e-5)

    def dataset(self, text):
        return text.add_column("positive", text["sentence"][:])

    def loss(self, student):
        return MultipleNegativesRankingLoss(student, scale=self.options.scale)


if __name__ == "__main__":
    methods = {"mean": "mean", "own": SoftPositives, "sharp": SoftPositives(scale=50.0)}
    print(selfguide.compare("mini", sys.argv[1], methods, seeds=1, settings=sys.argv[2:]).markdown())
