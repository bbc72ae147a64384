"""The loss of self-guidance (SG, SG-OPT): a fixed copy of the encoder teaches the trained one through its layers.

Start with two copies of a pre-trained Transformer of l layers. The *guide* stays fixed. For each sentence it gives the hidden
states of every layer k = 0..l, and pooling over tokens makes a *view* of each. The *student* gives one embedding, the last
layer's [CLS] vector. A contrastive objective pulls the embedding towards views of its own sentence and pushes it away from
views of the others, so that what the middle layers know reaches [CLS]. Both pass through a projection head that is trained
with the student and not saved. A second term keeps the student's weights close to the guide's, and the student's embedding
layer (layer 0) is frozen.

SG draws one view of each sentence at each step; SG-OPT takes all of them. The steps between the two (opt1, opt2) are in
:mod:`selfguide.losses.functional`.

Differences from the authors' released script, all deliberate: the guide stays in evaluation mode (theirs has its dropout switched
back on), and views are max-pooled as the paper says (the script's default is the mean).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import torch
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
from torch import Tensor

from selfguide.augment.encoding import Features
from selfguide.engine.cuda_graphs import GraphedSteps
from selfguide.engine.gradient_cache import cached_embeddings, chunks_of
from selfguide.engine.packing import ROW_TOKENS_ON_GPU, Layout, can_pack, gather, layout_of, packed
from selfguide.engine.view_cache import CachedViews
from selfguide.engine.views import layer_views
from selfguide.errors import UsageError
from selfguide.losses import functional
from selfguide.losses.base import HeadedLoss, Preparation, full_precision, projection_head, single
from selfguide.losses.guide_views import KEEP_VIEWS, kept_views
from selfguide.losses.rules import GRADIENT_CACHE, HEAD_SIZE, TEMPERATURE, WEIGHT
from selfguide.models.encoders import POOLINGS, backbone, depth, input_names
from selfguide.models.layers import VIEW_POOLINGS, model_inputs, parse_layers
from selfguide.options import Above, CheckedOptions, OneOf

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

# On a GPU batches come in few shapes, so that the kernels of a step can be recorded for each: rows of 256 slots, sentences in
# frames of 32, 64, … tokens. The unused slots cost a GPU next to nothing.
_SHAPES_ON_GPU = {"row_tokens": ROW_TOKENS_ON_GPU, "even": 32, "full_rows": True}

CITATION = """\
@inproceedings{kim-etal-2021-self,
    title = "Self-Guided Contrastive Learning for {BERT} Sentence Representations",
    author = "Kim, Taeuk and Yoo, Kang Min and Lee, Sang-goo",
    booktitle = "Proceedings of ACL-IJCNLP 2021",
    year = "2021",
}"""


@dataclass(frozen=True)
class SelfGuidedOptions(CheckedOptions):
    """Options of the self-guided methods; the defaults are the paper's."""

    objective: Annotated[str, functional.OBJECTIVE] = "sg-opt"
    """sg, opt1, opt2 or sg-opt."""
    temperature: Annotated[float, TEMPERATURE] = 0.01
    """τ: the smaller, the more the hardest negatives count."""
    stay_close: Annotated[float, WEIGHT] = 0.1
    """λ: weight of the squared distance between student and guide; 0 switches it off."""
    view_pooling: Annotated[str, OneOf(*VIEW_POOLINGS)] = "max"
    """Pooling of the guide's tokens to a view: max, mean or cls."""
    layers: str = "all"
    """Layers that give views: all, a range such as 4-8, a list such as 0,6,12."""
    head_size: Annotated[int, HEAD_SIZE] = 4096
    """Width of the projection head; 0: no head."""
    freeze_layer_0: bool = True
    """Do not train the student's embedding layer."""
    tune_guide: bool = False
    """Train the guide too, through its views; for comparison, the method keeps it fixed."""
    pooling: Annotated[str, OneOf(*POOLINGS)] = "cls"
    """Pooling of the student: cls, mean, max, last2 or first-last."""
    keep_views: Annotated[str, OneOf(*KEEP_VIEWS)] = "auto"
    """Cache the guide's views on disk for later epochs and runs: yes, no, fp16 (half the space, losses differ in the third
    digit), or auto: if they are cached already, or the text is read more than once."""
    keep_views_gb: Annotated[float, Above(0)] = 4.0
    """Maximum size of the cache of views, in GB."""
    gradient_cache: Annotated[int, GRADIENT_CACHE] = 0
    """Sentences that pass through the encoder at a time, for batches larger than memory; 0: all. The negatives stay those of
    the whole batch; it costs a second forward pass."""

    def __post_init__(self) -> None:
        """Check the combination too."""
        super().__post_init__()
        if self.tune_guide and (self.gradient_cache or self.keep_views not in ("auto", "no")):
            raise UsageError("tune_guide changes the views at every step: leave out keep_views and gradient_cache.")

    def loss_settings(self) -> dict[str, Any]:
        """Return the arguments of :class:`SelfGuidedLoss` that these options describe: all but the student's pooling."""
        return {item.name: getattr(self, item.name) for item in fields(SelfGuidedOptions) if item.name != "pooling"}


class SelfGuidedLoss(HeadedLoss):
    """Draw a sentence's embedding towards the views that a fixed copy of the encoder gives of it (SG, SG-OPT).

    At construction the model's Transformer is copied as the guide. The model's embedding should be the [CLS] vector
    (``Pooling(…, "cls")``).

    Formula:
        With c_i the student's embedding of sentence i, h_ik the guide's view of it at layer k, f the projection head and
        φ(u, v) = exp(cos(f(u), f(v)) / τ):

            SG-OPT = mean over i, k of −log φ(c_i, h_ik) / (φ(c_i, h_ik) + Σ_{m≠i} Σ_n φ(c_i, h_mn))
            SG     = NT-Xent over {c_i} ∪ {h_i}, h_i one view of sentence i drawn uniformly at each step
            loss   = objective + λ ‖θ_F − θ_T‖²

    Args:
        model: The SentenceTransformer to be trained.
        objective: ``"sg-opt"``, ``"sg"``, ``"opt1"`` or ``"opt2"``.
        temperature: τ.
        stay_close: λ, the weight of the squared distance between the weights of guide and student.
        view_pooling: ``"max"``, ``"mean"`` or ``"cls"`` over the guide's tokens.
        layers: Layers that give views: ``"all"``, ``"4-8"``, ``"0,6,12"`` or a list.
        head_size: Width of the projection head, 0 for none. It lives in the loss, so it is never saved with the model.
        freeze_layer_0: Do not train the student's embedding layer.
        tune_guide: Train the guide's layers too, through the views they give; the λ term still moves the student alone.
        keep_views: For :func:`selfguide.train`, see :class:`SelfGuidedOptions`; without effect elsewhere.
        keep_views_gb: As ``keep_views``.
        gradient_cache: Sentences that pass through the encoder at a time, for batches larger than memory; 0 for all.

    Raises:
        UsageError: An argument is out of range, or the embedding is not as wide as the layers.

    Inputs:
        | Texts    | Labels |
        |----------|--------|
        | sentence | none   |

    Relations:
        Like ``MultipleNegativesRankingLoss`` it uses the other sentences of the batch as negatives, but its positives are
        views of the same sentence from the guide's layers, so it needs neither pairs nor labels. Batches should not hold a
        sentence twice (``BatchSamplers.NO_DUPLICATES``, or text without repeats).

    Example:
        ```python
        from datasets import Dataset
        from sentence_transformers import SentenceTransformerTrainer

        import selfguide

        model = selfguide.load_encoder("mini", pooling="cls")
        loss = selfguide.SelfGuidedLoss(model, objective="sg-opt")
        text = Dataset.from_dict({"sentence": ["It rains.", "The train is late.", "She plays the cello."]})
        SentenceTransformerTrainer(model=model, train_dataset=text, loss=loss).train()
        ```

    Reference:
        Kim, Yoo and Lee, Self-Guided Contrastive Learning for BERT Sentence Representations, ACL 2021:
        https://arxiv.org/abs/2106.07345
    """

    citation = CITATION
    config_names: ClassVar[tuple[str, ...]] = (
        *("objective", "temperature", "stay_close", "view_pooling", "head_size", "freeze_layer_0", "tune_guide"),
    )
    records_steps: ClassVar[bool] = True
    """Whether a GPU may record :meth:`forward` as a CUDA graph."""

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
        SelfGuidedOptions(  # checks the arguments
            objective=objective,
            temperature=temperature,
            stay_close=stay_close,
            view_pooling=view_pooling,
            head_size=head_size,
            tune_guide=tune_guide,
            keep_views=keep_views,
            keep_views_gb=keep_views_gb,
            gradient_cache=gradient_cache,
        )
        layer_numbers = parse_layers(layers, depth(model))
        super().__init__(model, freeze_layer_0=freeze_layer_0)
        self.objective, self.temperature, self.stay_close = objective, temperature, stay_close
        self.view_pooling, self.layers, self.head_size = view_pooling, layer_numbers, head_size
        self.tune_guide, self.keep_views, self.keep_views_gb = tune_guide, keep_views, keep_views_gb
        self.gradient_cache = gradient_cache
        self._kept: CachedViews | None = None
        self._graphs: GraphedSteps | None = None
        self._half: torch.dtype | None = None
        self._inputs = input_names(model)
        self._firsts = reads_first_tokens_only(model)

        self.guide = copy.deepcopy(backbone(model)).requires_grad_(False).eval()
        width = int(self.guide.config.hidden_size)
        if model.get_embedding_dimension() != width:
            raise UsageError(
                f"The model's embedding dimension is {model.get_embedding_dimension()} and that of its layers {width}; "
                "self-guidance compares the two, so leave out whatever changes the width (Dense, several poolings)."
            )
        self.head = projection_head(width, head_size, float(getattr(self.guide.config, "initializer_range", 0.02)))
        # Pairs of parameters that training can move apart; frozen ones stay equal.
        student, guide = dict(self.transformer.named_parameters()), dict(self.guide.named_parameters())
        moving = [name for name, parameter in student.items() if parameter.requires_grad]
        self._student_parameters = [student[name] for name in moving]
        self._guide_parameters = [guide[name] for name in moving]
        for parameter in self._guide_parameters:
            parameter.requires_grad_(tune_guide)
        self.share_over_processes()

    def prepare(self, run: Preparation) -> None:
        """Open or make the cached views, and on a GPU get ready to record steps."""
        super().prepare(run)
        self._half = run.half
        self._kept = None if self.tune_guide else kept_views(self, run)
        if self.device.type == "cuda" and self._can_record(run):
            self._graphs = GraphedSteps(self, self._recorded_step, run.reporter.note)

    def on_host(self, features: dict[str, Any], rows: list[int]) -> dict[str, Any]:
        """Add the cached views and the layout of the packed batch, which need no device.

        Args:
            features: The collated batch, on the CPU.
            rows: Its rows of the tokenised text.

        Returns:
            The batch, with what this step can use of the two.
        """
        if self._kept is not None:
            features["views"] = self._kept.rows(rows)
        if self.gradient_cache or not can_pack(self.transformer):
            return features
        mask = features["attention_mask"]
        few: Any = _SHAPES_ON_GPU if self._graphs is not None else {}
        starts = mask.argmax(dim=1).tolist()
        features["plan"] = plan = layout_of(mask.sum(dim=1).tolist(), mask.shape[1], starts, **few)
        if self._graphs is not None:
            features["packed_ids"] = gather(features["input_ids"], plan)
        return features

    def train(self, mode: bool = True) -> SelfGuidedLoss:
        """Set the student and the head to training mode; the guide stays in evaluation mode.

        Args:
            mode: Whether to train.

        Returns:
            The loss itself.
        """
        super().train(mode)
        self.guide.eval()
        return self

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        """Return the loss of a batch; see the class."""
        self.begin_step()
        features: dict[str, Any] = dict(next(iter(sentence_features)))
        plan, views, ids = (features.pop(name, None) for name in ("plan", "views", "packed_ids"))
        if plan is not None and plan.first.device != self.device:  # the data loader moves only tensors
            plan = plan.to(self.device)
        if self._graphs is not None and ids is not None and self.training:
            return self._on_gpu(self._graphs, ids, plan, views)
        if views is None:
            views = self.views(features, plan)
        if self.gradient_cache and torch.is_grad_enabled():
            embeddings = cached_embeddings(self.embeddings, chunks_of(features, self.gradient_cache), self.model)
        else:
            embeddings = self.embeddings(features, plan)
        return self.whole(embeddings, views)

    def embeddings(self, features: dict[str, Any], plan: Layout | None = None) -> Tensor:
        """Return the student's embeddings of a batch (batch, dim); ``plan`` is its packed layout, if it is known."""
        with packed(self.transformer, plan=plan, firsts=self._firsts):
            return self.model(features)["sentence_embedding"]

    def views(self, features: dict[str, Any], plan: Layout | None = None) -> Tensor:
        """Return the guide's views of a batch (batch, layers, dim), in the precision that the student runs in."""
        inputs = model_inputs(features, self._inputs)
        learning = self.tune_guide and torch.is_grad_enabled()
        half = torch.autocast(self.device.type, dtype=self._half, enabled=self._half is not None)
        with torch.set_grad_enabled(learning), half:
            if self.gradient_cache:
                chunks = chunks_of(inputs, self.gradient_cache)
                return torch.cat([layer_views(self.guide, chunk, self.view_pooling, self.layers) for chunk in chunks])
            return layer_views(self.guide, inputs, self.view_pooling, self.layers, plan)

    def whole(self, embeddings: Tensor, views: Tensor) -> Tensor:
        """Compute the whole loss: the objective and the λ term.

        Args:
            embeddings: c, (batch, dim).
            views: h, (batch, layers, dim).

        Returns:
            The loss.
        """
        loss = self.contrast(embeddings, views)
        return loss + self.stay_close * self.distance() if self.stay_close > 0 else loss

    def contrast(self, embeddings: Tensor, views: Tensor) -> Tensor:
        """Compute the objective on embeddings (batch, dim) and views (batch, layers, dim), through the head.

        Args:
            embeddings: c.
            views: h.

        Returns:
            The objective without the λ term.
        """
        function = functional.objective(self.objective)
        if self.objective in functional.SINGLE_VIEW_OBJECTIVES:
            views = _draw_one(views)
        with full_precision(embeddings):
            # One call of the head: with two, its gradient of 17 million elements would be made twice and summed.
            rows = torch.cat([single(embeddings), single(views).flatten(0, -2)])
            projected, projected_views = self.head(rows).split([len(embeddings), len(rows) - len(embeddings)])
            projected_views = projected_views.view(*views.shape[:-1], -1)
            return self.over_processes(function, projected, projected_views, self.temperature)

    def distance(self) -> Tensor:
        """Compute ‖θ_F − θ_T‖² over the parameters that are trained.

        Returns:
            The squared distance.
        """
        return functional.stay_close(self._student_parameters, self._guide_parameters)

    def get_config_dict(self) -> dict[str, Any]:
        """Return the loss's settings, as model cards show them."""
        return {**super().get_config_dict(), "layers": list(self.layers)}

    @property
    def device(self) -> torch.device:
        """Device of the guide."""
        return next(self.guide.parameters()).device

    def _can_record(self, run: Preparation) -> bool:
        """Return whether steps can be recorded: one process, nothing drawn on the CPU, gradients that are not summed."""
        alone = not (torch.distributed.is_available() and torch.distributed.is_initialized())
        one_batch = run.settings.gradient_accumulation == 1 and not self.gradient_cache
        draws_nothing = self.objective not in functional.SINGLE_VIEW_OBJECTIVES
        fixed = not self.tune_guide
        return self.records_steps and alone and one_batch and draws_nothing and fixed and can_pack(self.transformer)

    def _on_gpu(self, graphs: GraphedSteps, ids: Tensor, plan: Layout, views: Tensor | None) -> Tensor:
        """Run a step that may be replayed from a recording; its inputs are tensors of a few shapes."""
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
        """Run the step of :meth:`forward` on ids that are packed already."""
        plan = Layout(first, first, positions, sentence, first, padded, real)  # source and target are not read
        features: dict[str, Any] = {"input_ids": ids, "attention_mask": real.long()}
        if "token_type_ids" in self._inputs:
            features["token_type_ids"] = torch.zeros_like(ids)
        if views is None:
            with torch.no_grad(), torch.autocast(self.device.type, dtype=self._half, enabled=self._half is not None):
                tokens = model_inputs(features, self._inputs)
                views = layer_views(self.guide, tokens, self.view_pooling, self.layers, plan, gathered=True)
        with packed(self.transformer, plan=plan, firsts=self._firsts, gathered=True):
            embeddings = self.model(features)["sentence_embedding"]
        return self.whole(embeddings, views), embeddings.detach()


def reads_first_tokens_only(model: SentenceTransformer) -> bool:
    """Return whether a model's embedding depends on the first token of the last layer alone, as with [CLS] pooling."""
    after = list(model)[1:]
    if not after or not isinstance(after[0], Pooling) or backbone(model).config.output_hidden_states:
        return False
    modes = after[0].get_config_dict()["pooling_mode"]
    only_first = modes == "cls" or list(modes) == ["cls"]
    return only_first and all(isinstance(module, Normalize) for module in after[1:])


def _draw_one(views: Tensor) -> Tensor:
    """Draw one view of each sentence, on the CPU so that a seed means the same on every device."""
    batch, count, _ = views.shape
    chosen = torch.randint(count, (batch,)).to(views.device)
    return views[torch.arange(batch, device=views.device), chosen]
