"""Packed equals padded: states, losses and gradients."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from selfguide.engine.packing import can_pack, layout, packed
from selfguide.losses import SelfGuidedLoss
from selfguide.models import families
from selfguide.models.encoders import backbone, load_encoder
from selfguide.models.layers import hidden_states
from toys import FAMILIES, toy_sentences


@given(lengths=st.lists(st.integers(1, 90), min_size=1, max_size=40))
@settings(max_examples=60, deadline=None)
def test_every_token_is_placed_once_in_rows_of_bounded_length(lengths: list[int]) -> None:
    mask = torch.zeros(len(lengths), max(lengths), dtype=torch.long)
    for row, length in enumerate(lengths):
        mask[row, :length] = 1
    plan = layout(mask)
    assert plan.source.tolist() == mask.flatten().nonzero().squeeze(1).tolist()
    assert len(set(plan.target.tolist())) == sum(lengths)
    assert plan.positions.shape[1] <= 256 + max(lengths)
    for number, length in enumerate(lengths):
        own = plan.sentence == number
        assert int(own.sum()) == length
        assert plan.positions[own].tolist() == list(range(length))
        assert len(own.nonzero()[:, 0].unique()) == 1  # in one row, end to end


def _features(path: Path, count: int = 30) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    encoder = load_encoder(path)
    sentences = [" ".join(toy_sentences(200)[i : i + 1 + i % 5]) for i in range(count)]
    features = encoder.preprocess(sentences)
    return backbone(encoder).eval(), {name: features[name] for name in ("input_ids", "attention_mask")}


def test_packed_states_equal_padded_ones_at_every_layer(bert: Path) -> None:
    model, inputs = _features(bert)
    with torch.no_grad():
        plain = hidden_states(model, inputs)
        with packed(model):
            together = hidden_states(model, inputs)
        again = hidden_states(model, inputs)
    real = inputs["attention_mask"].bool()
    for layer, (one, other, third) in enumerate(zip(plain, together, again, strict=True)):
        torch.testing.assert_close(one[real], other[real], rtol=0, atol=1e-5, msg=f"layer {layer}")
        assert not other[~real].any()
        assert torch.equal(one, third)  # the padded path is restored


def test_packed_losses_and_gradients_equal_padded_ones(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for enabled in (True, False):
        monkeypatch.setattr("selfguide.engine.packing.ENABLED", enabled)
        torch.manual_seed(0)
        model = load_encoder(bert, pooling="cls")
        loss = SelfGuidedLoss(
            model, head_size=16, temperature=0.05
        ).eval()  # no dropout: the draws would differ in shape
        value = loss([model.preprocess([" ".join(toy_sentences(60)[i : i + 1 + i % 4]) for i in range(17)])])
        value.backward()
        results.append((value.detach(), [p.grad for p in loss.parameters() if p.grad is not None]))
    (packed_loss, packed_grads), (plain_loss, plain_grads) = results
    torch.testing.assert_close(packed_loss, plain_loss, rtol=1e-5, atol=1e-5)
    assert len(packed_grads) == len(plain_grads) > 10
    for one, other in zip(packed_grads, plain_grads, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_every_packable_family_is_tested() -> None:
    fast = {name for name, family in families.FAMILIES.items() if family.packable}
    assert {name for name, family in families.FAMILIES.items() if family.bert_layers} <= fast <= set(FAMILIES)


def test_families_that_cannot_be_packed_run_padded(tiny: Callable[[str], Path]) -> None:
    model, inputs = _features(tiny("deberta-v2"), 4)
    assert not can_pack(model)
    with torch.no_grad(), packed(model):
        inside = hidden_states(model, inputs)
    with torch.no_grad():
        assert torch.equal(inside[-1], hidden_states(model, inputs)[-1])


def test_the_own_forward_is_restored_after_an_error(bert: Path) -> None:
    model, _ = _features(bert, 3)
    with pytest.raises(RuntimeError, match="on purpose"), packed(model):
        raise RuntimeError("on purpose")
    assert "forward" not in vars(model)
