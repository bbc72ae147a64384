"""Toy sentences and configurations of tiny random encoders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

FAMILIES = (
    "bert",
    "roberta",
    "distilbert",
    "electra",
    "albert",
    "mpnet",
    "xlm-roberta",
    "camembert",
    "deberta-v2",
    "modernbert",
)

SUBJECTS = (
    "the old man",
    "my sister",
    "a small dog",
    "the teacher",
    "our neighbour",
    "the red train",
    "a young cook",
    "the engineer",
)
VERBS = ("repairs", "watches", "paints", "forgets", "carries", "describes", "finds", "sells")
OBJECTS = (
    "a broken clock",
    "the long bridge",
    "fresh bread",
    "an empty box",
    "the blue car",
    "his first letter",
    "some music",
    "green apples",
)

QUICK: dict[str, Any] = {
    "batch_size": 8, "learning_rate": 1e-3, "max_steps": 3, "device": "cpu", "quiet": True, "report": False,
}  # fmt: skip
"""Settings of a run of three steps."""


def toy_sentences(count: int) -> list[str]:
    """Distinct short sentences, the same ones every time."""
    everything = [f"{s} {v} {o}" for o in OBJECTS for v in VERBS for s in SUBJECTS]
    return everything[:count]


def tiny_config(family: str, vocabulary: int) -> Any:
    import transformers as hf

    common: dict[str, Any] = {
        "vocab_size": vocabulary,
        "hidden_size": 32,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "intermediate_size": 48,
        "max_position_embeddings": 66,
        "pad_token_id": 1,
    }
    if family == "bert":
        return hf.BertConfig(**common)
    if family == "roberta":
        return hf.RobertaConfig(**common, bos_token_id=0, eos_token_id=2)
    if family == "xlm-roberta":
        return hf.XLMRobertaConfig(**common, bos_token_id=0, eos_token_id=2)
    if family == "camembert":
        return hf.CamembertConfig(**common, bos_token_id=0, eos_token_id=2)
    if family == "mpnet":
        return hf.MPNetConfig(**common, bos_token_id=0, eos_token_id=2)
    if family == "electra":
        return hf.ElectraConfig(**common, embedding_size=16)
    if family == "albert":
        return hf.AlbertConfig(**common, embedding_size=16)
    if family == "deberta-v2":
        return hf.DebertaV2Config(
            **common, relative_attention=True, pos_att_type=["p2c", "c2p"], position_biased_input=False
        )
    if family == "modernbert":
        return hf.ModernBertConfig(
            **common,
            global_attn_every_n_layers=2,
            local_attention=16,
            bos_token_id=0,
            eos_token_id=2,
            cls_token_id=0,
            sep_token_id=2,
        )
    if family == "distilbert":
        return hf.DistilBertConfig(
            vocab_size=vocabulary,
            dim=32,
            n_layers=3,
            n_heads=2,
            hidden_dim=48,
            max_position_embeddings=66,
            pad_token_id=1,
        )
    raise ValueError(family)


def save_tokenizer(folder: Path, text: Sequence[str] = ()) -> int:
    """Save a tokenizer that knows the words of the text (by default of the toy sentences) and every letter; returns its size."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = sorted(
        {word for sentence in text or toy_sentences(512) for word in sentence.split()}
        | set("abcdefghijklmnopqrstuvwxyz")
    )
    vocabulary = {token: number for number, token in enumerate(["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]", *words])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 0), ("[SEP]", 2)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        cls_token="[CLS]",
        pad_token="[PAD]",
        sep_token="[SEP]",
        unk_token="[UNK]",
        mask_token="[MASK]",
        model_max_length=64,
    ).save_pretrained(folder)
    return len(vocabulary)


class Outcome(NamedTuple):
    """What a command left on the terminal."""

    code: int
    out: str
    err: str
