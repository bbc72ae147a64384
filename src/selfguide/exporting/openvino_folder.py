"""A folder for OpenVINO: the graphs of :mod:`selfguide.exporting.onnx_folder`, read by OpenVINO and saved as its own files.

=========================================  ==============================================================================
``openvino/openvino_model.xml``, ``.bin``  token ids → ``last_hidden_state``, under the name that other tools look for
``openvino/sentence_embedding.xml``, …     token ids → ``sentence_embedding``
=========================================  ==============================================================================
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from selfguide.engine.onnx_export import SENTENCE, TOKENS
from selfguide.exporting.agreement import Run
from selfguide.exporting.folders import write_configuration, write_readme
from selfguide.exporting.onnx_folder import compared, graph_record, prepared, readme_values
from selfguide.exporting.request import Material, Request
from selfguide.progress import Reporter

if TYPE_CHECKING:
    from onnx import ModelProto

FOLDER = "openvino"
NAMES = {TOKENS: "openvino_model", SENTENCE: "sentence_embedding"}


def write_openvino(material: Material, request: Request, folder: Path, reporter: Reporter) -> dict[str, Any]:
    """Write the folder's content.

    Args:
        material: The encoder and the text.
        request: What is asked for.
        folder: An empty folder.
        reporter: Shows progress.

    Returns:
        What the record says of the graphs.

    Raises:
        SelfguideError: The encoder cannot be exported, or its graph gives other embeddings than it does.
    """
    form, graphs = prepared(material, request, reporter)
    write_configuration(material.model, folder, "fp32")
    (folder / FOLDER).mkdir()
    for output, graph in ((TOKENS, graphs.tokens), (SENTENCE, graphs.sentence)):
        _save(graph, folder / FOLDER / f"{NAMES[output]}.xml", request.fp16)
    path = folder / FOLDER / f"{NAMES[SENTENCE]}.xml"
    about = compared(path, openvino_runner(path), material, form, exact=not request.fp16, reporter=reporter)
    files = {path.name: about}
    write_readme(folder, "openvino.md.j2", **readme_values(material, form), files=files, request=request)
    return graph_record(form, material, graphs, NAMES, files)


def openvino_runner(path: Path) -> Run:
    """Return a function that runs a graph with OpenVINO on the CPU, in fp32."""
    import openvino

    model = openvino.Core().compile_model(str(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return lambda inputs: np.array(model(inputs)[0])


def _save(graph: ModelProto, path: Path, fp16: bool) -> None:
    import tempfile

    import openvino

    # OpenVINO reads files only; its converter for objects sends usage statistics.
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        source = Path(scratch) / "graph.onnx"
        source.write_bytes(graph.SerializeToString())
        model = openvino.Core().read_model(str(source))
        openvino.save_model(model, str(path), compress_to_fp16=fp16)
        del model
