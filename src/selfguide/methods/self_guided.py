"""SG and SG-OPT: a fixed copy of BERT teaches a trained copy's sentence embedding through the views of all its layers.

The loss is :class:`~selfguide.losses.SelfGuidedLoss`, on the [CLS] vectors of the last layer.

Training as in the authors' released script: AdamW with betas (0.9, 0.9) and no weight decay, a warm-up over a tenth of the steps
and linear decay, gradients clipped at a norm of 1, a dev evaluation every 50 steps.

Differences from the script, besides those of the loss: repeated sentences are dropped before training (they would be false
negatives; ``--keep-duplicates`` gives the literal behaviour); with dev pairs the best checkpoint is kept (the script reports the
last); training stops after ten dev evaluations without a new best, where the script stops at the tenth evaluation that is lower
than the one before it.

Reference: Kim, Yoo and Lee, Self-Guided Contrastive Learning for BERT Sentence Representations, ACL 2021.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from selfguide.losses.self_guided import CITATION, SelfGuidedLoss, SelfGuidedOptions
from selfguide.methods.base import TuningMethod
from selfguide.methods.search import SELF_GUIDED
from selfguide.training.settings import TrainingSettings

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


class SelfGuided(TuningMethod):
    """``--method sg-opt``, ``sg``, ``opt1`` and ``opt2``."""

    made_for = "raw language model"
    Options = SelfGuidedOptions
    options: SelfGuidedOptions
    citation = CITATION
    search = SELF_GUIDED | {"layers": ("all", "last"), "view_pooling": ("max", "mean")}
    defaults = TrainingSettings(beta2=0.9, patience=10)

    def loss(self, student: SentenceTransformer) -> SelfGuidedLoss:
        """See :meth:`TuningMethod.loss`."""
        return SelfGuidedLoss(student, **self.options.loss_settings())


class SgOpt(SelfGuided):
    """``--method sg-opt``."""

    name = "sg-opt"
    summary = "self-guidance with the optimised objective: every layer's view is a positive (L_opt3)"
    reference = "Kim, Yoo and Lee, ACL 2021"
    preset = {"objective": "sg-opt"}
    is_default = True


class Sg(SelfGuided):
    """``--method sg``."""

    name = "sg"
    summary = "self-guidance with NT-Xent over embeddings and one random view each (L_base)"
    reference = "Kim, Yoo and Lee, ACL 2021"
    preset = {"objective": "sg"}


class Opt1(SelfGuided):
    """``--method opt1``."""

    name = "opt1"
    summary = "as sg, with the embeddings alone as anchors (L_opt1; a step of the paper's ablation)"
    reference = "Kim, Yoo and Lee, ACL 2021"
    preset = {"objective": "opt1"}


class Opt2(SelfGuided):
    """``--method opt2``."""

    name = "opt2"
    summary = "as opt1, without repulsion between embeddings (L_opt2; a step of the paper's ablation)"
    reference = "Kim, Yoo and Lee, ACL 2021"
    preset = {"objective": "opt2"}
