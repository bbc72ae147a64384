"""The request for an export, checked before anything is loaded; and the encoder and text that it is made from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfguide.engine.vector_form import VectorForm
from selfguide.errors import UsageError
from selfguide.options import OneOf, check
from selfguide.progress import counted
from selfguide.system import require_packages

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer

TARGETS = ("onnx", "openvino", "static")
# The packages of each kind of folder. onnxscript is what torch.onnx writes graphs with.
_PACKAGES = {
    "onnx": ("onnx", "onnxruntime", "onnxscript"),
    "openvino": ("onnx", "onnxruntime", "onnxscript", "openvino"),
    "static": (),
}


# Sentences that a static encoder is fitted on; more are not read into memory.
_FIT = 200_000
_FEWEST = 50


@dataclass(frozen=True)
class Request:
    """What is asked for.

    Raises:
        UsageError: There is no such kind of folder, an option does not go with it, or a package is missing.
    """

    to: str = "onnx"
    """One of ``TARGETS``."""
    fp16: bool = False
    """Graphs with weights in fp16 too (for openvino: instead)."""
    int8: bool = False
    """Graphs whose linear layers have int8 weights too."""
    form: VectorForm = field(default_factory=VectorForm)
    """What is done to embeddings at the end of the graph."""

    def __post_init__(self) -> None:
        """Check the request."""
        check("to", self.to, OneOf(*TARGETS))
        if self.to != "onnx" and self.int8:
            raise UsageError(f"int8 weights are for --to onnx, not for {self.to}: leave --int8 out.")
        if self.to == "static" and (self.fp16 or self.form.precision != "float32"):
            raise UsageError("A static encoder has float32 vectors: leave --fp16 and --precision out.")
        require_packages(f"Export to {self.to} needs", self.to, *_PACKAGES[self.to])


@dataclass(frozen=True)
class Material:
    """The encoder, and the text on which what is exported is compared with it."""

    name: str
    """What the encoder was called."""
    model: SentenceTransformer
    sentences: list[str]
    """Sentences spread over the text."""
    rest: list[str]
    """Other sentences of it, for a static encoder to be fitted on."""
    text: dict[str, Any]
    """What the record says of the text."""

    @property
    def prompt(self) -> str:
        """What the encoder puts in front of every sentence; graphs leave this to their users."""
        return str(self.model.prompts.get(self.model.default_prompt_name or "", "") or "")

    @property
    def prompted(self) -> list[str]:
        """The sentences as the graph's tokenizer gets them."""
        return [self.prompt + sentence for sentence in self.sentences]

    @cached_property
    def vectors(self) -> NDArray[np.float32]:
        """The encoder's own embeddings of the sentences."""
        from selfguide.engine.encode import sentence_vectors

        return sentence_vectors(self.model, self.sentences)


def gather(
    encoder: str | Path | SentenceTransformer,
    name: str,
    text: str | Path | Iterable[str] | None,
    max_length: int | None,
    to: str,
) -> Material:
    """Load the encoder and read the text.

    Args:
        encoder: A name, a folder or a loaded encoder.
        name: What to call it in records.
        text: The user's text; ``None`` takes the demonstration's.
        max_length: Truncate sentences after this many tokens.
        to: One of ``TARGETS``; a static encoder is also fitted on the text.

    Returns:
        Both.

    Raises:
        SelfguideError: The encoder cannot be loaded, or the text cannot be read.
        UsageError: The text is too short.
    """
    from selfguide.data import TextOptions, open_text
    from selfguide.data.resources import demo_sentences
    from selfguide.exporting.agreement import SAMPLE, sample
    from selfguide.models.encoders import load_encoder

    fit = to == "static"
    source = open_text(demo_sentences() if text is None else text, TextOptions(long_lines="cut"))
    sentences, count = sample(source, _FIT if fit else SAMPLE)
    rest: list[str] = []
    if fit:  # every fifth sentence is left out of the fit, at most twice a sample
        step = max(5, len(sentences) // (2 * SAMPLE))
        sentences, rest = sentences[::step], [one for row, one in enumerate(sentences) if row % step]
    least = _FEWEST if fit else 3
    if len(sentences) + len(rest) < least:
        raise UsageError(
            f"The text has {counted(len(sentences) + len(rest), 'different sentence')}; {least} are the fewest that an export "
            f"to {to} can be checked on."
        )
    about = {
        "source": "the package's demonstration" if text is None else "your own",
        "sentences": count,
        "compared": len(sentences),
    }
    model = load_encoder(encoder, max_length=max_length, device="cpu").eval()
    return Material(name, model, sentences, rest, about)
