"""``selfguide export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from selfguide.cli import options as shared
from selfguide.cli.text_options import ReadingOptions


@shared.spread
def export(
    encoder: Annotated[
        str, typer.Argument(help="mini (inside the package), a folder, or a hub name.", show_default=False)
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to make.", show_default=False)],
    to: Annotated[
        str,
        typer.Option(
            help="onnx: for onnxruntime and transformers.js. openvino: for OpenVINO. static: one vector a token instead of a "
            "Transformer, for speed. onnx and openvino need extras of these names."
        ),
    ] = "onnx",
    text: Annotated[
        list[str] | None,
        typer.Option(
            help="Sentences like those to be encoded: files, globs, - or hf:owner/name. Exported embeddings are compared with "
            "the encoder's own on them; static is fitted on them. Default: the demonstration's.",
            show_default=False,
        ),
    ] = None,
    fp16: Annotated[bool, typer.Option("--fp16", help="Write fp16 weights too (openvino: instead).")] = False,
    int8: Annotated[
        bool,
        typer.Option("--int8", help="onnx: write int8 weights too; layers that do not tolerate them stay in fp32."),
    ] = False,
    dim: Annotated[
        int | None,
        typer.Option(
            help="Keep only the first N dimensions; static: its embedding dimension.", min=1, show_default=False
        ),
    ] = None,
    normalise: Annotated[bool, typer.Option("--normalise", help="Scale each embedding to length 1.")] = False,
    precision: Annotated[
        str,
        typer.Option(
            help="Numeric type of the embeddings that the graph gives: float32, int8, uint8, binary or ubinary."
        ),
    ] = "float32",
    max_length: Annotated[
        int | None, typer.Option(help="Maximum tokens per sentence; longer ones are truncated.", show_default=False)
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier export.")] = False,
    quiet: shared.Quiet = False,
    *,
    reading: ReadingOptions,
) -> None:
    """Export an encoder as a folder that runs without selfguide and without PyTorch.

    The folder has the whole chain from token ids to the embedding, the tokenizer, a README with the lines that run it, and
    export.json: how close its embeddings are to the encoder's own.

    **Examples**

        selfguide export notes-encoder --output notes-onnx --text notes.txt --int8

        selfguide export notes-encoder --to openvino --output notes-openvino

        selfguide export notes-encoder --to static --text notes.txt --output notes-static
    """
    from selfguide.data import Sentences
    from selfguide.engine.vector_form import VectorForm
    from selfguide.exporting.folders import check_output
    from selfguide.exporting.request import Request
    from selfguide.progress import Reporter

    Request(to, fp16, int8, VectorForm(normalise, dim, precision))
    check_output(output, overwrite)
    sentences = Sentences(text, reading.text_options(long_lines="cut")) if text else None

    # Imported only now, so that help and errors in the text do not wait for torch.
    from selfguide.exporting.export import export as write
    from selfguide.models.encoders import quiet_libraries

    with quiet_libraries():
        made = write(
            encoder,
            output,
            to,
            text=sentences,
            fp16=fp16,
            int8=int8,
            dim=dim,
            normalise=normalise,
            precision=precision,
            max_length=max_length,
            overwrite=overwrite,
            show_progress=not quiet,
        )
    Reporter(quiet=quiet).note(f"Exported: {made}")
