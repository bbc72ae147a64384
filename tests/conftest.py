"""Tiny random encoders, made on the fly: every test runs offline and in seconds."""

from __future__ import annotations

import atexit
import io
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Tiny models gain nothing from threads, and two workers of two threads each would fight over two cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Nothing that a test keeps may be found by the next run, or by the user's own runs.
os.environ["SELFGUIDE_CACHE"] = tempfile.mkdtemp(prefix="selfguide-tests-")

import pytest

atexit.register(shutil.rmtree, os.environ["SELFGUIDE_CACHE"], ignore_errors=True)

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


def toy_sentences(count: int) -> list[str]:
    """Distinct short sentences, the same ones every time."""
    everything = [f"{s} {v} {o}" for o in OBJECTS for v in VERBS for s in SUBJECTS]
    return everything[:count]


def _config(family: str, vocabulary: int) -> Any:
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


def _tokenizer(folder: Path) -> int:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = sorted({word for text in toy_sentences(512) for word in text.split()} | set("abcdefghijklmnopqrstuvwxyz"))
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


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A folder with a tiny random encoder of the given family, as `save_pretrained` writes it."""
    made: dict[str, Path] = {}

    def build(family: str = "bert") -> Path:
        if family not in made:
            import torch
            from transformers import AutoModel

            folder = tmp_path_factory.mktemp("encoders") / family
            vocabulary = _tokenizer(folder)
            torch.manual_seed(7)
            AutoModel.from_config(_config(family, vocabulary)).save_pretrained(folder)
            made[family] = folder
        return made[family]

    return build


@pytest.fixture(scope="session")
def bert(tiny: Callable[[str], Path]) -> Path:
    return tiny("bert")


@pytest.fixture
def text_file(tmp_path: Path) -> Path:
    path = tmp_path / "notes.txt"
    path.write_text("\n".join(toy_sentences(120)) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def dev_file(tmp_path: Path) -> Path:
    """Graded pairs: grades fall with the number of differing words."""
    sentences = toy_sentences(200)
    rows = []
    for number in range(40):
        first, second = sentences[number], sentences[(number * 7 + 3) % 200]
        shared = len(set(first.split()) & set(second.split()))
        rows.append(f"{min(5, shared)}\t{first}\t{second}")
    path = tmp_path / "dev.tsv"
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


class Outcome(NamedTuple):
    """What a command left on the terminal."""

    code: int
    out: str
    err: str


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Outcome]]:
    """Run ``selfguide WORDS``, in this process: a new one would spend seconds importing torch."""
    import torch

    from selfguide.cli.main import run

    # Encoders this small are slower with two threads than with one, and far slower where the cores are shared.
    # It has to be put back: other tests compare weights with those of other processes, and threads change the last bit.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)

    def call(*words: str | Path, stdin: str | bytes = b"") -> Outcome:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        monkeypatch.setattr(sys, "argv", ["selfguide", *map(str, words)])
        capfd.readouterr()
        code: Any = 0
        try:
            run()
        except SystemExit as end:
            code = end.code or 0
        return Outcome(code, *capfd.readouterr())

    yield call
    torch.set_num_threads(threads)


@pytest.fixture
def put(tmp_path: Path) -> Callable[..., Path]:
    """Write a file into a fresh folder, compressed if its name says so."""

    def write(name: str, data: str | bytes) -> Path:
        from reading import COMPRESS

        path = tmp_path / name
        raw = data.encode() if isinstance(data, str) else data
        path.write_bytes(COMPRESS.get(path.suffix, bytes)(raw))
        return path

    return write
