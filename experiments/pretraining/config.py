"""All settings of the room in two dataclasses; the command line offers the ones worth changing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """The encoder's shape, in words that map one to one onto a stock BERT configuration."""

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
    """The recipe. Lengths count [CLS] and [SEP]."""

    # A step is one flat row of this many tokens: about 65 k was the better batch for this width.
    tokens: int = 65536
    # Short inputs are what a sentence encoder meets later: half of the tokens come as sentences or short runs of them.
    short_share: float = 0.5
    short_max: int = 64
    short_min: int = 5
    single_share: float = 0.5  # of the short inputs: exactly one sentence; the others run on up to a random length
    long_max: int = 128
    full_share: float = 0.10  # of the long inputs: as long as the position table, so that all its rows are trained
    mask_rate: float = 0.20
    # Experiments, all off: what one is worth, only a results file can say.
    whole_words: bool = False  # hide all pieces of a word together
    dropout: float = 0.0  # on the embeddings and on the outputs of attention and FFN
    cls_own: float = 0.0  # weight of a loss in which [CLS] names hidden words of its own input
    cls_next: float = 0.0  # weight of a loss in which [CLS] names words around its input in the document
    cls_rows: int = 4096  # how many such words a step, for each of the two
    average: int = 0  # steps over which a moving average of the weights reaches back; it is exported beside them
    lr: float = 6e-4
    beta1: float = 0.9
    beta2: float = 0.98
    eps: float = 1e-6
    weight_decay: float = 0.01
    clip: float = 1.0
    warmup: int = 1000
    decay: float = 0.5  # the share of the budget over which the rate falls to zero
    minutes: float = 19.0
    steps: int = 0  # a budget in steps instead of minutes when above 0
    seed: int = 1
    attention: str = "varlen"
    compile: bool = True
    log_every: int = 100
    eval_minutes: float = 2.0
    save_minutes: float = 4.0
