"""What a method is: options, and ``fit(encoder, text, run) -> SentenceTransformer``."""

from __future__ import annotations

import typing
from abc import ABC, abstractmethod
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

from selfguide.errors import UsageError
from selfguide.training.settings import TrainingSettings
from selfguide.training.trainer import FitContext, Optimisers, TrainingOutcome, fine_tune

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer
    from torch import nn

    from selfguide.methods.registry import MethodEntry


class Method(ABC):
    """A way to make a sentence encoder of an encoder and unlabelled text.

    A subclass names its ``Options`` (a frozen dataclass whose fields are documented and checked) and may change
    ``defaults``, the training settings it starts from.
    """

    Options: ClassVar[type[Any]]
    defaults: ClassVar[TrainingSettings] = TrainingSettings()
    citation: ClassVar[str] = ""
    few_steps: ClassVar[int] = 0
    """With fewer steps than these the encoder is likely to end worse than it began; a run that short is warned about."""

    def __init__(self, entry: MethodEntry, options: dict[str, Any]) -> None:
        self.entry = entry
        known = {field.name for field in fields(self.Options)} - set(entry.preset)
        for name in options:
            if name not in known:
                raise UsageError(
                    f"The method {entry.name} has no option {name!r}; it takes {', '.join(sorted(known))} "
                    f"(`selfguide methods {entry.name}` explains them)."
                )
        self.options = self.Options(**{**entry.preset, **options})

    def describe_options(self) -> dict[str, Any]:
        """The options as plain values, for ``run.json``; what the method's name fixes is left out."""
        return {name: value for name, value in asdict(self.options).items() if name not in self.entry.preset}

    def check(self) -> None:  # noqa: B027 (most methods have nothing to refuse)
        """Refuse, before any text is read, what cannot work: a file that an option must name, a program not installed."""

    @abstractmethod
    def fit(self, encoder: SentenceTransformer, context: FitContext) -> TrainingOutcome:
        """Make the sentence encoder."""


class TuningMethod(Method):
    """A method that fine-tunes: it prepares a student and gives a loss; the training path is everyone's."""

    context: FitContext
    """The run's text, settings, work folder and reporter; there from the start of :meth:`fit` on, for the hooks below."""

    @abstractmethod
    def student(self, encoder: SentenceTransformer) -> SentenceTransformer:
        """The encoder to be tuned: its pooling chosen, what must not move frozen."""

    @abstractmethod
    def loss(self, student: SentenceTransformer) -> nn.Module:
        """A sentence-transformers loss over the student."""

    def dataset(self, text: Dataset) -> Dataset:
        """What is trained on: the text's one column ``sentence``, unless the method makes something else of it.

        Columns of text become the loss's inputs in their order; a column ``label`` becomes its labels.
        """
        return text

    def finished(self, student: SentenceTransformer) -> SentenceTransformer:
        """The encoder as it is handed out and as dev pairs score it; may share its weights with the student."""
        return student

    def optimiser(self, loss: nn.Module, steps: int) -> Optimisers:
        """An optimiser and schedule of the method's own, over the loss's parameters (the student's are among them).

        A method that does not define it gets AdamW with a linear warm-up and decay.
        """
        raise NotImplementedError

    def fit(self, encoder: SentenceTransformer, context: FitContext) -> TrainingOutcome:
        self.context = context
        context = replace(context, text=self.dataset(context.text))
        own = type(self).optimiser is not TuningMethod.optimiser
        return fine_tune(
            self.student(encoder),
            self.loss,
            context,
            finished=self.finished if type(self).finished is not TuningMethod.finished else None,
            make_optimiser=self.optimiser if own else None,
        )


def option_types(options: type[Any]) -> dict[str, Any]:
    """The type of each option, resolved, so that the command line can turn words into values."""
    return typing.get_type_hints(options)
