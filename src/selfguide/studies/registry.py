"""What studies there are. Importing this imports no study and no torch, so that listing them is quick."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from selfguide.errors import UsageError

if TYPE_CHECKING:
    from selfguide.studies.base import Study


@dataclass(frozen=True)
class StudyEntry:
    """One line of the registry."""

    name: str
    title: str
    question: str
    """What it answers, in one sentence."""
    implementation: str
    """``module:Class`` inside :mod:`selfguide.studies`."""
    reference: str = ""
    """Whose table or figure it is."""


_KIM = "Kim, Yoo and Lee, ACL 2021"
_YAN = "Yan et al., ACL 2021"

STUDIES: tuple[StudyEntry, ...] = (
    StudyEntry(
        "ablation",
        "Ablation of SG-OPT",
        "Which parts of SG-OPT matter, and how much?",
        "ablation:Ablation",
        reference=_KIM,
    ),
    StudyEntry(
        "temperature",
        "Temperature",
        "How much does the temperature of the contrast matter?",
        "temperature:Temperature",
        reference=_KIM,
    ),
    StudyEntry(
        "batch-size",
        "Batch size",
        "Do more sentences in a batch, and so more negatives, help?",
        "batch_size:BatchSize",
        reference=_YAN,
    ),
    StudyEntry(
        "low-resource",
        "Few sentences",
        "How many sentences does tuning need?",
        "low_resource:LowResource",
        reference=_YAN,
    ),
    StudyEntry(
        "augmentations",
        "Pairs of augmentations",
        "Which two changes to a sentence make the best pair for ConSERT?",
        "augmentations:Augmentations",
        reference=_YAN,
    ),
    StudyEntry(
        "layers",
        "Layers and poolings",
        "Which layer and pooling of the untuned encoder know most about meaning, and where does the tuned [CLS] stand?",
        "layers:Layers",
        reference=_KIM,
    ),
    StudyEntry(
        "efficiency",
        "Time and memory",
        "What do the methods cost, in training and in use?",
        "efficiency:Efficiency",
        reference=_KIM,
    ),
    StudyEntry(
        "frequent-tokens",
        "Frequent tokens",
        "Do a few frequent tokens spoil the mean of a sentence, before and after tuning?",
        "frequent_tokens:FrequentTokens",
        reference=_YAN,
    ),
    StudyEntry(
        "geometry",
        "Geometry of the vectors",
        "How do the vectors lie in space, before and after tuning?",
        "geometry:Geometry",
        reference="Wang and Isola, ICML 2020; Ethayarajh, EMNLP 2019",
    ),
    StudyEntry(
        "domains",
        "Texts and test sets",
        "Does it matter which text a method is tuned on, and does a text of the test set's own kind help?",
        "domains:Domains",
        reference=_KIM,
    ),
    StudyEntry(
        "finetune",
        "Fine-tuning afterwards",
        "Does tuning without labels help or hurt a later supervised fine-tuning?",
        "finetune:FineTune",
    ),
    StudyEntry(
        "multilingual",
        "Other languages",
        "Does tuning on English sentences help in other languages? Needs a multilingual encoder.",
        "multilingual:Multilingual",
    ),
)


def entry(name: str) -> StudyEntry:
    """The registry's line for a study's name."""
    for candidate in STUDIES:
        if candidate.name == name:
            return candidate
    names = [candidate.name for candidate in STUDIES]
    close = difflib.get_close_matches(name, names, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise UsageError(f"There is no study {name!r}.{hint} `selfguide study --list` tells of them: {', '.join(names)}.")


def make(name: str) -> Study:
    """The study of a name (imports it)."""
    found = entry(name)
    module, _, attribute = found.implementation.partition(":")
    study: Study = getattr(import_module(f"selfguide.studies.{module}"), attribute)(found)
    return study
