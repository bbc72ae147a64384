"""What an encoder is before a run: a raw language model, a sentence encoder, or static embeddings.

A *raw language model* (BERT, RoBERTa, ``mini``) was pre-trained to fill in words; it has no sentence embedding of its own, so a
method chooses the pooling and moves the weights far. A *sentence encoder* (all-MiniLM-L6-v2, all-mpnet-base-v2, bge …) has a
sentence embedding that was trained: its modules, pooling, prompts and length belong together and are kept. The weights
look alike; what tells the two apart is written in the folder, so that nothing has to be loaded to find out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from selfguide.data.resources import MINI, mini_folder
from selfguide.models.folders import MODULES_FILE
from selfguide.models.hub import repository, why_missing

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

Kind = Literal["raw language model", "sentence encoder", "static embeddings"]
RAW: Kind = "raw language model"
SENTENCE_ENCODER: Kind = "sentence encoder"
STATIC: Kind = "static embeddings"

_RUN_FILE = "run.json"
_UNTUNED_CHAIN = ("Transformer", "Pooling")


@dataclass(frozen=True)
class StartingPoint:
    """What a run starts from, and the reason for this classification."""

    kind: Kind
    reason: str
    """A clause that completes "… is a sentence encoder: "."""
    own: Mapping[str, Any] = field(default_factory=dict)
    """The encoder's own settings (:func:`own_settings`), where it has been loaded."""
    missing: bool = False
    """Whether there is no such encoder, as far as is known; loading it reports so."""

    def describe(self, name: str) -> str:
        """Return a sentence that says what the encoder is, and why."""
        article = "" if self.kind == STATIC else "a "
        return f"{name} is {article}{self.kind}: {self.reason}."


def starting_point(encoder: str | Path | SentenceTransformer) -> StartingPoint:
    """Distinguish a raw language model from a sentence encoder.

    Args:
        encoder: ``"mini"``, a folder, a hub name, or a loaded encoder.

    Returns:
        Its kind and the reason; of a loaded encoder also its own settings.
    """
    if isinstance(encoder, str | Path):
        return _of_name(str(encoder))
    found = _of_object(encoder)
    return StartingPoint(found.kind, found.reason, own_settings(encoder))


def own_settings(encoder: SentenceTransformer) -> dict[str, Any]:
    """Return what belongs to a sentence encoder besides its weights, as plain values for records.

    Args:
        encoder: The encoder.

    Returns:
        Modules, pooling, normalisation, prompts, similarity function, length limit, lower-casing and embedding dimension.
    """
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling

    modes = [module.get_config_dict()["pooling_mode"] for module in encoder if isinstance(module, Pooling)]
    limit = encoder.max_seq_length
    return {
        "modules": [type(module).__name__ for module in encoder],
        "pooling": modes[0] if len(modes) == 1 else modes or None,
        "normalised": any(isinstance(module, Normalize) for module in encoder),
        "prompts": {name: text for name, text in encoder.prompts.items() if text},
        "default_prompt": encoder.default_prompt_name,
        "similarity": encoder.similarity_fn_name,
        "max_length": limit if isinstance(limit, int) else None,
        "lower_case": bool(getattr(encoder[0], "do_lower_case", False)),
        "dimension": encoder.get_embedding_dimension(),
    }


def default_prompt(encoder: SentenceTransformer) -> str:
    """Return the text that ``encode`` puts before every sentence unless another prompt is asked for; empty for most.

    Args:
        encoder: The encoder.

    Returns:
        The prompt.
    """
    name = encoder.default_prompt_name
    return "" if name is None else str(encoder.prompts.get(name) or "")


def _of_name(name: str) -> StartingPoint:
    if name == MINI:
        return StartingPoint(RAW, "it was pre-trained to fill in words, and no sentence embedding was trained")
    path = Path(name)
    if path.is_dir():
        return _of_folder(path)
    if name.startswith("("):  # the placeholder of an encoder that was given in Python
        return StartingPoint(RAW, "it was given in Python, and is not here")
    if why_missing(name) is not None:
        return StartingPoint(RAW, "there is no such encoder", missing=True)
    from sentence_transformers.util import is_sentence_transformer_model

    try:
        found = is_sentence_transformer_model(repository(name))
    except Exception:  # the hub cannot be reached: loading the encoder will say so
        return StartingPoint(RAW, "its repository cannot be read", missing=True)
    if found:
        return StartingPoint(
            SENTENCE_ENCODER, f"its repository has a {MODULES_FILE}, so a sentence embedding was trained"
        )
    return StartingPoint(RAW, f"its repository has no {MODULES_FILE}, so no pooling of its own is known")


def _of_folder(folder: Path) -> StartingPoint:
    modules = _json(folder / MODULES_FILE)
    if not isinstance(modules, list) or not modules:
        return StartingPoint(RAW, f"its folder has no {MODULES_FILE}, so no pooling of its own is known")
    names = [str(row.get("type", "")).rpartition(".")[2] for row in modules if isinstance(row, dict)]
    chain = ", ".join(names)
    if names and names[0] in ("StaticEmbedding", "WordEmbeddings", "BoW"):
        return StartingPoint(STATIC, f"its first module is {names[0]}, a table of vectors without layers")
    run = _json(folder / _RUN_FILE)
    if isinstance(run, dict) and "config" in run and not run.get("steps"):
        # One of our folders whose weights no run has moved: it is what that run started from.
        start = run.get("start") or {}
        method = run["config"].get("method", "")
        if start.get("kind") != SENTENCE_ENCODER:
            return StartingPoint(
                RAW, f"its {_RUN_FILE} says that {method} tuned nothing, so its weights are a raw model's"
            )
        return StartingPoint(SENTENCE_ENCODER, f"its {_RUN_FILE} says that it started from one ({chain})")
    by = f"its {_RUN_FILE} says that it was tuned with {run['config'].get('method')}" if _is_run(run) else ""
    return StartingPoint(SENTENCE_ENCODER, f"{by or f'its folder has a {MODULES_FILE}'} ({chain})")


def _of_object(encoder: SentenceTransformer) -> StartingPoint:
    """Judge a loaded encoder by its modules, and by the folder or hub name that its weights come from."""
    names = tuple(type(module).__name__ for module in encoder)
    if not hasattr(encoder[0], "model"):
        return StartingPoint(STATIC, f"its first module is {names[0]}, a table of vectors without layers")
    source = str(getattr(getattr(encoder[0], "model", None), "name_or_path", "") or "")
    if names != _UNTUNED_CHAIN:
        return StartingPoint(
            SENTENCE_ENCODER, f"it has more modules than a Transformer and a pooling ({', '.join(names)})"
        )
    if any(encoder.prompts.values()):
        return StartingPoint(SENTENCE_ENCODER, "it has prompts")
    unknown = StartingPoint(RAW, "it is a Transformer and a pooling, and where its weights come from is not known")
    if not source:
        return unknown
    if Path(source) == Path(mini_folder()):
        return _of_name(MINI)
    found = _of_name(source)
    return unknown if found.missing else found


def _is_run(run: Any) -> bool:
    return isinstance(run, dict) and isinstance(run.get("config"), dict)


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
