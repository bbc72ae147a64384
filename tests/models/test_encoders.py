from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from selfguide.errors import SelfguideError, UsageError
from selfguide.models.encoders import (
    backbone,
    depth,
    freeze_layer_zero,
    layer_zero_parameters,
    load_encoder,
    transformer_of,
)
from selfguide.models.layers import hidden_states
from toys import FAMILIES, toy_sentences

SENTENCES = toy_sentences(5)


def _states(encoder: SentenceTransformer) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
    features = encoder.preprocess(SENTENCES)
    names = [name for name in encoder.tokenizer.model_input_names if name in features]
    encoder.eval()
    with torch.no_grad():
        return hidden_states(backbone(encoder), {name: features[name] for name in names}), features[
            "attention_mask"
        ].bool()


@pytest.mark.parametrize("family", FAMILIES)
def test_poolings_equal_a_naive_computation_and_survive_saving(
    tiny: Callable[[str], Path], family: str, tmp_path: Path
) -> None:
    states, mask = _states(load_encoder(tiny(family)))
    last = load_encoder(tiny(family), pooling="cls").encode(SENTENCES)  # ModernBERT norms its last layer's output again
    expected = {
        ("mean", 1): torch.stack([s[m].mean(0) for s, m in zip(states[1], mask, strict=True)]),
        ("max", 0): torch.stack([s[m].max(0).values for s, m in zip(states[0], mask, strict=True)]),
        ("cls", 2): states[2][:, 0],
        ("last2", None): torch.stack([s[m].mean(0) for s, m in zip((states[-2] + states[-1]) / 2, mask, strict=True)]),
        ("first-last", None): torch.stack(
            [s[m].mean(0) for s, m in zip((states[1] + states[-1]) / 2, mask, strict=True)]
        ),
    }
    assert last.shape == (5, 32)
    for (pooling, layer), vectors in expected.items():
        encoder = load_encoder(tiny(family), pooling=pooling, layer=layer)
        got = encoder.encode(SENTENCES)
        np.testing.assert_allclose(got, vectors.numpy(), atol=1e-5)
        folder = tmp_path / f"{pooling}-{layer}"
        encoder.save(str(folder))
        np.testing.assert_allclose(SentenceTransformer(str(folder)).encode(SENTENCES), got, atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_layer_zero_is_found_and_nothing_else(tiny: Callable[[str], Path], family: str) -> None:
    """Moving every other parameter leaves layer 0's output as it was; moving its own changes it."""
    encoder = load_encoder(tiny(family))
    zero = {id(parameter) for parameter in layer_zero_parameters(encoder)}
    before, _ = _states(encoder)
    with torch.no_grad():
        for parameter in backbone(encoder).parameters():
            if id(parameter) not in zero:
                parameter.add_(0.05 * torch.randn_like(parameter))
    after, _ = _states(encoder)
    assert torch.equal(before[0], after[0])
    assert not torch.equal(before[1], after[1])
    assert sum(parameter.numel() for parameter in layer_zero_parameters(encoder)) > 0
    with torch.no_grad():
        for parameter in layer_zero_parameters(encoder):
            parameter.add_(0.05 * torch.randn_like(parameter))
    assert not torch.equal(_states(encoder)[0][0], after[0])


def test_finding_layer_zero_leaves_training_flags_alone(bert: Path) -> None:
    encoder = load_encoder(bert)
    flags = [parameter.requires_grad for parameter in encoder.parameters()]
    layer_zero_parameters(encoder)
    assert [parameter.requires_grad for parameter in encoder.parameters()] == flags
    freeze_layer_zero(encoder)
    embeddings = backbone(encoder).embeddings
    assert not any(parameter.requires_grad for parameter in embeddings.parameters())
    assert all(parameter.requires_grad for parameter in backbone(encoder).encoder.parameters())


def test_a_sentence_transformers_folder_keeps_its_pooling_by_default(bert: Path, tmp_path: Path) -> None:
    load_encoder(bert, pooling="max").save(str(tmp_path / "max"))
    kept = load_encoder(tmp_path / "max").encode(SENTENCES)
    np.testing.assert_allclose(kept, load_encoder(bert, pooling="max").encode(SENTENCES), atol=1e-6)
    changed = load_encoder(tmp_path / "max", pooling="cls").encode(SENTENCES)
    np.testing.assert_allclose(changed, load_encoder(bert, pooling="cls").encode(SENTENCES), atol=1e-6)


def test_half_precision_folders_are_loaded_in_single(bert: Path, tmp_path: Path) -> None:
    load_encoder(bert).half().save(str(tmp_path / "half"))
    assert next(load_encoder(tmp_path / "half").parameters()).dtype == torch.float32


def test_depth_and_length(bert: Path) -> None:
    assert depth(load_encoder(bert)) == 3
    assert load_encoder(bert, max_length=10).max_seq_length == 10
    assert load_encoder(bert, max_length=1000).max_seq_length == 66  # no more than there are positions


def test_wrong_encoders_are_refused(bert: Path, tmp_path: Path) -> None:
    (tmp_path / "file.bin").write_bytes(b"x")
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{not json")
    for name, words in {
        "no-such-owner/no-such-model": "hub did not give it",
        str(tmp_path / "file.bin"): "is a file",
        str(tmp_path / "empty"): "holds no encoder",
        str(tmp_path / "broken"): "could not be loaded",
    }.items():
        with pytest.raises(SelfguideError, match=words) as caught:
            load_encoder(name)
        assert name in str(caught.value)
    with pytest.raises(UsageError, match=r"pooling must be one of .*, got 'median'"):
        load_encoder(bert, pooling="median")
    with pytest.raises(UsageError, match="no layer 9: this encoder has layers 0 to 3"):
        load_encoder(bert, layer=9)
    with pytest.raises(UsageError, match="has its own layers"):
        load_encoder(bert, pooling="last2", layer=1)
    with pytest.raises(UsageError, match="at least 3 tokens"):
        load_encoder(bert, max_length=2)


def test_an_encoder_without_layers_is_refused() -> None:
    from sentence_transformers.sentence_transformer.modules import BoW

    bag = SentenceTransformer(modules=[BoW(["a", "b"])])
    with pytest.raises(SelfguideError, match="starts with BoW, not with a Transformer"):
        transformer_of(bag)


def test_an_encoder_decoder_is_refused(tiny: Callable[[str], Path], tmp_path: Path) -> None:
    import shutil

    from transformers import BartConfig, BartModel

    folder = tmp_path / "bart"
    shutil.copytree(tiny("bert"), folder)
    (folder / "model.safetensors").unlink()
    config = BartConfig(
        vocab_size=80, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
        encoder_ffn_dim=16, decoder_ffn_dim=16, max_position_embeddings=64,
    )  # fmt: skip
    BartModel(config).save_pretrained(folder)
    with pytest.raises(SelfguideError, match="encoder-decoder"):
        load_encoder(folder, pooling="cls")


def test_loading_draws_missing_weights_from_a_fixed_seed_and_nothing_from_the_global_generator() -> None:
    poolers = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        poolers.append(backbone(load_encoder("mini", device="cpu")).pooler.dense.weight)
        assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(*poolers)


def test_the_device_auto_is_the_default_device(bert: Path) -> None:
    assert load_encoder(bert, device="auto").device == load_encoder(bert).device
    with pytest.raises(UsageError, match="There is no device 'tpu'"):
        load_encoder(bert, device="tpu")


def test_an_encoder_with_code_of_its_own_is_refused_in_a_sentence(bert: Path, tmp_path: Path) -> None:
    folder = tmp_path / "remote"
    shutil.copytree(bert, folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "their-model", "auto_map": {"AutoConfig": "code.Config", "AutoModel": "code.Model"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "code.py").write_text("raise RuntimeError('this must not run')")
    with pytest.raises(SelfguideError, match=r"needs code that comes with it.*pass the object in Python"):
        load_encoder(folder)
