"""The embedded data and the embedded encoder keep their promises."""

from __future__ import annotations

from collections import Counter

import selfguide
from selfguide.data.resources import demo_file, demo_pairs, demo_sentences


def test_the_sentences_are_many_different_and_of_sentence_length() -> None:
    sentences = demo_sentences()
    assert len(sentences) >= 3000
    assert len({sentence.lower() for sentence in sentences}) == len(sentences)
    assert all(5 <= len(sentence.split()) <= 40 for sentence in sentences)
    openings = Counter(sentence.split()[0].lower() for sentence in sentences)
    assert openings.most_common(1)[0][1] < 0.2 * len(sentences)


def test_the_pairs_are_spread_evenly_and_split_cleanly() -> None:
    dev, test = demo_pairs("dev"), demo_pairs("test")
    assert len(dev.scores) + len(test.scores) >= 600
    for split, pairs in (("dev", dev), ("test", test)):
        counts = Counter(pairs.scores)
        assert set(counts) == {step / 2 for step in range(11)}
        assert len(set(counts.values())) == 1
        kinds = demo_file(f"kinds-{split}.txt").read_text().split()
        assert len(kinds) == len(pairs.scores)
    assert not {*dev.first, *dev.second} & {*test.first, *test.second}


def test_the_embedded_encoder_loads_in_single_precision_and_tells_meanings_apart() -> None:
    encoder = selfguide.load_encoder("mini", pooling="mean")
    assert str(next(encoder.parameters()).dtype) == "torch.float32"
    assert encoder.get_embedding_dimension() == 384
    vectors = encoder.encode(["A cat sleeps on the sofa.", "A kitten naps on the couch.", "Interest rates rose again."])
    similarity = encoder.similarity(vectors, vectors)
    assert similarity[0, 1] > similarity[0, 2]
