"""What libraries would send or keep without being asked is turned off."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SESSION = """
import selfguide
import onnx, onnxruntime
from onnx import TensorProto, helper
value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "graph", value[:1], value[1:])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
onnxruntime.InferenceSession(model.SerializeToString())
"""


def test_onnxruntime_keeps_no_identifier_and_no_list_of_what_was_done(tmp_path: Path) -> None:
    """Its official builds write both into the home and the temporary folder, and send the list."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    places = {name: str(tmp_path) for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME")}
    environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"} | places
    subprocess.run([sys.executable, "-c", SESSION], env=environment, check=True, timeout=120)
    assert not list(tmp_path.rglob("*"))


def test_a_wish_of_ones_own_is_kept() -> None:
    program = "import os, selfguide; print(os.environ['ORT_DISABLE_TELEMETRY'])"
    for wish, found in ((None, "1"), ("0", "0")):
        environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
        environment |= {} if wish is None else {"ORT_DISABLE_TELEMETRY": wish}
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True
        )
        assert done.stdout.strip() == found
