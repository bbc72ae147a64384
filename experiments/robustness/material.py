"""A tiny random BERT, a text, graded pairs: what the commands of the campaigns work on."""

from __future__ import annotations

import itertools
from pathlib import Path

SUBJECTS = "the river,a pilot,our doctor,the old clock,a grey cat,the judge,my uncle,the last bus".split(",")
VERBS = "follows,repairs,remembers,leaves,paints,counts,hears,sells".split(",")
OBJECTS = "a wooden boat,the second letter,nine apples,the village,a short song,every coin,his coat,no answer".split(
    ","
)


def sentences(count: int, skip: int = 0) -> list[str]:
    """Return distinct short sentences, always the same.

    Args:
        count: How many.
        skip: How many to leave out first.
    """
    everything = (f"{who} {does} {what}" for what, does, who in itertools.product(OBJECTS, VERBS, SUBJECTS))
    return list(itertools.islice(everything, skip, skip + count))


def make(folder: Path) -> None:
    """Write ``bert/``, ``notes.txt``, ``more.txt`` and ``pairs.tsv``.

    Args:
        folder: An existing folder.
    """
    (folder / "bert").mkdir()
    _encoder(folder / "bert")
    (folder / "notes.txt").write_text("\n".join(sentences(96)) + "\n", encoding="utf-8")
    (folder / "more.txt").write_text("\n".join(sentences(64, skip=96)) + "\n", encoding="utf-8")
    pool = sentences(240)
    rows = []
    for number in range(40):
        one, other = pool[number], pool[(number * 11 + 5) % 240]
        rows.append(f"{min(5, len(set(one.split()) & set(other.split())))}\t{one}\t{other}\n")
    (folder / "pairs.tsv").write_text("".join(rows), encoding="utf-8")


def _encoder(folder: Path) -> None:
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    words = sorted({word for text in sentences(512) for word in text.split()})
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz", *words]
    names = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
    tokenizer = Tokenizer(models.WordPiece(names, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", names["[CLS]"]), ("[SEP]", names["[SEP]"])]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=64,
    ).save_pretrained(folder)
    torch.manual_seed(23)
    config = BertConfig(
        vocab_size=len(names),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=66,
        pad_token_id=0,
    )
    BertModel(config).save_pretrained(folder)
