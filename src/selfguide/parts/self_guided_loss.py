"""The loss of self-guidance (SG, SG-OPT), kept apart from the methods of that name because others build on it.

A fixed copy of the encoder, the guide, gives views of each sentence, one for each layer; the encoder's own vector is drawn
towards those of its sentence and away from those of the others. :mod:`selfguide.methods.self_guided` has the whole story and
:mod:`selfguide.losses` the objectives.

Reference: Kim, Yoo and Lee, Self-Guided Contrastive Learning for BERT Sentence Representations, ACL 2021.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from selfguide import losses
from selfguide.encoders import backbone, depth, freeze_layer_zero, freeze_unused, input_names
from selfguide.errors import UsageError
from selfguide.packing import packed
from selfguide.parts.headed_loss import HeadedLoss, single
from selfguide.settings import require_types
from selfguide.views import VIEW_POOLINGS, layer_views, model_inputs, parse_layers

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

CITATION = """\
@inproceedings{kim-etal-2021-self,
    title = "Self-Guided Contrastive Learning for {BERT} Sentence Representations",
    author = "Kim, Taeuk and Yoo, Kang Min and Lee, Sang-goo",
    booktitle = "Proceedings of ACL-IJCNLP 2021",
    year = "2021",
}"""


@dataclass(frozen=True)
class SelfGuidedOptions:
    """Options of the self-guided methods; the defaults are the paper's."""

    objective: str = "sg-opt"
    """sg, opt1, opt2 or sg-opt."""
    temperature: float = 0.01
    """τ: the smaller, the more the hardest negatives count."""
    stay_close: float = 0.1
    """λ: weight of the squared distance between student and guide; 0 switches it off."""
    view_pooling: str = "max"
    """How the guide's tokens become a view: max, mean or cls."""
    layers: str = "all"
    """Layers that give views: all, a range such as 4-8, a list such as 0,6,12."""
    head_size: int = 4096
    """Width of the projection head; 0: no head."""
    freeze_layer_0: bool = True
    """Leave the student's embedding layer as it is."""
    pooling: str = "cls"
    """The student's sentence vector: cls, mean, max, last2 or first-last."""

    def __post_init__(self) -> None:
        require_types(self)
        losses.objective(self.objective)
        if not self.temperature > 0:
            raise UsageError(f"temperature must be above 0, got {self.temperature}.")
        if not self.stay_close >= 0:
            raise UsageError(f"stay_close must be at least 0, got {self.stay_close}.")
        if self.view_pooling not in VIEW_POOLINGS:
            raise UsageError(
                f"There is no view pooling {self.view_pooling!r}; choose one of {', '.join(VIEW_POOLINGS)}."
            )
        if self.head_size < 0:
            raise UsageError(f"head_size must be at least 0, got {self.head_size}.")


def loss_settings(options: SelfGuidedOptions) -> dict[str, Any]:
    """What :class:`SelfGuidedLoss` is told of a method's options: all but the student's pooling."""
    names = ("objective", "temperature", "stay_close", "view_pooling", "layers", "head_size", "freeze_layer_0")
    return {name: getattr(options, name) for name in names}


class SelfGuidedLoss(HeadedLoss):
    """Self-guided contrastive loss (SG, SG-OPT) as an ordinary sentence-transformers loss.

    At construction it copies the model's Transformer as the guide. In training, the guide's layer views teach the model's
    sentence embedding, which should be the [CLS] vector (``Pooling(…, "cls")``).

    Inputs:
        +-------------+--------+
        | Texts       | Labels |
        +=============+========+
        | one sentence| none   |
        +-------------+--------+

    Args:
        model: the SentenceTransformer to be tuned.
        objective: ``"sg-opt"``, ``"sg"``, ``"opt1"`` or ``"opt2"``.
        temperature: τ of the contrast.
        stay_close: λ, the weight of ‖θ_F − θ_T‖².
        view_pooling: ``"max"``, ``"mean"`` or ``"cls"`` over the guide's tokens.
        layers: which layers give views: ``"all"``, ``"4-8"``, ``"0,6,12"`` or a list.
        head_size: width of the projection head, 0 for none. It lives in the loss, so it is never saved with the model.
        freeze_layer_0: take the student's embedding layer out of training.

    Relations:
        Like ``MultipleNegativesRankingLoss`` it uses the other sentences of the batch as negatives, but its positives are
        views of the same sentence from the guide's layers, so it needs neither pairs nor labels. Batches should not hold
        a sentence twice (``BatchSamplers.NO_DUPLICATES``, or text without repeats).

    Example::

        from datasets import Dataset
        from sentence_transformers import SentenceTransformerTrainer
        import selfguide

        model = selfguide.load_encoder("mini", pooling="cls")
        loss = selfguide.SelfGuidedLoss(model, objective="sg-opt")
        text = Dataset.from_dict({"sentence": ["It rains.", "The train is late.", "She plays the cello."]})
        SentenceTransformerTrainer(model=model, train_dataset=text, loss=loss).train()

    Reference:
        Self-Guided Contrastive Learning for BERT Sentence Representations: https://arxiv.org/abs/2106.07345
    """

    def __init__(
        self,
        model: SentenceTransformer,
        objective: str = "sg-opt",
        temperature: float = 0.01,
        stay_close: float = 0.1,
        view_pooling: str = "max",
        layers: str | int | list[int] = "all",
        head_size: int = 4096,
        freeze_layer_0: bool = True,
    ) -> None:
        super().__init__()
        SelfGuidedOptions(objective, temperature, stay_close, view_pooling, head_size=head_size)  # refuses in words
        self.objective = objective
        self.temperature = temperature
        self.stay_close = stay_close
        self.view_pooling = view_pooling
        self.layers = parse_layers(layers, depth(model))
        self.head_size = head_size
        self.freeze_layer_0 = freeze_layer_0
        self._inputs = input_names(model)

        if freeze_layer_0:
            freeze_layer_zero(model)
        freeze_unused(model)
        self.model = model
        self.guide = copy.deepcopy(backbone(model)).requires_grad_(False).eval()
        width = int(self.guide.config.hidden_size)
        if model.get_embedding_dimension() != width:
            raise UsageError(
                f"The model's embedding has {model.get_embedding_dimension()} numbers and its layers {width}; "
                "self-guidance compares the two, so leave out whatever changes the width (Dense, several poolings)."
            )
        self.head = _projection_head(width, head_size, float(getattr(self.guide.config, "initializer_range", 0.02)))
        # Pairs of parameters that may drift apart; frozen ones cannot.
        # (In a tuple, so that the student's Transformer is not registered a second time.)
        self._students = (backbone(model),)
        student = dict(self._student.named_parameters())
        self._moving = [name for name, parameter in student.items() if parameter.requires_grad]
        self._student_parameters = [student[name] for name in self._moving]
        self.share_over_processes()

    def train(self, mode: bool = True) -> SelfGuidedLoss:
        """Training mode for the student and head; the guide stays in evaluation mode."""
        super().train(mode)
        self.guide.eval()
        return self

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        self.begin_step()
        features = next(iter(sentence_features))
        with packed(self.guide, self._student):
            views = self._views(features)
            embeddings = self.model(features)["sentence_embedding"]
        loss = self.contrast(embeddings, views)
        if self.stay_close > 0:
            loss = loss + self.stay_close * self.distance()
        return loss

    def contrast(self, embeddings: Tensor, views: Tensor) -> Tensor:
        """The objective on embeddings (batch, dim) and views (batch, layers, dim), through the head."""
        function = losses.objective(self.objective)
        if self.objective in losses.SINGLE_VIEW_OBJECTIVES:
            views = _draw_one(views)
        # In single precision, head included, whatever the encoder runs in: logits reach 1/τ = 100, where bfloat16 counts
        # in steps of a half.
        with torch.autocast(embeddings.device.type, enabled=False):
            return function(self.head(single(embeddings)), self.head(single(views)), self.temperature)

    @property
    def _student(self) -> nn.Module:
        return self._students[0]

    def distance(self) -> Tensor:
        """‖θ_F − θ_T‖² over the parameters that may move."""
        guide = dict(self.guide.named_parameters())
        return losses.stay_close(self._student_parameters, [guide[name] for name in self._moving])

    @torch.no_grad()
    def _views(self, features: dict[str, Tensor]) -> Tensor:
        return layer_views(self.guide, model_inputs(features, self._inputs), self.view_pooling, self.layers)

    def get_config_dict(self) -> dict[str, Any]:
        """The loss's settings, as sentence-transformers' model cards show them."""
        return {
            "objective": self.objective,
            "temperature": self.temperature,
            "stay_close": self.stay_close,
            "view_pooling": self.view_pooling,
            "layers": list(self.layers),
            "head_size": self.head_size,
            "freeze_layer_0": self.freeze_layer_0,
        }

    @property
    def citation(self) -> str:
        return CITATION


def _projection_head(width: int, size: int, spread: float) -> nn.Module:
    """f: Linear → GELU → Linear → GELU, shared by embeddings and views, weights N(0, spread²)."""
    if size == 0:
        return nn.Identity()
    head = nn.Sequential(nn.Linear(width, size), nn.GELU(), nn.Linear(size, size), nn.GELU())
    for module in head:
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=spread)
            nn.init.zeros_(module.bias)
    return head


def _draw_one(views: Tensor) -> Tensor:
    """One view of each sentence, uniformly. Drawn on the CPU so that a seed means the same on every device."""
    batch, count, _ = views.shape
    chosen = torch.randint(count, (batch,)).to(views.device)
    return views[torch.arange(batch, device=views.device), chosen]
