"""Back-translation contrast: a sentence and its back-translation mean the same.

Each sentence was translated to another language and back beforehand (:mod:`selfguide.augment.back_translation`). Embeddings
of both pass through a head that is trained with the encoder and not saved. With ``nt-xent`` the negatives are the other
sentences of the batch; this is the baseline that the SG-OPT paper calls BT, and the authors' released script has a branch for
it, whose settings are the defaults: the head of SG-OPT (4,096 wide, GELU), τ = 0.01, λ = 0.1 for the squared distance from
the initial weights, the embedding layer frozen. With ``moco``, CERT's objective, the encoder embeds the sentence, its moving
average embeds the back-translation, and a queue of the keys of past batches gives further negatives
(:mod:`selfguide.losses.queue`); CERT's head is a Linear, a ReLU and a Linear of 128 dimensions (``head="relu"``).

Differences from CERT's released code: the batch's other keys are negatives beside the queue's, which starts empty (theirs
starts with random vectors); a pair is a sentence and one back-translation of it (theirs may be two back-translations).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from selfguide.augment.dropout import KEEP_DROPOUT
from selfguide.augment.encoding import Features, embed, stacked
from selfguide.losses import functional
from selfguide.losses.base import HeadedLoss, full_precision, projection_head, single
from selfguide.losses.queue import KeyQueue, update_average
from selfguide.losses.rules import HEAD_SIZE, TEMPERATURE, WEIGHT
from selfguide.models.encoders import backbone
from selfguide.options import AtLeast, Between, OneOf, check

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

CITATION = """\
@article{fang-xie-2020-cert,
    title = "{CERT}: Contrastive Self-supervised Learning for Language Understanding",
    author = "Fang, Hongchao and Xie, Pengtao",
    journal = "arXiv preprint arXiv:2005.12766",
    year = "2020",
}"""
OBJECTIVE, QUEUE_SIZE, MOMENTUM = OneOf("nt-xent", "moco"), AtLeast(1), Between(0, 1, open_high=True)
HEAD = OneOf("gelu", "relu")


class BackTranslationLoss(HeadedLoss):
    """Contrast each sentence with its back-translation (BT; CERT with ``objective="moco"``).

    Formula:
        With x the projected embeddings of a batch's sentences and translations, μ(m) the partner of m, q_i the query of
        sentence i, k_i the key of its translation and φ(u, v) = exp(cos(u, v) / τ):

            nt-xent   loss = mean over m of −log φ(x_m, x_μ(m)) / Σ_{n≠m} φ(x_m, x_n)
            moco      loss = mean over i of −log φ(q_i, k_i) / (Σ_j φ(q_i, k_j) + Σ_n φ(q_i, queue_n))

        With λ above 0, λ ‖θ_0 − θ‖² is added, the squared distance of the weights from the initial ones.

    Args:
        model: The SentenceTransformer to be trained.
        objective: ``"nt-xent"`` or ``"moco"``.
        temperature: τ.
        head: ``"gelu"``, that of SG-OPT (Linear, GELU, Linear, GELU), or ``"relu"``, CERT's (Linear, ReLU, Linear).
        head_size: Output dimension of the head, 0 for no head. The head lives in the loss.
        stay_close: λ, the weight of the squared distance from the initial weights.
        freeze_layer_0: Do not train the embedding layer.
        queue_size: Keys of past batches that serve as negatives (``moco``).
        momentum: m of the moving average that makes the keys (``moco``).
        dropout: Rate of every dropout in the Transformer during training; −1 keeps the encoder's own.

    Raises:
        UsageError: An argument is out of range.

    Inputs:
        | Texts                      | Labels |
        |----------------------------|--------|
        | (sentence, translation)    | none   |

    Relations:
        ``MultipleNegativesRankingLoss`` takes the same pairs; it has no head and only the sentences as anchors.
        :class:`~selfguide.losses.SelfGuidedTranslationLoss` adds self-guidance.

    Example:
        ```python
        from datasets import Dataset
        from sentence_transformers import SentenceTransformerTrainer

        import selfguide
        from selfguide.losses import BackTranslationLoss

        model = selfguide.load_encoder("mini", pooling="cls")
        loss = BackTranslationLoss(model, temperature=0.01, stay_close=0.1)
        sentences = ["It rains.", "The train is late.", "She plays the cello."]
        translations = ["It is raining.", "The train has a delay.", "She performs on the cello."]
        pairs = Dataset.from_dict({"sentence": sentences, "translation": translations})
        SentenceTransformerTrainer(model=model, train_dataset=pairs, loss=loss).train()
        ```

    Reference:
        Fang and Xie, CERT: Contrastive Self-supervised Learning for Language Understanding, 2020:
        https://arxiv.org/abs/2005.12766; Kim, Yoo and Lee, ACL 2021 (BT as a baseline)
    """

    citation = CITATION

    def __init__(
        self,
        model: SentenceTransformer,
        objective: str = "nt-xent",
        temperature: float = 0.01,
        head: str = "gelu",
        head_size: int = 4096,
        stay_close: float = 0.1,
        freeze_layer_0: bool = True,
        queue_size: int = 6720,
        momentum: float = 0.999,
        dropout: float = KEEP_DROPOUT,
    ) -> None:
        check("objective", objective, OBJECTIVE)
        check("temperature", temperature, TEMPERATURE)
        check("head", head, HEAD)
        check("head_size", head_size, HEAD_SIZE)
        check("stay_close", stay_close, WEIGHT)
        check("queue_size", queue_size, QUEUE_SIZE)
        check("momentum", momentum, MOMENTUM)
        super().__init__(model, dropout, freeze_layer_0)
        self.objective, self.temperature = objective, temperature
        self.head_kind, self.head_size, self.stay_close = head, head_size, stay_close
        self.queue_size, self.momentum = queue_size, momentum
        width = int(model.get_embedding_dimension() or 0)
        spread = float(getattr(self.transformer.config, "initializer_range", 0.02))
        made = projection_head(width, head_size, spread) if head == "gelu" else _relu_head(width, head_size)
        self.head = made.to(model.device)
        self._moving = [parameter for parameter in self.transformer.parameters() if parameter.requires_grad]
        self._start = [parameter.detach().clone() for parameter in self._moving] if stay_close else []
        if objective == "moco":
            self.key_encoder = copy.deepcopy(model).requires_grad_(False)
            self.key_head = copy.deepcopy(self.head).requires_grad_(False)
            self.queue = KeyQueue(queue_size, head_size or width).to(model.device)
        self.share_over_processes()

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        """Return the loss of a batch; see the class."""
        self.begin_step()
        sentences, translations = tuple(sentence_features)
        if self.objective == "moco":
            return self._momentum_contrast(sentences, translations)
        batch = stacked([sentences, translations], padding=self.padding_id)
        embeddings = self.encode(batch)["sentence_embedding"]
        with full_precision(embeddings):
            first, second = self.head(single(embeddings)).chunk(2)
            contrast = self.over_processes(functional.nt_xent_pairs, first, second, self.temperature)
            return contrast + self.distance()

    def distance(self) -> Tensor:
        """Compute λ ‖θ_0 − θ‖² over the parameters that are trained.

        Returns:
            The weighted distance, a scalar; 0 without λ.
        """
        if not self.stay_close:
            return self._moving[0].new_zeros(())
        device = self._moving[0].device
        if self._start[0].device != device:  # a trainer has moved the model
            self._start = [start.to(device) for start in self._start]
        return self.stay_close * functional.stay_close(self._moving, self._start)

    def moving_state(self) -> dict[str, Tensor]:
        """Return the queue and the moving average; processes that share negatives have equal queues."""
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
        """Return the loss's settings, as model cards show them."""
        names = ["objective", "temperature", "head_size", "stay_close", "freeze_layer_0", "dropout"]
        names += ["queue_size", "momentum"] if self.objective == "moco" else []
        return {name: getattr(self, name) for name in names} | {"head": self.head_kind}

    def _momentum_contrast(self, sentences: Features, translations: Features) -> Tensor:
        embeddings = self.encode(sentences)["sentence_embedding"]
        if self.training:
            update_average(self.key_encoder.parameters(), self.encoder.parameters(), self.momentum)
            update_average(self.key_head.parameters(), self.head.parameters(), self.momentum)
        with torch.no_grad():
            of_keys = embed(self.key_encoder, backbone(self.key_encoder), translations)["sentence_embedding"]
        with full_precision(embeddings):
            with torch.no_grad():
                keys = self.key_head(single(of_keys))
            queries = self.head(single(embeddings))
            queue = self.queue.contents()
            if (shared := self.shared_batch(queries)) is None:
                loss = functional.momentum_contrast(queries, keys, queue, self.temperature)
            else:
                queries, keys = shared.gather(queries), shared.gather(keys)
                share = functional.momentum_contrast(queries, keys, queue, self.temperature, own=shared.own)
                loss = shared.processes * share
            loss = loss + self.distance()
        if self.training:
            self.queue.add(keys)
        return loss


def _relu_head(width: int, size: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, size)) if size else nn.Identity()
