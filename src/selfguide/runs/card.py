"""The model card of a finished run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from selfguide.engine.similarity_scale import SimilarityScale
from selfguide.escaping import markdown_text
from selfguide.methods import registry
from selfguide.models.folders import is_stock
from selfguide.training.weight_averages import AS_IT_WAS

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from selfguide.training.configuration import RunRecord

_TREATMENT = {
    "pooling": "with nothing trained, read by",
    "calibration": "with its weights as they are and its embeddings calibrated on sentences by",
    "tuning": "fine-tuned on sentences with",
    "kept": "as it was, kept unchanged on sentences by",
}


_SCALE_TITLE, _AFTER_SCALE = "## What a cosine means", "## Recipe"


def model_card(record: RunRecord, encoder: SentenceTransformer, scale: SimilarityScale | None = None) -> str:
    """Make the model card of a run: what the encoder is, how to use it, how it was made, its scores, whom to cite.

    Args:
        record: What ``run.json`` holds.
        encoder: The finished encoder.
        scale: What a cosine means for it on its text.

    Returns:
        The ``README.md`` of its folder.
    """
    # Markdown is not HTML: what comes from outside is escaped by a filter of its own.
    environment = Environment(
        loader=PackageLoader("selfguide.runs", ""),
        autoescape=False,
        trim_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    environment.filters["plain"] = lambda value: markdown_text(str(value))
    counts = {name: value for name, value in record.text.items() if isinstance(value, int) and value}
    method = registry.describe(record.config.method)
    return environment.get_template("card.md.j2").render(
        record=record,
        config=record.config,
        method=method,
        treatment=_treatment(record, method.family),
        dimension=encoder.get_embedding_dimension(),
        stock=is_stock(encoder),
        recipe=_recipe(record, encoder),
        counts=", ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in counts.items()),
        citation=registry.method_class(record.config.method).citation,
        scale=scale_section(scale) if scale else "",
    )


def scale_section(scale: SimilarityScale) -> str:
    """Make the section of a card that says what a cosine means.

    Args:
        scale: What was measured.

    Returns:
        The section, which ends with a blank line.
    """
    levels = (50.0, 90.0, 99.0, 99.9)
    rows = [f"| {1000 - 10 * level:g} of 1,000 | {scale.at(level):.2f} |" for level in levels]
    ends = f"{scale.at(5.0, nearest=True):.2f} to {scale.at(95.0, nearest=True):.2f}"
    return "\n".join([
        _SCALE_TITLE,
        "",
        f"Measured on {scale.origin}. So many random pairs are closer than this cosine:",
        "",
        "| closer pairs | cosine |",
        "|---|---|",
        *rows,
        "",
        f"The nearest of the other drawn sentences has a cosine of {scale.at(50.0, nearest=True):.2f} in the median ({ends} for "
        "nine sentences of ten). A cosine that few random pairs reach is unusual for this text; it does not say that two "
        "sentences mean the same.",
        "",
        "",
    ])  # fmt: skip


def with_scale_section(card: str, scale: SimilarityScale | None) -> str:
    """Return a card with another section about cosines, or without one.

    Args:
        card: The card, whose section is replaced if it has one.
        scale: What was measured; None takes the section out.
    """
    section = scale_section(scale) if scale else ""
    before, _, rest = card.partition(_AFTER_SCALE)
    if not rest:
        return card  # not a card of ours
    return before.partition(_SCALE_TITLE)[0] + section + _AFTER_SCALE + rest


def _treatment(record: RunRecord, family: str) -> str:
    """Return what a run did to its encoder, which may be less than its method can do."""
    if family == "tuning" and record.choice.get("share") == AS_IT_WAS:
        return _TREATMENT["calibration" if record.choice["centred"] else "kept"]
    return _TREATMENT[family]


def _recipe(record: RunRecord, encoder: SentenceTransformer) -> list[tuple[str, Any]]:
    config = record.config
    speed = f"{record.seconds.get('training', 0.0):.0f} s ({record.sentences_per_second:.0f} sentences/s)"
    trained = bool(record.steps)
    return [
        ("method", config.method),
        ("start", config.encoder),
        *([("kind of start", f"{record.start['kind']}: {record.start['reason']}")] if record.start else []),
        *((name.replace("_", " "), value) for name, value in config.options.items()),
        *((name.replace("_", " "), value) for name, value in config.training.items() if trained),
        ("steps", record.steps or "none"),
        ("choice" if record.choice else "checkpoint", record.checkpoint),
        *([("training time", speed)] if trained else []),
        ("maximum sequence length", _length(encoder)),
    ]


def _length(encoder: SentenceTransformer) -> str:
    """Return the longest sentence in tokens; an encoder of static embeddings has no limit."""
    limit = encoder.max_seq_length
    return "none: sentences of any length" if limit is None or limit == float("inf") else f"{limit} tokens"
