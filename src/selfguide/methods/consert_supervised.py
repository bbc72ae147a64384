"""ConSERT with labels: classification of labelled pairs and contrast, together or one after the other.

Three ways to use labelled pairs (premise, hypothesis, label) beside unlabelled text:

    consert-joint         on the pairs:  L_ce + α L_con                                  (:mod:`selfguide.losses.joint`)
    consert-sup-unsup     on the pairs:  L_ce;            then on the text: L_con        (:mod:`selfguide.losses.consert`)
    consert-joint-unsup   on the pairs:  L_ce + α L_con;  then on the text: L_con

L_ce is the cross-entropy of softmax(W (u, v, |u − v|)), with u and v the means of the last layer's tokens; L_con is NT-Xent
over two copies of each sentence, changed at the embedding layer. On the pairs one copy is the sentence as it is and the other
has tokens cut, or is ``adversarial``: moved along the gradient of L_ce. On the text the copies are those of the method consert.

In the methods of two stages the training settings (epochs, learning rate) are those of the second, on the text, as with
consert; the first has its own (``nli_epochs``, ``nli_learning_rate``). Batch size, length, ``max_steps`` (in each stage) and all
else are common. W is dropped after the stage that trained it.

Differences from the authors' released scripts: the classifier sees (u, v, |u − v|) as in the paper, where the scripts add
max(u, v)²; the encoder's dropout is off in the second stage, as in the method consert, where the scripts leave it on; the
copies on the text are consert's, where the scripts set the sentence as it is against one changed copy. Equal premises in a
batch (SNLI has each three times) count as different sentences in the contrast, as they do in the scripts.

Reference: Yan et al., ConSERT: A Contrastive Framework for Self-Supervised Sentence Representation Transfer, ACL 2021.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from selfguide.augment.dropout import OWN
from selfguide.data.nli import NO_FILE, check_option, read_nli
from selfguide.errors import UsageError
from selfguide.losses.consert import CITATION, ConsertLoss, ConsertOptions, consert_loss
from selfguide.losses.joint import JointLoss, check_copy, check_numbers
from selfguide.losses.nli import PairLoss
from selfguide.methods.base import TuningMethod
from selfguide.models.encoders import freeze_layer_zero, with_pooling
from selfguide.training.settings import TrainingSettings
from selfguide.training.stages import combine_stages, earlier_stage
from selfguide.training.trainer import FitContext, TrainingOutcome, fine_tune

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer

FIRST_STAGE = "nli"


@dataclass(frozen=True)
class JointOptions(ConsertOptions):
    """Options of joint training; the defaults are those of the authors' script."""

    nli: str = NO_FILE
    """Labelled pairs (a file must be named): label, premise, hypothesis, with tabs; patterns and commas make it several."""
    alpha: float = 0.15
    """α: weight of the contrast beside the labels."""
    first: str = "none"
    """What is done to the first copy: none, shuffle, token-cutoff, feature-cutoff, dropout, several with +, or adversarial."""
    second: str = "token-cutoff"
    """What is done to the second copy."""
    noise: float = 1.0
    """Length of the adversarial step of each token."""
    token_cutoff_rate: float = 0.1
    """Share of the tokens that token-cutoff sets to zero."""
    dropout: float = OWN
    """Rate of the encoder's own dropout while training; -1: as it is."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(self.alpha, self.noise, self.temperature)

    def check_copy(self, words: str) -> None:
        check_copy(words, self.rates)


@dataclass(frozen=True)
class SupUnsupOptions(ConsertOptions):
    """Options of the two stages one after the other; those of the second are the method consert's."""

    nli: str = NO_FILE
    """Labelled pairs (a file must be named): label, premise, hypothesis, with tabs; patterns and commas make it several."""
    nli_epochs: float = 1.0
    """Passes over the labelled pairs, in the first stage."""
    nli_learning_rate: float = 2e-5
    """Highest learning rate of the first stage."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("nli_epochs", "nli_learning_rate"):
            if not getattr(self, name) > 0:
                raise UsageError(f"{name} must be above 0, got {getattr(self, name)}.")


@dataclass(frozen=True)
class JointUnsupOptions(SupUnsupOptions):
    """Options of the joint stage and the one on the text after it."""

    alpha: float = 0.15
    """α: weight of the contrast beside the labels, in the first stage."""
    joint_first: str = "none"
    """What the first stage does to the first copy: as first, or adversarial."""
    joint_second: str = "token-cutoff"
    """What the first stage does to the second copy."""
    noise: float = 1.0
    """Length of the adversarial step of each token."""
    token_cutoff_rate: float = 0.1
    """Share of the tokens that token-cutoff sets to zero."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(self.alpha, self.noise, self.temperature)
        for words in (self.joint_first, self.joint_second):
            check_copy(words, self.rates)


class ConsertJoint(TuningMethod):
    """``--method consert-joint``; the run's text is not trained on."""

    name = "consert-joint"
    summary = "classification of labelled pairs, and consert's contrast on the same pairs"
    reference = "Yan et al., ACL 2021"
    needs_labels = True
    Options = JointOptions
    options: JointOptions
    defaults = TrainingSettings(batch_size=96, learning_rate=2e-5, max_length=64, epochs=1.0)
    citation = CITATION

    def check(self) -> None:
        check_option(self.options.nli, self.name)

    def dataset(self, text: Dataset) -> Dataset:
        return read_nli(self.options.nli, self.context.reporter)

    def student(self, encoder: SentenceTransformer) -> SentenceTransformer:
        return with_pooling(encoder, self.options.pooling)

    def loss(self, student: SentenceTransformer) -> JointLoss:
        options = self.options
        return JointLoss(
            student,
            alpha=options.alpha,
            first=options.first,
            second=options.second,
            temperature=options.temperature,
            noise=options.noise,
            rates=options.rates,
            dropout=options.dropout,
            freeze_layer_0=options.freeze_layer_0,
        )

    def finished(self, student: SentenceTransformer) -> SentenceTransformer:
        return with_pooling(student, self.options.eval_pooling)


class ConsertSupUnsup(TuningMethod):
    """``--method consert-sup-unsup``: labelled pairs first, the text afterwards."""

    name = "consert-sup-unsup"
    summary = "classification of labelled pairs, then consert on the text"
    reference = "Yan et al., ACL 2021"
    needs_labels = True
    Options = SupUnsupOptions
    options: SupUnsupOptions
    defaults = TrainingSettings(batch_size=96, learning_rate=5e-7, max_length=64, epochs=10.0)
    citation = CITATION

    def check(self) -> None:
        check_option(self.options.nli, self.name)

    def fit(self, encoder: SentenceTransformer, context: FitContext) -> TrainingOutcome:
        self.context = context
        options = self.options
        pairs = read_nli(options.nli, context.reporter)
        settings = replace(context.settings, epochs=options.nli_epochs, learning_rate=options.nli_learning_rate)
        student = self.student(encoder)
        on_pairs = replace(context, text=pairs, settings=settings)
        earlier = earlier_stage(student, self.supervised_loss, on_pairs, FIRST_STAGE, self.finished)
        context.reporter.note("Stage 'text':")
        return combine_stages(earlier, fine_tune(student, self.loss, context, deployable=self.finished))

    def student(self, encoder: SentenceTransformer) -> SentenceTransformer:
        student = with_pooling(encoder, self.options.pooling)
        if self.options.freeze_layer_0:  # in both stages
            freeze_layer_zero(student)
        return student

    def supervised_loss(self, student: SentenceTransformer) -> PairLoss:
        """The first stage's loss."""
        return PairLoss(student)

    def loss(self, student: SentenceTransformer) -> ConsertLoss:
        return consert_loss(student, self.options)

    def finished(self, student: SentenceTransformer) -> SentenceTransformer:
        return with_pooling(student, self.options.eval_pooling)


class ConsertJointUnsup(ConsertSupUnsup):
    """``--method consert-joint-unsup``: both losses on labelled pairs first, the text afterwards."""

    name = "consert-joint-unsup"
    summary = "as consert-joint, then consert on the text"
    reference = "Yan et al., ACL 2021"
    needs_labels = True
    Options = JointUnsupOptions
    options: JointUnsupOptions

    def supervised_loss(self, student: SentenceTransformer) -> JointLoss:
        options = self.options
        return JointLoss(
            student,
            alpha=options.alpha,
            first=options.joint_first,
            second=options.joint_second,
            temperature=options.temperature,
            noise=options.noise,
            rates=options.rates,
        )
