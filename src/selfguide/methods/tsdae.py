"""TSDAE: a decoder has to write the whole sentence again, with nothing to go by but the vector of a damaged copy.

60 % of a sentence's words are deleted, anew whenever it comes up. The encoder makes one vector v of what is left, its [CLS]
vector. A decoder of the same architecture, which attends to v alone, predicts the original tokens x_1 … x_n one after the
other, each from those before it:

    loss = mean over tokens of −log p(x_t | x_1 … x_{t−1}, v)

The decoder's layers *are* the encoder's (tied weights); only its attention to v and its language-model head are its own.
These live in the loss and are dropped afterwards.

sentence-transformers has this loss. Ours is written anew because that one loads the decoder, and with it the encoder's
weights, from a folder or the hub by the encoder's name: an encoder that was given in Python, or changed since it was loaded,
would silently start from other weights, and its checkpoints would not hold what the decoder learns.

Differences: words are split at white space and punctuation of the sentence as the tokenizer gives it back (cut to
``max_length``, lower-cased if the encoder is); the original needs a tokenizer of its own for it. The language-model head
starts anew, where a folder of a full pre-trained model may still have its own. Families that Hugging Face has no decoder for
are refused.

Reference: Wang, Reimers and Gurevych, TSDAE: Using Transformer-based Sequential Denoising Auto-Encoder for Unsupervised
Sentence Embedding Learning, Findings of EMNLP 2021.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from selfguide.augment.embeddings import frame_ids
from selfguide.augment.encoding import Features, embed
from selfguide.errors import SelfguideError, UsageError
from selfguide.losses.base import HeadedLoss
from selfguide.methods.base import TuningMethod
from selfguide.models.encoders import POOLINGS, backbone, freeze_unused, with_pooling
from selfguide.options import require_types
from selfguide.training.settings import TrainingSettings
from selfguide.training.trainer import Optimisers

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from transformers import PreTrainedModel

CITATION = """\
@inproceedings{wang-etal-2021-tsdae,
    title = "{TSDAE}: Using Transformer-based Sequential Denoising Auto-Encoder for Unsupervised Sentence Embedding
             Learning",
    author = "Wang, Kexin and Reimers, Nils and Gurevych, Iryna",
    booktitle = "Findings of EMNLP 2021",
    year = "2021",
}"""

_WORD = re.compile(r"\w+|[^\w\s]")
_IGNORED = -100
"""What cross-entropy leaves out: padding."""


@dataclass(frozen=True)
class TsdaeOptions:
    """Options of TSDAE; the defaults are the paper's."""

    delete_rate: float = 0.6
    """Share of the words that are deleted; one always stays."""
    pooling: str = "cls"
    """The sentence vector: cls, mean, max, last2 or first-last."""

    def __post_init__(self) -> None:
        require_types(self)
        if not 0 <= self.delete_rate < 1:
            raise UsageError(f"delete_rate is a share from 0 up to 1, got {self.delete_rate}.")
        if self.pooling not in POOLINGS:
            raise UsageError(f"There is no pooling {self.pooling!r}; choose one of {', '.join(POOLINGS)}.")


class DenoisingLoss(HeadedLoss):
    """TSDAE as an ordinary sentence-transformers loss over one column of sentences, without labels.

    Args:
        model: the SentenceTransformer to be tuned; its vector must be as wide as its layers.
        delete_rate: share of the words that are deleted.
    """

    def __init__(self, model: SentenceTransformer, delete_rate: float = 0.6) -> None:
        super().__init__()
        TsdaeOptions(delete_rate)  # refuses in words
        self.delete_rate = delete_rate
        freeze_unused(model)
        self.model = model  # before the decoder: what they share counts as the model's, not as the loss's own
        self._encoders = (model,)  # in a tuple: in a distributed run another module takes the place of self.model
        self._transformers = (backbone(model),)
        self._frame = frame_ids(model.tokenizer)
        self.decoder = tied_decoder(self._transformers[0]).to(model.device)
        self.share_over_processes()

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        self.begin_step()
        whole = next(iter(sentence_features))
        vectors = embed(self.model, self._transformers[0], self.damaged(whole))["sentence_embedding"]
        return self.reconstruct(vectors, whole)

    def reconstruct(self, vectors: Tensor, whole: Features) -> Tensor:
        """The decoder's cross-entropy on the whole sentences, given the vectors (batch, dim) of the damaged ones."""
        tokens, mask = whole["input_ids"], whole["attention_mask"]
        logits = self.decoder(
            input_ids=tokens[:, :-1],
            attention_mask=mask[:, :-1],
            encoder_hidden_states=vectors.unsqueeze(1),
            use_cache=False,
        ).logits
        wanted = tokens[:, 1:].masked_fill(mask[:, 1:] == 0, _IGNORED)
        return F.cross_entropy(logits.flatten(0, 1).float(), wanted.flatten(), ignore_index=_IGNORED)

    def damaged(self, features: Features) -> Features:
        """The batch again, each sentence without most of its words."""
        encoder = self._encoders[0]
        texts = []
        for row in features["input_ids"].tolist():
            words = [token for token in row if token not in self._frame]
            text = encoder.tokenizer.decode(words, clean_up_tokenization_spaces=False)
            texts.append(drop_words(text, self.delete_rate))
        device = features["input_ids"].device
        made = encoder.preprocess(texts)
        return {name: value.to(device) if isinstance(value, Tensor) else value for name, value in made.items()}

    def get_config_dict(self) -> dict[str, Any]:
        """The loss's settings, as sentence-transformers' model cards show them."""
        return {"delete_rate": self.delete_rate}

    @property
    def citation(self) -> str:
        return CITATION


class Tsdae(TuningMethod):
    """``--method tsdae``."""

    name = "tsdae"
    summary = "a decoder writes the sentence again from the vector of a damaged copy"
    reference = "Wang, Reimers and Gurevych, Findings of EMNLP 2021"
    Options = TsdaeOptions
    options: TsdaeOptions
    defaults = TrainingSettings(batch_size=8, learning_rate=3e-5, warmup=0.0)
    citation = CITATION

    def student(self, encoder: SentenceTransformer) -> SentenceTransformer:
        return with_pooling(encoder, self.options.pooling)

    def loss(self, student: SentenceTransformer) -> DenoisingLoss:
        return DenoisingLoss(student, self.options.delete_rate)

    def optimiser(self, loss: nn.Module, steps: int) -> Optimisers:
        """AdamW at one rate from start to end, after the warm-up if one is asked for."""
        settings = self.context.settings
        climb = max(1, round(settings.warmup * steps))
        moving = [parameter for parameter in loss.parameters() if parameter.requires_grad]
        adam = torch.optim.AdamW(moving, lr=settings.learning_rate, weight_decay=settings.weight_decay)
        return adam, torch.optim.lr_scheduler.LambdaLR(adam, lambda step: min(1.0, (step + 1) / climb))


def tied_decoder(encoder: PreTrainedModel) -> PreTrainedModel:
    """A decoder of the encoder's architecture that attends to a vector and shares every weight that the encoder has."""
    config = copy.deepcopy(encoder.config)
    config.is_decoder, config.add_cross_attention = True, True
    try:
        decoder = AutoModelForCausalLM.from_config(config)
    except ValueError:
        decoder = None
    if decoder is None or not any("crossattention" in name for name, _ in decoder.named_parameters()):
        raise SelfguideError(
            f"There is no decoder for {type(encoder).__name__}, which tsdae needs to write sentences again; choose an encoder "
            "such as BERT, RoBERTa, XLM-R or ELECTRA, or another method (simcse, ct)."
        )
    theirs = dict(encoder.named_parameters())
    for name, _ in list(decoder.base_model.named_parameters()):
        if name in theirs:
            module, _, attribute = name.rpartition(".")
            setattr(decoder.base_model.get_submodule(module), attribute, theirs[name])
    # The head's last layer is the table of input embeddings, here as in every BERT.
    decoder.get_output_embeddings().weight = encoder.get_input_embeddings().weight
    return decoder


def drop_words(text: str, rate: float) -> str:
    """The text without a random share of its words and marks; one is always left. Drawn from torch's generator."""
    words = _WORD.findall(text)
    if not words:
        return text
    kept = torch.rand(len(words)) >= rate
    if not bool(kept.any()):
        kept[int(torch.randint(len(words), ()))] = True
    return " ".join(word for word, stays in zip(words, kept.tolist(), strict=True) if stays)
