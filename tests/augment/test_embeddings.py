"""Augmentations at the embedding layer: what they may touch, how often they do, and that the encoder really gets them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from selfguide.augment.chains import compose
from selfguide.augment.dropout import highest_dropout, set_dropout
from selfguide.augment.embeddings import (
    AUGMENTATIONS,
    DEFAULT_RATES,
    TokenBatch,
    embedding_dropout,
    feature_cutoff,
    frame_ids,
    parse_augmentation,
    shuffle,
    token_batch,
    token_cutoff,
)
from selfguide.augment.encoding import augmented, embed, embedding_layer, from_ids, stacked, twice
from selfguide.errors import SelfguideError, UsageError
from selfguide.models.encoders import backbone, load_encoder
from toys import FAMILIES, toy_sentences

CLS, PAD, SEP = 0, 1, 2
WIDTH = 10


def _batch(lengths: list[int], width: int = WIDTH) -> TokenBatch:
    """[CLS], as many different tokens as said, [SEP], padding."""
    longest = max(lengths) + 2
    ids = torch.full((len(lengths), longest), PAD)
    for row, length in enumerate(lengths):
        ids[row, : length + 2] = torch.tensor([CLS, *range(10, 10 + length), SEP])
    return token_batch(ids, (ids != PAD).long(), {CLS, PAD, SEP}, width)


LENGTHS = st.lists(st.integers(0, 9), min_size=1, max_size=5)
NAMES = st.lists(st.sampled_from(AUGMENTATIONS), min_size=1, max_size=3).map("+".join)


@settings(max_examples=60, deadline=None)
@given(LENGTHS, NAMES, st.integers(0, 1000))
def test_whatever_is_done_the_frame_and_the_padding_stay(lengths: list[int], words: str, seed: int) -> None:
    batch = _batch(lengths)
    torch.manual_seed(seed)
    done = parse_augmentation(words)(batch)
    assert done.input_ids.shape == batch.input_ids.shape
    assert done.factor.shape == batch.factor.shape
    assert torch.equal(done.attention_mask, batch.attention_mask)
    assert torch.equal(done.special, batch.special)
    assert torch.equal(done.input_ids[batch.special], batch.input_ids[batch.special])
    assert bool((done.factor[batch.attention_mask == 0] == 1).all())
    assert torch.equal(done.input_ids.sort(dim=1).values, batch.input_ids.sort(dim=1).values)  # no token lost or made
    assert set(done.factor.unique().tolist()) <= {0.0, 1.0}
    if "feature-cutoff" not in words and "dropout" not in words:
        assert bool((done.factor[batch.special] == 1).all())
    torch.manual_seed(seed)
    again = parse_augmentation(words)(batch)
    assert torch.equal(again.input_ids, done.input_ids)
    assert torch.equal(again.factor, done.factor)


@settings(max_examples=40, deadline=None)
@given(LENGTHS, st.sampled_from([0.0, 0.15, 0.2, 0.5, 0.9]), st.integers(0, 1000))
def test_cutoffs_cut_exactly_their_share(lengths: list[int], rate: float, seed: int) -> None:
    batch = _batch(lengths)
    torch.manual_seed(seed)
    tokens = token_cutoff(batch, rate).factor
    assert bool(((tokens == 0).all(-1) | (tokens == 1).all(-1)).all())  # a token is gone as a whole, or not at all
    expected = [int(rate * length + 1e-9) for length in lengths]
    assert (tokens[:, :, 0] == 0).sum(dim=1).tolist() == expected
    features = feature_cutoff(batch, rate).factor
    for row, length in enumerate(lengths):
        real = features[row, : length + 2]
        assert bool((real == real[0]).all())  # the same dimensions in all tokens of the sentence
        assert int((real[0] == 0).sum()) == int(rate * WIDTH + 1e-9)


def _frequencies(draw: Callable[[], Tensor], times: int = 2000) -> Tensor:
    torch.manual_seed(0)
    total = draw().double()
    for _ in range(times - 1):
        total += draw().double()
    return total / times


def test_every_token_dimension_and_place_is_hit_equally_often() -> None:
    batch = _batch([6])
    cut = _frequencies(lambda: 1 - token_cutoff(batch, 0.5).factor[0, 1:7, 0])
    assert float((cut - 0.5).abs().max()) < 0.05  # 4½ standard deviations
    cut = _frequencies(lambda: 1 - feature_cutoff(batch, 0.2).factor[0, 0])
    assert float((cut - 0.2).abs().max()) < 0.04
    cut = _frequencies(lambda: 1 - embedding_dropout(batch, 0.2).factor[0].mean(dim=1))
    assert float((cut - 0.2).abs().max()) < 0.02
    here = _frequencies(lambda: torch.nn.functional.one_hot(shuffle(batch).input_ids[0, 1:7] - 10, 6))
    assert float((here - 1 / 6).abs().max()) < 0.04


def test_sentences_of_a_batch_are_changed_independently() -> None:
    torch.manual_seed(0)
    batch = _batch([9] * 8, width=40)
    assert len({tuple(row) for row in shuffle(batch).input_ids.tolist()}) == 8
    assert len({tuple(row) for row in feature_cutoff(batch, 0.2).factor[:, 1].tolist()}) == 8


def test_a_cut_token_takes_its_cut_along_when_it_moves() -> None:
    torch.manual_seed(1)
    batch = _batch([8])
    cut = token_cutoff(batch, 0.5)
    gone = set(batch.input_ids[0][cut.factor[0, :, 0] == 0].tolist())
    moved = compose(shuffle)(cut)
    assert set(moved.input_ids[0][moved.factor[0, :, 0] == 0].tolist()) == gone
    assert not torch.equal(moved.input_ids, batch.input_ids)


def test_names_and_rates_are_checked() -> None:
    with pytest.raises(UsageError, match=r"no augmentation 'cutof'.*feature-cutoff"):
        parse_augmentation("shuffle+cutof")
    with pytest.raises(UsageError, match="rate of dropout"):
        parse_augmentation("dropout", {"dropout": 1.0})
    assert set(DEFAULT_RATES) < set(AUGMENTATIONS)


def test_shuffling_tokens_is_shuffling_positions(bert: Path) -> None:
    """ConSERT permutes position numbers; for vectors pooled over tokens, moving the tokens is the same."""
    encoder = load_encoder(bert, pooling="mean").eval()
    features = encoder.preprocess(toy_sentences(4))
    ids, mask = features["input_ids"], features["attention_mask"]
    torch.manual_seed(2)
    done = shuffle(token_batch(ids, mask, frame_ids(encoder.tokenizer), 32))
    assert not torch.equal(done.input_ids, ids)
    with torch.no_grad():
        moved = backbone(encoder)(input_ids=done.input_ids, attention_mask=mask).last_hidden_state
        positions = torch.zeros_like(ids)
        for row in range(len(ids)):
            places: dict[int, list[int]] = {}
            for place, token in enumerate(done.input_ids[row].tolist()):
                places.setdefault(token, []).append(place)
            positions[row] = torch.tensor([places[token].pop(0) for token in ids[row].tolist()])
        numbered = backbone(encoder)(input_ids=ids, attention_mask=mask, position_ids=positions).last_hidden_state
    real = mask.unsqueeze(-1)
    torch.testing.assert_close((moved * real).sum(1), (numbered * real).sum(1), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(moved[:, 0], numbered[:, 0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_encoder_gets_the_changed_embeddings(tiny: Callable[[str], Path], family: str) -> None:
    """In a batch of uneven lengths, packed where the family can: as each sentence by itself, with its own factor."""
    encoder = load_encoder(tiny(family), pooling="mean").eval()
    transformer, frame = backbone(encoder), frame_ids(encoder.tokenizer)
    sentences = ["the old man", "my sister repairs a broken clock", "a", "some music the long bridge green apples"]
    features = encoder.preprocess(sentences)
    done: list[TokenBatch] = []

    def remembered(batch: TokenBatch) -> TokenBatch:
        done.append(parse_augmentation("shuffle+token-cutoff+feature-cutoff")(batch))
        return done[-1]

    torch.manual_seed(4)
    with torch.no_grad():
        plain, changed = augmented(encoder, transformer, features, [lambda batch: batch, remembered], frame)
        torch.testing.assert_close(plain, encoder.encode(sentences, convert_to_tensor=True), rtol=1e-4, atol=1e-5)
        for row, length in enumerate(features["attention_mask"].sum(dim=1).tolist()):
            factor = done[0].factor[row : row + 1, :length]
            hook = embedding_layer(transformer).register_forward_hook(lambda m, i, o, factor=factor: o * factor)
            ids = done[0].input_ids[row : row + 1, :length]
            states = transformer(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
            hook.remove()
            torch.testing.assert_close(changed[row], states[0].mean(dim=0), rtol=1e-3, atol=1e-4)
    assert not torch.allclose(plain, changed, atol=1e-3)
    assert not embedding_layer(transformer)._forward_hooks  # nothing is left behind


def test_a_model_without_an_embedding_layer_is_refused() -> None:
    with pytest.raises(SelfguideError, match="Linear has no embedding layer"):
        embedding_layer(torch.nn.Linear(2, 2))


def test_batches_below_one_another(bert: Path) -> None:
    encoder = load_encoder(bert, pooling="cls").eval()
    short, long = encoder.preprocess(["the teacher"]), encoder.preprocess(["the teacher paints the blue car"])
    joined = stacked([short, long], padding=PAD)
    assert joined["input_ids"].shape == (2, 8)
    assert joined["attention_mask"].sum(dim=1).tolist() == [4, 8]
    made = from_ids([[0, 7, 2], [0, 8, 9, 10, 2]], joined, padding=PAD)
    assert made["input_ids"].tolist() == [[0, 7, 2, PAD, PAD], [0, 8, 9, 10, 2]]
    assert made["attention_mask"].tolist() == [[1, 1, 1, 0, 0], [1] * 5]
    assert set(made) == set(joined)
    with torch.no_grad():
        vectors = embed(encoder, backbone(encoder), twice(joined))["sentence_embedding"]
    torch.testing.assert_close(vectors[:2], vectors[2:])
    expected = encoder.encode(["the teacher", "the teacher paints the blue car"], convert_to_tensor=True)
    torch.testing.assert_close(vectors[:2], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_dropout_is_set_everywhere_and_the_configuration_keeps_its_own(
    tiny: Callable[[str], Path], family: str, tmp_path: Path
) -> None:
    encoder = load_encoder(tiny(family), pooling="mean")
    transformer = backbone(encoder)
    inputs = {name: encoder.preprocess(toy_sentences(4))[name] for name in ("input_ids", "attention_mask")}

    def differs() -> bool:
        transformer.train()
        with torch.no_grad():
            first, second = (transformer(**inputs).last_hidden_state for _ in range(2))
        return not torch.equal(first, second)

    own = transformer.config.to_dict()
    set_dropout(encoder, 0.3)
    assert highest_dropout(encoder) == 0.3
    assert differs()
    set_dropout(encoder, 0.0)
    assert highest_dropout(encoder) == 0.0
    assert not differs()
    set_dropout(encoder, -1.0)
    assert highest_dropout(encoder) == 0.0  # as it was
    assert transformer.config.to_dict() == own
    encoder.save(str(tmp_path / "saved"), create_model_card=False)
    again = load_encoder(tmp_path / "saved")
    assert highest_dropout(again) == highest_dropout(load_encoder(tiny(family)))
    with pytest.raises(UsageError, match="dropout must be at least 0 and below 1, or -1"):
        set_dropout(encoder, 1.0)
