"""WK pooling (SBERT-WK): weight layers and tokens by how a token's vector changes from layer to layer. Nothing is trained.

v_k is a token's vector at layer k = layer_start..l. Its neighbours W(k) are the layers at most ``window`` away. Write
v_k = p_k + n_k with p_k in the span of the neighbours' vectors and n_k orthogonal to it (a QR factorisation).

    novelty        a_k = ‖n_k‖ / ‖v_k‖                               what the neighbours do not say
    alignment      b_k = 1/|W(k)| Σ_{j∈W(k)} cos(v_j, p_k)           what they all say
    layer weight   α_k = ½ (a_k / Σ a + b'_k / Σ b')                 b'_k = 1 / (b_k · (|W(k)| + 1))
    token          u_t = Σ_k α_k v_{t,k}
    importance     ω_t = Var_k cos(v_{t,k}, v_{t,k+1})               informative words change more
    sentence       s   = Σ_t ω_t u_t / Σ_t ω_t

[CLS] counts as a token, [SEP] (a sentence's last token) does not.

Differences from the authors' released script: the QR factorisations of tall matrices are replaced by Cholesky factors of
small Gram matrices, equal up to rounding and about thirty times as fast on a CPU (:mod:`selfguide.models.modules.wk_pooling`);
a layer near the bottom keeps the neighbours it has (the script, by the way Python slices, gives the second layer none below); a
mean cosine below 0.01 counts as 0.01, so that no weight is negative.

The result holds a module that stock sentence-transformers does not have: ``selfguide.load(folder)`` loads it.

Reference: Wang and Kuo, SBERT-WK: A Sentence Embedding Method by Dissecting BERT-Based Word Models, IEEE/ACM TASLP 2020.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from sentence_transformers import SentenceTransformer
from torch import nn

from selfguide.errors import UsageError
from selfguide.methods.base import Method
from selfguide.models.encoders import depth, transformer_of
from selfguide.models.modules.wk_pooling import WKPooling
from selfguide.options import AtLeast, CheckedOptions
from selfguide.training.trainer import FitContext, TrainingOutcome

# Two cosines between neighbouring layers are needed for a variance.
FEWEST_LAYERS = 3

CITATION = """\
@article{wang-kuo-2020-sbert-wk,
    title = "{SBERT-WK}: A Sentence Embedding Method by Dissecting {BERT}-Based Word Models",
    author = "Wang, Bin and Kuo, C.-C. Jay",
    journal = "IEEE/ACM Transactions on Audio, Speech, and Language Processing",
    year = "2020",
}"""


@dataclass(frozen=True)
class WKOptions(CheckedOptions):
    """Options of WK pooling; the defaults are the authors'."""

    layer_start: Annotated[int, AtLeast(0)] = 4
    """First layer that counts: 0 is the embedding layer."""
    window: Annotated[int, AtLeast(1)] = 2
    """Number of layers on each side that are a layer's neighbours."""


class WK(Method):
    """``--method wk``; the text is not used."""

    name = "wk"
    family = "pooling"
    summary = "layers and tokens weighted by how a token's vector changes through the layers (SBERT-WK)"
    reference = "Wang and Kuo, TASLP 2020"
    cost = "one forward pass and a QR for every token"
    Options = WKOptions
    options: WKOptions
    citation = CITATION

    def fit(self, encoder: SentenceTransformer, context: FitContext) -> TrainingOutcome:
        """See :meth:`Method.fit`."""
        count, start = depth(encoder), self.options.layer_start
        if count + 1 - start < FEWEST_LAYERS:
            way_out = f"use --layer-start {count + 1 - FEWEST_LAYERS} or less" if count >= 2 else "choose a deeper one"
            raise UsageError(
                f"WK pooling compares layers and needs {FEWEST_LAYERS} of them; this encoder's last is layer {count} and "
                f"layer_start is {start}: {way_out}."
            )
        transformer = transformer_of(encoder)
        transformer.model.config.output_hidden_states = True
        pooling = WKPooling(
            int(transformer.get_embedding_dimension()), start, self.options.window, _ends_in_a_special_token(encoder)
        )
        modules: list[nn.Module] = [transformer, pooling]
        pooled = SentenceTransformer(modules=modules, device=str(encoder.device))
        pooled.max_seq_length = encoder.max_seq_length
        return TrainingOutcome(pooled.eval())


def _ends_in_a_special_token(encoder: SentenceTransformer) -> bool:
    """Return whether the tokenizer ends a sentence with a special token ([SEP], </s>); if not, the last token counts."""
    tokenizer = encoder.tokenizer
    return tokenizer("a")["input_ids"][-1] in tokenizer.all_special_ids
