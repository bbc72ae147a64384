"""The model card of a finished run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from selfguide.methods import registry
from selfguide.models.folders import is_stock

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from selfguide.training.configuration import RunRecord


_WHAT_WAS_DONE = {
    "pooling": "with nothing trained, read by",
    "calibration": "with its weights as they are and its vectors calibrated on sentences by",
    "tuning": "tuned on sentences with",
}


def model_card(record: RunRecord, encoder: SentenceTransformer) -> str:
    """README.md of the finished folder: what it is, how to use it, how it was made, what it scored, whom to cite."""
    config = record.config
    method = registry.describe(config.method)
    sections = [
        _front_matter(),
        f"# A sentence encoder made by selfguide ({method.name})",
        f"`{config.encoder}` {_WHAT_WAS_DONE[method.family]} **{method.name}**: {method.summary}. "
        f"It maps a sentence to {encoder.get_embedding_dimension()} numbers; compare them by cosine.",
        _usage(is_stock(encoder)),
        _recipe(record, encoder),
        _text(record),
        _scores(record),
        _warnings(record),
        _citations(config.method),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _front_matter() -> str:
    return (
        "---\nlibrary_name: sentence-transformers\npipeline_tag: sentence-similarity\n"
        "tags:\n- sentence-transformers\n- sentence-similarity\n- feature-extraction\n- selfguide\n---"
    )


def _usage(stock: bool) -> str:
    if not stock:
        return (
            "## Use\n\nThis folder holds a module that sentence-transformers does not have, so `SentenceTransformer(path)` "
            "refuses it; selfguide loads it (`pip install selfguide`):\n\n```python\nimport selfguide\n\n"
            'encoder = selfguide.load("path/to/this/folder")\n'
            'vectors = encoder.encode(["A sentence.", "Another one."])\n'
            "print(encoder.similarity(vectors, vectors))\n```"
        )
    return (
        "## Use\n\n```python\nfrom sentence_transformers import SentenceTransformer\n\n"
        'encoder = SentenceTransformer("path/to/this/folder")\n'
        'vectors = encoder.encode(["A sentence.", "Another one."])\n'
        "print(encoder.similarity(vectors, vectors))\n```"
    )


def _recipe(record: RunRecord, encoder: SentenceTransformer) -> str:
    config = record.config
    rows = [
        ("method", config.method),
        ("start", config.encoder),
        *((name.replace("_", " "), value) for name, value in config.options.items()),
        *((name.replace("_", " "), value) for name, value in config.training.items() if record.steps),
        ("steps", record.steps or "none"),
        ("checkpoint", record.checkpoint),
        *([("training time", _speed(record))] if record.steps else []),
        ("tokens a sentence is cut to", _length(encoder)),
    ]
    table = "\n".join(f"| {name} | {value} |" for name, value in rows)
    return (
        f"## Recipe\n\n| | |\n|---|---|\n{table}\n\n`run.json` holds all of it; `selfguide train --config run.json "
        "--output NEW` repeats the run.\n\n"
        + "Versions: "
        + ", ".join(f"{name} {version}" for name, version in record.versions.items())
        + "."
    )


def _speed(record: RunRecord) -> str:
    return f"{record.seconds.get('training', 0.0):.0f} s ({record.sentences_per_second:.0f} sentences/s)"


def _length(encoder: SentenceTransformer) -> str:
    """The longest sentence in tokens; an encoder that looks words up has no limit."""
    limit = encoder.max_seq_length
    return "none: sentences of any length" if limit is None or limit == float("inf") else str(limit)


def _text(record: RunRecord) -> str:
    sources = ", ".join(f"`{name}`" for name in record.config.text)
    counts = ", ".join(
        f"{name.replace('_', ' ')} {value:,}" for name, value in record.text.items() if isinstance(value, int) and value
    )
    return f"## Text\n\n{sources}: {counts}. Fingerprint of the kept sentences: `{record.text.get('fingerprint', '')}`."


def _scores(record: RunRecord) -> str:
    if not record.scores:
        return "## Scores\n\nNone: the run had no graded pairs."
    rows = "\n".join(f"| {name} | {100 * score:.2f} |" for name, score in record.scores.items())
    return (
        f"## Scores\n\nSpearman × 100 of cosine and grade on the dev pairs `{record.config.dev}`, which also chose the "
        f"checkpoint (so 'after' is a little flattered):\n\n| | dev |\n|---|---|\n{rows}"
    )


def _warnings(record: RunRecord) -> str:
    if not record.warnings:
        return ""
    return "## Warnings of the run\n\n" + "\n".join(f"- {warning}" for warning in record.warnings)


def _citations(method: str) -> str:
    citation = registry.method_class(method).citation
    return f"## Citation\n\n```bibtex\n{citation}\n```" if citation else ""
