"""``selfguide encode``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from selfguide.cli import encode_parts as parts
from selfguide.cli import options as shared
from selfguide.cli.text_options import RowOptions
from selfguide.data import Sentences, TextOptions
from selfguide.data.kept_inputs import refuse_to_replace
from selfguide.errors import UsageError
from selfguide.progress import Reporter, counted

_SAMPLED = 1000
"""Number of lines whose tokens are counted for the note on truncated lines."""


@shared.spread
def encode(
    text: Annotated[
        list[str] | None,
        typer.Argument(help="Files, folders, globs, - for standard input, or hf:owner/name.", show_default=False),
    ] = None,
    encoder: shared.Encoder = "mini",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help=".npy, .parquet or .jsonl, or a folder for --shard and --engine ray; without it, JSON lines to standard "
            "output.",
            show_default=False,
        ),
    ] = None,
    pooling: shared.Pooling = None,
    layer: Annotated[
        int | None, typer.Option(help="Pool this layer (0: embedding layer, -1: last).", show_default=False)
    ] = None,
    backend: Annotated[
        str,
        typer.Option(
            help="torch: the encoder's own embeddings. int8: fastest on a CPU, with slightly different embeddings. onnx: fp32 on "
            "onnxruntime. bf16: for GPUs. onnx and int8 need the extra selfguide[onnx]."
        ),
    ] = "torch",
    batch_size: Annotated[
        int | None,
        typer.Option(
            help="Maximum sentences per forward pass; default: chosen automatically.", min=1, show_default=False
        ),
    ] = None,
    normalise: Annotated[bool, typer.Option("--normalise", help="Scale each embedding to length 1.")] = False,
    dim: Annotated[
        int | None,
        typer.Option(help="Keep only the first N dimensions (before --normalise).", min=1, show_default=False),
    ] = None,
    precision: Annotated[
        str,
        typer.Option(
            help="Numeric type of the output: float32, int8, uint8, binary or ubinary (one bit per dimension)."
        ),
    ] = "float32",
    ranges: Annotated[
        Path | None,
        typer.Option(
            help="For int8 and uint8: the .ranges.npy that an earlier run wrote; default: ranges of the beginning of this text.",
            show_default=False,
        ),
    ] = None,
    max_length: Annotated[
        int | None, typer.Option(help="Maximum tokens per sentence; longer ones are truncated.", show_default=False)
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume an interrupted encoding; the result is the same to the bit.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace --output, and what an interrupted encoding left.")
    ] = False,
    shard: Annotated[
        str | None,
        typer.Option(
            help="i/n, from 0/n: write the parts of this one of n processes into the folder --output; finished ones are "
            "skipped.",
            show_default=False,
        ),
    ] = None,
    engine: Annotated[
        str, typer.Option(help="ray: write parts on a Ray cluster, a local one by default (extra: selfguide[ray]).")
    ] = "plain",
    workers: Annotated[
        int | None,
        typer.Option(help="For --engine ray: actors; default: one an accelerator or core.", min=1, show_default=False),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(help="For --engine ray: address of a running cluster; default: RAY_ADDRESS.", show_default=False),
    ] = None,
    part_rows: Annotated[
        int | None, typer.Option(help="Rows of a part; default: 100,000.", min=1, show_default=False)
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option(
            help="Instead of encoding, prove that this folder of parts holds every row exactly once.",
            show_default=False,
        ),
    ] = None,
    device: shared.Device = "auto",
    limit: Annotated[int | None, typer.Option(help="Encode only the first N lines.", min=1, show_default=False)] = None,
    quiet: shared.Quiet = False,
    *,
    rows: RowOptions,
) -> None:
    """Encode sentences: one embedding per line of the input, in its order, in constant memory.

    **Examples**

        selfguide encode notes.txt --encoder notes-encoder --output notes.npy

        selfguide encode notes.txt --encoder notes-encoder --backend int8 --output notes.npy

        selfguide encode notes.txt --encoder notes-encoder --dim 128 --precision int8 --output notes.npy

        selfguide encode notes.txt --encoder notes-encoder --output notes.npy --resume

        cat notes.txt | selfguide encode - > notes.jsonl

        selfguide encode "notes/*.txt" --output parts --shard 3/8

        selfguide encode --check parts
    """
    if check is not None:
        if text or output is not None:
            raise UsageError("--check reads a folder of parts and the text that its manifest names: give nothing else.")
        parts.check(check, Reporter(quiet=quiet))
        return
    if not text:
        raise UsageError(
            "No text was given: pass a file, a folder, a glob, - for standard input, or hf:owner/name; see "
            "`selfguide encode --help`."
        )
    from selfguide.engine.backends import check_backend
    from selfguide.engine.vector_files import check_output
    from selfguide.engine.vector_form import VectorForm, ranges_file, read_ranges

    check_backend(backend)
    form = VectorForm(normalise, dim, precision, None if ranges is None else read_ranges(ranges))
    options = rows.text_options(limit=limit, keep_duplicates=True, keep_blank=True, long_lines="cut")
    if shard is not None or engine != "plain" or part_rows is not None:
        _encode_parts(
            text,
            output,
            options,
            (encoder, pooling, layer, max_length, device, backend, batch_size, form),
            (part_rows, parts.parsed_shard(shard), engine, (workers, address)),
            limit is not None or resume or overwrite,
            Reporter(quiet=quiet),
        )
        return
    if workers is not None or address is not None:
        raise UsageError("--workers and --address are for --engine ray.")
    if output is None and (resume or overwrite):
        raise UsageError("--resume and --overwrite are about a file: name it with --output.")
    if output is not None:
        check_output(output, resume, overwrite)
    sentences = Sentences(text, options)
    if output is not None:
        refuse_to_replace(output, [*text, *sentences.files()])

    # Imported only now, so that help and errors in the text do not wait for torch.
    from selfguide.engine.encode import encode_to_file
    from selfguide.engine.truncation import truncated_sentences
    from selfguide.engine.vocabulary_fit import foreign_text
    from selfguide.models.encoders import load_encoder
    from selfguide.runs.similarity import Reservoir

    reporter = Reporter(quiet=quiet)
    for note in sentences.sources_read():
        reporter.note(note)
    model = load_encoder(encoder, pooling, layer, max_length, device)
    target = output if output is not None else sys.stdout
    passing = Reservoir(sentences, _SAMPLED)
    count = encode_to_file(
        model,
        passing,
        target,
        backend=backend,
        batch_size=batch_size,
        normalise=normalise,
        dim=dim,
        precision=precision,
        ranges=form.ranges,
        resume=resume,
        overwrite=overwrite,
        reporter=reporter,
    )
    truncated = sentences.summary.too_long
    if truncated:
        lines = "1 line was" if truncated == 1 else f"{truncated:,} lines were"
        reporter.warn(f"{lines} longer than {options.max_chars:,} characters and truncated there before encoding.")
    if foreign := foreign_text(model.tokenizer, passing.drawn):
        reporter.warn(foreign)
    cut = truncated_sentences(model, passing.drawn)
    if cut:
        drawn = counted(len(passing.drawn), "line") + (f" drawn from {count:,}" if passing.seen > _SAMPLED else "")
        verb = "has" if cut == 1 else "have"
        reporter.note(
            f"{cut:,} of {drawn} {verb} more than {model.max_seq_length} tokens: the encoder reads the beginning."
        )
    if output is not None:
        kept = f" as {precision}" if precision != "float32" else ""
        reporter.note(
            f"{counted(count, 'sentence')} x {dim or model.get_embedding_dimension()} dimensions{kept} written to {output}"
        )
    if output is not None and form.needs_ranges:
        reporter.note(f"Ranges of each dimension: {ranges_file(output)}; encode queries with --ranges and this file.")


def _encode_parts(
    text: list[str],
    output: Path | None,
    options: TextOptions,
    job: tuple[Any, ...],
    work: tuple[int | None, tuple[int, int], str, tuple[int | None, str | None]],
    not_for_parts: bool,
    reporter: Reporter,
) -> None:
    """Check the options of a folder of parts, and make it."""
    if output is None or output.suffix in (".npy", ".parquet", ".jsonl"):
        raise UsageError("--shard, --part-rows and --engine ray write a folder of parts: name one with --output.")
    if not_for_parts:
        raise UsageError(
            "--limit, --resume and --overwrite are not for parts: the same command continues with what is missing, and another "
            "folder starts over."
        )
    from selfguide.engine.parts import PartsJob

    encoder, *rest = job
    made = PartsJob(output.resolve(), parts.absolute(encoder), *rest)
    parts.run_parts(made, text, options, *work, reporter)
