"""What a method is: metadata, options and ``fit(encoder, context) -> TrainingOutcome``.

A custom method derives from :class:`Method`, or from :class:`TuningMethod` if it fine-tunes the encoder with a
sentence-transformers loss, and is passed to :func:`selfguide.train` or :func:`selfguide.compare` as a class or an instance.
Its metadata are attributes of the class: name, family, options and training settings.
"""

from __future__ import annotations

import re
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from selfguide.errors import UsageError, suggestion
from selfguide.models.encoders import with_pooling
from selfguide.models.starting_points import RAW, SENTENCE_ENCODER, StartingPoint
from selfguide.options import CheckedOptions
from selfguide.training.checkpointed_trainer import Optimiser, Scheduler
from selfguide.training.settings import TRAINING_ONLY, TrainingSettings
from selfguide.training.trainer import FitContext, TrainingOutcome, fine_tune

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer
    from torch import nn

    from selfguide.calibration.linear_maps import LinearMap
    from selfguide.calibration.text_statistics import TextStatistics
    from selfguide.progress import Reporter

Family = Literal["pooling", "calibration", "tuning"]
"""Nothing is trained, a map is fitted on embeddings of the text, or the encoder is fine-tuned."""


@dataclass(frozen=True)
class NoOptions(CheckedOptions):
    """No options."""


class Method(ABC):
    """A way to make a sentence encoder from an encoder and unlabelled text.

    A subclass sets the class attributes that differ from these defaults and implements :meth:`fit`. ``Options`` is a frozen
    dataclass deriving from :class:`~selfguide.options.CheckedOptions`; a string below each field is its documentation,
    which ``selfguide methods NAME`` shows.

    Args:
        **options: Values of the method's options; the others keep their defaults.

    Raises:
        UsageError: An option is unknown, or its value is not allowed.
    """

    name: ClassVar[str] = ""
    """The method's name; by default the class's name, hyphenated."""
    family: ClassVar[Family] = "pooling"
    summary: ClassVar[str] = ""
    """One line for lists and model cards; by default the first line of the class's docstring."""
    reference: ClassVar[str] = ""
    """The paper it comes from."""
    needs_labels: ClassVar[bool] = False
    seeded: ClassVar[bool] = False
    """Whether another seed gives another result; a comparison runs the others once."""
    trains: ClassVar[bool] = False
    """Whether there are training steps, so that training settings such as the learning rate matter."""
    is_floor: ClassVar[bool] = False
    """Whether it is a floor that only counts words; a comparison marks the rows that score below it."""
    cost: ClassVar[str] = "one forward pass"
    """What encoding one sentence costs."""
    refits: ClassVar[bool] = False
    """Whether it is a :class:`CalibratedMethod`."""
    made_for: ClassVar[str] = "any"
    """Kind of encoder that its defaults are made for: ``any``, or one of :mod:`selfguide.models.starting_points`. A method for
    raw language models is warned about on a sentence encoder."""
    is_default: ClassVar[bool] = False
    """Whether a run that names no method takes it, for encoders of the kind that it is made for."""
    preset: ClassVar[Mapping[str, Any]] = {}
    """Options that the method's name fixes; users cannot change them."""

    Options: ClassVar[type[Any]] = NoOptions
    defaults: ClassVar[TrainingSettings] = TrainingSettings()
    """The training settings it starts from."""
    citation: ClassVar[str] = ""
    search: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    """Values to draw from when settings are chosen on dev pairs: training settings and options by name."""
    few_steps: ClassVar[int] = 0
    """Below this number of steps, at the method's own batch size, the encoder is likely to end worse than it began; a run
    that sees fewer sentences than that gets a warning."""
    without_effect: ClassVar[frozenset[str] | None] = None
    """Training settings that the method does not use, so that they are refused; ``None``: all that concern training if it does
    not train, and otherwise none, but for the training length if it does not tune."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Fill in the name and the summary that a subclass leaves out."""
        super().__init_subclass__(**kwargs)
        if not cls.__dict__.get("name"):
            cls.name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", cls.__name__).lower()
        if not cls.__dict__.get("summary"):
            cls.summary = (cls.__doc__ or cls.name).strip().splitlines()[0].rstrip(".")

    def __init__(self, **options: Any) -> None:
        known = {item.name for item in fields(self.Options)} - set(self.preset)
        for name in options:
            if name not in known:
                hint = suggestion(name, [*known, *(item.name for item in fields(TrainingSettings))])
                takes = f"it takes {', '.join(sorted(known))}" if known else "it takes none"
                raise UsageError(
                    f"The method {self.name} has no option {name!r}; {takes} (`selfguide methods {self.name}` explains "
                    f"them).{hint}"
                )
        self.options = self.Options(**{**self.preset, **options})

    def describe_options(self) -> dict[str, Any]:
        """Return the options as plain values, as ``run.json`` keeps them; what the name fixes is left out."""
        return {name: value for name, value in asdict(self.options).items() if name not in self.preset}

    @classmethod
    def refused_settings(cls) -> frozenset[str]:
        """Return the training settings that the method does not use."""
        if cls.without_effect is not None:
            return cls.without_effect
        if not cls.trains:
            return TRAINING_ONLY
        return frozenset() if cls.family == "tuning" else frozenset({"max_length"})

    def unused_settings(self) -> frozenset[str]:
        """Return the training settings that the method does not use with the options it has; by default as the class says."""
        return self.refused_settings()

    def check(self) -> None:  # noqa: B027 (most methods have nothing to refuse)
        """Reject what cannot work before any text is read: a missing file, a program that is not installed.

        Raises:
            SelfguideError: The method cannot run here with these options.
        """

    def check_start(self, start: StartingPoint, name: str, reporter: Reporter) -> None:
        """Reject an encoder, or warn about it, before any text is read.

        Args:
            start: What the encoder is.
            name: What to call it.
            reporter: Gets a warning where the method's defaults are made for raw models and the encoder is a sentence encoder.

        Raises:
            SelfguideError: The method cannot start from such an encoder.
        """
        if self.made_for == RAW and start.kind == SENTENCE_ENCODER:
            reporter.warn(
                f"{start.describe(name)[:-1]}. The defaults of {self.name} are made for raw language models and may make it "
                "worse; leave --method out to adapt it instead."
            )

    @abstractmethod
    def fit(self, encoder: SentenceTransformer, context: FitContext) -> TrainingOutcome:
        """Make the sentence encoder.

        Args:
            encoder: The encoder to start from; it may be changed in place.
            context: The text, the training settings, the work folder, the reporter and the dev evaluator.

        Returns:
            The finished encoder and the record of its training.
        """


class TuningMethod(Method):
    """A method that fine-tunes the encoder: it prepares a student and gives a loss; the training path is shared."""

    family = "tuning"
    seeded = True
    trains = True
    context: FitContext
    """The run's text, settings, work folder and reporter; set before the hooks below are called."""

    def student(self, encoder: SentenceTransformer) -> SentenceTransformer:
        """Prepare the encoder to be tuned: choose its pooling, freeze what is not trained.

        Args:
            encoder: The encoder to start from.

        Returns:
            The student; by default the encoder with the pooling that the option ``pooling`` names, if there is such an option.
        """
        return _pooled(encoder, self.options, "pooling")

    @abstractmethod
    def loss(self, student: SentenceTransformer) -> nn.Module:
        """Make the loss.

        Args:
            student: What :meth:`student` returned.

        Returns:
            A sentence-transformers loss over the student.
        """

    def dataset(self, text: Dataset) -> Dataset:
        """Make the training set from the text.

        Args:
            text: A dataset with one column, ``sentence``.

        Returns:
            The dataset to train on; its text columns are the loss's inputs in their order, a column ``label`` its labels.
        """
        return text

    def deployable(self, student: SentenceTransformer) -> SentenceTransformer:
        """Return the encoder as it is saved and scored on dev pairs; it may share its weights with the student.

        Args:
            student: What :meth:`student` returned.

        Returns:
            By default the student, with the pooling that the option ``eval_pooling`` names, if there is such an option.
        """
        return _pooled(student, self.options, "eval_pooling")

    def optimiser(self, loss: nn.Module) -> Optimiser | None:
        """Make the optimiser; a method without this hook trains with AdamW.

        Args:
            loss: The loss, whose parameters include the student's.

        Returns:
            The optimiser over what is to be trained, or ``None`` for AdamW with the run's settings.
        """
        return None

    def scheduler(self, optimiser: Optimiser, steps: int) -> Scheduler | None:
        """Make the learning-rate scheduler; a method without this hook has that of the training settings.

        Args:
            optimiser: The optimiser.
            steps: Training steps of the run.

        Returns:
            The scheduler, which is stepped after every training step, or ``None`` for that of the run's settings.
        """
        return None

    def fit(self, encoder: SentenceTransformer, context: FitContext) -> TrainingOutcome:
        """See :meth:`Method.fit`."""
        self.context = context
        context = replace(context, text=self.dataset(context.text))
        few = self.few_steps * self.defaults.batch_size
        own = {hook for hook in ("deployable", "optimiser", "scheduler") if self._overrides(hook)}
        if hasattr(self.options, "eval_pooling"):
            own.add("deployable")
        return fine_tune(
            self.student(encoder),
            self.loss,
            context,
            deployable=self.deployable if "deployable" in own else None,
            make_optimiser=self.optimiser if "optimiser" in own else None,
            make_scheduler=self.scheduler if "scheduler" in own else None,
            few_sentences=few,
        )

    def _overrides(self, hook: str) -> bool:
        return getattr(type(self), hook) is not getattr(TuningMethod, hook)


def _pooled(encoder: SentenceTransformer, options: Any, option: str) -> SentenceTransformer:
    pooling = getattr(options, option, None)
    return encoder if pooling is None else with_pooling(encoder, pooling)


class CalibratedMethod(Method):
    """A method whose encoder ends in a linear map fitted on text, which ``selfguide calibrate`` can fit again.

    The run folder keeps the statistics that the map is computed from, so that more text can be added exactly.
    """

    refits = True

    @staticmethod
    def without_map(encoder: SentenceTransformer) -> SentenceTransformer:
        """Return the encoder without its last module, the map; the weights are shared."""
        from sentence_transformers import SentenceTransformer

        return SentenceTransformer(modules=list(encoder)[:-1], device=str(encoder.device)).eval()

    @abstractmethod
    def part_widths(self, width: int) -> tuple[int, ...]:
        """Return the widths of the parts that an embedding of this width, before the map, is made of."""

    @abstractmethod
    def text_statistics(
        self, encoder: SentenceTransformer, text: Iterable[list[str]], batch_size: int, reporter: Reporter
    ) -> TextStatistics:
        """Measure text for the map.

        Args:
            encoder: The finished encoder, map included.
            text: Sentences in chunks; it may be a stream, so it is read once.
            batch_size: Sentences per forward pass.
            reporter: Shows progress.

        Returns:
            The statistics, which can be merged with those of other text.
        """

    @abstractmethod
    def refit(
        self,
        encoder: SentenceTransformer,
        statistics: TextStatistics,
        reporter: Reporter,
        chosen: Mapping[str, float],
    ) -> LinearMap:
        """Compute the map from the statistics.

        Args:
            encoder: The finished encoder.
            statistics: Of all text that the map is to be fitted on.
            reporter: Gets a warning where the text is small.
            chosen: Options that dev pairs chose when the encoder was made.

        Returns:
            The linear map that replaces the encoder's last module.
        """


class LossFunction(TuningMethod):
    """A loss given as a function of the model, trained on every sentence paired with itself.

    Made by :func:`from_loss`; the pooling is the encoder's own.
    """

    make_loss: ClassVar[Callable[[Any], nn.Module]]

    def dataset(self, text: Dataset) -> Dataset:
        """See :meth:`TuningMethod.dataset`: columns ``anchor`` and ``positive``, the same sentence in both."""
        return text.rename_column("sentence", "anchor").add_column("positive", text["sentence"][:])

    def loss(self, student: SentenceTransformer) -> nn.Module:
        """See :meth:`TuningMethod.loss`."""
        loss = type(self).make_loss(student)
        if not callable(getattr(loss, "forward", None)):
            raise UsageError(
                f"The method {self.name} must make a sentence-transformers loss of a model, but gave {type(loss).__name__}."
            )
        return loss


def from_loss(make_loss: Callable[[Any], nn.Module], name: str | None = None) -> type[LossFunction]:
    """Make a method from a function that makes a sentence-transformers loss from a model.

    Args:
        make_loss: Takes the ``SentenceTransformer``, returns the loss; a loss class does.
        name: What to call the method; by default the function's own name.

    Returns:
        A :class:`TuningMethod` class.
    """
    called = name or getattr(make_loss, "__name__", type(make_loss).__name__).replace("<lambda>", "loss")
    summary = f"the loss {called} on every sentence paired with itself"
    return type(called, (LossFunction,), {"name": called, "summary": summary, "make_loss": staticmethod(make_loss)})


def option_types(options: type[Any]) -> dict[str, Any]:
    """Return the type of each option, so that the command line can turn words into values."""
    return typing.get_type_hints(options)
