"""Backends that compute an encoder's embeddings, by the name that ``encode`` takes as ``backend``.

========  ===============================================================================================
torch     fp32, on the CPU or a GPU (the default)
bf16      the Transformer's layers in bf16, on a GPU or a CPU that supports it
onnx      fp32 on onnxruntime, on the CPU
int8      eight-bit weights on onnxruntime, on the CPU: the fastest there, with slightly different embeddings
========  ===============================================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

from selfguide.errors import UsageError
from selfguide.options import OneOf, check

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from selfguide.engine.torch_runner import Pending

BACKENDS = ("torch", "bf16", "onnx", "int8")

# Sessions of onnxruntime, which live as long as their model: (state of the weights, session).
_sessions: WeakKeyDictionary[Any, dict[str, tuple[Any, Runner]]] = WeakKeyDictionary()


class Runner(Protocol):
    """Computes embeddings of a chunk of sentences in two steps, so that the first can run ahead of the second."""

    def tokenise(self, sentences: list[str]) -> Any:
        """Tokenise a chunk.

        Args:
            sentences: The chunk.

        Returns:
            What :meth:`start` takes.
        """

    def start(self, tokens: Any, batch_size: int | None) -> Pending:
        """Start computing, with at most ``batch_size`` sentences a pass; the result waits for the embeddings.

        Args:
            tokens: What :meth:`tokenise` returned.
            batch_size: Maximum number of sentences per pass; ``None`` chooses it by the number of tokens.

        Returns:
            A function that waits and returns the embeddings.
        """


def check_backend(backend: str) -> None:
    """Check the name of a backend, before anything is loaded.

    Args:
        backend: The name.

    Raises:
        UsageError: There is no such backend.
    """
    check("backend", backend, OneOf(*BACKENDS))


def runner(model: SentenceTransformer, backend: str = "torch") -> Runner:
    """Return the runner of a backend for an encoder.

    Args:
        model: The encoder.
        backend: One of ``BACKENDS``.

    Returns:
        The runner.

    Raises:
        UsageError: There is no such backend, or it does not support this encoder or machine.
    """
    import torch

    from selfguide.engine.torch_runner import runs_flat, torch_runner

    check_backend(backend)
    if backend == "torch":
        return torch_runner(model)
    if backend == "bf16":
        from selfguide.engine.bf16 import check_bf16

        check_bf16(model)
        if not runs_flat(model):
            raise UsageError(
                "The backend bf16 is for encoders made of BERT's layers (BERT, RoBERTa, XLM-R, CamemBERT, ELECTRA); "
                "leave --backend out for this one."
            )
        return torch_runner(model, torch.bfloat16)
    return _session(model, backend)


def _session(model: SentenceTransformer, backend: str) -> Runner:
    from selfguide.engine.onnx_runner import OnnxRunner

    # PyTorch counts in-place changes of a parameter; one that was replaced is stored at another address.
    weights = [(parameter.data_ptr(), parameter._version) for parameter in model.parameters()]
    state = (weights, model.max_seq_length)
    kept = _sessions.setdefault(model, {})
    if backend not in kept or kept[backend][0] != state:
        kept[backend] = (state, OnnxRunner(model, int8=backend == "int8"))
    return kept[backend][1]
