"""Linear layers by oneDNN: the same results for any number of rows, and few shapes, whose code is kept."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

from selfguide.engine import onednn

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
