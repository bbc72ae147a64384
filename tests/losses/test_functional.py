"""Each objective against a naive loop that follows its formula, term by term."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from naive_losses import naive_info_max, naive_info_nce, naive_momentum_contrast
from naive_losses import naive_nt_xent as pairs_by_hand
from selfguide.errors import UsageError
from selfguide.losses import functional

BATCHES = range(2, 18)
VIEWS = (1, 2, 5, 13)
TEMPERATURES = (0.01, 0.05, 0.3, 1.0)


def _phi(u: Tensor, v: Tensor, temperature: float) -> Tensor:
    return torch.dot(u, v) / (u.norm() * v.norm()) / temperature  # the logarithm of φ: sums below stay exact


def _minus_log_share(positive: Tensor, terms: list[Tensor]) -> Tensor:
    """−log e^positive / Σ e^term, written as the formula and kept from overflowing by the largest term."""
    top = max(float(term) for term in terms)
    return -(positive - top - torch.log(sum(torch.exp(term - top) for term in terms)))


def naive_nt_xent(vectors: Tensor, partner: list[int], temperature: float) -> Tensor:
    count = len(vectors)
    total = vectors.new_zeros(())
    for m in range(count):
        terms = [_phi(vectors[m], vectors[n], temperature) for n in range(count) if n != m]
        total += _minus_log_share(_phi(vectors[m], vectors[partner[m]], temperature), terms)
    return total / count


def naive_sg(c: Tensor, h: Tensor, temperature: float) -> Tensor:
    b = len(c)
    return naive_nt_xent(torch.cat([c, h]), [i + b for i in range(b)] + list(range(b)), temperature)


def naive_opt1(c: Tensor, h: Tensor, temperature: float) -> Tensor:
    b = len(c)
    total = c.new_zeros(())
    for i in range(b):
        terms = [_phi(c[i], c[j], temperature) for j in range(b) if j != i] + [
            _phi(c[i], h[j], temperature) for j in range(b)
        ]
        total += _minus_log_share(_phi(c[i], h[i], temperature), terms)
    return total / b


def naive_opt2(c: Tensor, h: Tensor, temperature: float) -> Tensor:
    b = len(c)
    total = c.new_zeros(())
    for i in range(b):
        total += _minus_log_share(_phi(c[i], h[i], temperature), [_phi(c[i], h[j], temperature) for j in range(b)])
    return total / b


def naive_sg_opt(c: Tensor, h: Tensor, temperature: float) -> Tensor:
    b, views, _ = h.shape
    total = c.new_zeros(())
    for i in range(b):
        negatives = [_phi(c[i], h[m, n], temperature) for m in range(b) if m != i for n in range(views)]
        for k in range(views):
            positive = _phi(c[i], h[i, k], temperature)
            total += _minus_log_share(positive, [positive, *negatives])
    return total / (b * views)


def _tensors(batch: int, views: int | None, dtype: torch.dtype, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1000 * batch + 10 * (views or 0) + seed)
    shape = (batch, 6) if views is None else (batch, views, 6)
    return torch.randn(batch, 6, generator=generator, dtype=dtype), torch.randn(
        *shape, generator=generator, dtype=dtype
    )


def _close(fast: Tensor, naive: Tensor) -> None:
    # fp32 loops accumulate in another order; with τ = 0.01 the logits are near 100, so the tolerance is relative.
    tolerance = 1e-10 if fast.dtype == torch.float64 else 2e-5
    torch.testing.assert_close(fast, naive, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("batch", BATCHES)
def test_single_view_objectives_follow_their_formulas(batch: int, temperature: float, dtype: torch.dtype) -> None:
    c, h = _tensors(batch, None, dtype)
    _close(functional.sg(c, h, temperature), naive_sg(c, h, temperature))
    _close(functional.opt1(c, h, temperature), naive_opt1(c, h, temperature))
    _close(functional.opt2(c, h, temperature), naive_opt2(c, h, temperature))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("views", VIEWS)
@pytest.mark.parametrize("batch", [2, 3, 7, 17])
def test_sg_opt_follows_its_formula(batch: int, views: int, temperature: float, dtype: torch.dtype) -> None:
    c, h = _tensors(batch, views, dtype)
    _close(functional.sg_opt(c, h, temperature), naive_sg_opt(c, h, temperature))


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("batch", BATCHES)
def test_sg_opt_at_every_batch_size_and_number_of_views(batch: int, temperature: float) -> None:
    c, h = _tensors(batch, 1 + (batch - 2) % 13, torch.float64)
    _close(functional.sg_opt(c, h, temperature), naive_sg_opt(c, h, temperature))


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_nt_xent_with_the_pairing_permuted(temperature: float) -> None:
    """The partner may be any row: shuffle rows and pairing together, the loss stays and equals the naive one."""
    c, h = _tensors(6, None, torch.float64)
    rows = torch.cat([c, h])
    partner = torch.cat([torch.arange(6) + 6, torch.arange(6)])
    order = torch.randperm(12, generator=torch.Generator().manual_seed(3))
    position = torch.empty(12, dtype=torch.long)
    position[order] = torch.arange(12)
    shuffled = functional.nt_xent(rows[order], position[partner[order]], temperature)
    _close(shuffled, functional.sg(c, h, temperature))
    _close(shuffled, naive_nt_xent(rows[order], position[partner[order]].tolist(), temperature))


def test_a_wrong_pairing_gives_another_loss() -> None:
    c, h = _tensors(6, None, torch.float64)
    assert not torch.allclose(functional.sg(c, h, 0.1), functional.sg(c, h.roll(1, dims=0), 0.1))


@pytest.mark.parametrize("name", functional.OBJECTIVES)
def test_gradients_match_finite_differences(name: str) -> None:
    c, h = _tensors(4, None if name in functional.SINGLE_VIEW_OBJECTIVES else 3, torch.float64)
    c.requires_grad_(True)
    assert torch.autograd.gradcheck(lambda x: functional.objective(name)(x, h, 0.2), (c,), atol=1e-7)


@pytest.mark.parametrize("name", functional.OBJECTIVES)
def test_extreme_inputs_stay_finite(name: str) -> None:
    """Equal sentences, zero vectors and a batch of one: finite losses and gradients."""
    single = name in functional.SINGLE_VIEW_OBJECTIVES
    for batch, scale in ((1, 1.0), (3, 1e4), (3, 0.0)):
        c = torch.full((batch, 5), scale, requires_grad=True)
        h = torch.full((batch, 5) if single else (batch, 2, 5), scale)
        loss = functional.objective(name)(c, h, 0.01)
        loss.backward()
        assert math.isfinite(float(loss.detach()))
        assert c.grad is not None
        assert torch.isfinite(c.grad).all()


def test_the_loss_is_lowest_when_embeddings_are_their_own_views() -> None:
    h = torch.eye(5, dtype=torch.float64)
    assert functional.opt2(h, h, 0.05) < functional.opt2(h.roll(1, dims=0), h, 0.05)
    assert float(functional.opt2(h, h, 0.05)) < 1e-6


def test_stay_close_equals_the_plain_sum_and_its_gradient() -> None:
    generator = torch.Generator().manual_seed(5)
    student = [
        torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True) for shape in ((3, 4), (5,), ())
    ]
    guide = [torch.randn_like(tensor).requires_grad_(True) for tensor in student]
    loss = functional.stay_close(student, guide)
    plain = sum(((a - b) ** 2).sum() for a, b in zip(student, guide, strict=True))
    torch.testing.assert_close(loss, plain)
    (3 * loss).backward()
    for a, b in zip(student, guide, strict=True):
        torch.testing.assert_close(a.grad, 6 * (a - b))
        assert b.grad is None
    assert torch.autograd.gradcheck(lambda *tensors: functional.stay_close(tensors, guide), tuple(student))


def test_stay_close_is_zero_with_zero_gradient_at_the_start() -> None:
    student = [torch.randn(4, requires_grad=True)]
    loss = functional.stay_close(student, [student[0].detach().clone()])
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert torch.equal(student[0].grad, torch.zeros(4))


def test_bad_arguments_are_refused_in_words() -> None:
    c, h = _tensors(3, None, torch.float32)
    with pytest.raises(UsageError, match=r"objective must be one of .*sg-opt, got 'opt9'"):
        functional.objective("opt9")
    with pytest.raises(ValueError, match="temperature must be above 0"):
        functional.sg(c, h, 0.0)
    with pytest.raises(ValueError, match=r"views \(batch, views, dim\)"):
        functional.sg_opt(c, h, 0.1)
    with pytest.raises(ValueError, match="do not belong together"):
        functional.sg(c, h[:2], 0.1)
    with pytest.raises(ValueError, match="pair by pair"):
        functional.stay_close([c], [])


@pytest.mark.parametrize("temperature", [0.04, 0.05, 0.1, 1.0])
@pytest.mark.parametrize("batch", [2, 3, 8])
def test_the_two_contrasts_follow_their_formulas(batch: int, temperature: float) -> None:
    torch.manual_seed(batch)
    first, second = torch.randn(2, batch, 6, dtype=torch.float64)
    torch.testing.assert_close(
        functional.info_nce(first, second, temperature), naive_info_nce(first, second, temperature)
    )
    torch.testing.assert_close(
        functional.nt_xent_pairs(first, second, temperature), pairs_by_hand(first, second, temperature)
    )
    assert not torch.allclose(functional.info_nce(first, second, 0.1), functional.nt_xent_pairs(first, second, 0.1))


def _sigmoid(value: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-value))


@pytest.mark.parametrize(("batch", "anchors", "negatives"), [(2, 2, 1), (5, 5, 3), (9, 2, 7), (1, 1, 0)])
def test_tension_is_the_cross_entropy_of_a_positive_and_its_negatives(batch: int, anchors: int, negatives: int) -> None:
    torch.manual_seed(batch)
    u, v = torch.randn(anchors, 6, dtype=torch.float64), torch.randn(batch, 6, dtype=torch.float64)
    distances = 1 + torch.randperm(batch - 1)[:negatives]
    terms, in_the_paper = [], []
    for i in range(anchors):
        terms.append(-torch.log(_sigmoid(u[i] @ v[i])))
        in_the_paper.append(terms[-1])
        for distance in distances.tolist():
            j = (i + distance) % batch
            assert j != i
            terms.append(-torch.log(1 - _sigmoid(u[i] @ v[j])))
            in_the_paper.append(-torch.log(_sigmoid(1 - u[i] @ v[j])))
    assert len(terms) == anchors * (1 + negatives)
    torch.testing.assert_close(functional.contrastive_tension(u, v, distances), torch.stack(terms).mean())
    shifted = functional.contrastive_tension(u, v, distances, "paper")
    torch.testing.assert_close(shifted, torch.stack(in_the_paper).mean())


@pytest.mark.parametrize("batch", [1, 2, 6])
def test_in_batch_is_the_mean_of_both_directions(batch: int) -> None:
    torch.manual_seed(batch)
    u, v = torch.randn(2, batch, 5, dtype=torch.float64)
    scale = torch.tensor(20.0, dtype=torch.float64)
    total = u.new_zeros(())
    for i in range(batch):
        for one, other in ((u, v), (v, u)):
            cosines = [one[i] @ other[j] / (one[i].norm() * other[j].norm()) for j in range(batch)]
            total = total - torch.log(torch.exp(scale * cosines[i]) / sum(torch.exp(scale * c) for c in cosines))
    torch.testing.assert_close(functional.contrastive_tension_in_batch(u, v, scale), total / (2 * batch))


@pytest.mark.parametrize("queued", [0, 1, 5])
@pytest.mark.parametrize("batch", [1, 2, 4])
def test_momentum_contrast_follows_its_formula(batch: int, queued: int) -> None:
    torch.manual_seed(batch)
    queries, keys = torch.randn(2, batch, 6, dtype=torch.float64)
    queue = torch.randn(queued, 6, dtype=torch.float64)
    expected = naive_momentum_contrast(queries, keys, queue, 0.07)
    torch.testing.assert_close(functional.momentum_contrast(queries, keys, queue, 0.07), expected)


@pytest.mark.parametrize("lengths", [(3, 5), (4, 1, 2), (6,)])
def test_info_max_follows_its_formula(lengths: tuple[int, ...]) -> None:
    torch.manual_seed(len(lengths))
    local = [torch.randn(length, 4, dtype=torch.float64) for length in lengths]
    whole = torch.stack([tokens.mean(dim=0) for tokens in local])
    owners = torch.tensor([i for i, length in enumerate(lengths) for _ in range(length)])
    torch.testing.assert_close(functional.info_max(torch.cat(local), whole, owners), naive_info_max(local, whole))


def test_the_classifier_sees_both_vectors_their_distance_and_their_product() -> None:
    u, v = torch.tensor([[1.0, -2.0]]), torch.tensor([[3.0, 4.0]])
    assert functional.pair_features(u, v).tolist() == [[1, -2, 3, 4, 2, 6]]
    assert functional.pair_features(u, v, product=True).tolist() == [[1, -2, 3, 4, 2, 6, 3, -8]]
