"""``selfguide study frequent-tokens``: what is left out, what the mean of the rest is, and what comes of it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import selfguide
from selfguide.errors import SelfguideError, UsageError
from selfguide.evaluation.data import own_pairs
from selfguide.evaluation.embedder import embedder
from selfguide.evaluation.protocol import Protocol
from selfguide.evaluation.sts import score_pairs
from selfguide.models.encoders import load_encoder
from selfguide.studies.files import write_figures
from selfguide.studies.frequent_tokens import frequency_ranks, thinned_means
from toys import toy_sentences

SENTENCES = ["the old man repairs the old clock", "my sister paints the car", "the car"]


def test_ranks_follow_the_counts_and_the_frame_of_a_sentence_goes_first(bert: Path) -> None:
    """[CLS] and [SEP] are in every sentence, so they are the two most frequent tokens, as in the paper."""
    encoder = load_encoder(bert)
    sentences = [*SENTENCES, "my sister paints my sister", "an old dog"]
    ranks, tokens, shares = frequency_ranks(encoder, sentences, (0, 2, 3))
    vocabulary = encoder.tokenizer.get_vocab()
    assert set(tokens[:2]) == {"[CLS]", "[SEP]"}
    assert tokens[2] == "the"
    assert ranks[vocabulary["the"]] == 2
    total = sum(len(ids) for ids in encoder.tokenizer(sentences)["input_ids"])
    assert shares == pytest.approx([0, 10 / total, 14 / total])


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("removed", [0, 1, 3, 500])
def test_thinned_means_are_those_of_a_plain_loop(bert: Path, removed: int, layers: int) -> None:
    encoder = load_encoder(bert)
    ranks, _, _ = frequency_ranks(encoder, SENTENCES, (removed,))
    found = thinned_means(encoder, SENTENCES, ranks, (removed,), batch_size=2, layers=layers)[0]
    for sentence, vector in zip(SENTENCES, found, strict=True):
        ids = encoder.tokenizer(sentence, return_tensors="pt")
        with torch.no_grad():
            hidden = encoder[0].model(**ids, output_hidden_states=True).hidden_states
        states = torch.stack(hidden[-layers:]).mean(dim=0)[0]
        kept = [place for place, token in enumerate(ids["input_ids"][0].tolist()) if ranks[token] >= removed]
        kept = kept or list(range(len(states)))  # nothing would be left
        np.testing.assert_allclose(vector, states[kept].mean(dim=0).numpy(), atol=1e-5)


def study(bert: Path, text: Path, pairs: Path, failed: int = 0, **more: Any) -> dict[str, Any]:
    quick = ("max_steps=2", "batch_size=4", "removed=0,1,2", "methods=consert")
    given: dict[str, Any] = {"encoder": bert, "text": text, "limit": 30, "pairs": pairs, "dev": "", "jobs": 1}
    found = selfguide.study("frequent-tokens", settings=quick, **given | more)
    assert len(found.failed) == failed
    return found.results


def broken(address: str) -> Any:
    raise SelfguideError("no luck.")


def test_the_study_tells_scores_and_cosines_before_and_after(
    bert: Path, text_file: Path, dev_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "study"
    results = study(bert, text_file, dev_file, output=folder, seeds=2)
    rows = results["tables"][0]["rows"]
    assert [row["removed"] for row in rows] == [0, 1, 2]
    # Leaving nothing out is the plain mean of the last two layers, as ConSERT evaluates.
    mean = score_pairs(own_pairs(dev_file), embedder(bert, pooling="last2"), Protocol(bootstrap=0)).value
    assert rows[0]["score untuned"]["mean"] == pytest.approx(mean, abs=0.01)
    assert set(rows[0]["score consert"]["by_seed"]) == {"1", "2"}
    scores, cosines = results["figures"]
    for figure, name in ((scores, "score"), (cosines, "cosine")):
        for series in figure["series"]:
            assert [value for _, value in series["points"]] == [row[f"{name} {series['name']}"] for row in rows]
    measured = results["measurements"]["untuned"]["result"]
    assert [row["score untuned"]["mean"] for row in rows] == measured["scores"]
    assert [row["share"] for row in results["tables"][1]["rows"]] == [100 * share for share in measured["shares"]]
    assert len(write_figures(results, folder)) == 4

    monkeypatch.setattr("selfguide.studies.measuring.measure", lambda job: pytest.fail("measured again"))
    assert study(bert, text_file, dev_file, output=folder, seeds=2)["tables"] == results["tables"]

    # Without the untuned encoder's numbers the tuned ones' stand; without any there is nothing to draw.
    (folder / "measurements" / "untuned.json").unlink()
    monkeypatch.undo()
    monkeypatch.setattr("selfguide.studies.measuring.function_of", broken)
    partial = study(bert, text_file, dev_file, failed=1, output=folder, seeds=2)
    assert [row["score untuned"] for row in partial["tables"][0]["rows"]] == [None] * 3
    assert [row["score consert"] for row in partial["tables"][0]["rows"]] == [row["score consert"] for row in rows]
    shutil.rmtree(folder / "measurements")
    assert study(bert, text_file, dev_file, failed=3, output=folder, seeds=2)["figures"] == []


def test_the_encoder_still_reads_what_the_mean_leaves_out(bert: Path) -> None:
    encoder = load_encoder(bert)
    ranks, _, _ = frequency_ranks(encoder, SENTENCES, (3,))
    with_it, without = toy_sentences(1)[0], toy_sentences(1)[0].removeprefix("the ")
    first, second = (thinned_means(encoder, [text], ranks, (3,), 8)[0, 0] for text in (with_it, without))
    assert not np.allclose(first, second)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("methods=whitening", "whitening tunes nothing"),
        ("removed=-1", "from 0 on, not -1"),
        ("layers=0", "from 1 on, not 0"),
    ],
)
def test_what_makes_no_sense_is_refused(setting: str, words: str, bert: Path) -> None:
    with pytest.raises(UsageError, match=words):
        selfguide.study("frequent-tokens", encoder=bert, settings=(setting,))
