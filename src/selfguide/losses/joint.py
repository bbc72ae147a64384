"""ConSERT's joint loss: labels and contrast on the same pairs, and the augmentation that only labels make possible.

With u, v the vectors of a batch's premises and hypotheses as they are, and u', v' (u'', v'') those of their two copies:

    L_ce  = mean over pairs of −log softmax(W (u, v, |u − v|))[label]
    L_con = 2 · NT-Xent(u', u'') + 2 · NT-Xent(v', v'')
    loss  = L_ce + α L_con

NT-Xent is the mean over its 2N anchors; the factor 2 makes of it the sum over the two copies' means, which is what the
published α belongs to. A copy is changed at the embedding layer (:mod:`selfguide.augment.embeddings`), or it is ``adversarial``:
with E the embedding layer's output, each token moves by a step of length ε in the direction that raises L_ce fastest:

    E_t ← E_t + ε · g_t / ‖g_t‖,   g = ∂L_ce / ∂E

The step itself is a constant: no gradient goes through it.

Reference: Yan et al., ConSERT: A Contrastive Framework for Self-Supervised Sentence Representation Transfer, ACL 2021.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from selfguide.augment.dropout import OWN, set_dropout
from selfguide.augment.embeddings import DEFAULT_RATES, frame_ids, parse_augmentation, unchanged
from selfguide.augment.encoding import Features, augmented, embed, embedding_layer
from selfguide.errors import UsageError
from selfguide.losses import functional as losses
from selfguide.losses.base import single
from selfguide.losses.consert import CITATION
from selfguide.losses.nli import PairLoss
from selfguide.models.encoders import backbone, freeze_layer_zero

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

PLAIN, ADVERSARIAL = "none", "adversarial"


def check_copy(words: str, rates: Mapping[str, float]) -> None:
    """Refuse in words what is no way to change a copy."""
    if words == ADVERSARIAL:
        return
    if ADVERSARIAL in words:
        raise UsageError(f"{ADVERSARIAL} cannot be joined to other augmentations, as in {words!r}: give it alone.")
    parse_augmentation(words, rates)


def check_numbers(alpha: float, noise: float, temperature: float) -> None:
    """Refuse in words what the loss cannot be made of."""
    if not alpha >= 0:
        raise UsageError(f"alpha must be at least 0, got {alpha}.")
    if not noise > 0:
        raise UsageError(f"noise must be above 0, got {noise}.")
    if not temperature > 0:
        raise UsageError(f"temperature must be above 0, got {temperature}.")


def adversarial_step(loss: Tensor, states: Tensor, mask: Tensor, size: float) -> Tensor:
    """For each real token, a step of length ``size`` along the loss's gradient in ``states``; zeros at padding.

    ``states``: the embedding layer's output (batch, tokens, width) that the loss was computed from.
    """
    (gradient,) = torch.autograd.grad(loss, states, retain_graph=True)
    direction = F.normalize(single(gradient), dim=-1, eps=torch.finfo(torch.float32).tiny)
    return (size * direction * mask.unsqueeze(-1)).to(states.dtype)


class JointLoss(PairLoss):
    """A sentence-transformers loss over two columns of sentences and a label from 0 to 2.

    Args:
        model: the SentenceTransformer to be tuned, with the pooling to be trained.
        alpha: weight of the contrast.
        first, second: what is done to the two copies: ``none``, augmentations, or ``adversarial``.
        temperature: τ of the contrast.
        noise: ε, the length of the adversarial step.
        rates: of the augmentations, by their names.
        dropout: rate of the Transformer's own dropout while training; −1 keeps the encoder's own.
        freeze_layer_0: take the embedding layer out of training.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        alpha: float = 0.15,
        first: str = PLAIN,
        second: str = "token-cutoff",
        temperature: float = 0.1,
        noise: float = 1.0,
        rates: Mapping[str, float] = DEFAULT_RATES,
        dropout: float = OWN,
        freeze_layer_0: bool = False,
    ) -> None:
        check_numbers(alpha, noise, temperature)
        for words in (first, second):
            check_copy(words, rates)
        embedding_layer(backbone(model))  # refuses in words an encoder that cannot be augmented
        super().__init__(model)
        self.alpha, self.names, self.temperature, self.noise = alpha, (first, second), temperature, noise
        self.rates, self.dropout, self.freeze_layer_0 = dict(rates), dropout, freeze_layer_0
        set_dropout(model, dropout)
        if freeze_layer_0:
            freeze_layer_zero(model)
        self._transformers = (backbone(model),)
        self._frame = frame_ids(model.tokenizer)

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        self.begin_step()
        premises, hypotheses = tuple(sentence_features)
        batch = self.both(premises, hypotheses)
        plain, first, second = self.copies(batch, labels)
        u, v = plain.chunk(2)
        return self.classify(u, v, labels) + self.alpha * self.contrast(first, second)

    def contrast(self, first: Tensor, second: Tensor) -> Tensor:
        """L_con of two copies of premises and, below them, hypotheses."""
        with torch.autocast(first.device.type, enabled=False):  # logits are too coarse in bfloat16
            return torch.stack(
                [
                    2 * losses.nt_xent_pairs(one, other, self.temperature)
                    for one, other in zip(single(first).chunk(2), single(second).chunk(2), strict=True)
                ]
            ).sum()

    def copies(self, batch: Features, labels: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """The vectors of the batch as it is, and of its two copies."""
        changes = [parse_augmentation(words, self.rates) for words in self.names if words not in (PLAIN, ADVERSARIAL)]
        transformer = self._transformers[0]
        if ADVERSARIAL in self.names:
            plain, moved = self._plain_and_moved(batch, labels)
            made = {PLAIN: plain, ADVERSARIAL: moved}
            rest = augmented(self.model, transformer, batch, changes, self._frame) if changes else []
        else:
            plain, *rest = augmented(self.model, transformer, batch, [unchanged, *changes], self._frame)
            made = {PLAIN: plain}
        remaining = iter(rest)
        first, second = (made[words] if words in made else next(remaining) for words in self.names)
        return plain, first, second

    def _plain_and_moved(self, batch: Features, labels: Tensor | None) -> tuple[Tensor, Tensor]:
        """The batch as it is, and again with every token a step along the gradient of L_ce."""
        seen: list[Tensor] = []

        def watch(states: Tensor) -> Tensor:
            # A frozen embedding layer's output has no gradient of its own; the step needs one all the same.
            seen.append(states if states.requires_grad else states.detach().requires_grad_())
            return seen[-1]

        transformer = self._transformers[0]
        plain = embed(self.model, transformer, dict(batch), watch)["sentence_embedding"]
        u, v = plain.chunk(2)
        step = adversarial_step(self.classify(u, v, labels), seen[0], batch["attention_mask"], self.noise)
        moved = embed(self.model, transformer, dict(batch), lambda states: states + step)["sentence_embedding"]
        return plain, moved

    def get_config_dict(self) -> dict[str, Any]:
        """The loss's settings, as sentence-transformers' model cards show them."""
        return {
            "alpha": self.alpha,
            "first": self.names[0],
            "second": self.names[1],
            "temperature": self.temperature,
            "noise": self.noise,
            "rates": self.rates,
            "dropout": self.dropout,
            "freeze_layer_0": self.freeze_layer_0,
        }

    @property
    def citation(self) -> str:
        return CITATION
