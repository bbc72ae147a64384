"""A folder for onnxruntime and transformers.js, in the layout of the model hub.

=====================================  ==================================================================================
``onnx/model.onnx``                    token ids → ``last_hidden_state``
``onnx/sentence_embedding.onnx``       token ids → ``sentence_embedding``: pooling and all that follows it is inside
``…_fp16.onnx``, ``…_quantized.onnx``  the same two with fp16 weights, and with int8 weights
=====================================  ==================================================================================

Weights of int8 have seven bits here: the file may run on a processor that adds products of eight bits in sixteen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selfguide.engine.int8 import layers_in_fp32, quantise
from selfguide.engine.onnx_export import INPUTS, SENTENCE, TOKENS, obstacle, quiet_export
from selfguide.engine.vector_form import VectorForm
from selfguide.errors import SelfguideError
from selfguide.exporting.agreement import Run, compare, floats, run_files
from selfguide.exporting.folders import TOKENIZER_FILE, has_fast_tokenizer, write_configuration, write_readme
from selfguide.exporting.graphs import Graphs, half, make_graphs
from selfguide.exporting.request import Material, Request
from selfguide.progress import Reporter

FOLDER = "onnx"
NAMES = {TOKENS: "model", SENTENCE: "sentence_embedding"}
"""Names of the graphs' files, by their output."""
# Largest difference between a graph and the encoder, relative to the longest embedding; rounding stays far below it.
_TOLERANCE = 1e-3


def write_onnx(material: Material, request: Request, folder: Path, reporter: Reporter) -> dict[str, Any]:
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
    write_configuration(material.model, folder, "q8" if request.int8 else "fp32")
    (folder / FOLDER).mkdir()
    in_fp32 = _write_graphs(graphs, material, request, folder / FOLDER, reporter)
    files = {}
    for suffix in ("", *(["_fp16"] if request.fp16 else []), *(["_quantized"] if request.int8 else [])):
        path = folder / FOLDER / f"{NAMES[SENTENCE]}{suffix}.onnx"
        files[path.name] = compared(path, onnx_runner(path), material, form, exact=not suffix, reporter=reporter)
    write_readme(folder, "onnx.md.j2", **readme_values(material, form), files=files, request=request)
    record = graph_record(form, material, graphs, NAMES, files)
    return record | ({"layers_in_fp32": in_fp32} if request.int8 else {})


def prepared(material: Material, request: Request, reporter: Reporter) -> tuple[VectorForm, Graphs]:
    """Check the encoder, and export its graphs.

    Args:
        material: The encoder and the text.
        request: What is asked for.
        reporter: Shows progress.

    Returns:
        The form of the embeddings with its ranges, and the graphs.

    Raises:
        SelfguideError: The encoder cannot be exported.
    """
    model = material.model
    problem = obstacle(model)
    if problem is None and not has_fast_tokenizer(model):
        problem = f"The encoder's tokenizer, {type(model.tokenizer).__name__}, cannot be written as a tokenizer.json."
    if problem is None and material.prompt and not all(getattr(part, "include_prompt", True) for part in model):
        problem = "The encoder leaves its default prompt out of its pooling, which a graph that gets token ids cannot know of."
    if problem is not None:
        raise SelfguideError(f"{problem} It cannot be exported to {request.to}.")
    form = request.form
    form.check_width(int(model.get_embedding_dimension() or 0))
    reporter.note(f"Exporting the graph of {material.name} …")
    form = form.calibrated(material.vectors)
    return form, make_graphs(model, form)


def _write_graphs(graphs: Graphs, material: Material, request: Request, folder: Path, reporter: Reporter) -> list[str]:
    """Write all files; return the layers that int8 leaves in fp32."""
    plain = {NAMES[TOKENS]: graphs.tokens, NAMES[SENTENCE]: graphs.sentence}
    for name, graph in plain.items():
        (folder / f"{name}.onnx").write_bytes(graph.SerializeToString())
    if request.fp16:
        reporter.note("Converting to fp16 …")
        for name, graph in plain.items():
            (folder / f"{name}_fp16.onnx").write_bytes(half(graph).SerializeToString())
    if not request.int8:
        return []
    reporter.note("Quantising to int8 …")
    with quiet_export():
        # The same layers in both: their nodes have the same names.
        keep = layers_in_fp32(folder / f"{NAMES[SENTENCE]}.onnx", material.model, material.prompted)
        for name in plain:
            quantise(folder / f"{name}.onnx", folder / f"{name}_quantized.onnx", keep, reduce_range=True)
    return keep


def onnx_runner(path: Path) -> Run:
    """Return a function that runs a graph with onnxruntime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda inputs: np.asarray(session.run(None, inputs)[0])


def compared(
    path: Path, run: Run, material: Material, form: VectorForm, *, exact: bool, reporter: Reporter
) -> dict[str, Any]:
    """Compare a graph's embeddings with the encoder's own.

    Args:
        path: The graph's file.
        run: Runs it.
        material: The encoder and the text.
        form: The form of its embeddings.
        exact: Whether its weights are those of the encoder.
        reporter: Gets the figures.

    Returns:
        What the record says of the file.

    Raises:
        SelfguideError: The weights are the encoder's, and the embeddings are not.
    """
    found = run_files(path.parents[1] / TOKENIZER_FILE, run, material.prompted)
    if exact:
        _check_same(form.apply(material.vectors), found, path)
    agreement = compare(material.vectors, floats(found, form))
    size = sum(file.stat().st_size for file in path.parent.glob(f"{path.stem}.*"))
    reporter.note(f"{path.parent.name}/{path.name}: {size / 1e6:.1f} MB, {agreement.summary()}")
    return {"bytes": size, "agreement": asdict(agreement)}


def _check_same(expected: NDArray[Any], found: NDArray[Any], path: Path) -> None:
    if expected.dtype.kind == "f":
        scale = float(np.linalg.norm(expected, axis=1).max()) or 1.0
        off = float(np.abs(expected - found).max()) / scale
        limit = _TOLERANCE
    else:  # a value at the border of two steps may fall to either side
        off, limit = float((expected != found).mean()), 0.01
    if not off <= limit:
        raise SelfguideError(
            f"The exported {path.name} gives other embeddings than the encoder (difference {off:.2g}, at most {limit:g} is "
            "expected), so nothing was written. Please report it, with the name of the encoder."
        )


def graph_record(
    form: VectorForm, material: Material, graphs: Graphs, names: Mapping[str, str], files: dict[str, Any]
) -> dict[str, Any]:
    """Return what the record says of the embeddings, the graphs' inputs and their files.

    Args:
        form: The form of the embeddings.
        material: The encoder and the text.
        graphs: The graphs.
        names: Names of the graphs' files, by their output.
        files: What the record says of each file.

    Returns:
        The record.
    """
    inputs = {names[TOKENS]: [item.name for item in graphs.tokens.graph.input], names[SENTENCE]: list(INPUTS)}
    return {**_vector_record(form, material), "inputs": inputs, "files": files}


def _vector_record(form: VectorForm, material: Material) -> dict[str, Any]:
    """Return what the record says of the embeddings."""
    from selfguide.engine.tokens import length_limit

    width = int(material.model.get_embedding_dimension() or 0)
    return {
        "dimension": form.dim or width,
        "max_length": length_limit(material.model),
        "prompt": material.prompt,
        "normalise": form.normalise,
        "precision": form.precision,
        **({"ranges": form.ranges.tolist()} if form.ranges is not None else {}),
    }


def readme_values(material: Material, form: VectorForm) -> dict[str, Any]:
    """Return what the templates refer to."""
    return {"name": material.name, "text": material.text, "similar": _similarity(form)} | _vector_record(form, material)


def _similarity(form: VectorForm) -> str:
    if form.precision.endswith("binary"):
        return "Hamming distance"
    return "cosine similarity"
