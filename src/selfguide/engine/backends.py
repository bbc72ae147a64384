"""Ways to compute the vectors of an encoder. Which one is a name, given to ``encode`` as ``backend``.

========  ===============================================================================================
torch     the encoder's own vectors, in fp32, on the CPU or a GPU (the default)
bf16      its layers in bf16: for a GPU, or a CPU that has bf16
onnx      fp32 on onnxruntime, on the CPU
int8      eight-bit weights on onnxruntime, on the CPU: the fastest there, with slightly other vectors
========  ===============================================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

from selfguide.errors import UsageError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from selfguide.engine.torch_runner import Pending

BACKENDS = ("torch", "bf16", "onnx", "int8")

# Sessions of onnxruntime, kept as long as their model: (what the weights were, the session).
_sessions: WeakKeyDictionary[Any, dict[str, tuple[Any, Runner]]] = WeakKeyDictionary()


class Runner(Protocol):
    """What turns a chunk of sentences into vectors, in two steps, so that the first can run ahead of the second."""

    def tokenise(self, sentences: list[str]) -> Any: ...
    def start(self, tokens: Any, batch_size: int | None) -> Pending: ...


def check_backend(backend: str) -> None:
    """Refuse a name that is none, before anything is loaded."""
    if backend not in BACKENDS:
        raise UsageError(f"There is no backend {backend!r}; choose one of {', '.join(BACKENDS)}.")


def runner(model: SentenceTransformer, backend: str = "torch") -> Runner:
    """What computes the vectors of ``model`` by the backend of this name."""
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

    # A parameter that was changed in place has counted it; one that was replaced lies elsewhere.
    weights = [(parameter.data_ptr(), parameter._version) for parameter in model.parameters()]
    state = (weights, model.max_seq_length)
    kept = _sessions.setdefault(model, {})
    if backend not in kept or kept[backend][0] != state:
        kept[backend] = (state, OnnxRunner(model, int8=backend == "int8"))
    return kept[backend][1]
