"""A folder of a static encoder: a stock ``StaticEmbedding``, loaded by sentence-transformers like any other."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding
from tokenizers import Tokenizer
from torch import nn

from selfguide.errors import SelfguideError
from selfguide.exporting.agreement import compare
from selfguide.exporting.folders import has_fast_tokenizer, write_readme
from selfguide.exporting.request import Material, Request
from selfguide.exporting.static import DIMENSIONS, SIF_A, Floats, Teacher
from selfguide.models.encoders import transformer_of
from selfguide.progress import Reporter


def write_static(material: Material, request: Request, folder: Path, reporter: Reporter) -> dict[str, Any]:
    """Write the folder's content.

    Args:
        material: The encoder and the text.
        request: What is asked for.
        folder: An empty folder.
        reporter: Shows progress.

    Returns:
        What the record says of the encoder.

    Raises:
        SelfguideError: The encoder has no Transformer, or its tokenizer cannot be saved.
    """
    model, form = material.model, request.form
    check_encoder(model)
    form.check_width(int(model.get_embedding_dimension() or 0))
    dim = form.dim or min(DIMENSIONS, int(model.get_embedding_dimension() or 0))
    # λ is chosen on every second of the sentences left out, and the encoders are compared on the others.
    teacher = Teacher.of(model, material.rest, material.sentences[::2], reporter)
    reporter.note("Fitting the table …")
    table, penalty = teacher.table(dim)
    static = static_encoder(model, table, form.normalise)
    others = material.sentences[1::2]
    own, found = (np.asarray(one.encode(others, show_progress_bar=False)) for one in (model, static))
    agreement = compare(own, found, same_space=False)
    static.save(str(folder), create_model_card=False)
    size = (folder / "model.safetensors").stat().st_size
    reporter.note(f"{size / 1e6:.1f} MB, {dim} dimensions; on sentences left out of the fit: {agreement.summary()}")
    about = {
        "dimension": dim,
        "tokens": len(table),
        "normalise": form.normalise,
        "sif_a": SIF_A,
        "fit": {"sentences": len(teacher.fit), "penalty": penalty},
        "agreement": asdict(agreement),
    }
    write_readme(folder, "static.md.j2", name=material.name, text=material.text, **about)
    return about


def check_encoder(model: SentenceTransformer) -> None:
    """Check that an encoder can be made a static one.

    Args:
        model: The encoder.

    Raises:
        SelfguideError: It has no Transformer, or its tokenizer cannot be saved.
    """
    transformer_of(model)
    if not has_fast_tokenizer(model):
        raise SelfguideError(
            f"The encoder's tokenizer, {type(model.tokenizer).__name__}, cannot be written as a tokenizer.json, which a static "
            "encoder needs."
        )


def static_encoder(model: SentenceTransformer, table: Floats, normalise: bool = False) -> SentenceTransformer:
    """Return the encoder that looks tokens up in a table.

    Args:
        model: The encoder whose tokenizer it has.
        table: One vector a token, (tokens, dim).
        normalise: Scale each embedding to length 1.

    Returns:
        An encoder of stock modules.
    """
    tokenizer: Any = model.tokenizer
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.no_truncation()
    backend.no_padding()
    weights = torch.from_numpy(np.ascontiguousarray(table, dtype=np.float32))
    modules: list[nn.Module] = [StaticEmbedding(backend, embedding_weights=weights)]
    return SentenceTransformer(modules=[*modules, Normalize()] if normalise else modules, device="cpu")
