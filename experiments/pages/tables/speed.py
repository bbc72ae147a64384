"""Tables of speed and memory."""

from __future__ import annotations

from collections.abc import Callable

from experiments.pages.figures import figure
from experiments.pages.sources import lookup
from experiments.pages.tables.markdown import bold, table

TEXTS = {"short": "short (STS-B)", "mixed": "mixed (Wikipedia)", "long": "long (paragraphs)"}
PEER, PEER_BEST = "SentenceTransformer", "SentenceTransformer, best batch"
LOOP, OURS, CACHED = "plain loop", "selfguide", "selfguide, views kept"
STEPS = {
    "`SentenceTransformer.encode`": "SentenceTransformer",
    "+ batches by tokens": "+ batches by tokens",
    "+ no padding": "+ no padding",
    "+ one batch per core": "+ a batch a core",
}
PARTS = {
    "packing": "without packing",
    "the last layer for [CLS] alone": "without the last layer for [CLS] alone",
    "the stay-close term in the cache": "without the stay-close term in the cache",
    "tokenisation ahead": "without tokens made ahead",
    "the fused optimiser": "without the fused optimiser",
    "(with cached views in addition)": "with the views kept",
}
_MEGA = 1_000_000


def encoding_cpu() -> str:
    """Encoding on two cores: ratios to the peer as it comes and at its best batch."""
    rows = []
    for encoder in ("mini", "bert-base", "all-MiniLM-L6-v2"):
        for text, title in TEXTS.items():
            path = f"cpu:speed/{encoder}/{text}"
            rows.append(
                [
                    (f"`{encoder}`" if encoder == "mini" else encoder) if text == "short" else "",
                    title,
                    figure(f"{path}/sentences", 0),
                    figure(f"{path}/tokens_a_sentence", 1),
                    figure(f"{path}/ratio/'{PEER_BEST}'"),
                    *(_two(path, name) for name in ("torch", "onnx", "int8")),
                ]
            )
    return table(
        "encoder | text | sentences timed | tokens a sentence | its own best batch | selfguide, fp32 | onnx, fp32 | int8",
        rows,
    )


def _two(path: str, name: str) -> str:
    return f"{figure(f'{path}/ratio/{name}')} ({figure(f'{path}/ratio_to_best/{name}')})"


def encoding_steps() -> str:
    """What each step of encoding contributes."""
    rows = [
        [label, *(figure(f"cpu:steps/{text}/'{key}'") for text in ("short", "mixed"))] for label, key in STEPS.items()
    ]
    return table(" | short | mixed", rows)


def encoding_cuda() -> str:
    """Encoding on a GPU."""
    rows = []
    for text in ("short", "mixed"):
        path = f"cuda:speed/bert-base/{text}"
        rows.append(
            [
                TEXTS[text],
                figure(f"{path}/sentences / {path}/seconds/{PEER}", 0),
                figure(f"{path}/ratio/'{PEER_BEST}'"),
                figure(f"{path}/best_batch", 0),
                *(_two(path, name) for name in ("torch", "bf16")),
            ]
        )
    return table(
        "text | sentences/s of `SentenceTransformer.encode` | its own best batch | of sentences | selfguide, fp32 | "
        "selfguide, bf16",
        rows,
    )


def encoding_growth() -> str:
    """Time and memory by number of sentences."""
    rows = []
    for size in ("1000", "10000", "100000", "1000000"):
        ours, peer = f"cpu:growth/selfguide/{size}", f"cpu:growth/SentenceTransformer/{size}"
        seconds, memory = figure(f"{ours}/seconds", 1), figure(f"{ours}/megabytes", 0)
        if size in lookup("cpu:growth/SentenceTransformer"):
            seconds += f" (`SentenceTransformer.encode`: {figure(f'{peer}/seconds', 1)})"
            memory += f" ({figure(f'{peer}/megabytes', 0)})"
        rows.append([f"{int(size):,}", seconds, memory])
    return table("sentences | seconds | peak memory, MB", rows)


def training_cpu() -> str:
    """A step of SG-OPT on two cores."""
    names = {
        "plain loop": LOOP,
        "selfguide": OURS,
        "selfguide, cached views": CACHED,
        "SimCSE in sentence-transformers": "SimCSE, sentence-transformers",
    }
    rows = []
    for encoder in ("mini", "bert-base"):
        for size in (16, 64):
            for label, name in names.items():
                path = f"steps:{encoder}/{size}"
                title = f"{'`mini`' if encoder == 'mini' else encoder}, {size}" if name == LOOP else ""
                rows.append(
                    [
                        title,
                        label,
                        figure(f"{path}/seconds_a_step/'{name}' * 1000", 0),
                        figure(f"{path}/ratios_to_the_plain_loop/'{name}'"),
                        figure(f"{path}/peak_memory_bytes/'{name}' / {_MEGA}", 0),
                    ]
                )
    return table("encoder, batch | | ms a step | ratio to the plain loop | peak memory, MB", rows)


def training_parts() -> str:
    """A step of SG-OPT without one part."""
    rows = [
        [label, *(figure(f"parts:{encoder}/ratios/'{key}'") for encoder in ("mini", "bert-base"))]
        for label, key in PARTS.items()
    ]
    return table("without | `mini` | bert-base", rows)


def training_batches() -> str:
    """Time and memory of a step by batch."""
    rows = []
    for found in lookup("growth:batches"):
        cache = str(found["gradient_cache"]) if found["gradient_cache"] else "–"
        rows.append(
            [str(found["batch"]), cache, f"{found['seconds']:.2f}", f"{found['peak_memory_bytes'] / _MEGA:,.0f}"]
        )
    return table("batch | gradient cache | seconds a step | peak memory, MB", rows)


def training_layers() -> str:
    """Time of a step by depth."""
    rows = []
    for found in lookup("growth:layers"):
        times = [f"{found['seconds_a_step'][name] * 1000:,.0f}" for name in (LOOP, OURS)]
        rows.append([str(found["layers"]), *times, f"{found['ratio']:.2f}"])
    return table("layers (`mini`'s shape, batch 16) | plain loop, ms a step | selfguide | ratio", rows)


def training_gpu() -> str:
    """A step of SG-OPT on a GPU."""
    rows = []
    for encoder, size in (("bert-base", 16), ("bert-base", 64), ("mini", 16), ("mini", 64)):
        path = f"gpu:settings/{encoder}/{size}"
        rows.append(
            [
                f"{'`mini`' if encoder == 'mini' else encoder}, {size}",
                figure(f"{path}/seconds_a_step/'{LOOP}' * 1000", 1),
                figure(f"{path}/seconds_a_step/{OURS} * 1000", 1),
                figure(f"{path}/ratios_to_the_plain_loop/{OURS}", 1),
                figure(f"{path}/seconds_a_step/'{CACHED}' * 1000", 1),
                figure(f"{path}/ratios_to_the_plain_loop/'{CACHED}'", 1),
                figure(f"{size} / {path}/seconds_a_step/{OURS}", 0),
                figure(f"{path}/share_of_the_chip/{OURS} * 100", 1) + " %",
            ]
        )
    return table(
        "encoder, batch | plain loop, ms a step | selfguide | ratio | selfguide, cached views | ratio | "
        "sentences/s | share of the chip",
        rows,
    )


def headlines() -> str:
    """The ratios in short; of encoding, beside the peer's best batch first."""

    def step(encoder: str, size: int, name: str = OURS) -> str:
        return figure(f"steps:{encoder}/{size}/ratios_to_the_plain_loop/'{name}'")

    def gpu(encoder: str, size: int, name: str = OURS) -> str:
        return figure(f"gpu:settings/{encoder}/{size}/ratios_to_the_plain_loop/'{name}'", 1)

    def gpu_ms(size: int) -> str:
        return figure(f"gpu:settings/bert-base/{size}/seconds_a_step/{OURS} * 1000", 1)

    def encode(source: str, encoder: str, name: str, against: str, decimals: int = 2) -> str:
        return " / ".join(
            figure(f"{source}:speed/{encoder}/{text}/{against}/{name}", decimals) for text in ("short", "mixed")
        )

    best, default = "ratio_to_best", "ratio"
    rows = [
        [
            "training SG-OPT, to the plain padded loop, batch 16: `mini` / BERT-base shape",
            f"{step('mini', 16)} / {step('bert-base', 16)}",
            f"{gpu('mini', 16)} / {gpu('bert-base', 16)} ({gpu_ms(16)} ms a step)",
        ],
        [
            "the same, batch 64",
            f"{step('mini', 64)} / {step('bert-base', 64)}",
            f"{gpu('mini', 64)} / {gpu('bert-base', 64)} ({gpu_ms(64)} ms a step)",
        ],
        [
            "a second run on the same text (cached views), BERT-base shape, batch 16",
            step("bert-base", 16, CACHED),
            gpu("bert-base", 16, CACHED),
        ],
        [
            "encoding, to `SentenceTransformer.encode` **at its best batch**: `mini`, short / mixed text",
            encode("cpu", "mini", "torch", best),
            "",
        ],
        ["the same in int8", encode("cpu", "mini", "int8", best), ""],
        ["encoding in bf16, to its best batch, BERT-base shape", "", encode("cuda", "bert-base", "bf16", best, 1)],
        ["encoding, to its default batch of 32: `mini`", encode("cpu", "mini", "torch", default), ""],
        ["the same in int8", encode("cpu", "mini", "int8", default), ""],
        ["the same in bf16, BERT-base shape", "", encode("cuda", "bert-base", "bf16", default, 1)],
        ["peak memory of encoding a million sentences, to a hundred thousand's", figure("cpu:growth/memory_ratio"), ""],
    ]
    rows[3] = [rows[3][0], bold(rows[3][1]), ""]
    return table("ratio to | two CPU cores | one H200", rows)


TABLES: dict[str, Callable[[], str]] = {
    "encoding-cpu": encoding_cpu,
    "encoding-steps": encoding_steps,
    "encoding-cuda": encoding_cuda,
    "encoding-growth": encoding_growth,
    "training-cpu": training_cpu,
    "training-parts": training_parts,
    "training-batches": training_batches,
    "training-layers": training_layers,
    "training-gpu": training_gpu,
    "headlines": headlines,
}
