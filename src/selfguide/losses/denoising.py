"""TSDAE's loss: a decoder reconstructs a sentence from the embedding of a damaged copy.

Most of a sentence's words are deleted, drawn anew each time the sentence is used. The encoder makes one embedding of what is
left. A decoder of
the same architecture, which attends to that embedding alone, predicts the original tokens one after the other, each from those
before it. The decoder's layers *are* the encoder's (tied weights); only its attention to the embedding and its language-model
head are its own. These live in the loss and are not saved with the model.

sentence-transformers has this loss too, but loads the decoder, and with it the encoder's weights, from a folder or the hub by
the encoder's name: an encoder that was built in Python, or changed since it was loaded, would silently start from other
weights, and checkpoints would not hold what the decoder learns.

Differences: words are split at white space and punctuation of the sentence as the tokenizer decodes it (truncated, lower-cased
if the encoder is); the original needs a word tokenizer. The language-model head starts from random weights, where the folder
of a full pre-trained model may still have its own. Architectures for which Hugging Face has no decoder are refused.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import Tensor
from transformers import AutoModelForCausalLM

from selfguide.augment.encoding import Features, rewritten
from selfguide.augment.words import drop_words
from selfguide.errors import SelfguideError
from selfguide.losses.base import HeadedLoss
from selfguide.options import Between, check

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
DELETE_RATE = Between(0, 1, open_high=True)
_IGNORED = -100
"""Target that cross-entropy leaves out: padding."""


class DenoisingLoss(HeadedLoss):
    """Reconstruct a sentence from the embedding of a copy with deleted words (TSDAE).

    Formula:
        With x_1 … x_n the tokens of a sentence and v the embedding of its damaged copy:

            loss = mean over tokens of −log p(x_t | x_1 … x_{t−1}, v)

    Args:
        model: The SentenceTransformer to be trained; its embedding must be as wide as its layers.
        delete_rate: Fraction of the words that are deleted; one always stays.

    Raises:
        UsageError: The rate is out of range.
        SelfguideError: The encoder's architecture has no decoder.

    Inputs:
        | Texts    | Labels |
        |----------|--------|
        | sentence | none   |

    Relations:
        ``DenoisingAutoEncoderLoss`` of sentence-transformers takes pairs of a damaged and an original sentence; see the module
        for why this one is written anew.

    Example:
        ```python
        from datasets import Dataset
        from sentence_transformers import SentenceTransformerTrainer

        import selfguide
        from selfguide.losses import DenoisingLoss

        model = selfguide.load_encoder("mini", pooling="cls")
        loss = DenoisingLoss(model, delete_rate=0.6)
        text = Dataset.from_dict({"sentence": ["It rains.", "The train is late.", "She plays the cello."]})
        SentenceTransformerTrainer(model=model, train_dataset=text, loss=loss).train()
        ```

    Reference:
        Wang, Reimers and Gurevych, TSDAE: Using Transformer-based Sequential Denoising Auto-Encoder for Unsupervised Sentence
        Embedding Learning, Findings of EMNLP 2021: https://arxiv.org/abs/2104.06979
    """

    citation = CITATION
    config_names = ("delete_rate",)

    def __init__(self, model: SentenceTransformer, delete_rate: float = 0.6) -> None:
        check("delete_rate", delete_rate, DELETE_RATE)
        super().__init__(model)
        self.delete_rate = delete_rate
        self.decoder = tied_decoder(self.transformer).to(model.device)
        self.share_over_processes()

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        """Return the loss of a batch; see the class."""
        self.begin_step()
        whole = next(iter(sentence_features))
        embeddings = self.encode(self.damaged(whole))["sentence_embedding"]
        return self.reconstruct(embeddings, whole)

    def reconstruct(self, embeddings: Tensor, whole: Features) -> Tensor:
        """Compute the decoder's cross-entropy.

        Args:
            embeddings: Embeddings of the damaged sentences (batch, dim).
            whole: The tokenised original sentences.

        Returns:
            The loss, a scalar.
        """
        tokens, mask = whole["input_ids"], whole["attention_mask"]
        logits = self.decoder(
            input_ids=tokens[:, :-1],
            attention_mask=mask[:, :-1],
            encoder_hidden_states=embeddings.unsqueeze(1),
            use_cache=False,
        ).logits
        wanted = tokens[:, 1:].masked_fill(mask[:, 1:] == 0, _IGNORED)
        return F.cross_entropy(logits.flatten(0, 1).float(), wanted.flatten(), ignore_index=_IGNORED)

    def damaged(self, features: Features) -> Features:
        """Return a copy of the batch with most words of each sentence deleted."""
        return rewritten(self.encoder, features, self.frame_ids, lambda text: drop_words(text, self.delete_rate))


def tied_decoder(encoder: PreTrainedModel) -> PreTrainedModel:
    """Make a decoder of an encoder's architecture that shares its weights and attends to a given embedding.

    Args:
        encoder: The Hugging Face model.

    Returns:
        The decoder; its cross-attention and the inner layers of its head have weights of their own.

    Raises:
        SelfguideError: Hugging Face has no decoder with cross-attention for the architecture.
    """
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
    # As in every BERT, the last layer of the head is the matrix of input embeddings.
    decoder.get_output_embeddings().weight = encoder.get_input_embeddings().weight
    return decoder
