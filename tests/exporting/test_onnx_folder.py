"""An exported folder gives the encoder's embeddings to whoever follows its README, without torch and without selfguide."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, WordWeights

import selfguide
from exported import WITHOUT, readme_lines, run_readme
from selfguide.calibration.two_views import two_views
from selfguide.engine.vector_form import VectorForm
from toys import toy_sentences

pytestmark = pytest.mark.skipif(
    any(find_spec(name) is None for name in ("onnx", "onnxruntime", "onnxscript")), reason="the extra [onnx] is absent"
)

NINE = ("bert", "roberta", "distilbert", "electra", "albert", "mpnet", "xlm-roberta", "deberta-v2", "modernbert")
# Of many lengths, up to more than the encoder's 20 tokens.
TEXT = [" ".join(toy_sentences(90)[number : number + 1 + number % 5]) for number in range(40)] + ["a", "The OLD man!"]
LIMIT = 20


def calibrated(path: Path) -> SentenceTransformer:
    """Pooling, Dense with bias and Normalize, as whitening saves them; one layer is enough, and exported sooner than three."""
    model = selfguide.load_encoder(path, pooling="mean", max_length=LIMIT, device="cpu")
    inner = model[0].model
    inner.encoder.layer, inner.config.num_hidden_layers = inner.encoder.layer[:1], 1
    torch.manual_seed(3)
    dense = Dense(32, 20, bias=True, activation_function=torch.nn.Identity())
    return SentenceTransformer(modules=[*model, dense, Normalize()], device="cpu")


@pytest.fixture(scope="module")
def encoder(bert: Path) -> SentenceTransformer:
    return calibrated(bert)


@pytest.fixture(scope="module")
def folder(encoder: SentenceTransformer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("exported") / "tiny-onnx"
    made = selfguide.export(encoder, output, text=TEXT, fp16=True, int8=True, show_progress=False)
    assert made == output
    return output


def test_the_readme_gives_the_vectors(encoder: SentenceTransformer, folder: Path) -> None:
    assert "\n\n## Python" in (folder / "README.md").read_text()
    expected = encoder.encode(TEXT, show_progress_bar=False)
    np.testing.assert_allclose(run_readme(folder, TEXT), expected, atol=1e-5)
    for name, off in (("fp16", 0.01), ("quantized", 0.1)):
        found = run_readme(folder, TEXT, f"onnx/sentence_embedding_{name}.onnx")
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, atol=off)
        assert np.abs(found - expected).max() > 1e-6  # it is another graph


def test_nothing_of_this_machine_is_in_the_folder(folder: Path) -> None:
    """The graph would tell the paths of the source files, and so who exported it; its bytes would depend on them."""
    home = Path(selfguide.__file__).resolve().parents[1]
    for path in folder.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            for place in (str(home), str(Path(torch.__file__).parents[1]), "onnx_export.py", "modeling_bert"):
                assert place.encode() not in content, (path.name, place)


def test_token_states_are_those_of_the_last_layer(encoder: SentenceTransformer, folder: Path) -> None:
    import onnxruntime

    inputs = encoder.tokenizer(TEXT, padding=True, truncation=True, max_length=LIMIT, return_tensors="np")
    with torch.no_grad():
        tensors = {name: torch.from_numpy(inputs[name]) for name in ("input_ids", "attention_mask")}
        expected = encoder[0].model(**tensors).last_hidden_state.numpy()
    real = inputs["attention_mask"].astype(bool)
    for name, off in (("", 1e-5), ("_fp16", 0.02), ("_quantized", 0.3)):
        session = onnxruntime.InferenceSession(str(folder / "onnx" / f"model{name}.onnx"))
        assert [item.name for item in session.get_outputs()] == ["last_hidden_state"]
        (found,) = session.run(None, {item.name: inputs[item.name] for item in session.get_inputs()})
        np.testing.assert_allclose(found[real], expected[real], atol=off)


def test_the_example_ranks_with_it(folder: Path) -> None:
    """In a process without torch and selfguide: what it needs is numpy, onnxruntime and tokenizers."""
    code = f"{WITHOUT}sys.argv[1:] = {[str(folder), 'the old man', 'fresh bread', 'the old man']!r}\n"
    script = Path(__file__).parents[2] / "examples" / "run_exported.py"
    code += f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "1.00  the old man"
    assert done.stdout.splitlines()[1].endswith("  fresh bread")


def test_what_the_folder_holds(encoder: SentenceTransformer, folder: Path) -> None:
    from tokenizers import Tokenizer
    from transformers import AutoConfig, AutoTokenizer

    graphs = {
        f"{graph}{kind}.onnx" for graph in ("model", "sentence_embedding") for kind in ("", "_fp16", "_quantized")
    }
    assert {path.name for path in (folder / "onnx").iterdir()} == graphs
    assert not list(folder.glob("*.safetensors"))
    assert AutoConfig.from_pretrained(folder).model_type == "bert"
    long = " ".join(toy_sentences(30))
    ids = AutoTokenizer.from_pretrained(folder)(long, truncation=True)["input_ids"]
    assert len(ids) == LIMIT
    assert Tokenizer.from_file(str(folder / "tokenizer.json")).encode(long).ids == ids
    assert json.loads((folder / "config.json").read_text())["transformers.js_config"] == {"dtype": "q8"}
    assert json.loads((folder / "2_Dense" / "config.json").read_text())["out_features"] == 20
    record = json.loads((folder / "export.json").read_text())
    assert (record["dimension"], record["max_length"], record["encoder"]["name"]) == (20, LIMIT, "encoder")
    agreements = {name: about["agreement"] for name, about in record["files"].items()}
    assert set(agreements) == {name for name in graphs if name.startswith("sentence")}
    plain, small = agreements["sentence_embedding.onnx"], agreements["sentence_embedding_quantized.onnx"]
    assert plain["cosine_lowest"] > 0.999999
    assert plain["rank_agreement"] > 0.999999
    assert 0.9 < small["rank_agreement"] < plain["rank_agreement"]
    assert 0.9 < small["cosine_lowest"] < small["cosine_mean"] < 1
    half = (folder / "onnx" / "sentence_embedding_fp16.onnx").stat().st_size
    assert half < (folder / "onnx" / "sentence_embedding.onnx").stat().st_size


@pytest.mark.parametrize("precision", ["float32", "int8", "uint8", "binary", "ubinary"])
@pytest.mark.parametrize("normalise", [False, True])
def test_the_form_in_the_graph_is_that_of_encode(precision: str, normalise: bool) -> None:
    """As a module; that modules become graphs that give the same is tested above and below."""
    from selfguide.exporting.graphs import _FormModule

    draw = np.random.default_rng(0).normal(size=(50, 21)).astype(np.float32)
    form = VectorForm(normalise, 19, precision).calibrated(draw)
    expected = form.apply(draw)
    found = _FormModule(form)(torch.from_numpy(draw)).numpy()
    assert found.dtype == expected.dtype
    if precision == "float32":
        np.testing.assert_allclose(found, expected, atol=1e-6)
    else:
        assert found.shape == expected.shape
        assert (found != expected).mean() < 0.005  # rounding at the border of a step


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["int8", "ubinary"])
def test_vectors_of_other_types_come_out_of_the_graph(
    encoder: SentenceTransformer, tmp_path: Path, precision: str
) -> None:
    output = tmp_path / "small"
    selfguide.export(encoder, output, text=TEXT, dim=12, normalise=True, precision=precision, show_progress=False)
    ranges = json.loads((output / "export.json").read_text()).get("ranges")
    expected = selfguide.encode(
        encoder,
        TEXT,
        dim=12,
        normalise=True,
        precision=precision,
        ranges=None if ranges is None else np.array(ranges, dtype=np.float32),
    )
    found = run_readme(output, TEXT)
    assert found.dtype == expected.dtype
    assert (found != expected).mean() < 0.01


@pytest.mark.slow
@pytest.mark.parametrize("to", ["onnx", "openvino"])
@pytest.mark.parametrize("family", NINE)
def test_nine_families(tiny: Callable[[str], Path], tmp_path: Path, family: str, to: str) -> None:
    if to == "openvino":
        pytest.importorskip("openvino")
    model = selfguide.load_encoder(tiny(family), pooling="mean", device="cpu")
    output = tmp_path / family
    selfguide.export(model, output, to, text=TEXT, show_progress=False)
    np.testing.assert_allclose(run_readme(output, TEXT), model.encode(TEXT, show_progress_bar=False), atol=1e-4)


def fused(path: Path) -> SentenceTransformer:
    """The chain of the method fused: [CLS] of the last layer beside a weighted mean of another."""
    encoder = selfguide.load_encoder(path, pooling="cls", device="cpu")
    tokens = encoder.tokenizer.convert_ids_to_tokens(range(len(encoder.tokenizer)))
    words = WordWeights(tokens, {token: 1 / (2 + number) for number, token in enumerate(tokens)})
    return two_views(encoder, 1, words)


@pytest.mark.slow
@pytest.mark.parametrize("to", ["onnx", "openvino"])
def test_the_chain_of_fused(bert: Path, tmp_path: Path, to: str) -> None:
    model = fused(bert)
    selfguide.export(model, tmp_path / "fused", to, text=TEXT, show_progress=False)
    np.testing.assert_allclose(
        run_readme(tmp_path / "fused", TEXT), model.encode(TEXT, show_progress_bar=False), atol=1e-3
    )


@pytest.mark.slow
def test_token_types_are_an_input_where_the_tokenizer_gives_them(tmp_path: Path) -> None:
    """As the files on the hub have it: a BERT tokenizer's output can be passed on as it is. The other graph needs none."""
    import onnxruntime

    model = selfguide.load_encoder("mini", device="cpu")
    output = tmp_path / "mini"
    selfguide.export("mini", output, show_progress=False)
    names = {}
    for graph in ("model", "sentence_embedding"):
        session = onnxruntime.InferenceSession(str(output / "onnx" / f"{graph}.onnx"))
        names[graph] = [item.name for item in session.get_inputs()]
    assert names["model"] == ["input_ids", "attention_mask", "token_type_ids"]
    assert names["sentence_embedding"] == ["input_ids", "attention_mask"]
    sentences = ["It rains.", "The train is late.", "Größe, naïve café – 東京!", ""]
    np.testing.assert_allclose(run_readme(output, sentences), model.encode(sentences), atol=1e-4)


@pytest.mark.slow
def test_a_default_prompt_is_in_the_readme(bert: Path, tmp_path: Path) -> None:
    model = selfguide.load_encoder(bert, pooling="mean", device="cpu")
    model.prompts, model.default_prompt_name = {"query": "the old man "}, "query"
    selfguide.export(model, tmp_path / "prompted", text=TEXT, show_progress=False)
    lines = readme_lines(tmp_path / "prompted")
    assert '"the old man It rains."' in lines[3]
    found = run_readme(tmp_path / "prompted", ["the old man " + sentence for sentence in TEXT])
    np.testing.assert_allclose(found, model.encode(TEXT, show_progress_bar=False), atol=1e-4)
