"""Train and load a lower-cased WordPiece tokenizer, for English or for several languages.

For several languages (``multilingual``) accents are kept, because *ano* is not *año* and *si* is not *sí*; text is brought to
NFKC, so that a letter has one form whatever wrote it; and Arabic is normalised as search engines do: vowel marks and the
lengthening stroke are removed, the forms of alef (أ إ آ ٱ) become ا, the final ى becomes ي, and Arabic digits become 0 to 9. Ta
marbuta (ة) stays, because ه at the end of a word is a pronoun.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from .languages import language_of, shares
from .text import documents, fingerprint, text_files

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # in the order of their ids
PAD, UNK, CLS, SEP, MASK = range(5)
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
_INPUTS = ("input_ids", "token_type_ids", "attention_mask")
ALPHABET = 220
"""Characters with entries of their own; every one takes two, one as a continuation, so that rare scripts would displace words."""
_ARABIC = {
    "[\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06ed]": "",  # vowel marks, marks of the Quran, the lengthening stroke
    "[\u0622\u0623\u0625\u0671]": "\u0627",  # forms of alef
    "[\u0649\u06cc]": "\u064a",  # alef maksura and the Persian ye
    "\u06a9": "\u0643",  # the Persian kaf
    **{f"[{chr(0x0660 + digit)}{chr(0x06F0 + digit)}]": str(digit) for digit in range(10)},
}


def _sample(folder: Path, share: float) -> Iterator[list[str]]:
    for paragraphs in documents(folder):
        if share >= 1.0 or fingerprint(paragraphs) < share:
            yield paragraphs


def _balanced(folders: Sequence[Path], share: float, temperature: float) -> Iterator[list[str]]:
    """Yield documents so that the languages' amounts of text have the shares of the temperature.

    Of the language that needs most of its text, ``share`` of the documents are read, of the others less.
    """
    files = [path for folder in folders for path in text_files(folder)]
    sizes: dict[str, int] = {}
    for path in files:
        size = sum(len(line) for paragraphs in documents(path, share) for line in paragraphs)
        sizes[language_of(path)] = sizes.get(language_of(path), 0) + size
    wanted = shares(sizes, temperature)
    needed = {name: wanted[name] / size for name, size in sizes.items()}
    for path in files:
        yield from documents(path, share * needed[language_of(path)] / max(needed.values()))


def multilingual_normalizer() -> normalizers.Normalizer:
    """Return the normaliser for several languages; the module says what it does."""
    return normalizers.Sequence(
        [
            normalizers.NFKC(),
            *(normalizers.Replace(Regex(found), put) for found, put in _ARABIC.items()),
            normalizers.BertNormalizer(
                clean_text=True, handle_chinese_chars=True, strip_accents=False, lowercase=True
            ),
        ]
    )  # fmt: skip


def train_tokenizer(
    text: Path | Sequence[Path], out: Path, *, vocab: int, share: float = 1.0, max_length: int = 256,
    alphabet: int = ALPHABET, multilingual: bool = False, temperature: float = 1.0,
) -> Tokenizer:  # fmt: skip
    """Train a tokenizer, and save it so that ``AutoTokenizer`` loads the folder.

    Args:
        text: The folder of text, or several.
        out: The target folder.
        vocab: Size of the vocabulary.
        share: Share of the documents to train on.
        max_length: The encoder's number of positions.
        alphabet: Characters with entries of their own.
        multilingual: Whether to normalise for several languages, and to balance them by the temperature.
        temperature: See :mod:`experiments.pretraining.languages`.

    Returns:
        The tokenizer.
    """
    folders = [text] if isinstance(text, Path) else list(text)
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = (
        multilingual_normalizer()
        if multilingual
        else normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=True)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab, min_frequency=2, limit_alphabet=alphabet, special_tokens=list(SPECIAL), show_progress=False
    )
    chosen = _balanced(folders, share, temperature) if multilingual else chain(*(_sample(f, share) for f in folders))
    tokenizer.train_from_iterator(chosen, trainer=trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)],
    )
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(out / "tokenizer.json"), pretty=False)
    settings: dict[str, Any] = {
        # BertTokenizer replaces the file's normaliser by its own, which knows neither NFKC nor Arabic.
        **(
            {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": list(_INPUTS)}
            if multilingual
            else {
                "tokenizer_class": "BertTokenizer",
                "do_lower_case": True,
                "tokenize_chinese_chars": True,
                "strip_accents": None,
            }
        ),
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
