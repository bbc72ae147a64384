"""Losses for sentence embeddings, most of them without labels, for anyone's ``SentenceTransformerTrainer``.

Each class is an ordinary sentence-transformers loss with ``get_config_dict()`` and ``citation``; most train on a dataset with a
single column of sentences. What a loss trains besides the model (a projection head, a decoder) stays in the loss.

| Loss | Inputs | From |
|---|---|---|
| :class:`SelfGuidedLoss` | sentence | SG and SG-OPT (ACL 2021) |
| :class:`SelfGuidedTranslationLoss` | sentence, translation | SG-OPT with back-translation |
| :class:`DropoutContrastLoss` | sentence | SimCSE (EMNLP 2021) |
| :class:`GuidedContrastLoss` | sentence | adaptation of sentence encoders (this package) |
| :class:`ConSERTLoss` | sentence | ConSERT (ACL 2021) |
| :class:`MirrorLoss` | sentence | Mirror-BERT (EMNLP 2021) |
| :class:`ClearLoss` | sentence | CLEAR (2020) |
| :class:`ContrastiveTensionLoss` | sentence | Contrastive Tension (ICLR 2021) |
| :class:`ContrastiveTensionInBatchLoss` | sentence | Contrastive Tension with in-batch negatives |
| :class:`InfoMaxLoss` | sentence | IS-BERT (EMNLP 2020) |
| :class:`DenoisingLoss` | sentence | TSDAE (Findings of EMNLP 2021) |
| :class:`BackTranslationLoss` | sentence, translation | BT, CERT (2020) |
| :class:`NLISoftmaxLoss` | premise, hypothesis, label | InferSent (EMNLP 2017), SBERT (EMNLP 2019) |
| :class:`JointLoss` | premise, hypothesis, label | ConSERT with labels (ACL 2021) |

The formulas are pure functions in :mod:`selfguide.losses.functional`; :mod:`selfguide.losses.base` says how to derive a loss of
one's own. The names are loaded when first used, so that importing this package does not import torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from selfguide.losses.back_translation import BackTranslationLoss
    from selfguide.losses.clear import ClearLoss
    from selfguide.losses.consert import ConSERTLoss
    from selfguide.losses.contrastive_tension import ContrastiveTensionInBatchLoss, ContrastiveTensionLoss
    from selfguide.losses.denoising import DenoisingLoss
    from selfguide.losses.dropout_contrast import DropoutContrastLoss
    from selfguide.losses.guided_contrast import GuidedContrastLoss
    from selfguide.losses.info_max import InfoMaxLoss
    from selfguide.losses.joint import JointLoss
    from selfguide.losses.mirror import MirrorLoss
    from selfguide.losses.nli import NLISoftmaxLoss
    from selfguide.losses.self_guided import SelfGuidedLoss
    from selfguide.losses.self_guided_translation import SelfGuidedTranslationLoss

__all__ = [
    "BackTranslationLoss",
    "ClearLoss",
    "ConSERTLoss",
    "ContrastiveTensionInBatchLoss",
    "ContrastiveTensionLoss",
    "DenoisingLoss",
    "DropoutContrastLoss",
    "GuidedContrastLoss",
    "InfoMaxLoss",
    "JointLoss",
    "MirrorLoss",
    "NLISoftmaxLoss",
    "SelfGuidedLoss",
    "SelfGuidedTranslationLoss",
]

_MODULES = {
    "BackTranslationLoss": "back_translation",
    "ClearLoss": "clear",
    "ConSERTLoss": "consert",
    "ContrastiveTensionInBatchLoss": "contrastive_tension",
    "ContrastiveTensionLoss": "contrastive_tension",
    "DenoisingLoss": "denoising",
    "DropoutContrastLoss": "dropout_contrast",
    "GuidedContrastLoss": "guided_contrast",
    "InfoMaxLoss": "info_max",
    "JointLoss": "joint",
    "MirrorLoss": "mirror",
    "NLISoftmaxLoss": "nli",
    "SelfGuidedLoss": "self_guided",
    "SelfGuidedTranslationLoss": "self_guided_translation",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
