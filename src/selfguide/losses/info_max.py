"""IS-BERT's loss: maximise the mutual information between a sentence's embedding and its own phrases.

Convolutions with windows of 1, 3 and 5 tokens run over the Transformer's token embeddings. Their concatenated outputs are a
*local* feature for each token, and the mean of a sentence's local features is its *global* vector, which is also the embedding
of the finished encoder. A dot product tells pairs of a token and its own sentence from pairs with another sentence; the loss is
the negative Jensen–Shannon estimate of their mutual information.

The encoder keeps the convolutions, as published. :func:`with_convolutions` builds it from stock modules: Transformer, word
weights of 1, CNN, mean pooling. The word weights are there because the stock CNN ignores the attention mask: they set padding
to zero first, so that an embedding does not depend on the other sentences of its batch.

Differences: the paper has a ReLU after the convolutions; the authors' released code has none, nor has the stock module, and
this follows the code. Theirs lets the windows reach into padding. Each window has a third of the encoder's width as filters
(256 for BERT-base, as published), so that the embedding dimension stays that of the encoder.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import CNN, Pooling, WordWeights
from torch import Tensor

from selfguide.augment.dropout import KEEP_DROPOUT
from selfguide.calibration.frequencies import Vocabulary
from selfguide.errors import UsageError
from selfguide.losses import functional
from selfguide.losses.base import HeadedLoss, full_precision, single
from selfguide.models.encoders import transformer_of
from selfguide.options import AtLeast, check

if TYPE_CHECKING:
    from selfguide.augment.encoding import Features

CITATION = """\
@inproceedings{zhang-etal-2020-unsupervised,
    title = "An Unsupervised Sentence Embedding Method by Mutual Information Maximization",
    author = "Zhang, Yan and He, Ruidan and Liu, Zuozhu and Lim, Kwan Hui and Bing, Lidong",
    booktitle = "Proceedings of EMNLP 2020",
    year = "2020",
}"""
FILTERS = AtLeast(0)


class InfoMaxLoss(HeadedLoss):
    """Maximise the mutual information between a sentence's embedding and the features of its tokens (IS-BERT).

    Formula:
        With l_t the local feature of token t, i(t) its sentence and g_j the global vector of sentence j:

            loss = mean over tokens t, sentences j≠i(t) of (softplus(l_t · g_j) − log 2)
                 − mean over tokens t                   of (log 2 − softplus(−l_t · g_i(t)))

    Args:
        model: The SentenceTransformer to be trained, with convolutions (:func:`with_convolutions`).
        dropout: Rate of every dropout in the Transformer during training; −1 keeps the encoder's own.

    Raises:
        UsageError: The model has no convolutions, or the rate is out of range.

    Inputs:
        | Texts    | Labels |
        |----------|--------|
        | sentence | none   |

    Relations:
        Like :class:`~selfguide.losses.SelfGuidedLoss` it takes its targets from inside the encoder, here from the tokens of one
        layer instead of from all layers, and needs no augmentation.

    Example:
        ```python
        from datasets import Dataset
        from sentence_transformers import SentenceTransformerTrainer

        import selfguide
        from selfguide.losses import InfoMaxLoss
        from selfguide.losses.info_max import with_convolutions

        model = with_convolutions(selfguide.load_encoder("mini"))
        loss = InfoMaxLoss(model)
        text = Dataset.from_dict({"sentence": ["It rains.", "The train is late.", "She plays the cello."]})
        SentenceTransformerTrainer(model=model, train_dataset=text, loss=loss).train()
        ```

    Reference:
        Zhang, He, Liu, Lim and Bing, An Unsupervised Sentence Embedding Method by Mutual Information Maximization, EMNLP 2020:
        https://arxiv.org/abs/2009.12061
    """

    citation = CITATION
    config_names = ("dropout",)

    def __init__(self, model: SentenceTransformer, dropout: float = KEEP_DROPOUT) -> None:
        if not any(isinstance(module, CNN) for module in model):
            raise UsageError("IS-BERT trains an encoder with convolutions; build one with with_convolutions(encoder).")
        super().__init__(model, dropout)

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        """Return the loss of a batch; see the class."""
        features: dict[str, Any] = next(iter(sentence_features))
        owners, places = features["attention_mask"].bool().nonzero(as_tuple=True)
        output = self.encode(features)
        with full_precision(owners):
            tokens = single(output["token_embeddings"])[owners, places]
            return functional.info_max(tokens, single(output["sentence_embedding"]), owners)


def with_convolutions(encoder: SentenceTransformer, windows: str = "1,3,5", filters: int = 0) -> SentenceTransformer:
    """Add fresh convolutions over an encoder's tokens, and their mean as the embedding.

    Args:
        encoder: An encoder that starts with a Transformer, which is shared, not copied.
        windows: Widths of the convolutions in tokens: odd numbers, separated by commas.
        filters: Filters of each window; 0 for the encoder's width divided by the number of windows.

    Returns:
        An encoder of stock modules.

    Raises:
        UsageError: The windows or the filters are not valid.
    """
    widths = parse_windows(windows)
    check("filters", filters, FILTERS)
    transformer = transformer_of(encoder)
    width = int(transformer.get_embedding_dimension())
    channels = filters or max(1, round(width / len(widths)))
    convolutions = CNN(width, out_channels=channels, kernel_sizes=list(widths))
    masking = WordWeights(Vocabulary.of_encoder(encoder).tokens, {}, unknown_word_weight=1).requires_grad_(False)
    pooling = Pooling(convolutions.get_embedding_dimension(), pooling_mode="mean")
    built = SentenceTransformer(modules=[transformer, masking, convolutions, pooling], device=str(encoder.device))
    built.max_seq_length = encoder.max_seq_length
    return built


def parse_windows(text: str) -> tuple[int, ...]:
    """Parse widths such as ``"1,3,5"``.

    Args:
        text: The widths, with commas.

    Returns:
        The widths.

    Raises:
        UsageError: They are not odd numbers; an even window has no token in its middle.
    """
    try:
        widths = tuple(int(part) for part in text.split(","))
    except ValueError:
        widths = ()
    if not widths or any(width < 1 or width % 2 == 0 for width in widths):
        raise UsageError(f"windows {text!r} is not understood; write odd numbers with commas, such as 1,3,5.")
    return widths
