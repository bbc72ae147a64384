"""SG and SG-OPT: a fixed copy of BERT teaches a tuned copy's sentence vector through the views of all its layers.

Start with two copies of a pre-trained Transformer of l layers. The *guide* stays fixed. For a batch of sentences s_i it
gives the hidden states H_{i,k} of every layer k = 0..l, and pooling over tokens makes of each a *view* h_{i,k} = pool(H_{i,k}).
The *student* gives one embedding c_i, the last layer's [CLS] vector. A contrastive loss pulls c_i towards views of its own
sentence and pushes it from views of the others, so that what the middle layers know reaches [CLS]:

    φ(u, v) = exp(cos(f(u), f(v)) / τ)                 f: projection head, dropped after training
    SG-OPT  = mean over i, k of −log φ(c_i, h_ik) / (φ(c_i, h_ik) + Σ_{m≠i} Σ_n φ(c_i, h_mn))
    SG      = NT-Xent over {c_i} ∪ {h_i}, h_i one view of s_i drawn uniformly at each step
    loss    = objective + λ ‖θ_F − θ_T‖²                λ: stay_close

The student's embedding layer (layer 0) is frozen. The steps between SG and SG-OPT (opt1, opt2) are in
:mod:`selfguide.losses.functional`, the loss as a whole in :mod:`selfguide.losses.self_guided`.

Differences from the authors' released script, all deliberate: the guide stays in evaluation mode (theirs has its dropout
switched back on), repeated sentences are dropped before training (they would be false negatives; ``--keep-duplicates``
gives the literal behaviour), views are max-pooled as the paper says (the script's default is the mean), and with dev pairs
the best checkpoint is kept (the script reports the last).

Reference: Kim, Yoo and Lee, Self-Guided Contrastive Learning for BERT Sentence Representations, ACL 2021.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from selfguide.losses.self_guided import CITATION, SelfGuidedLoss, SelfGuidedOptions, loss_settings
from selfguide.methods.base import TuningMethod
from selfguide.models.encoders import with_pooling

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

__all__ = ["CITATION", "SelfGuided", "SelfGuidedLoss", "SelfGuidedOptions"]


class SelfGuided(TuningMethod):
    """``--method sg-opt``, ``sg``, ``opt1`` and ``opt2``."""

    Options = SelfGuidedOptions
    options: SelfGuidedOptions
    citation = CITATION
    # The projection head starts at random: for the first hundred steps or so the loss sits on a plateau and the vectors suffer.
    few_steps = 150

    def student(self, encoder: SentenceTransformer) -> SentenceTransformer:
        return with_pooling(encoder, self.options.pooling)

    def loss(self, student: SentenceTransformer) -> SelfGuidedLoss:
        return SelfGuidedLoss(student, **loss_settings(self.options))


class SgOpt(SelfGuided):
    """``--method sg-opt``."""

    name = "sg-opt"
    summary = "self-guidance with the optimised objective: every layer's view is a positive (L_opt3)"
    reference = "Kim, Yoo and Lee, ACL 2021"
    preset = {"objective": "sg-opt"}


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
