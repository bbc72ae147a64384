"""The architectures that selfguide knows, and what each of them can do.

A Hugging Face model names its architecture in ``config.model_type``. Every place that treats architectures differently asks
:func:`family_of`; an architecture that is not listed takes the general path everywhere (padded batches, stock modules).
Adding one is a row here, and the tests over all families check that its fast paths give the states of the general one.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class Family:
    """What the code needs to know about one architecture."""

    model_type: str
    """Its name in Hugging Face configurations."""
    packable: bool = False
    """Position ids can be passed in and attention takes a 4-D mask, so that sentences can share a row
    (:mod:`selfguide.engine.packing`). DeBERTa's relative positions and ModernBERT's sliding window are computed inside the
    model, from the row."""
    bert_layers: bool = False
    """Its layers are BERT's: they can run over flat rows (:mod:`selfguide.engine.unpadded`), and the last one for the first
    token of each sentence alone."""
    positions_follow_padding: bool = False
    """Positions are counted from ``padding_idx + 1`` on, as RoBERTa does, instead of from 0."""
    projects_embeddings: bool = False
    """The embedding layer is ``embedding_size`` wide, and a linear layer projects it to the hidden size."""

    @property
    def reserved_positions(self) -> int:
        """Unused positions of ``max_position_embeddings``: padding's is 1, so the first token's is 2."""
        return 2 if self.positions_follow_padding else 0


_ROWS = (
    Family("bert", packable=True, bert_layers=True),
    Family("electra", packable=True, bert_layers=True, projects_embeddings=True),
    Family("roberta", packable=True, bert_layers=True, positions_follow_padding=True),
    Family("xlm-roberta", packable=True, bert_layers=True, positions_follow_padding=True),
    Family("camembert", packable=True, bert_layers=True, positions_follow_padding=True),
    Family("mpnet", packable=True, positions_follow_padding=True),
    Family("distilbert", packable=True),
    Family("albert", packable=True, projects_embeddings=True),
    Family("roberta-prelayernorm", positions_follow_padding=True),
    Family("xlm-roberta-xl", positions_follow_padding=True),
    Family("deberta-v2"),
    Family("modernbert"),
)
FAMILIES = {family.model_type: family for family in _ROWS}


def family_of(model: nn.Module) -> Family:
    """Return the family of a Hugging Face model, one without special abilities where it is not listed."""
    model_type = str(getattr(getattr(model, "config", None), "model_type", ""))
    return FAMILIES.get(model_type, Family(model_type))
