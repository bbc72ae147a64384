"""CLEAR: contrast of two rewritten copies of each sentence, beside masked-language modelling.

Each sentence is rewritten twice, each copy in a way of its own: tokens deleted, spans deleted, spans reordered, or tokens
replaced by synonyms (:mod:`selfguide.augment.words`). The [CLS] vectors of the copies go through a head g (Linear,
ReLU, Linear) and NT-Xent over all 2N of them pulls the copies of a sentence together. A third copy with 15 % of its tokens
hidden keeps the encoder a language model:

    contrast = mean over m of −log exp(cos(g(x_m), g(x_μ(m))) / τ) / Σ_{n≠m} exp(cos(g(x_m), g(x_n)) / τ)
    loss     = contrast + w · (cross-entropy of the hidden tokens)                μ(m): the other copy;  w: mlm_weight

All three copies go through the encoder in one pass. Both heads are dropped after training.

Differences from the paper, which pre-trains a BERT from scratch on large text: an existing encoder is tuned. So the
language-model head starts anew (:mod:`selfguide.losses.masked_language`), and [MASK] stands for deleted tokens where the paper
has a token [DEL] of its own, which an existing vocabulary lacks. Synonyms are neighbours in the encoder's own input embeddings,
or those of a file. Short sentences lose at most the share of tokens that five spans of 5 % make.

Reference: Wu et al., CLEAR: Contrastive Learning for Sentence Representation, 2020 (arXiv:2012.15466).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from selfguide.augment.dropout import OWN, check_dropout, set_dropout
from selfguide.augment.embeddings import frame_ids
from selfguide.augment.encoding import embed, from_ids
from selfguide.augment.words import (
    EmbeddingNeighbours,
    Rewriting,
    chain,
    delete_spans,
    delete_words,
    read_synonyms,
    reorder,
    substitute,
)
from selfguide.errors import SelfguideError, UsageError
from selfguide.losses import functional as losses
from selfguide.losses.base import HeadedLoss, single
from selfguide.losses.masked_language import MaskedLanguageHead, mask_tokens, masked_language_loss
from selfguide.methods.base import TuningMethod
from selfguide.models.encoders import backbone, freeze_unused, with_pooling
from selfguide.options import require_types
from selfguide.training.settings import TrainingSettings

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

CITATION = """\
@article{wu-etal-2020-clear,
    title = "{CLEAR}: Contrastive Learning for Sentence Representation",
    author = "Wu, Zhuofeng and Wang, Sinong and Gu, Jiatao and Khabsa, Madian and Sun, Fei and Ma, Hao",
    journal = "arXiv:2012.15466",
    year = "2020",
}"""
REWRITINGS = ("none", "delete-words", "delete-spans", "reorder", "substitute")
POOLINGS = ("cls", "mean", "max")  # over the last layer, which the language-model head reads too


@dataclass(frozen=True)
class ClearOptions:
    """Options of CLEAR."""

    first: str = "substitute"
    """How the first copy is rewritten: none, delete-words, delete-spans, reorder, substitute, or several joined by +."""
    second: str = "delete-spans"
    """How the second copy is rewritten."""
    temperature: float = 0.1
    """τ: the smaller, the more the hardest negatives count."""
    delete_rate: float = 0.7
    """Share of the tokens that delete-words deletes."""
    spans: int = 5
    """Spans that delete-spans deletes; pairs of them that reorder exchanges."""
    span_length: float = 0.05
    """Length of a span as a share of the sentence; one token at least."""
    substitute_rate: float = 0.3
    """Share of the tokens that substitute replaces."""
    neighbours: int = 5
    """Nearest tokens in the input embeddings to draw a substitute from."""
    synonyms: str = ""
    """A file of synonyms (word TAB synonym TAB synonym ...) instead of neighbours in the input embeddings."""
    mlm_weight: float = 1.0
    """Weight of masked-language modelling; 0 switches it off."""
    mlm_rate: float = 0.15
    """Share of the tokens that are hidden for it."""
    head: bool = True
    """Compare through a head of two layers, which is dropped after training."""
    dropout: float = OWN
    """Rate of every dropout while training; -1: the encoder's own."""
    pooling: str = "cls"
    """The sentence vector: cls, mean or max."""

    def __post_init__(self) -> None:
        require_types(self)
        check_dropout(self.dropout)
        for words in (self.first, self.second):
            chain(words, dict.fromkeys(REWRITINGS, _same))
        if not self.temperature > 0:
            raise UsageError(f"temperature must be above 0, got {self.temperature}.")
        for name in ("delete_rate", "span_length", "substitute_rate", "mlm_rate"):
            if not 0 < getattr(self, name) < 1:
                raise UsageError(f"{name} is a share between 0 and 1, got {getattr(self, name)}.")
        for name in ("spans", "neighbours"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if not self.mlm_weight >= 0:
            raise UsageError(f"mlm_weight must be at least 0, got {self.mlm_weight}.")
        if self.pooling not in POOLINGS:
            raise UsageError(f"clear has no pooling {self.pooling!r}; choose one of {', '.join(POOLINGS)}.")


class ClearLoss(HeadedLoss):
    """CLEAR as an ordinary sentence-transformers loss over one column of sentences, without labels.

    Args:
        model: the SentenceTransformer to be tuned; its vector should be pooled from the last layer.
        options: everything else, see :class:`ClearOptions`.
    """

    def __init__(self, model: SentenceTransformer, options: ClearOptions | None = None) -> None:
        super().__init__()
        self.options = options or ClearOptions()
        transformer, tokenizer = backbone(model), model.tokenizer
        if tokenizer.mask_token_id is None:
            raise SelfguideError(
                "This encoder's tokenizer has no mask token, which clear needs for deleted and hidden tokens; choose an "
                "encoder that was pre-trained with one, or another method (simcse, consert)."
            )
        set_dropout(model, self.options.dropout)
        freeze_unused(model)
        self.model = model
        self._encoders, self._transformers = (model,), (transformer,)  # tuples, so that they are not registered again
        self._frame = frame_ids(tokenizer)
        self._rewritings = [chain(words, self._steps()) for words in (self.options.first, self.options.second)]
        self.head = _projection(int(model.get_embedding_dimension() or 0)) if self.options.head else nn.Identity()
        if self.options.mlm_weight > 0:
            vocabulary, width = transformer.get_input_embeddings().weight.shape
            self.mlm = MaskedLanguageHead(transformer.config, width, vocabulary)
        self.to(model.device)
        self.share_over_processes()

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        self.begin_step()
        features = next(iter(sentence_features))
        sentences = [self._take_apart(row) for row in _real_tokens(features)]
        copies = [
            [*start, *self._fit(rewrite(words)), *end]
            for rewrite in self._rewritings
            for start, words, end in sentences
        ]
        holes: list[tuple[int, int]] = []  # (row of the batch, place in it)
        answers: list[int] = []
        if self.options.mlm_weight > 0:
            for start, words, end in sentences:
                hidden, places = self._hide(words)
                holes += [(len(copies), len(start) + place) for place in places]
                answers += [words[place] for place in places]
                copies.append([*start, *hidden, *end])
        padding = int(self._encoders[0].tokenizer.pad_token_id)
        output = embed(self.model, self._transformers[0], from_ids(copies, features, padding))
        loss = self.contrast(output["sentence_embedding"][: 2 * len(sentences)])
        if self.options.mlm_weight > 0:
            loss = loss + self.options.mlm_weight * self._guess(output["token_embeddings"], holes, answers)
        return loss

    def contrast(self, vectors: Tensor) -> Tensor:
        """NT-Xent on 2N vectors, the second N of them the second copies of the first N."""
        with torch.autocast(vectors.device.type, enabled=False):  # logits are too coarse in bfloat16
            first, second = self.head(single(vectors)).chunk(2)
            return losses.nt_xent_pairs(first, second, self.options.temperature)

    def _guess(self, states: Tensor, holes: list[tuple[int, int]], answers: list[int]) -> Tensor:
        places = torch.tensor(holes, dtype=torch.long, device=states.device).view(-1, 2)
        embeddings = self._transformers[0].get_input_embeddings().weight
        chosen = states[places[:, 0], places[:, 1]]
        with torch.autocast(states.device.type, enabled=False):
            return masked_language_loss(
                self.mlm, single(chosen), torch.tensor(answers, device=states.device), embeddings
            )

    def _steps(self) -> dict[str, Rewriting]:
        """The rewritings by name; synonyms are made ready only if they are wanted."""
        options, (encoder,) = self.options, self._encoders
        marker = int(encoder.tokenizer.mask_token_id)
        steps: dict[str, Rewriting] = {
            "none": _same,
            "delete-words": partial(delete_words, rate=options.delete_rate, marker=marker),
            "delete-spans": partial(delete_spans, spans=options.spans, length=options.span_length, marker=marker),
            "reorder": partial(reorder, pairs=options.spans, length=options.span_length),
        }
        if "substitute" in options.first + options.second:
            if options.synonyms:
                found = read_synonyms(options.synonyms, encoder.tokenizer)
            else:
                weights = self._transformers[0].get_input_embeddings().weight
                found = EmbeddingNeighbours(weights, encoder.tokenizer, options.neighbours)
            steps["substitute"] = partial(substitute, rate=options.substitute_rate, synonyms=found)
        return steps

    def _take_apart(self, row: list[int]) -> tuple[list[int], list[int], list[int]]:
        """What comes before a sentence's own tokens ([CLS]), they themselves, and what comes after ([SEP])."""
        own = [place for place, token in enumerate(row) if token not in self._frame]
        if not own:
            return row, [], []
        return row[: own[0]], row[own[0] : own[-1] + 1], row[own[-1] + 1 :]

    def _fit(self, words: list[int]) -> list[int]:
        """Synonyms of several tokens may make a sentence too long."""
        limit = self._encoders[0].max_seq_length
        return words if limit is None else words[: int(limit) - 2]

    def _hide(self, words: list[int]) -> tuple[list[int], list[int]]:
        tokenizer = self._encoders[0].tokenizer
        barred = set(tokenizer.all_special_ids)
        return mask_tokens(words, self.options.mlm_rate, int(tokenizer.mask_token_id), len(tokenizer), barred)

    def get_config_dict(self) -> dict[str, Any]:
        """The loss's settings, as sentence-transformers' model cards show them."""
        return asdict(self.options)

    @property
    def citation(self) -> str:
        return CITATION


class Clear(TuningMethod):
    """``--method clear``."""

    name = "clear"
    summary = "two rewritten copies (deletion, reordering, substitution) beside masked-language modelling (NT-Xent)"
    reference = "Wu et al., 2020"
    Options = ClearOptions
    options: ClearOptions
    defaults = TrainingSettings(batch_size=64, learning_rate=3e-5, max_length=64)
    citation = CITATION

    def student(self, encoder: SentenceTransformer) -> SentenceTransformer:
        return with_pooling(encoder, self.options.pooling)

    def loss(self, student: SentenceTransformer) -> ClearLoss:
        return ClearLoss(student, self.options)


def _real_tokens(features: dict[str, Any]) -> list[list[int]]:
    rows = zip(features["input_ids"].tolist(), features["attention_mask"].tolist(), strict=True)
    return [[token for token, real in zip(ids, mask, strict=True) if real] for ids, mask in rows]


def _same(tokens: list[int]) -> list[int]:
    return tokens


def _projection(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
