"""Any encoder as a function from sentences to vectors: checked, and each distinct sentence encoded once.

torch is imported late, so that results can be read without it.
"""

from __future__ import annotations

import hashlib
import pkgutil
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from selfguide.errors import SelfguideError, UsageError
from selfguide.progress import Reporter

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer

AnyEncoder = Any
"""A name or folder, a loaded SentenceTransformer, an object with ``encode(sentences)``, a function of a list of sentences, or
the address of one: ``package.module:function``."""
_ADDRESS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
# Sentences of different lengths, so that an encoder that sorts them without restoring the order is detected.
_PROBE = (
    "A dog runs.",
    "It rained all day long in the north of the country, and nobody went out.",
    "Yes.",
    "Is it late?",
)
_CHUNK = 2048


@dataclass(frozen=True)
class EncoderInfo:
    """Identity of an encoder."""

    name: str
    digest: str
    """A short hash of its weights and modules; for an encoder that is a function, of its vectors of a few sentences."""
    dimension: int


class Embedder:
    """A function from sentences to vectors, one row each and in order, that encodes no sentence twice.

    With ``check_order`` a few sentences are encoded a second time alone, to verify that rows come back in order. ``prompts`` are
    the encoder's own for queries and for documents, put before texts in retrieval only; ``tokenizer`` is its tokenizer, to check
    that it knows the language of a task.
    """

    def __init__(
        self,
        encode: Callable[[list[str]], Any],
        info: EncoderInfo,
        reporter: Reporter,
        *,
        check_order: bool,
        prompts: tuple[str, str] = ("", ""),
        device: str = "",
        tokenizer: Any = None,
    ) -> None:
        self.info, self.device, self.tokenizer = info, device, tokenizer
        self.query_prompt, self.document_prompt = prompts
        self._encode, self._reporter, self._check_order = encode, reporter, check_order
        self._row: dict[str, int] = {}
        self._vectors = np.zeros((0, info.dimension), np.float32)

    def __call__(self, sentences: Sequence[str]) -> NDArray[np.float32]:
        """Return the embeddings of the sentences, in their order; what was encoded before is not encoded again."""
        self.prepare(sentences)
        return self._vectors[[self._row[sentence] for sentence in sentences]]

    def queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the embeddings of queries, with the encoder's prompt for queries; they are not kept."""
        return self._passing([self.query_prompt + text for text in texts])

    def documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the embeddings of documents, with the encoder's prompt for documents; they are not kept."""
        return self._passing([self.document_prompt + text for text in texts])

    def _passing(self, texts: list[str]) -> NDArray[np.float32]:
        blocks = []
        for start in range(0, len(texts), _CHUNK):
            chunk = texts[start : start + _CHUNK]
            blocks.append(checked_vectors(self._encode(chunk), chunk, self.info))
        if self._check_order:
            self._require_same_alone(texts[-1], blocks[-1][-1])
        return np.concatenate(blocks)

    def prepare(self, sentences: Iterable[str]) -> None:
        """Encode the new ones among some sentences together, with a progress bar.

        Raises:
            SelfguideError: The encoder does not return one finite vector for each sentence, in the order given.
        """
        # Longest first: batches hold sentences of similar length, and the estimate of the time left is never too short.
        fresh = sorted(set(sentences) - self._row.keys(), key=lambda text: (-len(text), text))
        if not fresh:
            return
        known = len(self._row)
        blocks = [self._vectors] if known else []
        with self._reporter.bar("encoding", len(fresh), "sentences") as advance:
            for start in range(0, len(fresh), _CHUNK):
                chunk = fresh[start : start + _CHUNK]
                blocks.append(checked_vectors(self._encode(chunk), chunk, self.info))
                advance(len(chunk), "")
        self._vectors = np.concatenate(blocks)
        self._row |= {sentence: row for row, sentence in enumerate(fresh, known)}
        if self._check_order:
            for sentence in {fresh[0], fresh[len(fresh) // 2], fresh[-1]}:
                self._require_same_alone(sentence, self._vectors[self._row[sentence]])

    def _require_same_alone(self, sentence: str, among_others: NDArray[np.float32]) -> None:
        """Encode one sentence alone: rows in another order, or left out and filled up, differ."""
        alone = checked_vectors(self._encode([sentence]), [sentence], self.info)[0]
        difference = float(np.linalg.norm(alone - among_others))
        if difference > 0.01 * max(float(np.linalg.norm(alone)), 1e-6):  # more than batching does to rounding
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
    """Make an :class:`Embedder` of any encoder; the arguments are those of :func:`selfguide.evaluate`.

    Returns:
        The embedder.

    Raises:
        UsageError: It is not an encoder, or a pooling is chosen for a function.
        SelfguideError: A function fails on four short sentences.
    """
    reporter = reporter or Reporter(quiet=True)
    if (isinstance(encoder, str | Path) and not _is_address(str(encoder))) or _is_sentence_transformer(encoder):
        from selfguide.engine.encode import sentence_vectors
        from selfguide.models.encoders import load_encoder

        model = load_encoder(encoder, pooling, layer, device=device)
        how = ", ".join([*([pooling] if pooling else []), *([f"layer {layer}"] if layer is not None else [])])
        info = _model_info(model, name or _name(encoder), how)
        return Embedder(
            lambda sentences: sentence_vectors(model, sentences, batch_size),
            info,
            reporter,
            check_order=False,
            prompts=_retrieval_prompts(model),
            device=str(model.device),
            tokenizer=getattr(model, "tokenizer", None),
        )
    if pooling is not None or layer is not None:
        raise UsageError("A pooling or a layer can be chosen for Transformer encoders only, not for a Python function.")
    function, called = _function(encoder)
    called = name or called
    try:
        vectors = checked_vectors(function(list(_PROBE)), _PROBE, EncoderInfo(called, "", 0))
    except (SelfguideError, KeyboardInterrupt):
        raise
    except Exception as error:
        raise SelfguideError(f"{called} failed on four short sentences: {type(error).__name__}: {error}") from error
    digest = hashlib.sha256(np.round(vectors, 3).tobytes()).hexdigest()[:16]
    made = Embedder(function, EncoderInfo(called, f"vectors:{digest}", vectors.shape[1]), reporter, check_order=True)
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
    """Make an embedder for each of several poolings of an encoder's last layers, which share one pass over the text.

    The other arguments are those of :func:`selfguide.evaluate`.

    Returns:
        An embedder for each pooling, in their order.
    """
    from selfguide.evaluation.shared_pass import SharedPass
    from selfguide.models.encoders import load_encoder, with_pooling

    model = load_encoder(encoder, device=device)
    shared = SharedPass(model, poolings, batch_size)
    reporter = reporter or Reporter(quiet=True)
    made: list[Embedder] = []
    for pooling in poolings:
        info = _model_info(with_pooling(model, pooling), name or _name(encoder), pooling)
        # Of several poolings the first has the tokenizer, so that the languages of the tasks are checked once.
        tokenizer = None if made else getattr(model, "tokenizer", None)
        encode, where = shared.encoder(pooling), str(model.device)
        made.append(Embedder(encode, info, reporter, check_order=False, device=where, tokenizer=tokenizer))
    return made


def _retrieval_prompts(model: SentenceTransformer) -> tuple[str, str]:
    """Return an encoder's prompts for queries and for documents, as ``encode_query`` and ``encode_document`` choose them."""
    if model.default_prompt_name is not None:
        return "", ""  # every text gets that one already
    prompts = dict(model.prompts or {})
    document = next((prompts[name] for name in ("document", "passage", "corpus") if name in prompts), "")
    return prompts.get("query") or "", document or ""


def _model_info(model: SentenceTransformer, name: str, how: str) -> EncoderInfo:
    from selfguide.engine.digest import model_digest

    dimension = int(model.get_embedding_dimension() or 0)
    return EncoderInfo(f"{name} ({how})" if how else name, model_digest(model), dimension)


def checked_vectors(vectors: Any, sentences: Sequence[str], info: EncoderInfo) -> NDArray[np.float32]:
    """Return an encoder's vectors as float32.

    Args:
        vectors: What the encoder returned.
        sentences: What it was given.
        info: Its name, and its dimension if that is known (else 0).

    Raises:
        SelfguideError: There is not one finite vector of the right dimension for each sentence.
    """
    if hasattr(vectors, "detach"):  # a tensor, of torch or a framework with the same method
        vectors = vectors.detach().cpu().float().numpy()
    try:
        array = np.asarray(vectors, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise SelfguideError(
            f"{info.name} does not return an array of numbers, but a {type(vectors).__name__} ({error})."
        ) from None
    if array.ndim != 2 or len(array) != len(sentences):
        shape = f"an array of shape {array.shape}" if array.ndim else "a single number"
        raise SelfguideError(
            f"{info.name} returned {shape} for {len(sentences):,} sentences; there must be one vector for each "
            "sentence, in the order given."
        )
    if info.dimension and array.shape[1] != info.dimension:
        raise SelfguideError(
            f"{info.name} returned vectors of dimension {array.shape[1]} where it gave {info.dimension} before."
        )
    if array.shape[1] == 0:
        raise SelfguideError(f"{info.name} returned vectors of dimension 0.")
    finite = np.isfinite(array).all(axis=1)
    if not finite.all():
        sentence = sentences[int(np.argmin(finite))]
        raise SelfguideError(
            f"{info.name} returned a vector that is not finite (NaN or infinite) for {sentence[:60]!r} and "
            f"{int((~finite).sum()) - 1:,} other sentences: nothing can be scored with it."
        )
    return array


def _name(encoder: object) -> str:
    return Path(encoder).name if isinstance(encoder, str | Path) else "encoder"


def _is_address(word: str) -> bool:
    return bool(_ADDRESS.fullmatch(word)) and not Path(word).exists()


def _is_sentence_transformer(encoder: object) -> bool:
    return any(base.__name__ == "SentenceTransformer" for base in type(encoder).__mro__)


def _function(encoder: AnyEncoder) -> tuple[Callable[[list[str]], Any], str]:
    """Return the encoding function of what was given, and its name."""
    found = _imported(encoder) if isinstance(encoder, str) else encoder
    called = encoder if isinstance(encoder, str) else getattr(encoder, "__name__", type(encoder).__name__)
    if isinstance(found, type):
        found = found()
    encode = getattr(found, "encode", found)
    if not callable(encode):
        raise UsageError(
            f"{called} cannot be used as an encoder: it is a {type(found).__name__}, neither a function of a list of "
            "sentences nor an object with encode(sentences)."
        )
    return encode, called


def _imported(address: str) -> Any:
    # A module in the current folder is found, as with `python -m`.
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return pkgutil.resolve_name(address)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"The encoder {address} cannot be imported: {error}.") from None
