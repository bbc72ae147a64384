"""Train and load a lower-cased WordPiece tokenizer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from .text import documents, fingerprint

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # in the order of their ids
PAD, UNK, CLS, SEP, MASK = range(5)
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


def _sample(folder: Path, share: float) -> Iterator[list[str]]:
    for paragraphs in documents(folder):
        if share >= 1.0 or fingerprint(paragraphs) < share:
            yield paragraphs


def train_tokenizer(text: Path, out: Path, *, vocab: int, share: float = 1.0, max_length: int = 256) -> Tokenizer:
    """Train a tokenizer, and save it so that ``AutoTokenizer`` loads the folder.

    Args:
        text: The folder of text.
        out: The target folder.
        vocab: Size of the vocabulary.
        share: Share of the documents to train on.
        max_length: The encoder's number of positions.

    Returns:
        The tokenizer.
    """
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=True
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    # Every character takes two entries, one as a continuation, so that rare scripts would displace English words.
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab, min_frequency=2, limit_alphabet=220, special_tokens=list(SPECIAL), show_progress=False
    )
    tokenizer.train_from_iterator(_sample(text, share), trainer=trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)],
    )
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(out / "tokenizer.json"), pretty=False)
    settings: dict[str, Any] = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": True,
        "tokenize_chinese_chars": True,
        "strip_accents": None,
        "model_max_length": max_length,
        "clean_up_tokenization_spaces": False,
        "unk_token": "[UNK]",
        "sep_token": "[SEP]",
        "pad_token": "[PAD]",
        "cls_token": "[CLS]",
        "mask_token": "[MASK]",
    }
    (out / "tokenizer_config.json").write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
    return tokenizer


def load_tokenizer(folder: Path) -> Tokenizer:
    """Load the tokenizer without padding and truncation, and check the special tokens' ids."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    for place, token in enumerate(SPECIAL):
        if tokenizer.token_to_id(token) != place:
            raise ValueError(f"The id of {token} in {folder} is not {place}.")
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer
