"""Pre-training on several languages: the vocabulary's normaliser, parts by language, and shares by a temperature."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch
import transformers

from experiments.pretraining.__main__ import main
from experiments.pretraining.config import Settings
from experiments.pretraining.corpus import load_corpus, load_held_out
from experiments.pretraining.data import Batcher
from experiments.pretraining.languages import Drawer, language_of, shares
from experiments.pretraining.prepare import part_language, part_names, prepare
from experiments.pretraining.text import documents, sentences
from experiments.pretraining.tokenizer import load_tokenizer, multilingual_normalizer, train_tokenizer
from experiments.pretraining.train import RESULTS
from tongues import sentences as short_sentences

CPU = torch.device("cpu")
AMOUNTS = {"english": 180, "spanish": 60, "arabic": 30}
ENGLISH = [
    f"The {who} {does} the {what}."
    for who in ("cat", "dog", "king")
    for does in ("sees", "hears")
    for what in ("river", "bird")
]
SHAPE = "--layers 1 --width 32 --heads 2 --ffn 64 --positions 48 --tokens 768 --short-max 16 --long-max 32 --cls-rows 64".split()
QUICK = [*SHAPE, *"--no-compile --attention sdpa --log-every 5 --device cpu --warmup 5 --steps 20".split()]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents of three languages in unequal amounts, in files that say their language."""
    folder, draw = tmp_path_factory.mktemp("languages"), random.Random(1)
    lines = {"english": ENGLISH, "spanish": short_sentences("es"), "arabic": short_sentences("ar")}
    for language, count in AMOUNTS.items():
        made = ["\n".join(" ".join(draw.sample(lines[language], 4)) for _ in range(3)) for _ in range(count)]
        (folder / f"{language}-0.txt").write_text("\n\n".join(made) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def room(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tokenizer and the parts of that text."""
    root = tmp_path_factory.mktemp("multi")
    tokenizer, where = str(root / "tokenizer"), ["--text", str(text)]
    made = ["tokenizer", "--preset", "multi", *where, "--out", tokenizer, "--vocab", "400", "--positions", "48"]
    assert main(made) == 0
    parts = [
        "prepare",
        "--multilingual",
        *where,
        "--tokenizer",
        tokenizer,
        "--out",
        str(root / "parts"),
        "--parts",
        "1",
    ]
    assert main([*parts, "--held-out", "0.15"]) == 0
    return root


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("El AÑO pasó, ¿SÍ?", "el año pasó, ¿sí?"),  # accents tell words apart
        ("ma\u006e\u0303ana", "mañana"),  # one form, whatever wrote it
        ("مُحَمَّد", "محمد"),  # vowel marks
        ("كتـــاب", "كتاب"),  # the lengthening stroke
        ("أكل إلى الآن", "اكل الي الان"),  # forms of alef, and the final ى
        ("مدرسة", "مدرسة"),  # ه would be a pronoun
        ("عام ٢٠٢١ و ۱۹", "عام 2021 و 19"),
        ("ﻻ ﷲ", "لا الله"),  # presentation forms
        ("我买书", " 我  买  书 "),
    ],
)
def test_text_is_normalised_as_documented(given: str, expected: str) -> None:
    assert multilingual_normalizer().normalize_str(given) == expected


def test_plain_transformers_loads_the_same_normaliser(room: Path) -> None:
    stock = transformers.AutoTokenizer.from_pretrained(str(room / "tokenizer"))
    own = load_tokenizer(room / "tokenizer")
    marked, bare = "المُهَنْدِس باع الأغنية؟", "المهندس باع الاغنية؟"
    assert stock(marked)["input_ids"] == stock(bare)["input_ids"] == own.encode(bare).ids
    assert stock.unk_token_id not in stock(marked)["input_ids"]
    assert stock("la niña")["input_ids"] != stock("la nina")["input_ids"]
    assert set(stock("la niña")) == {"input_ids", "token_type_ids", "attention_mask"}


def test_sentences_of_spanish_and_arabic_are_split() -> None:
    assert sentences("Llegó el Sr. Vargas. ¿Qué hora es? «Ávila es fría.» Él calló.") == [
        "Llegó el Sr. Vargas.",
        "¿Qué hora es?",
        "«Ávila es fría.»",
        "Él calló.",
    ]
    assert sentences("ذهب إلى السوق. هل رأيت أخي؟ نعم!") == ["ذهب إلى السوق.", "هل رأيت أخي؟", "نعم!"]


def test_a_language_is_told_by_the_name_of_the_file() -> None:
    assert language_of(Path("x/spanish-0.txt.xz")) == "spanish"
    with pytest.raises(ValueError, match=r"notes\.txt does not say its language: a name like spanish-0"):
        language_of(Path("notes.txt"))


@pytest.mark.parametrize("temperature", [1.0, 2.0, 5.0])
def test_shares_follow_the_temperature(temperature: float) -> None:
    sizes = {"english": 800, "spanish": 100, "arabic": 100}
    found = shares(sizes, temperature)
    naive = {name: size ** (1 / temperature) for name, size in sizes.items()}
    assert found == pytest.approx({name: value / sum(naive.values()) for name, value in naive.items()})
    assert sum(found.values()) == pytest.approx(1)
    with pytest.raises(ValueError, match="at least 1"):
        shares(sizes, 0.5)


def test_positions_are_drawn_by_language_and_evenly_within_it() -> None:
    drawer = Drawer(torch.tensor([0, 10, 10, 40]), torch.tensor([0.25, 9.0, 0.75]))  # the second language is empty
    drawn = drawer.draw(40_000, torch.Generator().manual_seed(1))
    counts = torch.bincount(drawn, minlength=40)
    assert float(counts[:10].sum()) / 40_000 == pytest.approx(0.25, abs=0.01)
    assert counts[:10].min() > 850
    assert counts[10:].min() > 850
    assert counts.shape == (40,)


def test_parts_keep_languages_apart(room: Path, text: Path) -> None:
    names = part_names(room / "parts")
    assert [part_language(name) for name in names] == ["arabic", "english", "spanish"]
    corpus, sizes = load_corpus(room / "parts", CPU)
    own = load_tokenizer(room / "tokenizer")
    first = own.decode(corpus.tokens[: sizes["arabic"]].tolist())
    assert "الطفلة" in first
    assert "the" not in first.split()
    assert sum(sizes.values()) == len(corpus.tokens)
    assert list(load_held_out(room / "parts", CPU)) == ["arabic", "english", "spanish"]


def test_a_vocabulary_that_training_cannot_hold_is_refused(text: Path, tmp_path: Path) -> None:
    train_tokenizer(text, tmp_path, vocab=400)
    (tmp_path / "tokenizer.json").write_text(_padded(tmp_path / "tokenizer.json"), encoding="utf-8")
    with pytest.raises(ValueError, match="does not fit into signed 16-bit"):
        prepare(text, tmp_path, tmp_path / "parts")


def _padded(path: Path) -> str:
    made = json.loads(path.read_text(encoding="utf-8"))
    known = made["model"]["vocab"]
    made["model"]["vocab"] = known | {f"more{number}": number for number in range(len(known), 40_000)}
    return json.dumps(made)


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_each_language_gets_its_share_of_the_tokens_of_a_step(room: Path, temperature: float) -> None:
    corpus, sizes = load_corpus(room / "parts", CPU)
    settings = Settings(tokens=4096, short_max=16, long_max=32, temperature=temperature)
    batcher = Batcher(corpus, settings, vocab=400, positions=48, seed=1, sizes=sizes)
    ends = torch.tensor([*sizes.values()]).cumsum(0)
    counts = torch.zeros(3)
    for _ in range(30):
        for spans in (batcher.draw_short(batcher.shorts), batcher.draw_long(batcher.longs)):
            counts += torch.bincount(
                torch.searchsorted(ends, spans.start, right=True), weights=(spans.length + 2).float(), minlength=3
            )
    wanted = shares(sizes, temperature)
    assert (counts / counts.sum()).tolist() == pytest.approx([*wanted.values()], abs=0.02)


def test_documents_are_drawn_by_share_whatever_file_they_are_in(text: Path) -> None:
    every = [*documents(text)]
    some = [*documents(text, 0.4)]
    assert 0.25 < len(some) / len(every) < 0.55
    assert all(document in every for document in some)
    assert [*documents(text / "english-0.txt", 1.0)] == [d for d in every if d[0].startswith("The")]


def test_the_preset_trains_in_stretches_that_continue_and_records_every_language(room: Path, tmp_path: Path) -> None:
    where = ["--data", str(room / "parts"), "--tokenizer", str(room / "tokenizer"), "--out", str(tmp_path)]
    command = ["train", "--preset", "multi", *where, *QUICK]
    assert main([*command, "--stretch", "0.00001"]) == 0
    assert main([*command, "--stretch", "0"]) == 0
    rows = [json.loads(line) for line in (tmp_path / RESULTS).read_text(encoding="utf-8").splitlines()]
    starts = [row for row in rows if row["kind"] == "start"]
    ends = [row for row in rows if row["kind"] == "end"]
    assert [row["step"] for row in starts] == [0, 0]
    assert [(row["step"], row["stopped"]) for row in ends] == [(0, True), (20, False)]
    assert {name: starts[0]["settings"][name] for name in ("temperature", "cls_own", "dropout", "size_limit")} == {
        "temperature": 2.0,
        "cls_own": 0.3,
        "dropout": 0.1,
        "size_limit": 0,
    }
    held_out = next(row for row in reversed(rows) if row["kind"] == "held-out")
    assert {"loss_32_arabic", "loss_32_english", "loss_32_spanish"} <= set(held_out)
    assert starts[0]["language_shares"]["english"] < AMOUNTS["english"] / sum(AMOUNTS.values())
    made = transformers.AutoTokenizer.from_pretrained(str(tmp_path / "encoder"))
    assert made.tokenize("El AÑO") == made.tokenize("el año")
