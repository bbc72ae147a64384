"""Back-translation contrast: a sentence and what it becomes on the way through another language mean the same.

Each sentence s_i is translated and translated back beforehand (:mod:`selfguide.augment.back_translation`): t_i. With x the
vectors of both through a head f (Linear, ReLU, Linear; dropped after training), and φ(u, v) = exp(cos(u, v) / τ):

    nt-xent  NT-Xent over the batch's 2N vectors:   mean over m of −log φ(x_m, x_μ(m)) / Σ_{n≠m} φ(x_m, x_n)
    moco     q_i of s_i by the encoder, k_i of t_i by its running average, and a queue of the keys of past batches:
             mean over i of −log φ(q_i, k_i) / (Σ_j φ(q_i, k_j) + Σ_n φ(q_i, queue_n))

``nt-xent`` is the baseline that the SG-OPT paper calls BT; ``moco`` is CERT's, which pre-trains before supervised tuning.

Differences from CERT's released code: the batch's other keys are negatives beside the queue's, which starts empty (theirs
starts with random vectors); a pair is a sentence and one back-translation of it (theirs may be two back-translations); AdamW
with a climb and a fall (theirs is SGD with a cosine). A sentence that comes back as it was is left out. For the SG-OPT paper's
BT neither the temperature nor a head is known to us; the defaults are CERT's for both objectives.

References: Fang and Xie, CERT: Contrastive Self-supervised Learning for Language Understanding, 2020; Kim, Yoo and Lee, ACL
2021 (BT as a baseline).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from selfguide.augment.back_translation import NOT_GIVEN, TranslationSource, check_source
from selfguide.augment.dropout import OWN, check_dropout, set_dropout
from selfguide.augment.encoding import Features, embed, stacked
from selfguide.errors import UsageError
from selfguide.losses import functional as losses
from selfguide.losses.base import HeadedLoss, single
from selfguide.losses.queue import KeyQueue, follow, momentum_contrast
from selfguide.methods.base import TuningMethod
from selfguide.models.encoders import POOLINGS, backbone, freeze_unused, with_pooling
from selfguide.options import require_types
from selfguide.training.settings import TrainingSettings
from selfguide.training.translated_text import translated_dataset

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer

CITATION = """\
@article{fang-xie-2020-cert,
    title = "{CERT}: Contrastive Self-supervised Learning for Language Understanding",
    author = "Fang, Hongchao and Xie, Pengtao",
    journal = "arXiv preprint arXiv:2005.12766",
    year = "2020",
}"""

OBJECTIVES = ("nt-xent", "moco")


@dataclass(frozen=True)
class BackTranslationOptions:
    """Options of back-translation contrast; numbers are those of CERT's released code."""

    pairs: str = NOT_GIVEN
    """File of back-translations: sentence, tab, translation; a sentence may have several lines."""
    forward_model: str = NOT_GIVEN
    """Translation model there (Marian): a folder or a hub name, such as Helsinki-NLP/opus-mt-en-de."""
    back_model: str = NOT_GIVEN
    """Translation model back, such as Helsinki-NLP/opus-mt-de-en."""
    apertium: str = NOT_GIVEN
    """Languages for Apertium, such as eng-spa, if it is installed."""
    objective: str = "nt-xent"
    """nt-xent (negatives from the batch) or moco (negatives from a queue as well)."""
    temperature: float = 0.07
    """τ: the smaller, the more the hardest negatives count."""
    head_size: int = 128
    """Width of what the head gives; 0: no head."""
    queue_size: int = 6720
    """moco: keys of past batches that serve as negatives; at most half as many as there are pairs."""
    momentum: float = 0.999
    """moco: m of the running average that makes the keys."""
    dropout: float = OWN
    """Rate of every dropout while training; -1: the encoder's own."""
    pooling: str = "cls"
    """The sentence vector: cls, mean, max, last2 or first-last."""

    def __post_init__(self) -> None:
        require_types(self)
        check_source(self)
        _check_numbers(self.objective, self.temperature, self.head_size, self.queue_size, self.momentum)
        check_dropout(self.dropout)
        if self.pooling not in POOLINGS:
            raise UsageError(f"There is no pooling {self.pooling!r}; choose one of {', '.join(POOLINGS)}.")


class BackTranslationLoss(HeadedLoss):
    """The loss above as a sentence-transformers loss over two columns, a sentence and its translation, without labels.

    Args:
        model: the SentenceTransformer to be tuned.
        objective: ``"nt-xent"`` or ``"moco"``.
        temperature: τ.
        head_size: width of what the head gives, 0 for no head. The head lives in the loss.
        queue_size, momentum: of ``"moco"``.
        dropout: rate of every dropout in the Transformer while it is trained; −1 keeps the encoder's own.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        objective: str = "nt-xent",
        temperature: float = 0.07,
        head_size: int = 128,
        queue_size: int = 6720,
        momentum: float = 0.999,
        dropout: float = OWN,
    ) -> None:
        super().__init__()
        _check_numbers(objective, temperature, head_size, queue_size, momentum)
        self.objective, self.temperature, self.head_size = objective, temperature, head_size
        self.queue_size, self.momentum, self.dropout = queue_size, momentum, dropout
        set_dropout(model, dropout)
        freeze_unused(model)
        self.model = model
        self._encoders = (model,)  # in a tuple: in a distributed run another module takes the place of self.model
        self._transformers = (backbone(model),)
        width = int(model.get_embedding_dimension() or 0)
        self.head = _head(width, head_size).to(model.device)
        if objective == "moco":
            self.key_encoder = copy.deepcopy(model).requires_grad_(False)
            self.key_head = copy.deepcopy(self.head).requires_grad_(False)
            self.queue = KeyQueue(queue_size, head_size or width).to(model.device)
        self.share_over_processes()

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        self.begin_step()
        sentences, translations = tuple(sentence_features)
        if self.objective == "moco":
            return self._momentum_contrast(sentences, translations)
        batch = stacked([sentences, translations], padding=int(self._encoders[0].tokenizer.pad_token_id))
        vectors = embed(self.model, self._transformers[0], batch)["sentence_embedding"]
        with torch.autocast(vectors.device.type, enabled=False):  # logits are too coarse in bfloat16
            first, second = self.head(single(vectors)).chunk(2)
            return losses.nt_xent_pairs(first, second, self.temperature)

    def _momentum_contrast(self, sentences: Features, translations: Features) -> Tensor:
        vectors = embed(self.model, self._transformers[0], sentences)["sentence_embedding"]
        if self.training:
            follow(self.key_encoder.parameters(), self._encoders[0].parameters(), self.momentum)
            follow(self.key_head.parameters(), self.head.parameters(), self.momentum)
        with torch.no_grad():
            key_vectors = embed(self.key_encoder, backbone(self.key_encoder), translations)["sentence_embedding"]
        with torch.autocast(vectors.device.type, enabled=False):
            with torch.no_grad():
                keys = self.key_head(single(key_vectors))
            loss = momentum_contrast(self.head(single(vectors)), keys, self.queue.contents(), self.temperature)
        if self.training:
            self.queue.add(keys)
        return loss

    def moving_state(self) -> dict[str, Tensor]:
        """The queue and the running average. (Of a distributed run, the first process's queue stands for all.)"""
        if self.objective != "moco":
            return {}
        parts = {"key_encoder": self.key_encoder, "key_head": self.key_head}
        state = {
            f"{part}.{name}": parameter.detach()
            for part, module in parts.items()
            for name, parameter in module.named_parameters()
        }
        return state | {f"queue.{name}": buffer for name, buffer in self.queue.named_buffers()}

    def get_config_dict(self) -> dict[str, Any]:
        """The loss's settings, as sentence-transformers' model cards show them."""
        queue = {"queue_size": self.queue_size, "momentum": self.momentum} if self.objective == "moco" else {}
        return {
            "objective": self.objective,
            "temperature": self.temperature,
            "head_size": self.head_size,
            "dropout": self.dropout,
            **queue,
        }

    @property
    def citation(self) -> str:
        return CITATION


class BackTranslation(TuningMethod):
    """``--method bt``."""

    name = "bt"
    summary = "a sentence and its back-translation, from a file, two models or Apertium (NT-Xent, or CERT's queue)"
    reference = "Fang and Xie, 2020; Kim, Yoo and Lee, ACL 2021"
    Options = BackTranslationOptions
    options: BackTranslationOptions
    defaults = TrainingSettings(batch_size=32, learning_rate=4e-5, max_length=64, weight_decay=1e-5)
    citation = CITATION
    _pairs = 0

    def check(self) -> None:
        TranslationSource.from_options(self.options)

    def dataset(self, text: Dataset) -> Dataset:
        pairs = translated_dataset(text, TranslationSource.from_options(self.options), self.context)
        self._pairs = len(pairs)
        return pairs

    def student(self, encoder: SentenceTransformer) -> SentenceTransformer:
        return with_pooling(encoder, self.options.pooling)

    def loss(self, student: SentenceTransformer) -> BackTranslationLoss:
        options = self.options
        return BackTranslationLoss(
            student,
            objective=options.objective,
            temperature=options.temperature,
            head_size=options.head_size,
            # A longer queue would hold a sentence's own key from the pass before, as a negative.
            queue_size=max(1, min(options.queue_size, self._pairs // 2)),
            momentum=options.momentum,
            dropout=options.dropout,
        )


def _head(width: int, size: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, size)) if size else nn.Identity()


def _check_numbers(objective: str, temperature: float, head_size: int, queue_size: int, momentum: float) -> None:
    if objective not in OBJECTIVES:
        raise UsageError(f"There is no objective {objective!r}; choose one of {', '.join(OBJECTIVES)}.")
    if not temperature > 0:
        raise UsageError(f"temperature must be above 0, got {temperature}.")
    if head_size < 0:
        raise UsageError(f"head_size must be at least 0, got {head_size}.")
    if queue_size < 1:
        raise UsageError(f"queue_size must be at least 1, got {queue_size}.")
    if not 0 <= momentum < 1:
        raise UsageError(f"momentum must be from 0 up to 1, got {momentum}.")
