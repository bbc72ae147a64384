"""Any encoder as a function from sentences to vectors: checked, and each distinct sentence encoded once.

An encoder may be a name or folder, a loaded SentenceTransformer, any object with ``encode(sentences)``, a Python function
of a list of sentences, or the address of one: ``package.module:function``.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from selfguide.errors import SelfguideError, UsageError
from selfguide.progress import Reporter

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer

AnyEncoder = Any
"""What :func:`embedder` takes; see the head of this module."""
_ADDRESS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
# Sentences of different lengths, so that an encoder that sorts them and forgets to sort back is found out.
_PROBE = (
    "A dog runs.",
    "It rained all day long in the north of the country, and nobody went out.",
    "Yes.",
    "Is it late?",
)
_CHUNK = 2048


@dataclass(frozen=True)
class EncoderInfo:
    """Whose vectors were scored."""

    name: str
    digest: str
    """A short hash of its weights and modules; of the vectors of a few sentences where there are no weights to see."""
    dimension: int


class Embedder:
    """Sentences to vectors, a row each and in order; what was encoded once is not encoded again."""

    def __init__(
        self, encode: Callable[[list[str]], Any], info: EncoderInfo, reporter: Reporter, *, distrust: bool
    ) -> None:
        self.info = info
        self._encode, self._reporter, self._distrust = encode, reporter, distrust
        self._row: dict[str, int] = {}
        self._blocks: list[NDArray[np.float32]] = []
        self._joined: NDArray[np.float32] | None = None

    def __call__(self, sentences: Sequence[str]) -> NDArray[np.float32]:
        self.prepare(sentences)
        if self._joined is None or len(self._joined) != len(self._row):
            self._joined = (
                np.concatenate(self._blocks) if self._blocks else np.zeros((0, self.info.dimension), np.float32)
            )
            self._blocks = [self._joined]
        return self._joined[[self._row[sentence] for sentence in sentences]]

    def prepare(self, sentences: Iterable[str]) -> None:
        """Encode whatever is new among these sentences, in one go and with a bar."""
        # Longest first: batches hold sentences of a length, and the time left is never told too short.
        fresh = sorted(set(sentences) - self._row.keys(), key=lambda text: (-len(text), text))
        if not fresh:
            return
        with self._reporter.bar("encoding", len(fresh), "sentences") as advance:
            for start in range(0, len(fresh), _CHUNK):
                chunk = fresh[start : start + _CHUNK]
                self._keep(chunk, checked(self._encode(chunk), chunk, self.info))
                advance(len(chunk), "")
        if self._distrust:
            self._check_order(fresh)

    def _keep(self, chunk: list[str], vectors: NDArray[np.float32]) -> None:
        first = len(self._row)
        self._row.update((sentence, first + place) for place, sentence in enumerate(chunk))
        self._blocks.append(vectors)

    def _check_order(self, fresh: list[str]) -> None:
        """Ask again for a few sentences one at a time: rows that were mixed up, or left out and filled up, differ."""
        for sentence in {fresh[0], fresh[len(fresh) // 2], fresh[-1]}:
            alone = checked(self._encode([sentence]), [sentence], self.info)[0]
            if not _alike(alone, self((sentence,))[0]):
                raise SelfguideError(
                    f"{self.info.name} gives another vector for {sentence[:60]!r} alone than among other sentences: it puts "
                    "rows into another order, leaves some out, or is not in evaluation mode. It must return one vector for "
                    "each sentence, in the order given."
                )


def embedder(
    encoder: AnyEncoder,
    *,
    pooling: str | None = None,
    layer: int | None = None,
    device: str | None = None,
    batch_size: int = 64,
    name: str | None = None,
    reporter: Reporter | None = None,
) -> Embedder:
    """Make an :class:`Embedder` of any encoder."""
    reporter = reporter or Reporter(quiet=True)
    if (isinstance(encoder, str | Path) and not _is_address(str(encoder))) or _is_sentence_transformer(encoder):
        return _of_sentence_transformer(encoder, pooling, layer, device, batch_size, name, reporter)
    if pooling is not None or layer is not None:
        raise UsageError("A pooling or a layer can be chosen for Transformer encoders only, not for a Python function.")
    function, called = _function(encoder)
    called = name or called
    info = EncoderInfo(called, "", 0)
    try:
        vectors = checked(function(list(_PROBE)), _PROBE, info)
    except (SelfguideError, KeyboardInterrupt):
        raise
    except Exception as error:
        raise SelfguideError(f"{called} failed on four short sentences: {type(error).__name__}: {error}") from error
    info = EncoderInfo(called, "vectors:" + _digest([np.round(vectors, 3)]), vectors.shape[1])
    made = Embedder(function, info, reporter, distrust=True)
    made.prepare(_PROBE)
    return made


def pooled_embedders(
    encoder: str | Path | SentenceTransformer,
    poolings: Sequence[str],
    *,
    device: str | None = None,
    batch_size: int = 64,
    name: str | None = None,
    reporter: Reporter | None = None,
) -> list[Embedder]:
    """An embedder for each of several poolings of one encoder; every sentence goes through the Transformer once."""
    from selfguide.evaluation.shared_pass import SharedPass
    from selfguide.models.encoders import load_encoder, with_pooling

    model = load_encoder(encoder, device=device)
    shared = SharedPass(model, poolings, batch_size)
    called = name or (Path(encoder).name if isinstance(encoder, str | Path) else "encoder")
    made = []
    for pooling in poolings:
        pooled = with_pooling(model, pooling)
        info = EncoderInfo(f"{called} ({pooling})", model_digest(pooled), int(pooled.get_embedding_dimension() or 0))
        made.append(Embedder(shared.encoder(pooling), info, reporter or Reporter(quiet=True), distrust=False))
    return made


def checked(vectors: Any, sentences: Sequence[str], info: EncoderInfo) -> NDArray[np.float32]:
    """Vectors as float32, or a sentence that says what is wrong with them."""
    if hasattr(vectors, "detach"):  # a tensor, of any framework that has learnt from torch
        vectors = vectors.detach().cpu().float().numpy()
    try:
        array = np.asarray(vectors, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise SelfguideError(
            f"{info.name} does not return an array of numbers, but {_kind(vectors)} ({error})."
        ) from None
    if array.ndim != 2 or len(array) != len(sentences):
        raise SelfguideError(
            f"{info.name} returned {_shape(array)} for {len(sentences):,} sentences; there must be one vector for each "
            "sentence, in the order given."
        )
    if info.dimension and array.shape[1] != info.dimension:
        raise SelfguideError(
            f"{info.name} returned vectors of {array.shape[1]} numbers where it gave {info.dimension} before."
        )
    if array.shape[1] == 0:
        raise SelfguideError(f"{info.name} returned vectors without any number in them.")
    finite = np.isfinite(array).all(axis=1)
    if not finite.all():
        sentence = sentences[int(np.argmin(finite))]
        raise SelfguideError(
            f"{info.name} returned a vector that is not finite (NaN or infinite) for {sentence[:60]!r} and "
            f"{int((~finite).sum()) - 1:,} other sentences: nothing can be scored with it."
        )
    return array


def _of_sentence_transformer(
    encoder: str | Path | SentenceTransformer,
    pooling: str | None,
    layer: int | None,
    device: str | None,
    batch_size: int,
    name: str | None,
    reporter: Reporter,
) -> Embedder:
    from selfguide.engine.encode import sentence_vectors
    from selfguide.models.encoders import load_encoder

    model = load_encoder(encoder, pooling, layer, device=device)
    called = name or (Path(encoder).name if isinstance(encoder, str | Path) else "encoder")
    how = ", ".join([*([pooling] if pooling else []), *([f"layer {layer}"] if layer is not None else [])])
    dimension = model.get_embedding_dimension()
    info = EncoderInfo(f"{called} ({how})" if how else called, model_digest(model), int(dimension or 0))

    def encode(sentences: list[str]) -> Any:
        return sentence_vectors(model, sentences, batch_size)

    return Embedder(encode, info, reporter, distrust=False)


def model_digest(model: SentenceTransformer) -> str:
    """A short hash of everything that decides a model's vectors: weights, modules, length limit, vocabulary."""
    from selfguide.engine import digest

    return digest.model_digest(model)


def _digest(parts: Iterable[Any]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode() if isinstance(part, str) else np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()[:16]


def _is_address(word: str) -> bool:
    return bool(_ADDRESS.fullmatch(word)) and not Path(word).exists()


def _is_sentence_transformer(encoder: object) -> bool:
    # Without importing the library for those who do not use it.
    return any(base.__name__ == "SentenceTransformer" for base in type(encoder).__mro__)


def _function(encoder: AnyEncoder) -> tuple[Callable[[list[str]], Any], str]:
    """The function of sentences in what was given, and what to call it."""
    found = _imported(encoder) if isinstance(encoder, str) else encoder
    called = encoder if isinstance(encoder, str) else getattr(encoder, "__name__", type(encoder).__name__)
    if isinstance(found, type):
        found = found()
    encode = getattr(found, "encode", found)
    if not callable(encode):
        raise UsageError(
            f"{called} cannot be used as an encoder: it is {_kind(found)}, neither a function of a list of sentences nor "
            "an object with encode(sentences)."
        )
    return encode, called


def _imported(address: str) -> Any:
    module, _, attribute = address.partition(":")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:  # a module beside the user, as `python -m` finds it
        sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = import_module(module)
    except ImportError as error:
        raise UsageError(f"The module of the encoder {address} cannot be imported: {error}.") from None
    for word in attribute.split("."):
        if not hasattr(found, word):
            raise UsageError(f"There is nothing called {word!r} in {module}; the encoder was given as {address}.")
        found = getattr(found, word)
    return found


def _alike(first: NDArray[np.float32], second: NDArray[np.float32]) -> bool:
    """Equal up to what batching does to rounding."""
    return float(np.linalg.norm(first - second)) <= 0.01 * max(float(np.linalg.norm(first)), 1e-6)


def _shape(array: NDArray[Any]) -> str:
    return f"an array of shape {array.shape}" if array.ndim else "a single number"


def _kind(value: object) -> str:
    return f"a {type(value).__name__}"
