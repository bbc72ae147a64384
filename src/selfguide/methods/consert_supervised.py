"""ConSERT with labels: classification of labelled pairs and contrast, together or one after the other.

Three ways to use labelled pairs (premise, hypothesis, label) beside unlabelled text:

    consert-joint         on the pairs:  L_ce + α L_con                                  (:mod:`selfguide.losses.joint`)
    consert-sup-unsup     on the pairs:  L_ce;            then on the text: L_con        (:mod:`selfguide.losses.consert`)
    consert-joint-unsup   on the pairs:  L_ce + α L_con;  then on the text: L_con

L_ce is the classification loss of :class:`~selfguide.losses.NLISoftmaxLoss` and L_con a contrast of two copies of each
sentence. On the pairs one copy is the sentence as it is and the other has tokens cut, or is ``adversarial``: moved along the
gradient of L_ce. On the text the copies are those of the method consert.

The two-stage methods take their training settings (epochs, learning rate) for the second stage, on the text, as consert does;
the first stage has its own (``nli_epochs``, ``nli_learning_rate``). Batch size, length, ``max_steps`` (in each stage) and
everything else are common. The classifier is dropped after the stage that trained it.

Training as in the authors' released scripts: as the method consert, with 25 epochs on the text; on the pairs one epoch at 2e-5
without early stopping.

Differences from the scripts, besides those of the losses: the encoder's dropout is off in the second stage,
as in the method consert, where the scripts leave it on; the copies on the text are consert's, where the scripts contrast the
sentence as it is with one changed copy.

Reference: Yan et al., ConSERT: A Contrastive Framework for Self-Supervised Sentence Representation Transfer, ACL 2021.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from selfguide.augment.dropout import DROPOUT_RATE, KEEP_DROPOUT
from selfguide.augment.embeddings import RATE
from selfguide.data.nli import NO_FILE, check_option, read_nli
from selfguide.losses.consert import CITATION, ConSERTLoss, ConSERTOptions
from selfguide.losses.joint import NOISE, STEP, JointLoss, check_copy
from selfguide.losses.nli import NLISoftmaxLoss
from selfguide.losses.rules import WEIGHT
from selfguide.methods.base import TuningMethod
from selfguide.methods.search import BATCHES, CONSERT, RATES
from selfguide.models.encoders import freeze_layer_zero, with_pooling
from selfguide.options import Above
from selfguide.training.settings import TrainingSettings
from selfguide.training.stages import combine_stages, earlier_stage
from selfguide.training.trainer import FitContext, TrainingOutcome, fine_tune

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer

FIRST_STAGE = "nli"


@dataclass(frozen=True)
class JointOptions(ConSERTOptions):
    """Options of joint training; the defaults are those of the authors' script."""

    nli: str = NO_FILE
    """Labelled pairs (a file must be named): label, premise, hypothesis, with tabs; patterns and commas make it several."""
    alpha: Annotated[float, WEIGHT] = 0.15
    """α: weight of the contrast beside the labels."""
    first: str = "none"
    """Augmentation of the first copy: none, shuffle, token-cutoff, feature-cutoff, dropout, several with +, or adversarial."""
    second: str = "token-cutoff"
    """Augmentation of the second copy."""
    noise: Annotated[float, NOISE] = 1.0
    """Length of the adversarial step of each token, or the factor of the gradient."""
    step: Annotated[str, STEP] = "normalised"
    """Adversarial step: normalised (one length for all tokens, as the authors' code has it) or gradient (as the paper has it)."""
    token_cutoff_rate: Annotated[float, RATE] = 0.1
    """Fraction of the tokens that token-cutoff sets to zero."""
    dropout: Annotated[float, DROPOUT_RATE] = KEEP_DROPOUT
    """Rate of the encoder's own dropout during training; -1: keep it."""

    def check_augmentation(self, names: str) -> None:
        """See :meth:`ConSERTOptions.check_augmentation`; ``adversarial`` is allowed too."""
        check_copy(names, self.rates)


@dataclass(frozen=True)
class SupUnsupOptions(ConSERTOptions):
    """Options of two stages; those of the second are the method consert's."""

    nli: str = NO_FILE
    """Labelled pairs (a file must be named): label, premise, hypothesis, with tabs; patterns and commas make it several."""
    nli_epochs: Annotated[float, Above(0)] = 1.0
    """Passes over the labelled pairs, in the first stage."""
    nli_learning_rate: Annotated[float, Above(0)] = 2e-5
    """Peak learning rate of the first stage."""


@dataclass(frozen=True)
class JointUnsupOptions(SupUnsupOptions):
    """Options of the joint stage and the stage on the text after it."""

    alpha: Annotated[float, WEIGHT] = 0.15
    """α: weight of the contrast beside the labels, in the first stage."""
    joint_first: str = "none"
    """Augmentation of the first copy in the first stage: as first, or adversarial."""
    joint_second: str = "token-cutoff"
    """Augmentation of the second copy in the first stage."""
    noise: Annotated[float, NOISE] = 1.0
    """Length of the adversarial step of each token, or the factor of the gradient."""
    step: Annotated[str, STEP] = "normalised"
    """Adversarial step: normalised (one length for all tokens, as the authors' code has it) or gradient (as the paper has it)."""
    token_cutoff_rate: Annotated[float, RATE] = 0.1
    """Fraction of the tokens that token-cutoff sets to zero."""

    def __post_init__(self) -> None:
        """Check the augmentations of the first stage too."""
        super().__post_init__()
        for names in (self.joint_first, self.joint_second):
            check_copy(names, self.rates)


class ConsertJoint(TuningMethod):
    """``--method consert-joint``; the run's text is not trained on."""

    name = "consert-joint"
    summary = "classification of labelled pairs, and consert's contrast on the same pairs"
    reference = "Yan et al., ACL 2021"
    needs_labels = True
    made_for = "raw language model"
    Options = JointOptions
    options: JointOptions
    defaults = TrainingSettings(batch_size=96, learning_rate=2e-5, epochs=1.0, weight_decay=0.01, patience=0)
    citation = CITATION
    search = {
        "learning_rate": RATES,
        "batch_size": BATCHES,
        "alpha": (0.05, 0.15, 0.5),
        "first": ("none", "shuffle", "feature-cutoff"),
        "second": ("token-cutoff", "shuffle", "feature-cutoff"),
        "temperature": (0.05, 0.1, 0.2),
        "eval_pooling": ("last2", "mean"),
    }

    def check(self) -> None:
        """See :meth:`Method.check`."""
        check_option(self.options.nli, self.name)

    def dataset(self, text: Dataset) -> Dataset:
        """See :meth:`TuningMethod.dataset`."""
        return read_nli(self.options.nli, self.context.reporter)

    def loss(self, student: SentenceTransformer) -> JointLoss:
        """See :meth:`TuningMethod.loss`."""
        return JointLoss(student, **{name: getattr(self.options, name) for name in JointLoss.config_names})


class ConsertSupUnsup(TuningMethod):
    """``--method consert-sup-unsup``: labelled pairs first, the text afterwards."""

    name = "consert-sup-unsup"
    summary = "classification of labelled pairs, then consert on the text"
    reference = "Yan et al., ACL 2021"
    needs_labels = True
    made_for = "raw language model"
    Options = SupUnsupOptions
    options: SupUnsupOptions
    defaults = TrainingSettings(batch_size=96, learning_rate=5e-7, epochs=25.0, weight_decay=0.01, patience=10)
    citation = CITATION
    search = CONSERT | {"nli_learning_rate": RATES}

    def check(self) -> None:
        """See :meth:`Method.check`."""
        check_option(self.options.nli, self.name)

    def fit(self, encoder: SentenceTransformer, context: FitContext) -> TrainingOutcome:
        """See :meth:`Method.fit`."""
        self.context = context
        options = self.options
        pairs = read_nli(options.nli, context.reporter)
        settings = replace(context.settings, epochs=options.nli_epochs, learning_rate=options.nli_learning_rate)
        student = self.student(encoder)
        on_pairs = replace(context, text=pairs, settings=settings)
        earlier = earlier_stage(student, self.supervised_loss, on_pairs, FIRST_STAGE, self.deployable)
        context.reporter.note("Stage 'text':")
        return combine_stages(earlier, fine_tune(student, self.loss, context, deployable=self.deployable))

    def student(self, encoder: SentenceTransformer) -> SentenceTransformer:
        """See :meth:`TuningMethod.student`."""
        student = with_pooling(encoder, self.options.pooling)
        if self.options.freeze_layer_0:  # in both stages
            freeze_layer_zero(student)
        return student

    def supervised_loss(self, student: SentenceTransformer) -> NLISoftmaxLoss:
        """Make the loss of the first stage.

        Args:
            student: What :meth:`student` returned.

        Returns:
            A loss over labelled pairs.
        """
        return NLISoftmaxLoss(student)

    def loss(self, student: SentenceTransformer) -> ConSERTLoss:
        """See :meth:`TuningMethod.loss`."""
        return ConSERTLoss(student, **self.options.loss_settings())


class ConsertJointUnsup(ConsertSupUnsup):
    """``--method consert-joint-unsup``: both losses on labelled pairs first, the text afterwards."""

    name = "consert-joint-unsup"
    summary = "as consert-joint, then consert on the text"
    reference = "Yan et al., ACL 2021"
    needs_labels = True
    Options = JointUnsupOptions
    options: JointUnsupOptions
    search = ConsertSupUnsup.search | {"alpha": (0.05, 0.15, 0.5)}

    def supervised_loss(self, student: SentenceTransformer) -> JointLoss:
        """See :meth:`ConsertSupUnsup.supervised_loss`."""
        options = self.options
        return JointLoss(
            student,
            alpha=options.alpha,
            first=options.joint_first,
            second=options.joint_second,
            temperature=options.temperature,
            noise=options.noise,
            step=options.step,
            rates=options.rates,
        )
