"""The encoder's shape and the training settings, which are also the options of the command line."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """The encoder's shape; each field has its counterpart in a stock BERT configuration."""

    vocab: int = 16384
    layers: int = 12
    width: int = 384
    heads: int = 6
    ffn: int = 1536
    positions: int = 256
    types: int = 2
    eps: float = 1e-12
    init_range: float = 0.02


@dataclass(frozen=True)
class Settings:
    """The training settings. Lengths include [CLS] and [SEP]."""

    # A step is one packed row of this many tokens; about 65,000 worked best for this width.
    tokens: int = 65536
    # A sentence encoder gets short inputs later, so half of the tokens come as sentences or short runs of them.
    short_share: float = 0.5
    short_max: int = 64
    short_min: int = 5
    single_share: float = 0.5  # of the short inputs: exactly one sentence; the others have a random length
    long_max: int = 128
    full_share: float = (
        0.10  # of the long inputs: as long as there are positions, so that all position embeddings are trained
    )
    mask_rate: float = 0.20
    # Additions to plain masked language modelling, off by default.
    dropout: float = 0.0  # on the embeddings and on the outputs of attention and FFN
    cls_own: float = 0.0  # weight of a loss in which [CLS] predicts masked words of its own input
    cls_next: float = 0.0  # weight of a loss in which [CLS] predicts words around its input in the document
    cls_rows: int = 4096  # such words a step, for each of the two losses
    average: int = 0  # steps that a moving average of the weights spans; it is exported beside them; 0: none
    lr: float = 6e-4
    beta1: float = 0.9
    beta2: float = 0.98
    eps: float = 1e-6
    weight_decay: float = 0.01
    clip: float = 1.0
    warmup: int = 1000
    decay: float = 0.5  # share of the budget over which the learning rate falls to zero
    minutes: float = 19.0
    steps: int = 0  # if above 0, a budget in steps instead of minutes
    stretch: float = 0.0  # if above 0, minutes after which this call stops and leaves the rest to the next one
    temperature: float = 1.0  # of the draw of languages, where the parts have several
    seed: int = 1
    attention: str = "varlen"
    compile: bool = True
    log_every: int = 100
    eval_minutes: float = 2.0
    save_minutes: float = 4.0
    size_limit: int = 56_000_000  # bytes of an exported encoder that is to be part of the package; 0: none
