"""The self-guided loss and methods on tiny encoders of every family."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from selfguide.errors import UsageError
from selfguide.losses import functional
from selfguide.losses.self_guided import SelfGuidedLoss, _draw_one
from selfguide.methods import registry
from selfguide.models.encoders import backbone, load_encoder
from selfguide.models.layers import hidden_states
from toys import FAMILIES, toy_sentences


def _student(path: Path) -> SentenceTransformer:
    return load_encoder(path, pooling="cls")


def _state(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}


@pytest.mark.parametrize("view_pooling", ["max", "mean", "cls"])
def test_the_loss_is_the_objective_on_the_guides_views(bert: Path, view_pooling: str) -> None:
    """Rebuilt by hand from the untouched model's hidden states, in evaluation mode."""
    model = _student(bert)
    loss = SelfGuidedLoss(model, view_pooling=view_pooling, layers="1-3", head_size=24, temperature=0.07).eval()
    with torch.no_grad():  # so that the stay-close term is not zero
        for parameter in backbone(model).encoder.parameters():
            parameter.mul_(1.01)
    features = model.preprocess(toy_sentences(6))
    inputs = {name: features[name] for name in ("input_ids", "attention_mask")}
    original = backbone(_student(bert)).eval()
    views = []
    with torch.no_grad():
        for states in hidden_states(original, inputs)[1:]:
            rows = [row[mask.bool()] for row, mask in zip(states, inputs["attention_mask"], strict=True)]
            pools = {"max": lambda r: r.amax(0), "mean": lambda r: r.mean(0), "cls": lambda r: r[0]}
            views.append(torch.stack([pools[view_pooling](row) for row in rows]))
        embeddings = backbone(model)(**inputs).last_hidden_state[:, 0]
        contrast = functional.sg_opt(loss.head(embeddings), loss.head(torch.stack(views, 1)), 0.07)
        student = dict(backbone(model).named_parameters())
        distance = sum(((student[name] - value) ** 2).sum() for name, value in original.named_parameters())
    torch.testing.assert_close(loss([features]).detach(), contrast + 0.1 * distance, rtol=1e-4, atol=1e-5)
    assert float(distance) > 0


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_trains_and_only_what_should_move_moves(tiny: Callable[[str], Path], family: str) -> None:
    model = _student(tiny(family))
    loss = SelfGuidedLoss(model, head_size=16, stay_close=0.0)
    guide, features = _state(loss.guide), model.preprocess(toy_sentences(8))
    zero = hidden_states(loss.guide, {n: features[n] for n in ("input_ids", "attention_mask")})[0]
    optimiser = torch.optim.AdamW([p for p in loss.parameters() if p.requires_grad], lr=1e-3)
    loss.train()
    assert not any(module.training for module in loss.guide.modules())
    for _ in range(3):
        value = loss([model.preprocess(toy_sentences(8))])
        value.backward()
        # Whatever may move gets a gradient: distributed training relies on it.
        assert all(parameter.grad is not None for parameter in loss.parameters() if parameter.requires_grad)
        optimiser.step()
        optimiser.zero_grad()
    assert all(parameter.grad is None for parameter in loss.guide.parameters())
    for name, tensor in loss.guide.state_dict().items():
        assert torch.equal(tensor, guide[name]), name
    moved = [name for name, tensor in backbone(model).state_dict().items() if not torch.equal(tensor, guide[name])]
    assert moved
    model.eval()
    after = hidden_states(backbone(model), {n: features[n] for n in ("input_ids", "attention_mask")})
    assert torch.equal(after[0], zero)  # layer 0 is where it was


@pytest.mark.parametrize("objective", functional.OBJECTIVES)
def test_training_lowers_each_objective(bert: Path, objective: str) -> None:
    torch.manual_seed(0)
    model = _student(bert)
    loss = SelfGuidedLoss(model, objective=objective, head_size=32, temperature=0.1)
    optimiser = torch.optim.AdamW([p for p in loss.parameters() if p.requires_grad], lr=2e-3)
    sentences = toy_sentences(16)

    def average() -> float:
        with torch.no_grad():
            return float(np.mean([float(loss.eval()([model.preprocess(sentences)])) for _ in range(8)]))

    before = average()
    loss.train()
    for _ in range(25):
        loss([model.preprocess(sentences)]).backward()
        optimiser.step()
        optimiser.zero_grad()
    assert average() < before - 0.1


def test_layer_0_can_be_trained_when_asked(bert: Path) -> None:
    frozen, free = _student(bert), _student(bert)
    SelfGuidedLoss(frozen, head_size=8)
    SelfGuidedLoss(free, head_size=8, freeze_layer_0=False)
    assert not any(p.requires_grad for p in backbone(frozen).embeddings.parameters())
    assert all(p.requires_grad for p in backbone(free).embeddings.parameters())


def test_a_tuned_guide_learns_through_its_views(bert: Path) -> None:
    """Its gradients are those of the objective on views made by hand; its layer 0 stays, and so does a fixed guide."""
    model = _student(bert)
    fixed = SelfGuidedLoss(_student(bert), head_size=8)
    assert not any(parameter.requires_grad for parameter in fixed.guide.parameters())
    loss = SelfGuidedLoss(model, head_size=8, temperature=0.1, tune_guide=True).eval()
    features = model.preprocess(toy_sentences(6))
    loss([features]).backward()
    found = {name: weight.grad for name, weight in loss.guide.named_parameters() if weight.grad is not None}
    assert found
    assert not any(name.startswith("embeddings") for name in found)

    by_hand = backbone(_student(bert)).eval()
    inputs = {name: features[name] for name in ("input_ids", "attention_mask")}
    padding = ~inputs["attention_mask"].bool().unsqueeze(-1)
    views = [states.masked_fill(padding, -torch.inf).amax(1) for states in hidden_states(by_hand, inputs)]
    with torch.no_grad():
        embeddings = loss.head(backbone(model)(**inputs).last_hidden_state[:, 0])
    functional.sg_opt(embeddings, loss.head(torch.stack(views, 1)), 0.1).backward()
    for name, weight in by_hand.named_parameters():
        if name in found:
            torch.testing.assert_close(found[name], weight.grad, rtol=1e-3, atol=1e-5)


def test_the_view_sampler_is_uniform_and_takes_own_views() -> None:
    torch.manual_seed(3)
    views = torch.arange(5.0).repeat(400, 1).unsqueeze(-1) + 10 * torch.arange(400.0).view(-1, 1, 1)
    counts = torch.zeros(5)
    for _ in range(20):
        drawn = _draw_one(views).squeeze(-1)
        assert torch.equal(drawn // 10, torch.arange(400.0))
        counts += torch.bincount((drawn % 10).long(), minlength=5)
    expected = counts.sum() / 5
    assert float(((counts - expected) ** 2 / expected).sum()) < 18.5  # χ², 4 degrees of freedom, p = 0.001


def test_the_head_is_shaped_as_the_paper_says_and_can_be_left_out(bert: Path) -> None:
    head = SelfGuidedLoss(_student(bert)).head
    linear = [module for module in head if isinstance(module, torch.nn.Linear)]
    assert [(module.in_features, module.out_features) for module in linear] == [(32, 4096), (4096, 4096)]
    assert abs(float(linear[1].weight.detach().std()) - 0.02) < 1e-3
    assert isinstance(SelfGuidedLoss(_student(bert), head_size=0).head, torch.nn.Identity)


def test_the_heads_gradient_does_not_outlive_the_students(bert: Path) -> None:
    """The trainer may clear the model's gradients only; the head's must not add up over the steps."""
    model = _student(bert)
    loss = SelfGuidedLoss(model, head_size=8)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    loss.train()
    loss([model.preprocess(toy_sentences(4))]).backward()
    once = loss.head[0].weight.grad.clone()
    model.zero_grad()
    loss([model.preprocess(toy_sentences(4))]).backward()
    torch.testing.assert_close(loss.head[0].weight.grad, once)
    loss([model.preprocess(toy_sentences(4))]).backward()  # nothing cleared: gradients are meant to add up
    torch.testing.assert_close(loss.head[0].weight.grad, 2 * once)


def test_settings_are_told_and_wrong_ones_refused(bert: Path) -> None:
    loss = SelfGuidedLoss(_student(bert), objective="opt1", layers=[0, -1], head_size=8)
    assert loss.get_config_dict() == {
        "objective": "opt1",
        "temperature": 0.01,
        "stay_close": 0.1,
        "view_pooling": "max",
        "layers": [0, 3],
        "head_size": 8,
        "freeze_layer_0": True,
        "tune_guide": False,
    }
    assert "Kim" in loss.citation
    for wrong, words in (
        ({"objective": "opt9"}, "objective must be one of"),
        ({"temperature": 0.0}, "temperature"),
        ({"stay_close": -1.0}, "stay_close"),
        ({"view_pooling": "median"}, "view_pooling must be one of"),
        ({"layers": "9"}, "no layer 9"),
        ({"head_size": -1}, "head_size"),
        ({"tune_guide": True, "keep_views": "yes"}, "tune_guide"),
        ({"tune_guide": True, "gradient_cache": 2}, "tune_guide"),
    ):
        with pytest.raises(UsageError, match=words):
            SelfGuidedLoss(_student(bert), **wrong)  # type: ignore[arg-type]


def test_a_model_of_another_width_is_refused(bert: Path) -> None:
    from sentence_transformers.base.modules import Dense

    model = SentenceTransformer(modules=[*_student(bert), Dense(32, 8)])
    with pytest.raises(UsageError, match="embedding dimension is 8 and that of its layers 32"):
        SelfGuidedLoss(model)


def test_the_registry_makes_methods_and_refuses_in_words() -> None:
    method = registry.make("sg", {"temperature": 0.2})
    assert method.options.objective == "sg"
    assert method.options.temperature == 0.2
    assert "objective" not in method.describe_options()
    with pytest.raises(UsageError, match=r"no method 'sgopt'.*Did you mean 'sg-opt'"):
        registry.make("sgopt")
    with pytest.raises(UsageError, match="has no option 'temprature'"):
        registry.make("sg-opt", {"temprature": 1})
    with pytest.raises(UsageError, match="has no option 'objective'"):
        registry.make("sg-opt", {"objective": "sg"})
    names = [entry.name for entry in registry.builtin_methods()]
    assert len(names) == len(set(names))
    assert all(entry.summary and entry.reference for entry in registry.builtin_methods())


@pytest.mark.parametrize("objective", functional.OBJECTIVES)
def test_the_students_gradients_match_finite_differences(bert: Path, objective: str) -> None:
    """Through the whole encoder in double precision: a few weights of each layer, moved by hand."""
    model = _student(bert).double()
    loss = SelfGuidedLoss(model, objective=objective, head_size=12, temperature=0.2).double().eval()
    with torch.no_grad():  # away from the guide, so that the stay-close term has a slope too
        for parameter in loss._student_parameters:
            parameter.add_(0.01)

    def value() -> torch.Tensor:
        torch.manual_seed(11)  # the single-view objectives draw
        return loss([model.preprocess(toy_sentences(5))])

    value().backward()
    for name, parameter in backbone(model).named_parameters():
        if not parameter.requires_grad or "query.bias" in name or "weight" not in name:
            continue
        assert parameter.grad is not None
        place = int(parameter.grad.abs().argmax())
        flat = parameter.data.view(-1)
        before, step = flat[place].item(), 1e-6
        sides = []
        for sign in (1, -1):
            flat[place] = before + sign * step
            with torch.no_grad():
                sides.append(float(value()))
        flat[place] = before
        assert (sides[0] - sides[1]) / (2 * step) == pytest.approx(
            float(parameter.grad.view(-1)[place]), rel=1e-4, abs=1e-7
        )
    assert all(parameter.grad is None for parameter in loss.guide.parameters())
