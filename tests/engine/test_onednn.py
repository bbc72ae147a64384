"""Linear layers by oneDNN: the same results for any number of rows, and few shapes, whose code is kept."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn

import selfguide
from selfguide.engine import onednn
from toys import toy_sentences

pytestmark = pytest.mark.skipif(not onednn.preferred(), reason="oneDNN is for AMD's processors")

GROWTH = """
import torch
from selfguide.engine.onednn import linear

def megabytes():
    return int(open("/proc/self/statm").read().split()[1]) * 4 / 1024

torch.set_num_threads(1)
weight, bias = torch.randn(512, 256), torch.randn(512)
with torch.inference_mode():
    linear(torch.randn(512, 256), weight, bias)
    before = megabytes()
    for rows in range(1, 513):
        linear(torch.randn(rows, 256), weight, bias)
print(megabytes() - before)
"""


@pytest.mark.parametrize("gelu", [False, True])
@pytest.mark.parametrize("rows", [1, 2, 15, 16, 17, 100, 511])
def test_every_number_of_rows_gives_the_layer(rows: int, gelu: bool) -> None:
    draw = torch.Generator().manual_seed(rows)
    x, weight, bias = (torch.randn(shape, generator=draw) for shape in ((rows, 64), (96, 64), (96,)))
    expected = F.linear(x.double(), weight.double(), bias.double())
    expected = F.gelu(expected) if gelu else expected
    found = onednn.linear(x, weight, bias, gelu)
    assert found.shape == (rows, 96)
    torch.testing.assert_close(found.double(), expected, atol=1e-4, rtol=0)
    # The rows that are added change nothing.
    words = ("gelu", [], "none") if gelu else ("none", [], "")
    torch.testing.assert_close(found, torch.ops.mkldnn._linear_pointwise(x, weight, bias, *words), atol=1e-6, rtol=1e-6)


def test_rows_are_added_so_that_shapes_recur(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = set()
    own = onednn._pointwise

    def watched(x: torch.Tensor, *others: object) -> object:
        seen.add(len(x))
        return own(x, *others)

    monkeypatch.setattr(onednn, "_pointwise", watched)
    for rows in range(1, 65):
        onednn.linear(torch.ones(rows, 8), torch.ones(4, 8), torch.ones(4))
    assert seen == {1, 16, 32, 48, 64}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_does_not_grow_with_the_shapes() -> None:
    done = subprocess.run([sys.executable, "-c", GROWTH], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 60  # 200 MB and more where each number of rows is a shape


class TestTraining:
    """Layers of a model in training."""

    @pytest.fixture(autouse=True)
    def every_layer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(onednn, "_LEAST_WEIGHTS", 0)

    @pytest.mark.parametrize("bias", [True, False])
    @pytest.mark.parametrize("shape", [(1,), (2,), (15,), (16,), (17,), (100,), (511,), (4, 7), (2, 3, 5), ()])
    def test_values_and_gradients_are_those_of_the_layer(self, shape: tuple[int, ...], bias: bool) -> None:
        torch.manual_seed(sum(shape))
        layer = nn.Linear(24, 40, bias=bias)
        exact = nn.Linear(24, 40, bias=bias, dtype=torch.float64)
        exact.load_state_dict(layer.state_dict())
        x = torch.randn(*shape, 24, requires_grad=True)
        upstream = torch.randn(*shape, 40)
        with onednn.fast_linear_layers(layer) as count:
            found = layer(x)
        assert count == 1
        assert found.shape == (*shape, 40)
        wanted = [x, *layer.parameters()]
        gradients = torch.autograd.grad(found, wanted, upstream)
        start = x.detach().double().requires_grad_()
        expected = exact(start)
        torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=1e-5)
        for gradient, right in zip(
            gradients, torch.autograd.grad(expected, [start, *exact.parameters()], upstream.double()), strict=True
        ):
            torch.testing.assert_close(gradient.double(), right, atol=1e-4, rtol=1e-4)

    def test_only_the_gradients_that_are_wanted_are_computed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        calls = []
        own = onednn._pointwise
        monkeypatch.setattr(onednn, "_pointwise", lambda *arguments: calls.append(1) or own(*arguments))
        layer = nn.Linear(8, 8)
        layer.weight.requires_grad_(False)
        with onednn.fast_linear_layers(layer):
            layer(torch.ones(3, 8)).sum().backward()
        assert layer.weight.grad is None
        assert layer.bias.grad is not None
        assert len(calls) == 1  # neither the input nor the weights want one

    def test_layers_are_as_before_after_the_block(self) -> None:
        class Own(nn.Linear):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return super().forward(x) + 1

        model = nn.Sequential(nn.Linear(8, 8), Own(8, 8), nn.Linear(8, 8))
        hooked = model[2]
        hooked.forward = lambda x: x  # as a library does that wraps a layer
        with onednn.fast_linear_layers(model) as count:
            assert "forward" in vars(model[0])
        assert count == 1
        assert "forward" not in vars(model[0])
        assert torch.equal(hooked(torch.ones(1, 8)), torch.ones(1, 8))

    def test_other_precisions_compute_as_usual(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(onednn, "_pointwise", lambda *arguments: pytest.fail("oneDNN was called"))
        layer = nn.Linear(8, 8)
        with onednn.fast_linear_layers(layer), torch.autocast("cpu", dtype=torch.bfloat16):
            assert layer(torch.ones(2, 8)).dtype == torch.bfloat16
        layer.double()
        with onednn.fast_linear_layers(layer):
            assert layer(torch.ones(2, 8, dtype=torch.float64)).dtype == torch.float64
            assert layer(torch.ones(0, 8, dtype=torch.float64)).shape == (0, 8)

    def test_row_counts_recur(self) -> None:
        for most in (256, 4096):
            assert (
                len({len(onednn._padded(torch.ones(rows, 1), onednn._SHAPES)) for rows in range(most, 2 * most)}) <= 17
            )
        assert all(len(onednn._padded(torch.ones(rows, 1), onednn._SHAPES)) <= rows * 1.13 for rows in range(256, 5000))

    @pytest.mark.parametrize(("method", "options"), [("sg-opt", {"head_size": 16}), ("simcse", {})])
    def test_a_run_trains_with_it_and_ends_in_the_same_weights_but_for_rounding(
        self, bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, options: dict[str, int]
    ) -> None:
        calls = []
        own = onednn._pointwise
        monkeypatch.setattr(onednn, "_pointwise", lambda *arguments: calls.append(1) or own(*arguments))
        found = {}
        for name, preferred in (("fast", True), ("plain", False)):
            monkeypatch.setattr(onednn, "preferred", lambda preferred=preferred: preferred)
            before = len(calls)
            selfguide.train(
                bert, toy_sentences(64), method, output=tmp_path / name, max_steps=3, batch_size=8, learning_rate=1e-4,
                device="cpu", quiet=True, report=False, **options,
            )  # fmt: skip
            assert (len(calls) > before) == preferred
            found[name] = load_file(tmp_path / name / "model.safetensors")
        for name, tensor in found["plain"].items():
            torch.testing.assert_close(found["fast"][name], tensor, atol=1e-4, rtol=1e-4)
