"""The model card of a finished run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from selfguide.methods import registry
from selfguide.models.folders import is_stock

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from selfguide.training.configuration import RunRecord

_TREATMENT = {
    "pooling": "with nothing trained, read by",
    "calibration": "with its weights as they are and its embeddings calibrated on sentences by",
    "tuning": "fine-tuned on sentences with",
}


def model_card(record: RunRecord, encoder: SentenceTransformer) -> str:
    """Make the model card of a run: what the encoder is, how to use it, how it was made, its scores, whom to cite.

    Args:
        record: What ``run.json`` holds.
        encoder: The finished encoder.

    Returns:
        The ``README.md`` of its folder.
    """
    # Markdown is not HTML: nothing is escaped.
    environment = Environment(
        loader=PackageLoader("selfguide.runs", ""),
        autoescape=False,
        trim_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    counts = {name: value for name, value in record.text.items() if isinstance(value, int) and value}
    method = registry.describe(record.config.method)
    return environment.get_template("card.md.j2").render(
        record=record,
        config=record.config,
        method=method,
        treatment=_TREATMENT[method.family],
        dimension=encoder.get_embedding_dimension(),
        stock=is_stock(encoder),
        recipe=_recipe(record, encoder),
        counts=", ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in counts.items()),
        citation=registry.method_class(record.config.method).citation,
    )


def _recipe(record: RunRecord, encoder: SentenceTransformer) -> list[tuple[str, Any]]:
    config = record.config
    speed = f"{record.seconds.get('training', 0.0):.0f} s ({record.sentences_per_second:.0f} sentences/s)"
    trained = bool(record.steps)
    return [
        ("method", config.method),
        ("start", config.encoder),
        *((name.replace("_", " "), value) for name, value in config.options.items()),
        *((name.replace("_", " "), value) for name, value in config.training.items() if trained),
        ("steps", record.steps or "none"),
        ("checkpoint", record.checkpoint),
        *([("training time", speed)] if trained else []),
        ("maximum sequence length", _length(encoder)),
    ]


def _length(encoder: SentenceTransformer) -> str:
    """Return the longest sentence in tokens; an encoder of static embeddings has no limit."""
    limit = encoder.max_seq_length
    return "none: sentences of any length" if limit is None or limit == float("inf") else f"{limit} tokens"
