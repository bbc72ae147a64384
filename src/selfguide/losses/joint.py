"""ConSERT's joint loss: labels and contrast on the same pairs, with an augmentation that only labels make possible.

The premises and hypotheses of a batch are classified as in :mod:`selfguide.losses.nli`. Beside it, two copies of each
sentence are contrasted by NT-Xent, premises with premises and hypotheses with hypotheses. A copy is the sentence as it is
(``none``), augmented at the embedding layer (:mod:`selfguide.augment.embeddings`), or ``adversarial``: each token of the
embedding layer's output moves along the gradient of the classification loss. The step itself is a constant: no gradient flows
through it. The paper takes the gradient as it is (the fast gradient value); the authors' code makes it a step of fixed length
for each token, which is the default here (``step``). NT-Xent is the mean over its 2N anchors, as the paper writes it; the
authors' scripts add up the means of both copies, for premises and for hypotheses, which is four times the mean over all
anchors. The published α of 0.15 belongs to the scripts, so the factor 2 of the formula is theirs: to train by the paper's
mean, divide α by 4.

Differences from the authors' released scripts: the classifier sees (u, v, |u − v|) as in the paper, where the scripts add
max(u, v)². Equal premises in a batch (SNLI has each three times) count as different sentences in the contrast, as they do in the
scripts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from selfguide.augment.dropout import KEEP_DROPOUT, set_dropout
from selfguide.augment.embeddings import DEFAULT_RATES, parse_augmentation, unchanged
from selfguide.augment.encoding import Features, augmented, embedding_layer
from selfguide.errors import UsageError
from selfguide.losses import functional
from selfguide.losses.base import full_precision, single
from selfguide.losses.consert import CITATION
from selfguide.losses.nli import NLISoftmaxLoss
from selfguide.losses.rules import TEMPERATURE, WEIGHT
from selfguide.models.encoders import backbone, freeze_layer_zero
from selfguide.options import Above, OneOf, check

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

PLAIN, ADVERSARIAL = "none", "adversarial"
NOISE = Above(0)
STEP = OneOf("normalised", "gradient")


class JointLoss(NLISoftmaxLoss):
    """Classify labelled pairs and contrast two copies of each of their sentences (ConSERT, joint training).

    Formula:
        With u, v the embeddings of premises and hypotheses, and u', u'' (v', v'') those of their two copies:

            L_ce  = mean over pairs of −log softmax(W (u, v, |u − v|))[label]
            L_con = 2 · NT-Xent(u', u'') + 2 · NT-Xent(v', v'')
            loss  = L_ce + α L_con

        An adversarial copy moves the embedding layer's output E of each token t:

            E_t ← E_t + ε · g_t / ‖g_t‖,   g = ∂L_ce / ∂E        (step="normalised")
            E_t ← E_t + ε · g_t                                   (step="gradient")

    Args:
        model: The SentenceTransformer to be trained; ConSERT takes the mean of the last layer's tokens.
        alpha: α, the weight of the contrast.
        first: The first copy: ``none``, augmentations, or ``adversarial``.
        second: The second copy.
        temperature: τ of the contrast.
        noise: ε, the length of the adversarial step, or the factor of the gradient.
        step: ``"normalised"``, as in the authors' code, or ``"gradient"``, as in the paper.
        rates: Fractions that the augmentations set to zero, by their names.
        dropout: Rate of the Transformer's own dropout during training; −1 keeps the encoder's own.
        freeze_layer_0: Do not train the embedding layer.

    Raises:
        UsageError: An argument is out of range, or an augmentation unknown.
        SelfguideError: The encoder has no embedding layer that can be changed from outside.

    Inputs:
        | Texts                 | Labels                                        |
        |-----------------------|-----------------------------------------------|
        | (premise, hypothesis) | 0: entailment, 1: neutral, 2: contradiction   |

    Relations:
        :class:`~selfguide.losses.NLISoftmaxLoss` is L_ce alone, :class:`~selfguide.losses.ConSERTLoss` the contrast alone, on
        text without labels.

    Example:
        ```python
        from datasets import Dataset
        from sentence_transformers import SentenceTransformerTrainer

        import selfguide
        from selfguide.losses import JointLoss

        model = selfguide.load_encoder("mini", pooling="mean")
        loss = JointLoss(model, alpha=0.15, second="adversarial")
        premises = ["A man plays the cello.", "The train is late.", "It rains."]
        hypotheses = ["A man makes music.", "The bus is full.", "The sun shines."]
        pairs = Dataset.from_dict({"premise": premises, "hypothesis": hypotheses, "label": [0, 1, 2]})
        SentenceTransformerTrainer(model=model, train_dataset=pairs, loss=loss).train()
        ```

    Reference:
        Yan et al., ConSERT: A Contrastive Framework for Self-Supervised Sentence Representation Transfer, ACL 2021:
        https://arxiv.org/abs/2105.11741
    """

    citation = CITATION
    config_names = ("alpha", "first", "second", "temperature", "noise", "step", "rates", "dropout", "freeze_layer_0")

    def __init__(
        self,
        model: SentenceTransformer,
        alpha: float = 0.15,
        first: str = PLAIN,
        second: str = "token-cutoff",
        temperature: float = 0.1,
        noise: float = 1.0,
        step: str = "normalised",
        rates: Mapping[str, float] = DEFAULT_RATES,
        dropout: float = KEEP_DROPOUT,
        freeze_layer_0: bool = False,
    ) -> None:
        check("alpha", alpha, WEIGHT)
        check("temperature", temperature, TEMPERATURE)
        check("noise", noise, NOISE)
        check("step", step, STEP)
        for names in (first, second):
            check_copy(names, rates)
        embedding_layer(backbone(model))
        super().__init__(model)
        self.alpha, self.first, self.second, self.rates = alpha, first, second, dict(rates)
        self.temperature, self.noise, self.step = temperature, noise, step
        self.dropout, self.freeze_layer_0 = dropout, freeze_layer_0
        set_dropout(model, dropout)
        if freeze_layer_0:
            freeze_layer_zero(model)

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        """Return the loss of a batch; see the class."""
        self.begin_step()
        premises, hypotheses = tuple(sentence_features)
        plain, first, second = self.copies(self.both(premises, hypotheses), labels)
        u, v = plain.chunk(2)
        return self.classify(u, v, labels) + self.alpha * self.contrast(first, second)

    def contrast(self, first: Tensor, second: Tensor) -> Tensor:
        """Compute L_con.

        Args:
            first: Embeddings of the first copies, premises and then hypotheses (2 · batch, dim).
            second: Embeddings of the second copies, in the same order.

        Returns:
            The loss, a scalar.
        """
        with full_precision(first):
            return torch.stack(
                [
                    2 * self.over_processes(functional.nt_xent_pairs, one, other, self.temperature)
                    for one, other in zip(single(first).chunk(2), single(second).chunk(2), strict=True)
                ]
            ).sum()

    def copies(self, batch: Features, labels: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Embed a batch as it is, and its two copies.

        Args:
            batch: The tokenised batch (:meth:`both`).
            labels: Its labels, for an adversarial copy.

        Returns:
            The embeddings of the batch and of each copy.
        """
        names = (self.first, self.second)
        changes = [parse_augmentation(name, self.rates) for name in names if name not in (PLAIN, ADVERSARIAL)]
        if ADVERSARIAL in names:
            plain, moved = self._plain_and_moved(batch, labels)
            made = {PLAIN: plain, ADVERSARIAL: moved}
            rest = augmented(self.model, self.transformer, batch, changes, self.frame_ids) if changes else []
        else:
            plain, *rest = augmented(self.model, self.transformer, batch, [unchanged, *changes], self.frame_ids)
            made = {PLAIN: plain}
        remaining = iter(rest)
        first, second = (made[name] if name in made else next(remaining) for name in names)
        return plain, first, second

    def _plain_and_moved(self, batch: Features, labels: Tensor | None) -> tuple[Tensor, Tensor]:
        """Embed the batch as it is, and again with every token moved along the gradient of L_ce."""
        seen: list[Tensor] = []

        def watch(states: Tensor) -> Tensor:
            # The output of a frozen embedding layer has no gradient of its own, but the step needs one.
            seen.append(states if states.requires_grad else states.detach().requires_grad_())
            return seen[-1]

        plain = self.encode(dict(batch), watch)["sentence_embedding"]
        u, v = plain.chunk(2)
        value, normalised = self.classify(u, v, labels), self.step == "normalised"
        step = adversarial_step(value, seen[0], batch["attention_mask"], self.noise, normalised=normalised)
        moved = self.encode(dict(batch), lambda states: states + step)["sentence_embedding"]
        return plain, moved


def check_copy(names: str, rates: Mapping[str, float]) -> None:
    """Check how a copy is made.

    Args:
        names: ``adversarial``, or augmentations joined by ``+``.
        rates: Fractions that the augmentations set to zero, by their names.

    Raises:
        UsageError: An augmentation is unknown, or ``adversarial`` is joined to another.
    """
    if names == ADVERSARIAL:
        return
    if ADVERSARIAL in names:
        raise UsageError(f"{ADVERSARIAL} cannot be joined to other augmentations, as in {names!r}: give it alone.")
    parse_augmentation(names, rates)


def adversarial_step(loss: Tensor, states: Tensor, mask: Tensor, size: float, *, normalised: bool = True) -> Tensor:
    """Compute a step of each token along the gradient of a loss.

    Args:
        loss: The loss, a scalar.
        states: The embedding layer's output that it was computed from (batch, tokens, width).
        mask: Attention mask (batch, tokens).
        size: Length of each token's step, or the factor of the gradient.
        normalised: Whether all steps have the same length; otherwise a step is the gradient times ``size``.

    Returns:
        The steps, in the shape of ``states``; zeros at padding.
    """
    (gradient,) = torch.autograd.grad(loss, states, retain_graph=True)
    direction = single(gradient)
    if normalised:
        direction = F.normalize(direction, dim=-1, eps=torch.finfo(torch.float32).tiny)
    return (size * direction * mask.unsqueeze(-1)).to(states.dtype)
