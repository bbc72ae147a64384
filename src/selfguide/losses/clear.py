"""CLEAR's loss: contrast two rewritten copies of each sentence, beside masked language modelling.

Each sentence is rewritten twice, each copy in its own way: tokens deleted, spans deleted, spans reordered, or tokens replaced by
synonyms (:mod:`selfguide.augment.words`). The embeddings of the copies pass through a head (Linear, ReLU, Linear) and NT-Xent
over all 2N of them pulls the copies of a sentence together. A third copy with 15 % of its tokens hidden keeps the encoder a
language model. All three copies pass through the encoder at once; both heads live in the loss and are not saved with the model.

Differences from the paper, which pre-trains a BERT from scratch on a large corpus: an existing encoder is trained further. So the
language-model head starts from random weights (:mod:`selfguide.losses.masked_language`), and [MASK] replaces deleted tokens where
the paper has a token [DEL] of its own, which an existing vocabulary lacks. Synonyms are neighbours in the encoder's input
embeddings, or those of a file. Short sentences lose at most the fraction of tokens that five spans of 5 % make.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from selfguide.augment.chains import chain
from selfguide.augment.dropout import KEEP_DROPOUT
from selfguide.augment.encoding import Features, from_ids
from selfguide.augment.synonyms import EmbeddingNeighbours, read_synonyms
from selfguide.augment.words import Rewriting, delete_spans, delete_words, mask_tokens, reorder, substitute
from selfguide.errors import SelfguideError
from selfguide.losses import functional
from selfguide.losses.base import HeadedLoss, full_precision, single
from selfguide.losses.masked_language import MaskedLanguageHead, masked_language_loss
from selfguide.losses.rules import FRACTION, TEMPERATURE, WEIGHT
from selfguide.options import AtLeast, check

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
SPANS = NEIGHBOURS = AtLeast(1)


class ClearLoss(HeadedLoss):
    """Contrast two rewritten copies of each sentence, beside masked language modelling (CLEAR).

    Formula:
        With x_1 … x_2N the embeddings of both copies, μ(m) the other copy of the sentence of x_m, g the head and w the weight of
        masked language modelling:

            contrast = mean over m of −log exp(cos(g(x_m), g(x_μ(m))) / τ) / Σ_{n≠m} exp(cos(g(x_m), g(x_n)) / τ)
            loss     = contrast + w · (cross-entropy of the hidden tokens)

    Args:
        model: The SentenceTransformer to be trained; its embedding should be pooled from the last layer.
        first: How the first copy is rewritten: one of ``none``, ``delete-words``, ``delete-spans``, ``reorder`` and
            ``substitute``, or several joined by ``+``.
        second: How the second copy is rewritten.
        temperature: τ.
        delete_rate: Fraction of the tokens that ``delete-words`` deletes.
        spans: Spans that ``delete-spans`` deletes; pairs of them that ``reorder`` swaps.
        span_length: Length of a span as a fraction of the sentence; at least one token.
        substitute_rate: Fraction of the tokens that ``substitute`` replaces.
        neighbours: Nearest tokens in the input embeddings to draw a substitute from.
        synonyms: File of synonyms (word TAB synonym TAB synonym …) to use instead of neighbours.
        mlm_weight: w; 0 switches masked language modelling off.
        mlm_rate: Fraction of the tokens that are hidden for it.
        head: Compare through the head.
        dropout: Rate of every dropout in the Transformer during training; −1 keeps the encoder's own.

    Raises:
        UsageError: An argument is out of range, or a rewriting unknown.
        SelfguideError: The tokenizer has no mask token, or the file of synonyms cannot be used.

    Inputs:
        | Texts    | Labels |
        |----------|--------|
        | sentence | none   |

    Relations:
        :class:`~selfguide.losses.ConSERTLoss` augments at the embedding layer instead of rewriting the tokens.

    Example:
        ```python
        from datasets import Dataset
        from sentence_transformers import SentenceTransformerTrainer

        import selfguide
        from selfguide.losses import ClearLoss

        model = selfguide.load_encoder("mini", pooling="cls")
        loss = ClearLoss(model, first="reorder", second="delete-spans", mlm_weight=0.5)
        text = Dataset.from_dict({"sentence": ["It rains.", "The train is late.", "She plays the cello."]})
        SentenceTransformerTrainer(model=model, train_dataset=text, loss=loss).train()
        ```

    Reference:
        Wu et al., CLEAR: Contrastive Learning for Sentence Representation, 2020: https://arxiv.org/abs/2012.15466
    """

    citation = CITATION
    config_names = (
        *("first", "second", "temperature", "delete_rate", "spans", "span_length", "substitute_rate", "neighbours"),
        *("synonyms", "mlm_weight", "mlm_rate", "dropout", "head"),
    )

    def __init__(
        self,
        model: SentenceTransformer,
        first: str = "substitute",
        second: str = "delete-spans",
        temperature: float = 0.1,
        delete_rate: float = 0.7,
        spans: int = 5,
        span_length: float = 0.05,
        substitute_rate: float = 0.3,
        neighbours: int = 5,
        synonyms: str = "",
        mlm_weight: float = 1.0,
        mlm_rate: float = 0.15,
        head: bool = True,
        dropout: float = KEEP_DROPOUT,
    ) -> None:
        check_rewriting(first)
        check_rewriting(second)
        check("temperature", temperature, TEMPERATURE)
        check("delete_rate", delete_rate, FRACTION)
        check("spans", spans, SPANS)
        check("span_length", span_length, FRACTION)
        check("substitute_rate", substitute_rate, FRACTION)
        check("neighbours", neighbours, NEIGHBOURS)
        check("mlm_weight", mlm_weight, WEIGHT)
        check("mlm_rate", mlm_rate, FRACTION)
        if model.tokenizer.mask_token_id is None:
            raise SelfguideError(
                "This encoder's tokenizer has no mask token, which clear needs for deleted and hidden tokens; choose an "
                "encoder that was pre-trained with one, or another method (simcse, consert)."
            )
        super().__init__(model, dropout)
        self.first, self.second, self.temperature = first, second, temperature
        self.delete_rate, self.spans, self.span_length = delete_rate, spans, span_length
        self.substitute_rate, self.neighbours, self.synonyms = substitute_rate, neighbours, synonyms
        self.mlm_weight, self.mlm_rate = mlm_weight, mlm_rate
        steps = self._rewritings()
        self._rewrite = [chain(names, steps) for names in (first, second)]
        self.head = _head(int(model.get_embedding_dimension() or 0)) if head else nn.Identity()
        if mlm_weight > 0:
            vocabulary, width = self._input_embeddings.shape
            self.mlm = MaskedLanguageHead(self.transformer.config, width, vocabulary)
        self.to(model.device)
        self.share_over_processes()

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        """Return the loss of a batch; see the class."""
        self.begin_step()
        features = next(iter(sentence_features))
        sentences = [self._split(row) for row in _real_tokens(features)]
        copies = [
            [*start, *self._truncate(rewrite(tokens)), *end]
            for rewrite in self._rewrite
            for start, tokens, end in sentences
        ]
        holes: list[tuple[int, int]] = []  # (row of the batch, position in it)
        answers: list[int] = []
        if self.mlm_weight > 0:
            for start, tokens, end in sentences:
                hidden, places = self._hide(tokens)
                holes += [(len(copies), len(start) + place) for place in places]
                answers += [tokens[place] for place in places]
                copies.append([*start, *hidden, *end])
        output = self.encode(from_ids(copies, features, self.padding_id))
        loss = self.contrast(output["sentence_embedding"][: 2 * len(sentences)])
        if self.mlm_weight > 0:
            weight = self.mlm_weight * self.mean_weight(len(answers), loss.device)
            loss = loss + weight * self._predict(output["token_embeddings"], holes, answers)
        return loss

    def contrast(self, embeddings: Tensor) -> Tensor:
        """Compute NT-Xent of 2N embeddings, the second N of them the second copies of the first N.

        Args:
            embeddings: (2N, dim).

        Returns:
            The loss.
        """
        with full_precision(embeddings):
            first, second = self.head(single(embeddings)).chunk(2)
            return self.over_processes(functional.nt_xent_pairs, first, second, self.temperature)

    @property
    def _input_embeddings(self) -> Tensor:
        return self.transformer.get_input_embeddings().weight

    def _predict(self, states: Tensor, holes: list[tuple[int, int]], answers: list[int]) -> Tensor:
        """Compute the cross-entropy of the hidden tokens."""
        places = torch.tensor(holes, dtype=torch.long, device=states.device).view(-1, 2)
        chosen = states[places[:, 0], places[:, 1]]
        with full_precision(states):
            targets = torch.tensor(answers, device=states.device)
            return masked_language_loss(self.mlm, single(chosen), targets, self._input_embeddings)

    def _rewritings(self) -> dict[str, Rewriting]:
        """Return the rewritings by name; synonyms are looked up only if one of the copies needs them."""
        tokenizer = self.encoder.tokenizer
        marker = int(tokenizer.mask_token_id)
        steps: dict[str, Rewriting] = {
            "none": _unchanged,
            "delete-words": partial(delete_words, rate=self.delete_rate, marker=marker),
            "delete-spans": partial(delete_spans, spans=self.spans, length=self.span_length, marker=marker),
            "reorder": partial(reorder, pairs=self.spans, length=self.span_length),
        }
        if "substitute" in self.first + self.second:
            if self.synonyms:
                found = read_synonyms(self.synonyms, tokenizer)
            else:
                found = EmbeddingNeighbours(self._input_embeddings, tokenizer, self.neighbours)
            steps["substitute"] = partial(substitute, rate=self.substitute_rate, synonyms=found)
        return steps

    def _split(self, row: list[int]) -> tuple[list[int], list[int], list[int]]:
        """Split a row into what comes before the sentence's own tokens ([CLS]), these tokens, and what follows ([SEP])."""
        own = [place for place, token in enumerate(row) if token not in self.frame_ids]
        if not own:
            return row, [], []
        return row[: own[0]], row[own[0] : own[-1] + 1], row[own[-1] + 1 :]

    def _truncate(self, tokens: list[int]) -> list[int]:
        """Truncate a rewritten sentence, which synonyms of several tokens may have made too long."""
        limit = self.encoder.max_seq_length
        return tokens if limit is None else tokens[: int(limit) - 2]

    def _hide(self, tokens: list[int]) -> tuple[list[int], list[int]]:
        tokenizer = self.encoder.tokenizer
        barred = set(tokenizer.all_special_ids)
        return mask_tokens(tokens, self.mlm_rate, int(tokenizer.mask_token_id), len(tokenizer), barred)


def check_rewriting(names: str) -> None:
    """Check how a copy is rewritten.

    Raises:
        UsageError: ``names`` is not one of :data:`REWRITINGS`, or several joined by ``+``.
    """
    chain(names, dict.fromkeys(REWRITINGS, _unchanged))


def _real_tokens(features: Features) -> list[list[int]]:
    rows = zip(features["input_ids"].tolist(), features["attention_mask"].tolist(), strict=True)
    return [[token for token, real in zip(ids, mask, strict=True) if real] for ids, mask in rows]


def _unchanged(tokens: list[int]) -> list[int]:
    return tokens


def _head(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
