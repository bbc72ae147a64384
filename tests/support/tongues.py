"""Short sentences in many languages, and a tiny random BERT that knows their words."""

from __future__ import annotations

from itertools import product
from pathlib import Path

# Subjects, verbs, objects, and how the three are joined; Chinese and Japanese have no spaces between words.
_PARTS: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], str]] = {
    "es": (
        ("la niña pequeña", "mi hermano", "el viejo ingeniero", "una cocinera", "¿quién"),
        ("pintó", "vendió", "olvidó", "reparó"),
        ("el año pasado", "un reloj roto", "la canción", "su corazón", "pan fresco"),
        "{} {} {}.",
    ),
    "ar": (
        ("الطفلة الصغيرة", "أخي", "المُهندِس القديم", "الطبّاخة", "جارنا"),
        ("رسمت", "باع", "نسي", "أصلح"),
        ("الساعة المكسورة", "السيّارة الزرقاء", "الأغنية", "رسالته الأولى", "خبزًا طازجًا"),
        "{} {} {}؟",
    ),
    "zh": (
        ("小女孩", "我的哥哥", "老工程师", "年轻的厨师", "邻居"),
        ("画了", "卖了", "忘了", "修好了"),
        ("坏掉的钟", "蓝色的汽车", "那首歌", "第一封信", "新鲜的面包"),
        "{}{}{}。",
    ),
    "ja": (
        ("小さな女の子は", "兄は", "老技師は", "若い料理人は", "ガラス職人は"),
        ("こわれた時計を", "青い車を", "その歌を", "最初の手紙を", "焼きたてのパンを"),
        ("売った", "忘れた", "直した", "描いた"),
        "{}{}{}。",
    ),
    "ko": (
        ("작은 소녀가", "우리 형이", "늙은 기술자가", "젊은 요리사가", "이웃이"),
        ("고장 난 시계를", "파란 차를", "그 노래를", "첫 편지를", "신선한 빵을"),
        ("팔았다", "잊었다", "고쳤다", "그렸다"),
        "{} {} {}.",
    ),
    "de": (
        ("das kleine Mädchen", "mein Bruder", "der alte Ingenieur", "eine junge Köchin", "die Straßenbahn"),
        ("malte", "verkaufte", "vergaß", "fährt über"),
        ("die kaputte Uhr", "das blaue Auto", "den größten Brief", "frisches Brot", "die Brücke"),
        "{} {} {}.",
    ),
}
CODES = tuple(_PARTS)
MIXED = (
    "The word كتاب means book, and 本 does too.",
    "قرأتُ كتاب Harry Potter في Londres سنة ٢٠٢١",
    "我买了一台 MacBook Pro，很贵。",
    "El «niño» dijo مرحبا and left at 10:30.",
    "Grüße aus 東京 — déjà vu, año 2024!",
    "👩‍👩‍👧 naïve café (قهوة) 커피 コーヒー",
    "שלום עולם, hello world",
    "नमस्ते दुनिया, यह एक वाक्य है",
    "สวัสดีชาวโลก นี่คือประโยคยาว",
)


def sentences(code: str, count: int = 100) -> list[str]:
    """Return distinct sentences of a language, the same ones every time; ``mixed`` has the languages beside one another."""
    if code == "mixed":
        rows = [sentence for group in zip(*(sentences(each) for each in CODES), strict=True) for sentence in group]
        return [*MIXED, *rows][:count]
    *parts, form = _PARTS[code]
    return [form.format(*words) for words in product(*parts)][:count]


def save_polyglot(folder: Path, size: int = 32) -> Path:
    """Write a tiny random BERT with a lower-cased vocabulary of all the languages, accents kept; its BERT pieces are random."""
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(strip_accents=False, lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=1200, special_tokens=special, show_progress=False)
    everything = [sentence for code in (*CODES, "mixed") for sentence in sentences(code)]
    tokenizer.train_from_iterator([*everything, "hello world"], trainer=trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), special, strict=True))
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=64,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **names,
    ).save_pretrained(folder)
    torch.manual_seed(7)
    shape = {"hidden_size": size, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    BertModel(
        BertConfig(vocab_size=tokenizer.get_vocab_size(), max_position_embeddings=66, **shape), add_pooling_layer=False
    ).save_pretrained(folder)
    return folder
