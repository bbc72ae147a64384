"""The loss of self-guidance (SG, SG-OPT), kept apart from the methods of that name because others build on it.

A fixed copy of the encoder, the guide, gives views of each sentence, one for each layer; the encoder's own vector is drawn
towards those of its sentence and away from those of the others. :mod:`selfguide.methods.self_guided` has the whole story and
:mod:`selfguide.losses.functional` the objectives.

Reference: Kim, Yoo and Lee, Self-Guided Contrastive Learning for BERT Sentence Representations, ACL 2021.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
from torch import Tensor, nn

from selfguide.engine.cuda_graphs import GraphedSteps
from selfguide.engine.gradient_cache import cached_embeddings, chunks_of
from selfguide.engine.packing import Layout, can_pack, gather, layout_of, packed
from selfguide.engine.view_cache import KeptViews
from selfguide.engine.views import layer_views
from selfguide.errors import UsageError
from selfguide.losses import functional as losses
from selfguide.losses.base import HeadedLoss, Preparation, single
from selfguide.losses.guide_views import KEEP_VIEWS, kept_views
from selfguide.models.encoders import POOLINGS, backbone, depth, freeze_layer_zero, freeze_unused, input_names
from selfguide.models.layers import VIEW_POOLINGS, model_inputs, parse_layers
from selfguide.options import require_types

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

# On a GPU batches come in few shapes, so that a step's kernels can be recorded for each: rows of 256 slots, sentences in
# frames of 32, 64, … tokens. The slots left over cost a GPU next to nothing.
_SHAPES_ON_GPU = {"row_tokens": 256, "even": 32, "full_rows": True}

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
    tune_guide: bool = False
    """Train the guide too, through its views; for comparison, the method keeps it fixed."""
    pooling: str = "cls"
    """The student's sentence vector: cls, mean, max, last2 or first-last."""
    keep_views: str = "auto"
    """Keep the guide's views on disk for later epochs and runs: yes, no, fp16 (half the space, losses differ in the third
    digit), or auto: if they are there already, or the text is read more than once."""
    keep_views_gb: float = 4.0
    """Most that all kept views together may take on disk."""
    gradient_cache: int = 0
    """Sentences that go through the encoder at a time, for batches larger than memory; 0: all. The negatives stay those of
    the whole batch; the price is a second forward pass."""

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
        if self.pooling not in POOLINGS:
            raise UsageError(f"There is no pooling {self.pooling!r}; choose one of {', '.join(POOLINGS)}.")
        if self.head_size < 0:
            raise UsageError(f"head_size must be at least 0, got {self.head_size}.")
        if self.keep_views not in KEEP_VIEWS:
            raise UsageError(f"keep_views must be one of {', '.join(KEEP_VIEWS)}, got {self.keep_views!r}.")
        if not self.keep_views_gb > 0:
            raise UsageError(f"keep_views_gb must be above 0, got {self.keep_views_gb}.")
        if self.gradient_cache < 0:
            raise UsageError(f"gradient_cache must be at least 0, got {self.gradient_cache}.")
        if self.tune_guide and (self.gradient_cache or self.keep_views not in ("auto", "no")):
            raise UsageError("tune_guide changes the views at every step: leave out keep_views and gradient_cache.")


def loss_settings(options: SelfGuidedOptions) -> dict[str, Any]:
    """What :class:`SelfGuidedLoss` is told of a method's options: all but the student's pooling."""
    return {item.name: getattr(options, item.name) for item in fields(SelfGuidedOptions) if item.name != "pooling"}


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
        tune_guide: train the guide's layers too, through the views they give; the stay-close term still moves the student alone.
        keep_views, keep_views_gb: for :func:`selfguide.train`; see :class:`SelfGuidedOptions`. Elsewhere they do nothing.
        gradient_cache: sentences that go through the encoder at a time; 0 for all.

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

    records_steps: ClassVar[bool] = True
    """Whether :meth:`forward` is the step that a GPU may record."""

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
        tune_guide: bool = False,
        keep_views: str = "auto",
        keep_views_gb: float = 4.0,
        gradient_cache: int = 0,
    ) -> None:
        super().__init__()
        SelfGuidedOptions(  # refuses in words
            objective,
            temperature,
            stay_close,
            view_pooling,
            head_size=head_size,
            tune_guide=tune_guide,
            keep_views=keep_views,
            gradient_cache=gradient_cache,
        )
        self.objective = objective
        self.temperature = temperature
        self.stay_close = stay_close
        self.view_pooling = view_pooling
        self.layers = parse_layers(layers, depth(model))
        self.head_size = head_size
        self.freeze_layer_0 = freeze_layer_0
        self.tune_guide = tune_guide
        self.keep_views, self.keep_views_gb = keep_views, keep_views_gb
        self.gradient_cache = gradient_cache
        self._kept: KeptViews | None = None
        self._graphs: GraphedSteps | None = None
        self._half: torch.dtype | None = None
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
        student, guide = dict(self._student.named_parameters()), dict(self.guide.named_parameters())
        moving = [name for name, parameter in student.items() if parameter.requires_grad]
        self._student_parameters = [student[name] for name in moving]
        self._guide_parameters = [guide[name] for name in moving]
        for parameter in self._guide_parameters:
            parameter.requires_grad_(tune_guide)
        self._firsts = reads_first_tokens_only(model)
        self.share_over_processes()

    def prepare(self, run: Preparation) -> None:
        """Open or make the kept views, and on a GPU get ready to record steps."""
        super().prepare(run)
        self._half = run.half
        self._kept = None if self.tune_guide else kept_views(self, run)
        if self.device.type == "cuda" and self._can_record(run):
            self._graphs = GraphedSteps(self, self._recorded_step, run.reporter.note)

    def on_host(self, features: dict[str, Any], rows: list[int]) -> dict[str, Any]:
        """Add the kept views and the layout of the packed batch: neither needs the device."""
        if self._kept is not None:
            features["views"] = self._kept.rows(rows)
        if self.gradient_cache or not can_pack(self._student):
            return features
        mask = features["attention_mask"]
        few: Any = _SHAPES_ON_GPU if self._graphs is not None else {}
        starts = mask.argmax(dim=1).tolist()
        features["plan"] = plan = layout_of(mask.sum(dim=1).tolist(), mask.shape[1], starts, **few)
        if self._graphs is not None:
            features["packed_ids"] = gather(features["input_ids"], plan)
        return features

    def train(self, mode: bool = True) -> SelfGuidedLoss:
        """Training mode for the student and head; the guide stays in evaluation mode."""
        super().train(mode)
        self.guide.eval()
        return self

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        self.begin_step()
        features: dict[str, Any] = dict(next(iter(sentence_features)))
        plan, views, ids = (features.pop(name, None) for name in ("plan", "views", "packed_ids"))
        if plan is not None and plan.first.device != self.device:  # a loader that moves tensors alone
            plan = plan.to(self.device)
        if self._graphs is not None and ids is not None and self.training:
            return self._on_gpu(self._graphs, ids, plan, views)
        if views is None:
            views = self.views(features, plan)
        if self.gradient_cache and torch.is_grad_enabled():
            embeddings = cached_embeddings(self.embeddings, chunks_of(features, self.gradient_cache))
        else:
            embeddings = self.embeddings(features, plan)
        return self.whole(embeddings, views)

    def embeddings(self, features: dict[str, Any], plan: Layout | None = None) -> Tensor:
        """The student's vectors of a batch."""
        with packed(self._student, plan=plan, firsts=self._firsts):
            return self.model(features)["sentence_embedding"]

    def whole(self, embeddings: Tensor, views: Tensor) -> Tensor:
        """Contrast and stay-close."""
        loss = self.contrast(embeddings, views)
        return loss + self.stay_close * self.distance() if self.stay_close > 0 else loss

    def contrast(self, embeddings: Tensor, views: Tensor) -> Tensor:
        """The objective on embeddings (batch, dim) and views (batch, layers, dim), through the head."""
        function = losses.objective(self.objective)
        if self.objective in losses.SINGLE_VIEW_OBJECTIVES:
            views = _draw_one(views)
        # In single precision, head included, whatever the encoder runs in: logits reach 1/τ = 100, where bfloat16 counts
        # in steps of a half.
        with torch.autocast(embeddings.device.type, enabled=False):
            # All through the head at once: two calls would make its gradient, 17 million numbers, twice and add them up.
            rows = torch.cat([single(embeddings), single(views).flatten(0, -2)])
            projected, projected_views = self.head(rows).split([len(embeddings), len(rows) - len(embeddings)])
            return function(projected, projected_views.view(*views.shape[:-1], -1), self.temperature)

    @property
    def _student(self) -> nn.Module:
        return self._students[0]

    @property
    def device(self) -> torch.device:
        """Where the guide is."""
        return next(self.guide.parameters()).device

    def distance(self) -> Tensor:
        """‖θ_F − θ_T‖² over the parameters that may move."""
        return losses.stay_close(self._student_parameters, self._guide_parameters)

    def views(self, features: dict[str, Any], plan: Layout | None = None) -> Tensor:
        """The guide's views of a batch, (batch, layers, dim), in the precision that the student runs in."""
        inputs = model_inputs(features, self._inputs)
        learning = self.tune_guide and torch.is_grad_enabled()
        half = torch.autocast(self.device.type, dtype=self._half, enabled=self._half is not None)
        with torch.set_grad_enabled(learning), half:
            if self.gradient_cache:
                chunks = chunks_of(inputs, self.gradient_cache)
                return torch.cat([layer_views(self.guide, chunk, self.view_pooling, self.layers) for chunk in chunks])
            return layer_views(self.guide, inputs, self.view_pooling, self.layers, plan)

    def _can_record(self, run: Preparation) -> bool:
        """A recorded step is one process's, draws nothing on the host, and hands out gradients that must not be added up."""
        alone = not (torch.distributed.is_available() and torch.distributed.is_initialized())
        one_batch = run.settings.gradient_accumulation == 1 and not self.gradient_cache
        draws_nothing = self.objective not in losses.SINGLE_VIEW_OBJECTIVES
        fixed = not self.tune_guide
        return self.records_steps and alone and one_batch and draws_nothing and fixed and can_pack(self._student)

    def _on_gpu(self, graphs: GraphedSteps, ids: Tensor, plan: Layout, views: Tensor | None) -> Tensor:
        """A step that may be replayed from a recording; its inputs are tensors of a few shapes."""
        given = () if views is None else (views,)
        loss, embeddings = graphs(ids, plan.positions, plan.sentence, plan.first, plan.padded, plan.real, *given)
        if self.watch is not None:
            self.watch(embeddings.clone())
        return loss

    def _recorded_step(
        self,
        ids: Tensor,
        positions: Tensor,
        sentence: Tensor,
        first: Tensor,
        padded: Tensor,
        real: Tensor,
        views: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The step of :meth:`forward` on ids that are packed already."""
        plan = Layout(first, first, positions, sentence, first, padded, real)  # source and target are not read
        features: dict[str, Any] = {"input_ids": ids, "attention_mask": real.long()}
        if "token_type_ids" in self._inputs:
            features["token_type_ids"] = torch.zeros_like(ids)
        if views is None:
            with torch.no_grad(), torch.autocast(self.device.type, dtype=self._half, enabled=self._half is not None):
                tokens = model_inputs(features, self._inputs)
                views = layer_views(self.guide, tokens, self.view_pooling, self.layers, plan, gathered=True)
        with packed(self._student, plan=plan, firsts=self._firsts, gathered=True):
            embeddings = self.model(features)["sentence_embedding"]
        return self.whole(embeddings, views), embeddings.detach()

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
            "tune_guide": self.tune_guide,
        }

    @property
    def citation(self) -> str:
        return CITATION


def reads_first_tokens_only(model: SentenceTransformer) -> bool:
    """Whether of all token vectors only the first of each sentence, [CLS], goes into the sentence vector."""
    after = list(model)[1:]
    if not after or not isinstance(after[0], Pooling) or backbone(model).config.output_hidden_states:
        return False
    modes = after[0].get_config_dict()["pooling_mode"]
    only_first = modes == "cls" or list(modes) == ["cls"]
    return only_first and all(isinstance(module, Normalize) for module in after[1:])


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
